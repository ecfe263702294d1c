"""``dxpu attach``: gives GPUs to a host."""

import argparse
from typing import Any

from dxpu_cli.options import decimal_number, whole_number
from dxpu_tools.errors import Failed, UserError

from . import views
from .client import CONFLICT, HARDWARE, WAITS, Client, blocks, client, named
from .client import add_arguments as add_client
from .tables import say

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("host", metavar="HOST")
    parser.add_argument("gpus", nargs="*", metavar="GPU",
                        help="GPUs by name, all or none; without names the manager chooses")
    parser.add_argument("-n", "--count", metavar="N", default=None, help="how many GPUs")
    parser.add_argument("--model", metavar="NAME", default=None, help="only this model")
    parser.add_argument("--where", choices=("any", "box", "joined", "apart"), default=None,
                        help="in one box, in one box that joins them, or each in another")
    parser.add_argument("--path", metavar="N", default=None,
                        help="only by this path of the fabric; without it paths are balanced")
    parser.add_argument("--priority", metavar="N", default=None,
                        help="higher ones have the turn first")
    parser.add_argument("--lease", metavar="SECONDS", default=None,
                        help="the GPUs go back after this time, unless the lease is renewed")
    parser.add_argument("--keep", action="store_true",
                        help="keep GPUs for the host, and attach them at `dxpu request take-up`")
    parser.add_argument("--dry-run", action="store_true", help="say which GPUs it would be")
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the end")
    parser.add_argument("--wait", metavar="SECONDS", default="60", help="how long to wait")
    add_client(parser)


def run(arguments: argparse.Namespace) -> int:
    """Attach GPUs by name, or make a request."""
    seconds = decimal_number("--wait", arguments.wait, 0, 1_000_000)
    wish = {name: getattr(arguments, name) for name in (
        "count", "model", "where", "path", "priority", "lease")}
    given = [name for name, value in wish.items() if value is not None]
    given += [name for name in ("keep", "dry_run") if getattr(arguments, name)]
    if arguments.gpus and given:
        raise UserError(f"--{given[0].replace('_', '-')} is for a choice of the manager: leave the "
                        "names of GPUs out")
    if len(set(arguments.gpus)) < len(arguments.gpus):
        raise UserError("name each GPU once")
    body = _wish(arguments)
    with client(arguments) as there:
        host = named(there, "Systems", arguments.host)
        if arguments.gpus:
            return _by_name(there, host, arguments, seconds)
        body["Host"] = host
        if arguments.dry_run:
            return _previewed(there, body, arguments.json)
        request = views.request(there.post(views.REQUESTS_AT, body))
        if not arguments.no_wait:
            request = _settled(there, request, seconds)
        return _say(request, arguments)


def _wish(arguments: argparse.Namespace) -> dict[str, Any]:
    body: dict[str, Any] = {"Count": whole_number("--count", arguments.count or "1", 1, 256),
                            "Keep": arguments.keep}
    if arguments.model is not None:
        body["Model"] = arguments.model
    if arguments.where is not None:
        body["Where"] = arguments.where
    if arguments.path is not None:
        body["Path"] = whole_number("--path", arguments.path, 0, 15)
    if arguments.priority is not None:
        body["Priority"] = whole_number("--priority", arguments.priority, -1000, 1000)
    if arguments.lease is not None:
        body["LeaseSeconds"] = decimal_number("--lease", arguments.lease, 0.001, 1_000_000_000)
    return body


def _by_name(there: Client, host: str, arguments: argparse.Namespace, seconds: float) -> int:
    task = there.post(f"Systems/{host}/Actions/Oem/DxPU.Attach", blocks(arguments.gpus))
    if not arguments.no_wait:
        task = there.task(task["Id"], seconds)
    shown = views.task(task)
    say(arguments.json, shown, f"task {shown['task']}: {shown['what']}: {shown['state'].lower()}")
    return 0


def _previewed(there: Client, wish: dict[str, Any], as_json: bool) -> int:
    wish.pop("Keep")
    answer = there.post("CompositionService/Actions/CompositionService.Compose", {
        "RequestFormat": "Manifest", "RequestType": "Preview", "Manifest": {"Stanzas": [
            {"StanzaType": "ComposeResource", "StanzaId": "1", "Request": wish}]}})
    links = answer["Manifest"]["Stanzas"][0]["Response"]["Links"]["ResourceBlocks"]
    gpus = [link["@odata.id"].rpartition("/")[2] for link in links]
    say(as_json, {"gpus": gpus}, " ".join(gpus))
    return 0


def _settled(there: Client, request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The request when it has its GPUs, or as it is after a time."""
    path = f"{views.REQUESTS_AT}/{request['request']}"
    last = request

    def settled() -> dict[str, Any] | None:
        nonlocal last
        last = views.request(there.get(path))
        return last if last["phase"] in ("holding", "reserved", "ending", "ended") else None

    there.wait(settled, seconds)
    return last


def _say(request: dict[str, Any], arguments: argparse.Namespace) -> int:
    number, phase = request["request"], request["phase"]
    says = f": {request['says']}" * bool(request["says"])
    say(arguments.json, request, f"request {number} {phase}: {' '.join(request['gpus'])}"
        if request["gpus"] else f"request {number} {phase}{says}")
    if arguments.no_wait or phase in ("holding", "reserved"):
        return 0
    if phase == "waiting":
        return WAITS
    raise Failed(f"request {number} is {phase}{says}",
                 HARDWARE if phase == "starting" else CONFLICT)
