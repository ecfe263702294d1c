"""Networks of their own for simulations that speak over interfaces of Linux.

Interfaces are made in a network namespace, so no interface of the machine has any part.
"""

import contextlib
import shutil
import subprocess
import sys

__all__ = ["UNSHARE", "add_pair", "remove_pair", "why_not"]

#: Starts a command in a network namespace of its own; needs no root.
UNSHARE = ("unshare", "--map-root-user", "--net")


def why_not() -> str:
    """What this machine does not permit; empty if it does all."""
    if not sys.platform.startswith("linux"):
        return "network: AF_PACKET is of Linux"
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            return f"network: no program {program}"
    tried = subprocess.run([*UNSHARE, "ip", "link", "add", "type", "veth"], capture_output=True,
                           text=True)
    if tried.returncode:
        return f"network: no veth in a network namespace: {tried.stderr.strip()}"
    return ""


def add_pair(name: str, peer: str) -> None:
    """Create a pair of veth in this network namespace, both up.

    Raises
    ------
    PermissionError
        This process may not; the message is that of ``ip``.
    OSError
        There is one of that name, or no ``ip``.
    """
    for words in (f"add {name} type veth peer name {peer}", f"set {name} up", f"set {peer} up"):
        _ip(words)


def remove_pair(name: str) -> None:
    """Remove a pair of veth, by the name of one of the two; nothing if it has gone."""
    with contextlib.suppress(OSError):
        _ip(f"delete {name}")


def _ip(words: str) -> None:
    done = subprocess.run(["ip", "link", *words.split()], capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip()
        raise (PermissionError if "not permitted" in said else OSError)(said)
