"""``dxpu top`` of a pool: what goes on in it."""

import argparse
import shutil
import sys
import time
from collections import Counter

from dxpu_cli.options import decimal_number

from . import views
from .client import Client, client
from .tables import say, table

__all__ = ["run"]

#: A letter for each state, and its colour on a terminal.
LETTERS = {"absent": ("·", "2"), "quarantined": ("q", "33"), "free": ("f", "32"),
           "spare": ("s", "36"), "reserved": ("r", "35"), "attaching": ("+", "34"),
           "attached": ("A", "1;34"), "draining": ("-", "34"), "failed": ("X", "1;31")}


def run(arguments: argparse.Namespace) -> int:
    """Show the pool again and again on a terminal, or once elsewhere."""
    every = decimal_number("--every", arguments.every, 0.1, 3600)
    with client(arguments) as there:
        if arguments.once or arguments.json or not sys.stdout.isatty():
            shown, text = _look(there, colours=False)
            say(arguments.json, shown, text)
            return 0
        sys.stdout.write("\x1b[?1049h\x1b[?25l")
        try:
            while True:
                _, text = _look(there, colours=True)
                lines = text.split("\n")[:shutil.get_terminal_size().lines - 1]
                sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines)
                                 + "\x1b[J")
                sys.stdout.flush()
                time.sleep(every)
        finally:
            sys.stdout.write("\x1b[?25h\x1b[?1049l")
            sys.stdout.flush()


def _look(there: Client, *, colours: bool) -> tuple[dict[str, object], str]:
    gpus = views.all_gpus(there)
    boxes = [views.box(one, gpus) for one in there.members("Chassis")]
    hosts = [views.host(one) for one in there.members("Systems")]
    tasks = [one for one in map(views.task, there.members("TaskService/Tasks"))
             if one["ended"] is None]
    requests = [one for one in map(views.request, there.members(views.REQUESTS_AT))
                if one["phase"] == "waiting"]
    states = Counter(one["state"] for one in gpus)
    by_name = {one["gpu"]: one for one in gpus}

    def letter(state: str) -> str:
        sign, colour = LETTERS[state]
        return f"\x1b[{colour}m{sign}\x1b[0m" if colours else sign

    lines = [f"{len(gpus)} GPUs: " + ", ".join(
        f"{count} {state} {letter(state)}" for state, count in sorted(states.items())), ""]
    width = max((len(one["name"] or one["box"]) for one in boxes), default=0)
    for one in boxes:
        row = "".join(letter(by_name[f"{one['box']}.{slot}"]["state"])
                      if f"{one['box']}.{slot}" in by_name else letter("absent")
                      for slot in range(1, one["slots"] + 1))
        says = "" if one["answers"] else "  does not answer"
        lines.append(f"{one['name'] or one['box']:<{width}}  {row}{says}"
                     + "  closed" * (not one["open"]))
    busy = [one for one in hosts if one["gpus"] or not one["answers"]]
    if busy:
        lines += ["", table(("HOST", "NAME", "GPUS"), [
            (one["host"], one["name"], " ".join(one["gpus"]) if one["answers"]
             else "does not answer") for one in busy])]
    if tasks:
        lines += ["", table(views.TASKS[:4], [(t["task"], t["what"], t["state"], t["began"])
                                              for t in tasks])]
    if requests:
        lines += ["", table(("REQUEST", "HOST", "WANTS", "SAYS"), [
            (r["request"], r["host"], r["wants"], r["says"]) for r in requests])]
    return {"states": dict(states), "boxes": boxes, "hosts": hosts, "tasks": tasks,
            "waiting": requests}, "\n".join(lines)
