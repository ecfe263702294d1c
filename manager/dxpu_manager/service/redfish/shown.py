"""How records look in Redfish: states, times, links.

Ref: DSP0268, Status, ResourceBlock, Task
"""

from datetime import UTC, datetime
from typing import Any

from ...lifecycle import State
from ...paths import loads
from ...records import Gpu, Node, Progress, Task
from ..service import Service
from .messages import OWN, message
from .table import Answer, link

__all__ = ["block_link", "endpoint_link", "gpu_status", "node_status", "of_link", "of_state",
           "paths", "task_body", "accepted", "time"]

#: Composition state, pool, state and health of a GPU, for each of its states.
of_state: dict[State, tuple[str, str, str, str]] = {
    State.ABSENT: ("Unavailable", "Unassigned", "Absent", "OK"),
    State.QUARANTINED: ("Unavailable", "Unassigned", "InTest", "Warning"),
    State.FREE: ("Unused", "Free", "Enabled", "OK"),
    State.SPARE: ("Unavailable", "Unassigned", "StandbySpare", "OK"),
    State.RESERVED: ("Unused", "Free", "Enabled", "OK"),
    State.ATTACHING: ("Composing", "Active", "Starting", "OK"),
    State.ATTACHED: ("Composed", "Active", "Enabled", "OK"),
    State.DRAINING: ("Composing", "Active", "Quiesced", "OK"),
    State.FAILED: ("Failed", "Unassigned", "Disabled", "Critical"),
}


def time(seconds: float) -> str:
    """A time for people and programs, in UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat().replace("+00:00", "Z")


def gpu_status(gpu: Gpu) -> dict[str, str]:
    """Status of a GPU."""
    _, _, state, health = of_state[gpu.state]
    return {"State": state, "Health": health}


def node_status(service: Service, node: Node) -> dict[str, str]:
    """Status of a host or box: one that does not answer is in bad health."""
    if node.serial in service.manager.down:
        return {"State": "UnavailableOffline", "Health": "Critical"}
    return {"State": "Quiesced" if node.closed else "Enabled", "Health": "OK"}


def paths(service: Service, node: Node) -> list[dict[str, Any]]:
    """Paths of a host or box to the fabric: link, and GPUs that each carries."""
    carried = loads(service.pool, node)
    return [{"Path": path, "Link": not node.dead >> path & 1, "Gpus": carried[path]}
            for path in range(node.paths)]


def block_link(gpu: Gpu | str) -> dict[str, str]:
    """Link to the resource block of a GPU."""
    return link("CompositionService", "ResourceBlocks", gpu if isinstance(gpu, str) else gpu.name)


def endpoint_link(thing: Gpu | Node) -> dict[str, str]:
    """Link to the endpoint of a GPU or a host."""
    return link("Fabrics", "DxPU", "Endpoints", thing.name)


def of_link(value: Any) -> str:
    """The last part of the address in a link."""
    address = value.get("@odata.id", "") if isinstance(value, dict) else ""
    return str(address).rstrip("/").rpartition("/")[2]


_TASK_STATES = {Progress.RUNNING: "Running", Progress.ROLLING_BACK: "Stopping",
                Progress.DONE: "Completed"}


def _evidence(task: Task, service: Service) -> list[str]:
    """What is seen of each GPU of a task that attaches, and what is missing."""
    said = []
    for name, verdict in service.manager.verdicts(task.number).items():
        found = ", ".join(verdict.seen) or "nothing yet"
        said.append(f"GPU {name}: {found}" + f"; {verdict.lacks}" * bool(verdict.lacks))
    return said or list(task.seen)


def task_body(task: Task, service: Service) -> dict[str, Any]:
    """A task as a resource."""
    failed = task.progress is Progress.FAILED
    state = ("Cancelled" if task.cancelled else "Exception") if failed else (
        _TASK_STATES[task.progress])
    said = task.said or f"{task.job} {', '.join(task.gpus)}, host {task.host:08x}"
    key = "TaskFailed" if failed else "TaskChanged"
    body: dict[str, Any] = {
        "@odata.type": "#Task.v1_7_0.Task", "Id": task.name, "Name": f"Task {task.number}",
        "Description": f"{task.job} {', '.join(task.gpus)}, host {task.host:08x}",
        "TaskState": state, "TaskStatus": "Critical" if failed else "OK",
        "StartTime": time(task.began), "HidePayload": True,
        "PercentComplete": 100 if task.progress.ended else 0,
        "Messages": [message(f"{OWN}.{key}", said)],
        "Oem": {"DxPU": {"@odata.type": "#DxPU.v1_0_0.Task", "Evidence": _evidence(task, service)}},
    }
    if task.progress.ended:
        body["EndTime"] = time(task.ended)
    else:
        body["TaskMonitor"] = link("TaskService", "TaskMonitors", task.name)["@odata.id"]
    return body


def accepted(task: Task, service: Service) -> Answer:
    """The answer to who has begun a task."""
    address = link("TaskService", "Tasks", task.name)["@odata.id"]
    monitor = link("TaskService", "TaskMonitors", task.name)["@odata.id"]
    return Answer(202, {"@odata.id": address, **task_body(task, service)},
                  {"Location": monitor, "Retry-After": "1"})
