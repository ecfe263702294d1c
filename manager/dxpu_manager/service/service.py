"""What an interface needs of a running manager."""

import asyncio
import ipaddress
import secrets
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import HTTPConnection

from ..errors import Conflict, Impossible, NotFound
from ..manager import PoolManager
from ..pool import Pool
from ..records import Binding, Gpu, Node, Role, Setting, Task
from ..requests import Requests
from .accounts import Accounts
from .hub import Hub
from .webhooks import Webhooks

__all__ = ["Service", "is_loopback"]


@dataclass
class Service:
    """A running manager with all that interfaces show.

    Parameters
    ----------
    manager : PoolManager
    requests : Requests
    is_local : bool
        Only this machine reaches the interface, so that nobody has to log in while there is no
        account.
    """

    manager: PoolManager
    requests: Requests
    is_local: bool = True

    def __post_init__(self) -> None:
        self.accounts = Accounts(self.pool)
        self.hub = Hub(self.pool)
        self.webhooks = Webhooks(self.pool, self.hub)
        self.started = time.time()
        #: Done, with the reason, when the fabric has ended for good.
        self.fabric_lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def pool(self) -> Pool:
        """The records."""
        return self.manager.pool

    def setting(self, what: str, default: str) -> str:
        """A setting that outlives the process."""
        found = self.pool.records.get(f"{Setting.KIND}/{what}")
        return found.value if isinstance(found, Setting) else default

    def set(self, what: str, value: str) -> None:
        """Change a setting."""
        with self.pool.change() as change:
            change.put(Setting(what, value), f"setting {what} is {value}")

    def restore(self) -> None:
        """Take settings from the records."""
        self.accounts.timeout = float(self.setting("session_timeout",
                                                   str(self.accounts.timeout)))
        webhooks = self.webhooks
        webhooks.attempts = int(self.setting("delivery_attempts", str(webhooks.attempts)))
        webhooks.interval = float(self.setting("delivery_interval", str(webhooks.interval)))

    @property
    def uuid(self) -> str:
        """Name of the pool in the world, made at its first start."""
        found = self.setting("uuid", "")
        if not found:
            found = str(uuid.UUID(bytes=secrets.token_bytes(16), version=4))
            self.set("uuid", found)
        return found

    # Trust --------------------------------------------------------------------------------------

    def trusts(self, request: HTTPConnection) -> bool:
        """Whether a request needs no log-in: from this machine, while there is no account.

        A page of another site, open in a browser here, is not trusted.
        """
        if not self.is_local or self.accounts:
            return False
        host = request.headers.get("Host", "").rsplit(":", 1)[0].strip("[]")
        origin = request.headers.get("Origin")
        return is_loopback(host) and (
            origin is None or is_loopback(origin.partition("://")[2].rsplit(":", 1)[0].strip("[]")))

    # Names --------------------------------------------------------------------------------------

    def node(self, name: str, role: Role | None = None) -> Node:
        """A node by serial number or label; raises :exc:`NotFound`."""
        what = role or "node"
        found = self.pool.records.get(f"{Node.KIND}/{name}")
        if not isinstance(found, Node):
            found = next((node for node in self.pool.all(Node) if node.label == name), None)
        if found is None or role not in (None, found.role):
            raise NotFound(f"there is no {what} {name}")
        return found

    def nodes(self, role: Role) -> list[Node]:
        """All hosts or boxes, by serial number."""
        return sorted((node for node in self.pool.all(Node) if node.role is role),
                      key=lambda node: node.serial)

    def gpus(self, box: int | None = None) -> list[Gpu]:
        """All slots that a box has, or all boxes have."""
        return sorted((gpu for gpu in self.pool.all(Gpu) if box in (None, gpu.box)),
                      key=lambda gpu: (gpu.box, gpu.slot))

    def bound(self, host: int) -> list[tuple[int, Gpu, Binding]]:
        """Ports, GPUs and bindings of a host."""
        return [(port, gpu, binding)
                for port, (gpu, binding) in sorted(self.pool.bound_to(host).items())]

    def tasks(self) -> list[Task]:
        """All remembered tasks, by number."""
        return sorted(self.pool.all(Task), key=lambda task: task.number)

    def label(self, node: Node, label: str) -> None:
        """Name a node for people.

        Raises
        ------
        Conflict, Impossible, StoreError
        """
        if len(label) > 64 or not label.isprintable() or set(label) & set(" /"):
            raise Impossible("a label has up to 64 characters, without space and slash")
        other = next((one for one in self.pool.all(Node)
                      if label and label in (one.label, one.name) and one.serial != node.serial),
                     None)
        if other is not None:
            raise Conflict(f"node {other.name} is called {label} already")
        with self.pool.change() as change:
            change.put(replace(node, label=label), f"{node.role} {node.name} is called "
                       f"{label or 'by its serial number'}")

    def health(self) -> dict[str, Any]:
        """What is wrong at present, in lines; nothing: all is well."""
        wrong = []
        if self.pool.trouble:
            wrong.append(f"the store cannot be written: {self.pool.trouble}")
        if self.manager.deposed.is_set():
            wrong.append("another manager has taken over")
        return {"ready": not wrong, "wrong": wrong,
                "unreachable": {f"{serial:08x}": why
                                for serial, why in sorted(self.manager.down.items())},
                "strangers": {mac.hex(":"): why
                              for mac, why in sorted(self.manager.strangers.items())}}


def is_loopback(host: str) -> bool:
    """Whether a name or address is that of this machine for itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
