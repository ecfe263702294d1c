"""A separate network for a simulated box and a host: two pairs of veth, a bad wire between them.

::

    host ── host0 ════ wire0 ── bad wires ── wire1 ════ box0 ── simulated box ── console

Run as a program in a network namespace of its own (``unshare --net``), with a folder, a seed and
the commands as JSON (see :mod:`dxpu_sim.software_host.network_bench`). The
commands run in the folder, where ``console`` is the serial line of the box.
"""

import json
import random
import select
import shlex
import sys
import threading
from pathlib import Path

from dxpu_host import EthernetPort
from dxpu_sim.ethernet.namespace import add_pair
from dxpu_sim.run.runner import Design, said, simulate

from .bad_wire import BadWire
from .box_design import BoxBench

__all__ = ["HOST_INTERFACE", "main"]

HOST_INTERFACE, BOX_INTERFACE = "host0", "box0"
BAD = {"loss": 0.02, "double": 0.01, "swap": 0.01}


def set_up() -> None:
    """Create the interfaces."""
    for name, peer in ((HOST_INTERFACE, "wire0"), (BOX_INTERFACE, "wire1")):
        add_pair(name, peer)


class Bridge(threading.Thread):
    """Carries frames between ``wire0`` and ``wire1`` until stopped.

    Attributes
    ----------
    wires : pair of :class:`~.bad_wire.BadWire`
        Wires to the box, and from the box.
    """

    def __init__(self, rng: random.Random):
        super().__init__(daemon=True)
        # A veth delivers all frames, for any destination.
        self._ports = EthernetPort("wire0", 0xFFE), EthernetPort("wire1", 0xFFD)
        self.wires = tuple(BadWire(random.Random(rng.getrandbits(32)), **BAD) for _ in range(2))
        self.stop = False

    def run(self):
        while not self.stop:
            ready, _, _ = select.select(self._ports, [], [], 0.1)
            for here, there, wire in zip(self._ports, self._ports[::-1], self.wires, strict=True):
                while here in ready and (frame := here.receive()) is not None:
                    for out in wire.carry(frame):
                        there.send(out)


def main(folder: str, seed: str, commands: str) -> int:
    """Simulate; print the output of all programs and the counts of the wires, also into
    ``folder``."""
    set_up()
    bridge = Bridge(random.Random(int(seed)))
    bridge.start()
    run = simulate(Design(BoxBench, {}), "dxpu_sim.software_host.network_bench",
                   env={"DXPU_IFACE": BOX_INTERFACE, "DXPU_COMMANDS": commands},
                   folder=folder, seed=int(seed))
    bridge.stop = True
    bridge.join()
    counts = bridge.wires[0].counts + bridge.wires[1].counts
    Path(folder, "wires.json").write_text(json.dumps(counts))
    print(said(run, "software_host_network"), f"wires: {dict(counts)}", sep="\n")
    for n, words in enumerate(json.loads(commands)):
        print(f"$ {shlex.join(words)}", Path(run, f"command{n}.out").read_text(), sep="\n", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
