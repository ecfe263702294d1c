"""What `dxpu host` and `dxpu box` have in common."""

import argparse
from typing import Any
from urllib.parse import quote

from dxpu_tools.errors import UserError

from . import views
from .client import Client, client, named
from .client import add_arguments as add_client
from .tables import say, table
from .views import yes

__all__ = ["BOX", "HOST", "add_arguments", "run"]

#: Kind of a node, and its collection.
HOST, BOX = ("host", "Systems"), ("box", "Chassis")


def add_arguments(parser: argparse.ArgumentParser, kind: tuple[str, str]) -> Any:
    """Options of the command; returns its jobs."""
    what, _ = kind
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    job = jobs.add_parser("list", help=f"list {'hosts' if kind is HOST else 'boxes'}")
    add_client(job)
    texts = {"show": f"show all of one {what}",
             "close": f"give nothing new {'to a host' if kind is HOST else 'of a box'}",
             "open": f"use a closed {what} again"}
    for name, text in texts.items():
        job = jobs.add_parser(name, help=text)
        job.add_argument("node", metavar=what.upper())
        add_client(job)
    job = jobs.add_parser("name", help=f"name a {what} for people")
    job.add_argument("node", metavar=what.upper())
    job.add_argument("label", metavar="NAME")
    add_client(job)
    if kind is HOST:
        job = jobs.add_parser("agent", help="say whether a host has an agent, whose word is "
                              "awaited with each attach")
        job.add_argument("node", metavar="HOST")
        job.add_argument("agent", choices=("yes", "no"))
        add_client(job)
        job = jobs.add_parser("confirm", help="say, as the agent of a host, that it sees a GPU")
        job.add_argument("node", metavar="HOST")
        job.add_argument("gpu", metavar="GPU", nargs="?", help="by name, or by the host's PCI "
                         "address, such as 0000:41:00.0; not needed with a serial number that was "
                         "said before")
        job.add_argument("--serial", metavar="NUMBER", default=None,
                         help="serial number of the GPU")
        add_client(job)
    if kind is BOX:
        job = jobs.add_parser("kind", help="say of which kind a box is: its GPUs are joined, or "
                              "each is behind a PCIe switch by itself")
        job.add_argument("node", metavar="BOX")
        job.add_argument("kind", choices=("joined", "switch"))
        add_client(job)
    return jobs


def run(arguments: argparse.Namespace, kind: tuple[str, str]) -> int:
    """List, show or change nodes."""
    what, at = kind
    with client(arguments) as there:
        if arguments.job == "list":
            _list(there, kind, arguments.json)
            return 0
        if arguments.job == "confirm":
            return _confirm(there, arguments)
        path = f"{at}/{named(there, at, arguments.node)}"
        change: dict[str, Any] | None = {
            "close": {"Closed": True}, "open": {"Closed": False},
            "name": {"Label": getattr(arguments, "label", "")},
            "agent": {"Agent": getattr(arguments, "agent", "") == "yes"},
            "kind": {"Kind": getattr(arguments, "kind", "")}}.get(arguments.job)
        if change is not None:
            there.patch(path, {"Oem": {"DxPU": change}})
        shown = _shown(there, kind, there.get(path))
        say(arguments.json, shown, "\n".join(
            f"{name:<10} {_text(name, value)}"
            for name, value in shown.items() if value not in (None, "")))
    return 0


def _text(name: str, value: Any) -> str:
    """A fact of a node."""
    if name == "paths":
        return ", ".join(f"{one['path']} with {one['gpus']} GPU{'s' * (one['gpus'] != 1)}"
                         + " without a link" * (not one["link"]) for one in value)
    return " ".join(value) if isinstance(value, list) else str(value)


def _confirm(there: Client, arguments: argparse.Namespace) -> int:
    """The word of an agent, whose account may read nothing."""
    if arguments.gpu is None and arguments.serial is None:
        raise UserError("name a GPU, or its serial number")
    body = {} if arguments.gpu is None else {
        "Address" if ":" in arguments.gpu else "Gpu": arguments.gpu}
    if arguments.serial is not None:
        body["SerialNumber"] = arguments.serial
    path = f"Systems/{quote(arguments.node, safe='')}/Actions/Oem/DxPU.Confirm"
    found = there.post(path, body)
    shown = {"gpu": found["Gpu"], "state": found["State"]}
    say(arguments.json, shown, f"{shown['gpu']} {shown['state']}")
    return 0


def _shown(there: Client, kind: tuple[str, str], body: dict[str, Any]) -> dict[str, Any]:
    return views.host(body) if kind is HOST else views.box(body, views.all_gpus(there))


def _list(there: Client, kind: tuple[str, str], as_json: bool) -> None:
    if kind is HOST:
        hosts = [views.host(one) for one in there.members("Systems")]
        say(as_json, hosts, table(views.HOSTS, [
            (h["host"], h["name"], yes(h["answers"]), yes(h["open"]), len(h["gpus"]),
             h["free_ports"]) for h in hosts]))
        return
    gpus = views.all_gpus(there)
    boxes = [views.box(one, gpus) for one in there.members("Chassis")]
    say(as_json, boxes, table(views.BOXES, [
        (b["box"], b["name"], b["kind"], yes(b["answers"]), yes(b["open"]), len(b["gpus"]),
         b["free"]) for b in boxes]))
