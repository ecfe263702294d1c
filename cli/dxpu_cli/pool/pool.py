"""``dxpu pool``: a pool as a whole."""

import argparse
from collections import Counter

from dxpu_tools.errors import UserError

from . import paths, simulate, spares, views
from .client import add_arguments as add_client
from .client import client
from .tables import say

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    job = jobs.add_parser("show", help="show how a pool is")
    add_client(job)
    paths.add_arguments(jobs)
    spares.add_arguments(jobs)
    simulate.add_arguments(jobs)


def run(arguments: argparse.Namespace) -> int:
    """Show a pool, or its paths, plan its spares, or simulate one."""
    if arguments.job == "simulate":
        return simulate.run(arguments)
    if arguments.job == "paths":
        return paths.run(arguments)
    if arguments.job == "spares":
        return spares.run(arguments)
    if arguments.job != "show":
        raise UserError(f"there is no job {arguments.job}")
    with client(arguments) as there:
        gpus = views.all_gpus(there)
        hosts = [views.host(one) for one in there.members("Systems")]
        boxes = [views.box(one, gpus) for one in there.members("Chassis")]
        requests = [views.request(one) for one in there.members(views.REQUESTS_AT)]
        manager = there.get("Managers/pool")
    states = Counter(one["state"] for one in gpus)
    waiting = [one for one in requests if one["phase"] == "waiting"]
    silent = [one for one in (*hosts, *boxes) if not one["answers"]]
    dead = [(one.get("host") or one["box"], path["path"]) for one in (*hosts, *boxes)
            for path in one["paths"] if not path["link"]]
    own = manager["Oem"]["DxPU"]
    shown = {"gpus": len(gpus), "states": dict(sorted(states.items())), "hosts": len(hosts),
             "boxes": len(boxes), "waiting_requests": len(waiting),
             "silent": [one.get("host") or one["box"] for one in silent],
             "dead_paths": [{"node": node, "path": path} for node, path in dead],
             "epoch": own["Epoch"], "trouble": own["Trouble"]}
    lines = [f"{len(gpus)} GPUs in {_many(len(boxes), 'box', 'boxes')}, "
             f"{_many(len(hosts), 'host', 'hosts')}"]
    lines += [f"  {count:>5} {state}" for state, count in sorted(states.items())]
    lines.append(f"{_many(len(waiting), 'request waits', 'requests wait')}")
    lines += [f"{one.get('host') or one['box']} does not answer: {one['trouble']}"
              for one in silent]
    lines += [f"{node}: path {path} has no link" for node, path in dead]
    if own["Trouble"]:
        lines.append(f"the store cannot be written: {own['Trouble']}")
    say(arguments.json, shown, "\n".join(lines))
    return 0


def _many(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
