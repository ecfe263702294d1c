"""Requests: wishes for GPUs with a place in the queue, a lease, or a reservation.

The schema is an own one, as Redfish has no queue.
"""

from typing import Any

from ...allocation import Where, Wish
from ...records import Phase, Request, Role
from .body import Field, check
from .shown import block_link, time
from .table import ROOT, Answer, Ask, collection, link, table

__all__ = ["COLLECTION", "WISH", "request_link", "wish_of"]

#: Address of all requests, below the root.
COLLECTION = ("CompositionService", "Oem", "DxPU", "Requests")
_REQUESTS = "/".join((ROOT, *COLLECTION))

#: What a request is made of.
WISH = (
    Field("Host", (str,), required=True), Field("Count", (int,), least=1),
    Field("Model", (str,)), Field("Where", (str,), tuple(str(where) for where in Where)),
    Field("Priority", (int,)), Field("LeaseSeconds", (int, float, type(None))),
    Field("Keep", (bool,)), Field("Path", (int, type(None)), least=0),
)


def request_link(number: int) -> dict[str, str]:
    """Link to a request."""
    return link(*COLLECTION, number)


def wish_of(ask: Ask, values: dict[str, Any]) -> Wish:
    """The wish in what was sent."""
    host = ask.service.node(values["Host"], Role.HOST)
    return Wish(host.serial, values.get("Count", 1), values.get("Model", ""),
                Where(values.get("Where", "any")), values.get("Path"))


@table.get(_REQUESTS)
def requests(ask: Ask) -> dict[str, Any]:
    """All remembered requests."""
    held = sorted(ask.service.pool.all(Request), key=lambda request: request.number)
    return collection("DxPURequest", "Requests", [request_link(one.number) for one in held])


@table.get(f"{_REQUESTS}/{{name}}")
def request(ask: Ask, name: str) -> dict[str, Any]:
    """A request."""
    held = ask.record(Request, name, "request")
    explanation = (ask.service.requests.explain(held.number) if held.phase is Phase.WAITING
                   and held.after <= ask.service.pool.clock() else None)
    return {
        "@odata.type": "#DxPURequest.v1_0_0.DxPURequest", "Id": held.name,
        "Name": f"Request {held.number}", "Description": str(held.wish),
        "Host": f"{held.wish.host:08x}", "Count": held.wish.count, "Model": held.wish.model or None,
        "Where": str(held.wish.where), "Path": held.wish.path,
        "Priority": held.priority, "LeaseSeconds": held.lease,
        "Keep": held.keeps, "Phase": str(held.phase), "Asked": time(held.since),
        "Until": None if held.until is None else time(held.until),
        "Explanation": explanation, "Reason": held.said or None,
        "Links": {"ResourceBlocks": [block_link(name) for name in held.gpus],
                  "ComputerSystem": link("Systems", f"{held.wish.host:08x}")},
        "Actions": {"#DxPURequest.TakeUp": {
            "target": f"{_REQUESTS}/{held.name}/Actions/DxPURequest.TakeUp"}},
    }


@table.post(_REQUESTS)
def ask_for(ask: Ask) -> Answer:
    """Put a wish into the queue."""
    values, _ = check(ask.body, WISH, action=True)
    made = ask.service.requests.ask(
        wish_of(ask, values), priority=values.get("Priority", 0),
        lease=values.get("LeaseSeconds"), keeps=values.get("Keep", False))
    ask.service.requests.turn()
    address = request_link(made.number)["@odata.id"]
    return Answer(201, {"@odata.id": address, **request(ask, made.name)}, {"Location": address})


@table.patch(f"{_REQUESTS}/{{name}}")
def renew(ask: Ask, name: str) -> None:
    """Let a lease end so many seconds from now."""
    held = ask.record(Request, name, "request")
    values, _ = check(ask.body, (Field("LeaseSeconds", (int, float, type(None))),),
                      readable=request(ask, name))
    ask.service.requests.renew(held.number, values["LeaseSeconds"])


@table.delete(f"{_REQUESTS}/{{name}}")
def give_back(ask: Ask, name: str) -> None:
    """End a request."""
    ask.service.requests.give_back(ask.record(Request, name, "request").number)


@table.post(f"{_REQUESTS}/{{name}}/Actions/DxPURequest.TakeUp")
def take_up(ask: Ask, name: str) -> Answer:
    """Attach what is kept."""
    held = ask.service.requests.take_up(ask.record(Request, name, "request").number)
    address = request_link(held.number)["@odata.id"]
    return Answer(202, {"@odata.id": address, **request(ask, name)}, {"Location": address})
