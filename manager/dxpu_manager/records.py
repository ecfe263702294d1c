"""Records of the pool, which a store keeps as text."""

import json
from abc import ABC, abstractmethod
from dataclasses import MISSING, asdict, dataclass, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Self

from .allocation import Kind, Where, Wish
from .lifecycle import Cause, State

__all__ = [
    "ADVANCES", "Account", "Binding", "Gpu", "Job", "Node", "Pair", "Phase", "Progress", "Reading",
    "Record", "Request", "Role", "Setting", "Subscription", "Task", "gpu_id", "parse"]


class Role(StrEnum):
    """Role of a node."""

    HOST = "host"
    BOX = "box"


class Job(StrEnum):
    """Job of a task."""

    ATTACH = "attach"
    DETACH = "detach"
    REBIND = "rebind"


class Progress(StrEnum):
    """Progress of a task."""

    RUNNING = "running"
    ROLLING_BACK = "rolling back"
    DONE = "done"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Nothing happens any more."""
        return self in (Progress.DONE, Progress.FAILED)


#: Every change of a task's progress there is, and why it comes.
ADVANCES: dict[tuple[Progress, Progress], str] = {
    (Progress.RUNNING, Progress.DONE): "attached; or released and clean",
    (Progress.RUNNING, Progress.ROLLING_BACK): "it cannot attach, or is cancelled",
    (Progress.RUNNING, Progress.FAILED): "the host does not let go, or the detach is cancelled",
    (Progress.ROLLING_BACK, Progress.FAILED): "nothing is bound any more",
}


class Phase(StrEnum):
    """Progress of a request."""

    #: It waits for its turn, or for GPUs.
    WAITING = "waiting"
    #: Its GPUs are being attached.
    STARTING = "starting"
    #: Its GPUs are kept for the host.
    RESERVED = "reserved"
    #: The host has its GPUs.
    HOLDING = "holding"
    #: Its GPUs are being detached.
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True)
class Record(ABC):
    """A record, with the key ``kind/name`` in the store."""

    KIND: ClassVar[str]

    @property
    @abstractmethod
    def name(self) -> str:
        """Name among records of the same kind."""

    @property
    def key(self) -> str:
        """Key in the store."""
        return f"{self.KIND}/{self.name}"

    def text(self) -> str:
        """The record for the store."""
        return json.dumps(asdict(self), separators=(",", ":"), sort_keys=True)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """The record from a store; a field that an older version did not write has its default.

        Raises
        ------
        ValueError
        """
        names = {field.name for field in fields(cls)}
        needed = {field.name for field in fields(cls) if field.default is MISSING}
        wrong = set(values) - names | needed - set(values)
        if wrong:
            raise ValueError(f"fields {sorted(wrong)}")
        return cls(**values)


def gpu_id(box: int, slot: int) -> str:
    """Name of a GPU: serial number of the box and slot, from 1; neither an order of discovery nor a
    number for somebody else later."""
    return f"{box:08x}.{slot}"


@dataclass(frozen=True)
class Node(Record):
    """A host or box proxy.

    ``serial`` is the name; ``mac`` the factory address in hexadecimal digits; ``number`` is the
    node's for ever; ``kind`` is that of a box. A node that is ``closed`` gets nothing new. A host
    with an ``agent`` has a GPU only if that says so. Of ``paths`` to the fabric, those in the mask
    ``dead`` have no link.
    """

    KIND = "node"

    serial: int
    role: Role
    mac: str
    number: int
    rows: int
    kind: Kind = Kind.SWITCH
    label: str = ""
    closed: bool = False
    agent: bool = False
    paths: int = 1
    dead: int = 0

    @property
    def name(self) -> str:
        return f"{self.serial:08x}"

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        return super().of({**values, "role": Role(values["role"]), "kind": Kind(values["kind"])})


@dataclass(frozen=True)
class Pair(Record):
    """A host and a box with a shared key, in hexadecimal digits; empty: in clear."""

    KIND = "pair"

    host: int
    box: int
    secret: str

    @property
    def name(self) -> str:
        return f"{self.host:08x}-{self.box:08x}"


@dataclass(frozen=True)
class Binding:
    """Owner of a GPU: serial number of a host, port, and the generation in both tables.

    ``learnt`` is the time from which on the host's windows were seen without a break, ``word`` that
    of the word of the host's agent; 0: not yet. ``seen`` is the evidence that the host has the GPU.
    """

    host: int
    port: int
    generation: int
    paths: int = 1
    learnt: float = 0.0
    word: float = 0.0
    seen: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """The binding from a store."""
        return cls(**{**values, "seen": tuple(values.get("seen", ()))})

    @property
    def path(self) -> int:
        """The path that is taken, the lowest one of ``paths``."""
        return (self.paths & -self.paths).bit_length() - 1

    def anew(self, generation: int) -> Self:
        """The binding under another generation, of which nothing is known yet."""
        return replace(self, generation=generation, learnt=0.0, word=0.0, seen=())


@dataclass(frozen=True)
class Gpu(Record):
    """A slot of a box, and the GPU in it.

    ``binding`` is there while rows may be bound. ``generation`` is the newest of all bindings.
    ``task`` works on the GPU, ``request`` has the GPU. ``broken`` describes the fault. ``serial``
    is the card's serial number, as an agent has said.
    """

    KIND = "gpu"

    box: int
    slot: int
    state: State = State.ABSENT
    cause: Cause = Cause.PULLED
    since: float = 0.0
    binding: Binding | None = None
    generation: int = 0
    task: int = 0
    request: int = 0
    broken: str = ""
    model: str = ""
    serial: str = ""

    @property
    def name(self) -> str:
        return gpu_id(self.box, self.slot)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        held = values["binding"]
        return super().of({**values, "state": State(values["state"]),
                           "cause": Cause(values["cause"]),
                           "binding": None if held is None else Binding.of(held)})


@dataclass(frozen=True)
class Task(Record):
    """A change of one or several GPUs, as a whole or not at all.

    ``force``: without the consent of the host's operating system. ``said``: reason of a failure.
    ``seen``: of each GPU that was attached, the evidence that the host has it.
    """

    KIND = "task"

    number: int
    job: Job
    gpus: tuple[str, ...]
    host: int
    progress: Progress = Progress.RUNNING
    force: bool = False
    cancelled: bool = False
    began: float = 0.0
    deadline: float = 0.0
    ended: float = 0.0
    said: str = ""
    seen: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return str(self.number)

    def advanced(self, progress: Progress, said: str) -> "Task":
        """The task with another progress; raises :exc:`ValueError` for a change there is not."""
        if (self.progress, progress) not in ADVANCES:
            raise ValueError(f"task {self.number} is {self.progress}, and would be {progress}")
        return replace(self, progress=progress, said=said)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        return super().of({**values, "job": Job(values["job"]),
                           "progress": Progress(values["progress"]),
                           "gpus": tuple(values["gpus"]), "seen": tuple(values.get("seen", ()))})


@dataclass(frozen=True)
class Request(Record):
    """A wish for GPUs that waits for a turn, or is fulfilled.

    ``lease``: seconds with the GPUs, ``None`` without an end. ``keeps``: GPUs are kept for the
    host, and attached at a word. ``until``: end of the lease. ``after``: time of the next attempt
    after a failure. ``said``: reason of the failure.
    """

    KIND = "request"

    number: int
    wish: Wish
    since: float
    priority: int = 0
    lease: float | None = None
    keeps: bool = False
    phase: Phase = Phase.WAITING
    gpus: tuple[str, ...] = ()
    until: float | None = None
    task: int = 0
    after: float = 0.0
    said: str = ""

    @property
    def name(self) -> str:
        return str(self.number)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        wish = values["wish"]
        return super().of({**values, "wish": Wish(**{**wish, "where": Where(wish["where"])}),
                           "phase": Phase(values["phase"]), "gpus": tuple(values["gpus"])})


@dataclass(frozen=True)
class Reading(Record):
    """All clocks at one instant, in seconds.

    ``time`` is that of the pool, ``wall`` the machine's since 1970, ``since_boot`` that since the
    start ``boot`` of the machine.
    """

    KIND = "clock"

    time: float
    wall: float
    boot: str
    since_boot: float

    @property
    def name(self) -> str:
        return "pool"


@dataclass(frozen=True)
class Account(Record):
    """An account of a user, with a digest of the password."""

    KIND = "account"

    user: str
    role: str
    salt: str
    digest: str
    enabled: bool = True

    @property
    def name(self) -> str:
        return self.user


@dataclass(frozen=True)
class Subscription(Record):
    """Where events are sent to.

    ``prefixes``, ``resources``: registries of messages, and types of resources; none: all.
    ``policy``: what happens after the last attempt to deliver. ``suspended``: nothing is sent.
    """

    KIND = "subscription"

    number: int
    destination: str
    context: str
    prefixes: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    policy: str = "SuspendRetries"
    verify: bool = True
    suspended: str = ""

    @property
    def name(self) -> str:
        return str(self.number)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        return super().of({**values, "prefixes": tuple(values["prefixes"]),
                           "resources": tuple(values["resources"]),
                           "headers": tuple((name, text) for name, text in values["headers"])})


@dataclass(frozen=True)
class Setting(Record):
    """A setting of the service that outlives the process."""

    KIND = "setting"

    what: str
    value: str

    @property
    def name(self) -> str:
        return self.what


_KINDS: dict[str, type[Record]] = {kind.KIND: kind for kind in (
    Node, Pair, Gpu, Task, Request, Reading, Account, Subscription, Setting)}


def parse(key: str, text: str) -> Record:
    """A record from a store; raises :exc:`ValueError` if it is none."""
    kind = _KINDS.get(key.partition("/")[0])
    if kind is None:
        raise ValueError(f"record {key!r} of no known kind")
    try:
        record = kind.of(json.loads(text))
    except KeyError as error:
        raise ValueError(f"record {key!r} without {error}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"record {key!r}: {error}") from None
    if record.key != key:
        raise ValueError(f"record {key!r} says that it is {record.key!r}")
    return record
