"""DxPU_MANAGER: the pool of GPUs as records, and the nodes as the records say.

See docs/reference/manager.md.
"""

from .errors import Conflict, Deposed, Impossible, NotFound, PoolError, StoreError
from .lifecycle import TRANSITIONS, Cause, State
from .manager import Limits, PoolManager
from .nodes import Nodes
from .pool import Pool
from .records import Binding, Gpu, Job, Node, Pair, Progress, Role, Task, gpu_id
from .store import Event, SqliteStore, Store, replay

__all__ = [
    "Binding", "Cause", "Conflict", "Deposed", "Event", "Gpu", "Impossible", "Job", "Limits",
    "Node", "Nodes", "NotFound", "Pair", "Pool", "PoolError", "PoolManager", "Progress", "Role",
    "SqliteStore", "State", "Store", "StoreError", "TRANSITIONS", "Task", "gpu_id", "replay",
]
