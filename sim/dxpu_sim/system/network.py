"""A separate network for a simulated system and its manager: a pair of veth.

::

    manager ── manager0 ════ fabric0 ── Ethernet port of the system ── hosts and boxes

Run as a program in a network namespace of its own (``unshare --net``), with a folder, a seed, the
options of the system and the manager's command, both as JSON (see
:mod:`dxpu_sim.system.benches.network`).
"""

import json
import subprocess
import sys
from pathlib import Path

from dxpu_sim.run.runner import Design, said, simulate

from .design import System

__all__ = ["MANAGER_INTERFACE", "main"]

MANAGER_INTERFACE, FABRIC_INTERFACE = "manager0", "fabric0"


def main(folder: str, seed: str, options: str, command: str) -> int:
    """Simulate; print the output of the bench and of the manager."""
    for words in (f"add {MANAGER_INTERFACE} type veth peer name {FABRIC_INTERFACE}",
                  f"set {MANAGER_INTERFACE} up", f"set {FABRIC_INTERFACE} up"):
        subprocess.run(["ip", "link", *words.split()], check=True)
    run = simulate(Design(System, json.loads(options)), "dxpu_sim.system.benches.network",
                   env={"DXPU_SYSTEM": options, "DXPU_IFACE": FABRIC_INTERFACE,
                        "DXPU_COMMAND": command}, folder=folder, seed=int(seed))
    print(said(run, "managed_network"), Path(run, "command.out").read_text(), sep="\n", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
