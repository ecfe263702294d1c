"""``dxpu request``: requests that wait, or have GPUs."""

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
    job = jobs.add_parser("list", help="list requests")
    job.add_argument("--all", action="store_true", help="those that have ended, too")
    add_client(job)
    for name, text in (
            ("show", "show a request: what it waits for, and when it could start"),
            ("renew", "let the lease end so many seconds from now"),
            ("take-up", "attach the GPUs that are kept"),
            ("end", "give the GPUs back, or wait no longer")):
        job = jobs.add_parser(name, help=text)
        job.add_argument("request", metavar="REQUEST")
        if name == "renew":
            job.add_argument("seconds", metavar="SECONDS", help="or `none`, without an end")
        add_client(job)


def run(arguments: argparse.Namespace) -> int:
    """List, show, renew, take up or end requests."""
    with client(arguments) as there:
        if arguments.job == "list":
            requests = [views.request(one) for one in there.members(views.REQUESTS_AT)]
            requests = [one for one in requests if arguments.all or one["phase"] != "ended"]
            say(arguments.json, requests, table(views.REQUESTS, [
                (r["request"], r["host"], r["wants"], r["phase"], " ".join(r["gpus"]), r["until"],
                 r["says"]) for r in requests]))
            return 0
        number = whole_number("REQUEST", arguments.request, 0, (1 << 53) - 1)
        path = f"{views.REQUESTS_AT}/{number}"
        if arguments.job == "renew":
            seconds = None if arguments.seconds == "none" else decimal_number(
                "SECONDS", arguments.seconds, 0.001, 1_000_000_000)
            there.patch(path, {"LeaseSeconds": seconds})
        elif arguments.job == "take-up":
            there.post(f"{path}/Actions/DxPURequest.TakeUp")
        elif arguments.job == "end":
            there.delete(path)
        shown = views.request(there.get(path))
        say(arguments.json, shown, "\n".join(
            f"{name:<8} {' '.join(value) if isinstance(value, list) else value}"
            for name, value in shown.items() if value not in (None, "", [])))
    return 0
