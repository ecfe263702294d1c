"""The pool in memory: records, changes, and the order of durability."""

import asyncio
import logging
import time
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeVar

from .clock import Clock, boot as this_boot, since_boot
from .errors import Conflict, Deposed, NotFound, StoreError
from .lifecycle import BOUND, TRANSITIONS, Cause, State, may
from .records import (
    Binding, Gpu, Node, Pair, Phase, Reading, Record, Request, Role, Task, parse,
)
from .store import Event, Store

__all__ = ["Change", "Pool", "WHO"]

_LOG = logging.getLogger("dxpu_manager")
#: Seconds between two attempts to write to a store that cannot be written.
AGAIN = 1.0
#: The user whose wish is being fulfilled; empty: nobody's.
WHO: ContextVar[str] = ContextVar("WHO", default="")

R = TypeVar("R", bound=Record)


def _order(key: str) -> tuple[int, str, int, str]:
    """Numbers in names, of tasks and of slots, are in order of their values."""
    name, _, slot = key.partition(".")
    return len(name), name, len(slot), slot


class Change:
    """Changes that are made together; :meth:`Pool.change` makes one.

    Nothing is changed if the block raises an exception.
    """

    def __init__(self, pool: "Pool") -> None:
        self._pool = pool
        #: Keys, records as they are from then on or ``None``, and what is said of it.
        self.made: list[tuple[str, Record | None, str]] = []

    def put(self, record: Record, said: str) -> None:
        """A new or changed record."""
        self.made.append((record.key, record, said))

    def remove(self, record: Record, said: str) -> None:
        """Forget a record."""
        self.made.append((record.key, None, said))

    def say(self, kind: str, name: str, said: str) -> None:
        """An event of something that no record has."""
        self.made.append((f"{kind}/{name}", None, said))

    def gpu(self, name: str) -> Gpu:
        """A GPU after the changes so far; raises :exc:`NotFound`."""
        found = self._record(f"{Gpu.KIND}/{name}")
        return found if isinstance(found, Gpu) else self._pool.gpu(name)

    def _record(self, key: str) -> Record | None:
        for made, record, _ in reversed(self.made):
            if made == key:
                return record
        return self._pool.records.get(key)

    def leaves(self, name: str, **fields: Any) -> Gpu:
        """A GPU leaves its host, as somebody wants so: a request that holds the GPU is for one less
        from then on. A broken GPU, or one of a closed box, is to be replaced."""
        gpu = self.gpu(name)
        request = self._record(f"{Request.KIND}/{gpu.request}")
        moved = self.move(name, Cause.DETACH, **fields)
        if (isinstance(request, Request) and request.phase is Phase.HOLDING and not moved.broken
                and not self._pool.node(gpu.box).closed):
            left = tuple(other for other in request.gpus if other != name)
            wanted = request.wish.count - 1
            if wanted:
                self.put(replace(request, gpus=left, wish=replace(request.wish, count=wanted)),
                         f"request {request.number} is for {wanted} from now on, without {name}")
            else:
                self.put(replace(request, gpus=(), phase=Phase.ENDED),
                         f"request {request.number} has ended, without {name}")
        return moved

    def move(self, gpu: str, cause: Cause, **fields: Any) -> Gpu:
        """Lead a GPU to another state, for a cause.

        Raises
        ------
        Conflict
            The state of the GPU does not allow the change.
        """
        held = self.gpu(gpu)
        to = TRANSITIONS[cause][1]
        if not may(held.state, cause):
            raise Conflict(f"GPU {gpu} is {held.state}, not "
                           f"{' or '.join(sorted(TRANSITIONS[cause][0]))}")
        if to not in BOUND:
            fields = {"binding": None, **fields}
            if to is not State.RESERVED:
                fields = {"request": 0, **fields}
        new = replace(held, state=to, cause=cause, since=self._pool.clock(), **fields)
        self.put(new, f"GPU {gpu}: {held.state} -> {to}, {cause}")
        return new


