"""What a manager says of hosts, boxes, GPUs, tasks and requests, in a few words each."""

from typing import Any

from .client import Client

__all__ = ["BOXES", "GPUS", "HOSTS", "REQUESTS", "TASKS", "box", "gpu", "host", "request", "task",
           "REQUESTS_AT"]

Body = dict[str, Any]

#: Address of all requests.
REQUESTS_AT = "CompositionService/Oem/DxPU/Requests"
#: Titles of tables.
GPUS = ("GPU", "STATE", "HOST", "PORT", "MODEL", "SINCE", "BECAUSE")
HOSTS = ("HOST", "NAME", "ANSWERS", "OPEN", "GPUS", "FREE PORTS")
BOXES = ("BOX", "NAME", "KIND", "ANSWERS", "OPEN", "GPUS", "FREE")
TASKS = ("TASK", "WHAT", "STATE", "BEGAN", "SAYS")
REQUESTS = ("REQUEST", "HOST", "WANTS", "PHASE", "GPUS", "UNTIL", "SAYS")


def _own(body: Body) -> Body:
    own: Body = body["Oem"]["DxPU"]
    return own


def _paths(own: Body) -> list[Body]:
    """Paths of a node."""
    return [{"path": one["Path"], "link": one["Link"], "gpus": one["Gpus"]}
            for one in own["Paths"]]


def gpu(block: Body) -> Body:
    """A GPU, from its resource block."""
    own = _own(block)
    return {"gpu": block["Id"], "state": own["State"], "host": own["Host"], "port": own["Port"],
            "path": own["Path"], "model": own["Model"], "serial": own["SerialNumber"],
            "since": own["Since"],
            "cause": own["Cause"], "task": own["Task"],
            "request": own["Request"], "broken": own["Broken"], "evidence": own["Evidence"],
            "missing": own["Missing"], "missing_since": own["MissingSince"],
            "missing_until": own["MissingUntil"]}


def host(system: Body) -> Body:
    """A host, from its system."""
    own = _own(system)
    return {"host": system["Id"], "name": own["Label"], "answers": own["Trouble"] is None,
            "trouble": own["Trouble"], "open": not own["Closed"], "agent": own["Agent"],
            "number": own["NodeNumber"], "address": own["Address"],
            "ports": own["Ports"], "free_ports": own["FreePorts"], "paths": _paths(own),
            "gpus": [link["@odata.id"].rpartition("/")[2]
                     for link in system["Links"]["ResourceBlocks"]]}


def box(chassis: Body, gpus: list[Body]) -> Body:
    """A box, from its chassis; ``gpus`` are all GPUs of the pool."""
    own = _own(chassis)
    mine = [one for one in gpus if one["gpu"].startswith(f"{chassis['Id']}.")]
    return {"box": chassis["Id"], "name": own["Label"], "kind": own["Kind"],
            "answers": own["Trouble"] is None, "trouble": own["Trouble"],
            "open": not own["Closed"], "number": own["NodeNumber"], "address": own["Address"],
            "slots": own["Slots"], "paths": _paths(own), "gpus": [one["gpu"] for one in mine],
            "free": sum(one["state"] == "free" for one in mine)}


def task(body: Body) -> Body:
    """A task."""
    message = body["Messages"][0]["Message"]
    return {"task": int(body["Id"]), "what": body["Description"], "state": body["TaskState"],
            "began": body["StartTime"], "ended": body.get("EndTime"),
            "says": message if message != body["Description"] else "",
            "evidence": _own(body)["Evidence"]}


def request(body: Body) -> Body:
    """A request."""
    return {"request": int(body["Id"]), "host": body["Host"], "wants": body["Description"],
            "phase": body["Phase"], "priority": body["Priority"], "lease": body["LeaseSeconds"],
            "until": body["Until"], "says": body["Explanation"] or body["Reason"] or "",
            "gpus": [link["@odata.id"].rpartition("/")[2]
                     for link in body["Links"]["ResourceBlocks"]]}


def all_gpus(there: Client) -> list[Body]:
    """All GPUs of the pool."""
    return [gpu(one) for one in there.members("CompositionService/ResourceBlocks")]


def yes(value: bool) -> str:
    """In a table."""
    return "yes" if value else "no"
