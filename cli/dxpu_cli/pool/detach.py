"""``dxpu detach``: takes GPUs from a host."""

import argparse

from dxpu_cli.options import decimal_number
from dxpu_tools.errors import UserError

from . import views
from .client import add_arguments as add_client
from .client import blocks, client, named
from .tables import say

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("host", metavar="HOST")
    parser.add_argument("gpus", nargs="*", metavar="GPU", help="GPUs by name, all or none")
    parser.add_argument("--all", action="store_true", help="all GPUs that the host has")
    parser.add_argument("--force", action="store_true",
                        help="without the consent of the host's operating system")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the end")
    parser.add_argument("--wait", metavar="SECONDS", default="120", help="how long to wait")
    add_client(parser)


def run(arguments: argparse.Namespace) -> int:
    """Detach GPUs."""
    seconds = decimal_number("--wait", arguments.wait, 0, 1_000_000)
    if bool(arguments.gpus) == arguments.all:
        raise UserError("name GPUs, or give --all")
    if len(set(arguments.gpus)) < len(arguments.gpus):
        raise UserError("name each GPU once")
    with client(arguments) as there:
        host = named(there, "Systems", arguments.host)
        names = arguments.gpus or views.host(there.get(f"Systems/{host}"))["gpus"]
        if not names:
            say(arguments.json, [], f"host {host} has no GPU")
            return 0
        task = there.post(f"Systems/{host}/Actions/Oem/DxPU.Detach",
                          {**blocks(names), "Force": arguments.force})
        if not arguments.no_wait:
            task = there.task(task["Id"], seconds)
        shown = views.task(task)
        say(arguments.json, shown,
            f"task {shown['task']}: {shown['what']}: {shown['state'].lower()}")
    return 0
