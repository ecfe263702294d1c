"""``dxpu box simulate``: a box with GPUs in software, on an interface or at a UNIX socket."""

import argparse
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dxpu_cli.main import require
from dxpu_cli.options import NO_KEYS, add_seed, file_to_write, given_seed, whole_number
from dxpu_cli.output import OutputFolder
from dxpu_cli.progress import Progress
from dxpu_host import EthernetPort, PortError
from dxpu_tools.errors import Failed, UserError

__all__ = ["add_arguments", "run"]

#: Node of the box, and of the host to which its slots are bound.
BOX, HOST = 0x101, 1
#: Bytes of a GPU's memory.
VRAM = 16 << 20
#: How much slower than a box in hardware a host must take it to be.
SLOWER = 20
#: Room needed by a run.
ROOM = 32 << 20


def add_arguments(jobs: Any) -> None:
    """The job, with its options, among those of `dxpu box`."""
    job = jobs.add_parser("simulate", help="run a simulated box with GPUs, for a host in software "
                          "on this machine, until Ctrl-C")
    where = job.add_mutually_exclusive_group(required=True)
    where.add_argument("--iface", metavar="NAME", help="Ethernet interface of the box")
    where.add_argument("--socket", metavar="PATH", help="UNIX socket of the box, which needs no "
                       "rights on the network; made, and removed at the end")
    job.add_argument("--peer", metavar="NAME", help="make the interface first: a pair of veth, "
                     "with that name at the host's end; needs root, and is removed at the end")
    job.add_argument("--gpus", default="2", metavar="N", help="GPUs, 1 to 8")
    job.add_argument("--seconds", default="0", metavar="N", help="end after so many seconds, up to "
                     "a day; 0: never")
    job.add_argument("--console", metavar="FILE", help="make FILE the serial line of the box, for "
                     "`dxpu console` and `dxpu top`, and build the box with --observed")
    job.add_argument("--pcap", metavar="FILE",
                     help="capture frames, and TLPs of the GPUs, for Wireshark")
    add_seed(job)
    job.add_argument("--out", default="build/box", metavar="FOLDER", help="folder for logs")


def run(arguments: argparse.Namespace) -> int:
    """Run the box until the end of the given time."""
    gpus = whole_number("--gpus", arguments.gpus, 1, 8)
    seconds = whole_number("--seconds", arguments.seconds, 0, 86_400)
    seed = given_seed(arguments)
    pcap = file_to_write("--pcap", arguments.pcap)
    if arguments.peer and not arguments.iface:
        raise UserError("--peer is the other end of --iface: a socket has none")
    if arguments.console and os.path.lexists(arguments.console):
        raise UserError(f"--console: there is a file {arguments.console!r} already")
    require("sim")
    with OutputFolder("--out", arguments.out, room=ROOM) as out, \
            _interface(arguments.iface, arguments.peer):
        system = {**({"slots": gpus} if gpus != 2 else {}),
                  **({"observed": True} if arguments.console else {})}
        given = {"system": system, "iface": arguments.iface or "",
                 "socket": str(Path(arguments.socket).absolute()) if arguments.socket else "",
                 "console": str(Path(arguments.console).absolute()) if arguments.console else "",
                 "seconds": seconds, "vram": VRAM, "pcap": str(pcap.absolute()) if pcap else ""}
        try:
            _serve(given, seed, out, _hint(arguments, gpus))
        finally:
            for made in filter(None, (arguments.socket, arguments.console)):
                Path(made).unlink(missing_ok=True)
    return 0


@contextlib.contextmanager
def _interface(name: str | None, peer: str | None) -> Iterator[None]:
    """The interface, which is there in the block."""
    from dxpu_sim.ethernet.namespace import add_pair, remove_pair
    if name is not None and peer is not None:
        try:
            add_pair(name, peer)
        except PermissionError:
            raise UserError("a pair of veth needs root: run as root, or `sudo ip link add "
                            f"{name} type veth peer name {peer}`, or take --socket") from None
        except OSError as error:
            raise UserError(f"no pair of veth {name!r} and {peer!r}: {error}") from None
    try:
        if name is not None:
            try:
                EthernetPort(name, BOX).close()
            except PortError as error:
                raise UserError(str(error)) from None
        yield
    finally:
        if name is not None and peer is not None:
            remove_pair(name)


def _hint(arguments: argparse.Namespace, gpus: int) -> str:
    """How to reach the box."""
    there = (f"--socket {arguments.socket}" if arguments.socket
             else f"--iface {arguments.peer or 'INTERFACE'}")
    slots = ",".join(str(slot) for slot in range(1, gpus + 1))
    watch = (f"\nwatch it with: dxpu top {arguments.console}" if arguments.console else "")
    return (f"box {BOX:#05x} at {arguments.iface or arguments.socket}: a GPU in each of the slots "
            f"{slots}, bound to host {HOST}; {NO_KEYS}\n"
            f"look at it with: dxpu slots {there} --box {BOX:#05x} --slots {slots} "
            f"--slower {SLOWER}{watch}")


def _serve(given: dict[str, Any], seed: int, out: OutputFolder, hint: str) -> None:
    from dxpu_cli.prepare import Simulator, prepare
    from dxpu_sim.run.runner import Design, SimulationFailed, simulate
    from dxpu_sim.software_host.box_design import BoxBench
    design, progress = Design(BoxBench, given["system"]), Progress()
    prepare({"box": Simulator(design)}, progress)
    print(hint, flush=True)
    folder, lines = (out.work / "simulation").absolute(), 0

    def follow() -> None:
        nonlocal lines
        lines = progress.follow(folder / "progress.txt", lines)

    progress.step("Starting the simulation")
    try:
        progress.run(lambda: simulate(
            design, "dxpu_sim.software_host.served_bench", folder=folder, seed=seed,
            env={"DXPU_SERVED": json.dumps(given)}), follow)
    except SimulationFailed as error:
        progress.done(failed=True)
        out.bad()
        raise Failed(f"the simulation failed: "
                     f"{out.as_kept(str(error).splitlines()[0])}") from None
    progress.done()
