"""``dxpu swap``: takes a broken GPU away; a request that has it gets another one."""

import argparse

from dxpu_cli.options import decimal_number

from . import views
from .client import WAITS, client
from .client import add_arguments as add_client
from .tables import say

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("gpu", metavar="GPU")
    parser.add_argument("--reason", metavar="TEXT", default="given up by an operator",
                        help="what is wrong with it")
    parser.add_argument("--wait", metavar="SECONDS", default="60", help="how long to wait")
    add_client(parser)


def run(arguments: argparse.Namespace) -> int:
    """Give a GPU up, and wait for the one in its place."""
    seconds = decimal_number("--wait", arguments.wait, 0, 1_000_000)
    path = f"CompositionService/ResourceBlocks/{arguments.gpu}"
    with client(arguments) as there:
        request = views.gpu(there.get(path))["request"]
        before = (views.request(there.get(f"{views.REQUESTS_AT}/{request}"))["gpus"]
                  if request else [])
        task = there.post(f"{path}/Actions/Oem/DxPU.GiveUp", {"Reason": arguments.reason})
        there.task(task["Id"], seconds)
        if not request:
            say(arguments.json, {"gpu": arguments.gpu, "instead": None},
                f"{arguments.gpu} failed; no request had it, so no other GPU is given")
            return 0

        def replaced() -> dict[str, object] | None:
            now = views.request(there.get(f"{views.REQUESTS_AT}/{request}"))
            fresh = [name for name in now["gpus"] if name not in before]
            return {"instead": fresh[0]} if fresh and now["phase"] == "holding" else None

        found = there.wait(replaced, seconds)
    instead = found["instead"] if found else None
    say(arguments.json, {"gpu": arguments.gpu, "instead": instead},
        f"{arguments.gpu} failed; request {request} has {instead} instead" if instead else
        f"{arguments.gpu} failed; request {request} waits for another one")
    return 0 if instead else WAITS
