"""DxPU_MANAGER: the pool of GPUs as records, and the nodes as the records say.

See docs/reference/manager.md.
"""

from .allocation import Kind, Where, Wish
from .errors import Conflict, Deposed, Impossible, NotFound, PoolError, StoreError
from .lifecycle import TRANSITIONS, Cause, State
from .limits import Limits
from .manager import PoolManager
from .nodes import Nodes
from .pool import Pool
from .records import (
    Binding, Gpu, Job, Node, Pair, Phase, Progress, Request, Role, Task, gpu_id,
)
from .requests import Requests
from .store import Event, SqliteStore, Store, replay

__all__ = [
    "Binding", "Cause", "Conflict", "Deposed", "Event", "Gpu", "Impossible", "Job", "Kind",
    "Limits", "Node", "Nodes", "NotFound", "Pair", "Phase", "Pool", "PoolError", "PoolManager",
    "Progress", "Request", "Requests", "Role", "SqliteStore", "State", "Store", "StoreError",
    "TRANSITIONS", "Task", "Where", "Wish", "gpu_id", "replay",
]
