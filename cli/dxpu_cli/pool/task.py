"""``dxpu task``: tasks of a manager."""

import argparse

from dxpu_cli.options import decimal_number, whole_number

from . import views
from .client import add_arguments as add_client
from .client import client
from .tables import say, table

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    job = jobs.add_parser("list", help="list tasks")
    job.add_argument("--all", action="store_true", help="those that have ended, too")
    add_client(job)
    for name, text in (("show", "show a task"), ("watch", "wait for the end of a task"),
                       ("cancel", "give a task up, and roll back what it has done")):
        job = jobs.add_parser(name, help=text)
        job.add_argument("task", metavar="TASK")
        if name == "watch":
            job.add_argument("--wait", metavar="SECONDS", default="120", help="how long to wait")
        add_client(job)


def run(arguments: argparse.Namespace) -> int:
    """List, show, watch or cancel tasks."""
    with client(arguments) as there:
        if arguments.job == "list":
            tasks = [views.task(one) for one in there.members("TaskService/Tasks")]
            tasks = [one for one in tasks if arguments.all or one["ended"] is None]
            say(arguments.json, tasks, table(views.TASKS, [
                (t["task"], t["what"], t["state"], t["began"], t["says"]) for t in tasks]))
            return 0
        number = whole_number("TASK", arguments.task, 0, (1 << 53) - 1)
        path = f"TaskService/Tasks/{number}"
        if arguments.job == "cancel":
            there.delete(path)
        if arguments.job == "watch":
            task = there.task(number, decimal_number("--wait", arguments.wait, 0, 1_000_000))
        else:
            task = there.get(path)
        shown = views.task(task)
        lines = [f"{name:<8} {value}" for name, value in shown.items()
                 if name != "evidence" and value not in (None, "")]
        lines += [f"evidence {line}" for line in shown["evidence"]]
        say(arguments.json, shown, "\n".join(lines))
    return 0
