"""``dxpu gpu``: GPUs of a pool."""

import argparse

from dxpu_tools.errors import UserError

from . import views
from .client import add_arguments as add_client
from .client import client
from .tables import say, table

__all__ = ["add_arguments", "run"]

#: Jobs that change a GPU: the action, and its help.
_ACTIONS = {
    "admit": ("Admit", "let a quarantined GPU be given away"),
    "set-aside": ("SetAside", "let nobody have an unused GPU"),
    "spare": ("Spare", "keep a free GPU back as a replacement"),
    "unspare": ("Unspare", "keep a GPU back no longer"),
    "retire": ("Retire", "forget a GPU that leaves its slot"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    job = jobs.add_parser("list", help="list GPUs")
    job.add_argument("--state", metavar="STATE", default=None, help="only those in this state")
    job.add_argument("--box", metavar="BOX", default=None, help="only those of this box")
    job.add_argument("--model", metavar="NAME", default=None, help="only those of this model")
    add_client(job)
    job = jobs.add_parser("show", help="show all of one GPU")
    job.add_argument("gpu")
    add_client(job)
    for name, (_, text) in _ACTIONS.items():
        job = jobs.add_parser(name, help=text)
        job.add_argument("gpus", nargs="+", metavar="GPU")
        add_client(job)
    job = jobs.add_parser("model", help="say which model a GPU is, as nodes do not know")
    job.add_argument("model")
    job.add_argument("gpus", nargs="+", metavar="GPU")
    add_client(job)


def run(arguments: argparse.Namespace) -> int:
    """List, show or change GPUs."""
    with client(arguments) as there:
        if arguments.job == "list":
            gpus = [one for one in views.all_gpus(there)
                    if arguments.state in (None, one["state"])
                    and arguments.model in (None, one["model"])
                    and (arguments.box is None or one["gpu"].startswith(f"{arguments.box}."))]
            say(arguments.json, gpus, table(views.GPUS, [
                (g["gpu"], g["state"], g["host"], g["port"], g["model"], g["since"],
                 g["broken"] or g["cause"]) for g in gpus]))
            return 0
        if arguments.job == "show":
            shown = views.gpu(there.get(f"CompositionService/ResourceBlocks/{arguments.gpu}"))
            say(arguments.json, shown, "\n".join(
                f"{name:<13} {', '.join(value) if isinstance(value, list) else value}"
                for name, value in shown.items() if value not in (None, "", [])))
            return 0
        if len(set(arguments.gpus)) < len(arguments.gpus):
            raise UserError("name each GPU once")
        changed = []
        for name in arguments.gpus:
            path = f"CompositionService/ResourceBlocks/{name}"
            if arguments.job == "model":
                there.patch(path, {"Oem": {"DxPU": {"Model": arguments.model}}})
            else:
                there.post(f"{path}/Actions/Oem/DxPU.{_ACTIONS[arguments.job][0]}")
            changed.append(views.gpu(there.get(path)))
            if not arguments.json:
                print(f"{name} {changed[-1]['state']}"
                      + f" {changed[-1]['model']}" * (arguments.job == "model"))
        if arguments.json:
            say(True, changed, "")
    return 0
