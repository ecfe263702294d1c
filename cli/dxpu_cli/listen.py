"""``dxpu linux --listen``: a stock Linux above an endpoint of another simulation."""

import asyncio
from pathlib import Path

from dxpu_cli.output import OutputFolder
from dxpu_sim.linux.carrier import Carrier, EdgeError, images
from dxpu_sim.linux.carrier.complaints import complaints
from dxpu_sim.linux.carrier.guest import GuestFailed, GuestStalled
from dxpu_sim.pcie.tlps import CompletionTimeout
from dxpu_tools.errors import UserError

__all__ = ["LINES", "listen"]

#: Shell lines of the guest without ``--line``.
LINES = ("lspci -vv -s 10000:: 2>/dev/null",)
#: Folder of the logs of a run.
_NAME = "listen"
#: Wall time to wait for a simulation with a link.
_WAIT_S = 600.0


def listen(socket: str, lines: list[str] | None, out: OutputFolder, *,
           wait_s: float = _WAIT_S) -> int:
    """Boot above whatever connects to ``socket``, and print what the guest says to each line.

    Returns 0; 1 if the simulation or the guest failed, a line had a status, or Linux complained;
    3 if the machine was too busy for a verdict.
    """
    try:
        found = images.get()
    except images.ImagesMissing as error:
        raise UserError(str(error)) from None
    folder = (out.work / _NAME).absolute()
    folder.mkdir(parents=True)
    status, failure = 0, ""
    try:
        status, failure = asyncio.run(_run(Path(socket), lines or LINES, found, folder, wait_s))
    except OSError as error:
        raise UserError(f"--listen: cannot listen at {socket!r}: "
                        f"{error.strerror or error}") from None
    except GuestStalled as error:
        status, failure = 3, f"STALLED: {error}"
    except (EdgeError, CompletionTimeout, GuestFailed, RuntimeError) as error:
        status, failure = 1, f"FAILED: {error}"
    if status:
        print(f"{out.as_kept(failure)}\nlogs: {out.bad() / _NAME}")
    else:
        out.good([_NAME])
        print(f"logs: {out.path / _NAME}")
    return status


async def _run(socket, lines, found, folder, wait_s):
    async with Carrier(socket, folder, images=found) as carrier:
        print(f"dxpu linux: {found.version}, waiting for a simulation at {socket}", flush=True)
        await carrier.attached(timeout_s=wait_s)
        console = await carrier.boot()
        for line in lines:
            said, status = await console.run(line)
            print(f"== {line}\n{said}\n", flush=True)
            if status:
                return 1, f"FAILED: `{line}` ended with status {status}"
        for complaint in complaints(await console.say("dmesg -r")):
            return 1, f"FAILED: Linux complains: {complaint}"
        print(f"{carrier.edge.tlps_sent} TLPs to the simulation, {carrier.edge.tlps_received} from "
              "it")
    return 0, ""
