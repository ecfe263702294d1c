"""``dxpu drain``: empties a box or a host."""

import argparse
import sys

from dxpu_cli.options import decimal_number
from dxpu_tools.errors import Failed, UserError

from . import views
from .client import Client, blocks, client
from .client import add_arguments as add_client
from .tables import say

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("node", metavar="NODE", help="box or host")
    parser.add_argument("--force", action="store_true",
                        help="without the consent of the hosts' operating systems")
    parser.add_argument("--wait", metavar="SECONDS", default="120",
                        help="how long to wait for each host")
    add_client(parser)


def run(arguments: argparse.Namespace) -> int:
    """Close the node, and detach all GPUs in it; what is refused stays, and is said."""
    seconds = decimal_number("--wait", arguments.wait, 0, 1_000_000)
    with client(arguments) as there:
        at, serial = _found(there, arguments.node)
        there.patch(f"{at}/{serial}", {"Oem": {"DxPU": {"Closed": True}}})
        gpus = [one for one in views.all_gpus(there) if one["state"] == "attached" and (
            one["host"] == serial if at == "Systems" else one["gpu"].startswith(f"{serial}."))]
        refused, done = {}, []
        for host in sorted({one["host"] for one in gpus}):
            names = [one["gpu"] for one in gpus if one["host"] == host]
            try:
                task = there.post(f"Systems/{host}/Actions/Oem/DxPU.Detach",
                                  {**blocks(names), "Force": arguments.force})
                there.task(task["Id"], seconds)
                done += names
            except Failed as error:
                refused[host] = str(error)
                print(f"host {host}: {error}", file=sys.stderr)
    say(arguments.json, {"node": serial, "detached": done, "refused": refused},
        f"{serial} is closed; {len(done)} of {len(gpus)} GPUs in use were detached")
    if refused:
        raise Failed(f"{len(refused)} of the hosts keep their GPUs: see above; --force takes them")
    return 0


def _found(there: Client, name: str) -> tuple[str, str]:
    for at in ("Chassis", "Systems"):
        for one in there.members(at):
            if name in (one["Id"], one["Name"]):
                return at, str(one["Id"])
    raise UserError(f"there is no box or host {name!r}")
