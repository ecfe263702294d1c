"""``dxpu events``: what has happened in a pool."""

import argparse
import json

from dxpu_cli.options import whole_number

from .client import add_arguments as add_client
from .client import client

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--follow", action="store_true", help="go on as events come")
    parser.add_argument("--after", metavar="N", default="0",
                        help="only events with higher numbers")
    add_client(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each event."""
    after = whole_number("--after", arguments.after, 0, (1 << 53) - 1)
    with client(arguments) as there:
        newest = None if arguments.follow else there.get("EventService")["Oem"]["DxPU"]["Newest"]
        if newest is not None and after >= newest:
            return 0
        for event in there.events(after):
            one = event["Events"][0]
            number, who = int(event["Id"]), one.get("Oem", {}).get("DxPU", {}).get("Who")
            print(json.dumps({"event": number, "time": one["EventTimestamp"],
                              "says": one["Message"], "who": who}) if arguments.json else
                  f"{number:>6}  {one['EventTimestamp']}  {one['Message']}"
                  + f" [{who}]" * bool(who), flush=True)
            if newest is not None and number >= newest:
                return 0
    return 0