class Pool:
    """All records; :meth:`of` makes one. Changes are made at once here, and written down in order.

    Whoever acts on a change outside of the pool waits for :meth:`durable` before.

    Parameters
    ----------
    store : Store
    held : mapping
        All records in the store, by key.
    newest : int
        Number of the newest event in the store.
    latest : float
        Its time.
    wall : function
        Seconds since 1970, as the machine has them.
    since_boot : function
        Seconds since the machine has started.
    boot : str
        Name of that start.

    Attributes
    ----------
    clock : Clock
        Seconds of the pool: all times in records and events.
    trouble : str
        Why the store cannot be written at present; empty: the store can be written.
    listeners : list of functions
        Called with every durable event.

    Raises
    ------
    StoreError
        A record in the store makes no sense.
    """

    def __init__(self, store: Store, held: Mapping[str, str], newest: int, latest: float,
                 wall: Callable[[], float] = time.time, *,
                 since_boot: Callable[[], float] = since_boot, boot: str = "") -> None:
        self.store, self._number = store, newest
        self.records: dict[str, Record] = {}
        self._kinds: dict[str, dict[str, Record]] = {}
        #: Keys of each kind in order.
        self._ordered: defaultdict[str, list[str]] = defaultdict(list)
        #: Names of GPUs by the box, and by the host of the binding.
        self._of_box: defaultdict[int, set[str]] = defaultdict(set)
        self._of_host: defaultdict[int, set[str]] = defaultdict(set)
        for key, text in held.items():
            try:
                self._keep(key, parse(key, text))
            except ValueError as error:
                raise StoreError(f"the store has a {error}: restore a backup") from None
        self.clock = Clock(self._reading(), latest, wall, since_boot, boot or this_boot())
        #: Changes that are not written yet, each whole.
        self._queue: list[tuple[Event, ...]] = []
        self._written = self._number
        self._writer: asyncio.Task[None] | None = None
        self._step = asyncio.Event()
        self.trouble = ""
        self.deposed = False
        self.listeners: list[Callable[[Event], None]] = []

    @classmethod
    async def of(cls, store: Store, wall: Callable[[], float] = time.time, *,
                 since_boot: Callable[[], float] = since_boot, boot: str = "") -> "Pool":
        """The pool in a store; raises :exc:`StoreError`."""
        held, newest = await store.load()
        latest = 0.0
        async for event in store.events(newest - 1):
            latest = event.time
        return cls(store, held, newest, latest, wall, since_boot=since_boot, boot=boot)

    @property
    def newest(self) -> int:
        """Number of the newest durable event."""
        return self._written

    # Records ------------------------------------------------------------------------------------

    def all(self, kind: type[R]) -> Iterator[R]:
        """All records of a kind, in order of names, and of the numbers in them."""
        held = self._kinds.get(kind.KIND, {})
        for key in tuple(self._ordered[kind.KIND]):
            record = held.get(key)
            if isinstance(record, kind):
                yield record

    def count(self, kind: type[R]) -> int:
        """Number of records of a kind."""
        return len(self._ordered[kind.KIND])

    def last(self, kind: type[R]) -> R | None:
        """The last record of a kind, in order of names."""
        keys = self._ordered[kind.KIND]
        record = self.records[keys[-1]] if keys else None
        return record if isinstance(record, kind) else None

    def _keep(self, key: str, record: Record | None) -> None:
        name = key.partition("/")[0]
        kind, before = self._kinds.setdefault(name, {}), self.records.get(key)
        if before is None and record is not None:
            insort(self._ordered[name], key, key=_order)
        elif before is not None and record is None:
            keys = self._ordered[name]
            del keys[bisect_left(keys, _order(key), key=_order)]
        for records in (self.records, kind):
            if record is None:
                records.pop(key, None)
            else:
                records[key] = record
        for gpu, keep in ((before, set.discard), (record, set.add)):
            if isinstance(gpu, Gpu):
                keep(self._of_box[gpu.box], gpu.name)
                if gpu.binding is not None:
                    keep(self._of_host[gpu.binding.host], gpu.name)

    def _get(self, kind: type[R], name: str, what: str) -> R:
        record = self.records.get(f"{kind.KIND}/{name}")
        if not isinstance(record, kind):
            raise NotFound(f"there is no {what} {name}")
        return record

    def gpu(self, name: str) -> Gpu:
        """A GPU; raises :exc:`NotFound`."""
        return self._get(Gpu, name, "GPU")

    def node(self, serial: int) -> Node:
        """A node; raises :exc:`NotFound`."""
        return self._get(Node, f"{serial:08x}", "node")

    def task(self, number: int) -> Task:
        """A task; raises :exc:`NotFound`."""
        return self._get(Task, str(number), "task")

    def request(self, number: int) -> Request:
        """A request; raises :exc:`NotFound`."""
        return self._get(Request, str(number), "request")

    def pair(self, host: int, box: int) -> Pair | None:
        """The shared key of a host and a box, if there is a key."""
        record = self.records.get(f"pair/{host:08x}-{box:08x}")
        return record if isinstance(record, Pair) else None

    def gpus_of(self, box: int) -> list[Gpu]:
        """GPUs of a box, in order of names."""
        return [self.gpu(name) for name in sorted(self._of_box[box], key=_order)]

    def bound_to(self, host: int) -> dict[int, tuple[Gpu, Binding]]:
        """GPUs of a host whose rows may be bound, by port."""
        gpus = [self.gpu(name) for name in sorted(self._of_host[host], key=_order)]
        return {gpu.binding.port: (gpu, gpu.binding) for gpu in gpus if gpu.binding is not None}

    def partners(self, node: Node) -> list[Node]:
        """Boxes of the GPUs of a host, or hosts of the GPUs of a box."""
        if node.role is Role.HOST:
            found = {gpu.box for gpu, _ in self.bound_to(node.serial).values()}
        else:
            found = {gpu.binding.host for gpu in self.gpus_of(node.serial)
                     if gpu.binding is not None}
        return [self.node(serial) for serial in sorted(found)]

    def _reading(self) -> Reading | None:
        record = self.records.get(f"{Reading.KIND}/pool")
        return record if isinstance(record, Reading) else None

    # Changes ------------------------------------------------------------------------------------

    @contextmanager
    def change(self) -> Iterator[Change]:
        """Make changes, all or none. A step of the machine's clock is noted beside them, for later
        runs; even if there are none.

        Raises
        ------
        StoreError
            The store cannot be written at present, so nothing may be begun; or the changes are too
            many for one write.
        Deposed
        """
        if self.deposed:
            raise Deposed("another manager has taken over")
        if self.trouble:
            raise StoreError(self.trouble)
        change = Change(self)
        if not self.clock.is_known(self._reading()):
            reading = self.clock.reading()
            change.put(reading, f"the machine's clock is {reading.wall - reading.time:+,.0f} s "
                                "from that of the pool")
        yield change
        now = self.clock()
        events = tuple(
            Event(number, now, key, None if record is None else record.text(), said, WHO.get())
            for number, (key, record, said) in enumerate(change.made, self._number + 1))
        if self.store.takes(events) < len(events):
            raise StoreError(f"this is more than the store takes at a time (records: "
                             f"{len(events)}), and nothing was changed: wish for less at a time")
        if not events:
            return
        for key, record, _ in change.made:
            self._keep(key, record)
        self._number = events[-1].number
        self._queue.append(events)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())

    def _batch(self) -> tuple[list[Event], int]:
        """Events of the oldest changes that a single write can take, and how many changes."""
        waiting = [event for events in self._queue for event in events]
        most, batch, changes = self.store.takes(waiting), 0, 0
        for events in self._queue:
            if batch + len(events) > most:
                break
            batch, changes = batch + len(events), changes + 1
        return waiting[:batch], changes

    async def _write(self) -> None:
        """Write all waiting events, many changes in one transaction."""
        while self._queue and not self.deposed:
            batch, changes = self._batch()
            try:
                await self.store.write(batch)
            except Deposed:
                self.deposed = True
            except Exception as error:
                if not isinstance(error, StoreError):
                    _LOG.exception("a fault of the store")
                self.trouble = str(error)
                await asyncio.sleep(AGAIN)
                continue
            else:
                self.trouble = ""
                del self._queue[:changes]
                self._written = batch[-1].number
            self._wake()
            if not self.deposed:
                self._tell(batch)

    def _tell(self, events: list[Event]) -> None:
        for event in events:
            for listener in self.listeners:
                try:
                    listener(event)
                except Exception:
                    _LOG.exception("a listener of the pool has failed")

    async def forget(self, keep: int, seconds: float) -> None:
        """Forget all events but the newest ``keep``, and all that are older than ``seconds``; those
        that give the records before the others stay.

        Raises
        ------
        StoreError, Deposed
        """
        before, since = self._written - keep + 1, self.clock() - seconds
        async for event in self.store.events():
            if event.time >= since:
                break
            before = max(before, event.number + 1)
        # The newest one stays, also if another one was written meanwhile.
        before = min(before, self._written)
        if before > 1:
            await self.store.forget(before)

    async def durable(self) -> None:
        """Wait until all changes so far would survive a crash.

        Raises
        ------
        Deposed
        """
        number = self._number
        while self._written < number and not self.deposed:
            await self._step.wait()
        if self._written < number:
            raise Deposed("another manager has taken over")

    def _wake(self) -> None:
        self._step.set()
        self._step = asyncio.Event()

    def depose(self) -> None:
        """Change nothing any more, as another manager has taken over, or may have."""
        self.deposed = True
        self._wake()
