"""Tasks of the manager.

Ref: DSP0266, 11 "Tasks"; DSP0268, TaskService, Task
"""

from time import time as now
from typing import Any

from ...records import Progress, Task
from .messages import OWN, Refusal, message
from .schemas import typed
from .shown import accepted, task_body, time
from .table import ROOT, Answer, Ask, collection, link, table

__all__: list[str] = []

_TASKS = f"{ROOT}/TaskService/Tasks"


@table.get(f"{ROOT}/TaskService")
def service(ask: Ask) -> dict[str, Any]:
    """The service of tasks."""
    return {"@odata.type": typed("TaskService"), "Id": "TaskService", "Name": "Tasks",
            "ServiceEnabled": True, "CompletedTaskOverWritePolicy": "Oldest",
            "LifeCycleEventOnTaskStateChange": True, "DateTime": time(now()),
            "Status": {"State": "Enabled", "Health": "OK"}, "Tasks": link("TaskService", "Tasks")}


@table.get(_TASKS)
def tasks(ask: Ask) -> dict[str, Any]:
    """All remembered tasks."""
    return collection("Task", "Tasks", [link("TaskService", "Tasks", task.name)
                                        for task in ask.service.tasks()])


@table.get(f"{_TASKS}/{{name}}")
def task(ask: Ask, name: str) -> dict[str, Any]:
    """A task."""
    return task_body(ask.record(Task, name, "task"), ask.service)


@table.delete(f"{_TASKS}/{{name}}")
def cancel(ask: Ask, name: str) -> None:
    """Give a task up, and roll back what it has done."""
    ask.service.manager.cancel(ask.record(Task, name, "task").number)


@table.get(f"{ROOT}/TaskService/TaskMonitors/{{name}}")
def monitor(ask: Ask, name: str) -> Answer:
    """The end of a task: what its operation would have answered at once."""
    found = ask.record(Task, name, "task")
    if not found.progress.ended:
        return accepted(found, ask.service)
    if found.progress is Progress.FAILED:
        raise Refusal(409, [message(f"{OWN}.TaskFailed", found.said)])
    return Answer(204)
