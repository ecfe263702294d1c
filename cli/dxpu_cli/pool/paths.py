"""``dxpu pool paths``: links and GPUs of all paths of hosts and boxes."""

from typing import Any

from . import views
from .client import add_arguments as add_client
from .client import client
from .tables import say, table

__all__ = ["add_arguments", "run"]

_BALANCE = "Fabrics/DxPU/Actions/Oem/DxPU.Balance"
_TITLES = ("NODE", "NAME", "PATH", "LINK", "GPUS")


def add_arguments(jobs: Any) -> None:
    """Options of the command."""
    job = jobs.add_parser("paths", help="show what each path of hosts and boxes carries, and "
                          "whether it has a link")
    job.add_argument("--balance", action="store_true", help="spread GPUs over paths with a link "
                     "again; no host notices")
    add_client(job)


def run(arguments: Any) -> int:
    """Balance the paths if wanted, and show all paths."""
    with client(arguments) as there:
        moved = there.post(_BALANCE)["Moved"] if arguments.balance else []
        nodes = [*map(views.host, there.members("Systems")),
                 *(views.box(one, []) for one in there.members("Chassis"))]
    shown = [{"node": node.get("host") or node["box"], "name": node["name"], **path}
             for node in nodes for path in node["paths"]]
    rows = [(one["node"], one["name"], one["path"], views.yes(one["link"]), one["gpus"])
            for one in shown]
    said = f"\n\nanother path is taken by: {' '.join(moved) or 'no GPU'}" * arguments.balance
    say(arguments.json, {"paths": shown, "moved": moved}, table(_TITLES, rows) + said)
    return 0
