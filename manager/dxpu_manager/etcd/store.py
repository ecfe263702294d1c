"""The store in etcd: a leader by lease, whose epoch guards each write.

What the keys are says :mod:`.layout`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from aetcd import rpc

from ..errors import Deposed, StoreError
from ..store import HIGHEST, Event
from ..versions import VERSION, brought
from .asks import PATIENCE
from .client import Etcd, Unanswered
from .layout import (
    EVENTS, ROOM, Keys, delete, event_of, event_text, found, get, if_created, if_is,
    number_in, parts, put, version_in, version_text,
)
from .leadership import PAUSE, Leadership, boot_time
from .places import fill

__all__ = ["EtcdStore"]

_LOG = logging.getLogger("dxpu_manager")

#: Operations of a step that may be done twice, and of which the order matters.
_FEW = 64


class EtcdStore:
    """A store in etcd, of a manager that leads; :meth:`lead` makes one.

    Attributes
    ----------
    epoch : int
        Base of the pool and revision of etcd at which the leader's key was created.
    """

    def __init__(self, etcd: Etcd, name: str, ttl: int, clock: Callable[[], float]) -> None:
        self._etcd, self._keys = etcd, Keys(etcd.prefix)
        self._leadership = Leadership(etcd, self._keys.leader, name, ttl, clock)
        self.epoch, self._newest = 0, 0

    # Who leads ----------------------------------------------------------------------------------

    @classmethod
    async def lead(cls, etcd: Etcd, name: str = "", *, ttl: int = 3,
                   clock: Callable[[], float] = boot_time) -> "EtcdStore":
        """Wait until no other manager leads, and lead.

        Parameters
        ----------
        etcd : Etcd
            Closed with the store.
        name : str
            For :func:`leader_of`, such as an address for clients.
        ttl : int
            Seconds of the lease: after so many seconds without a sign of the leader another
            manager takes over. etcd makes it 2 at least.
        clock : function
            Seconds of a clock that never stops.

        Raises
        ------
        StoreError
            There is no etcd, it has no quorum, or refuses; there are other keys below the prefix,
            or those of a newer version; the epoch would not fit into the nodes' registers. A pool
            of an older version is brought to the present one, whole or not at all; the older one
            stays in etcd, at its own place, until the next time.
        """
        store = cls(etcd, name, ttl, clock)
        try:
            await store._wait_and_lead()
        except BaseException:
            await store.close()
            raise
        return store

    async def _wait_and_lead(self) -> None:
        leadership, known, said = self._leadership, False, ""
        began = leadership.clock()
        while True:
            try:
                if await self._take_over():
                    return
                known = True
                await leadership.until_free()
                said = ""
            except Unanswered as error:
                if not known and leadership.clock() - began > PATIENCE:
                    raise StoreError(str(error)) from None
                if known and said != str(error):
                    said = str(error)
                    _LOG.warning("a manager that waits: %s", said)
                await asyncio.sleep(PAUSE)

    async def _take_over(self) -> bool:
        """Take the leader's key, if it is nobody's."""
        self._keys = keys = Keys(self._etcd.prefix)
        begin, end = keys.everything()
        answer = await self._etcd.txn(rpc.TxnRequest(success=[
            get(keys.leader), get(keys.version),
            get(begin, range_end=end, limit=1, keys_only=True)]), self._leadership.wait)
        version = version_in(keys.prefix, found(answer, 1), found(answer, 2))
        if found(answer, 0) is not None:
            return False
        first = keys.next()
        conditions = [if_is(keys.version, version_text(version)) if version else
                      if_created(keys.version, 0)]
        if not await self._leadership.take(conditions, [] if version else [
                put(keys.version, version_text(VERSION)), put(keys.at, first.place),
                put(first.newest, "0")]):
            return False
        try:
            await self._settle()
        except Unanswered:
            await self._leadership.let_go()
            raise
        return True

    async def _settle(self) -> None:
        """As the leader, find out where all is, and bring it to the present version."""
        keys = self._keys
        at, base, version = await self._read(keys.at, keys.base, keys.version)
        self._keys = keys = Keys(keys.prefix, at.value.decode() if at is not None else "")
        newest, = await self._read(keys.newest)
        self._newest = number_in(newest, "newest event")
        self.epoch = self._base_above(number_in(base, "epoch") + self._leadership.revision - 1
                                      ) + self._leadership.revision
        held = version_in(keys.prefix, version, version)
        if held < VERSION:
            _LOG.warning("the store in etcd has version %d: it stays at its place, and is brought "
                         "to version %d", held, VERSION)
            await self._bring(held)

    def _base_above(self, epoch: int) -> int:
        """The base with which the epoch is above another one; 0 if that needs none."""
        revision = self._leadership.revision
        base = max(0, epoch + 1 - revision)
        if base + revision > HIGHEST:
            raise StoreError(f"the epoch would be {base + revision}, and epochs of nodes have 32 "
                             "bits: move the pool to a new etcd, and reset the nodes")
        return base

    async def _read(self, *keys: bytes) -> list[Any]:
        """Pairs of some keys, as they are at one instant."""
        answer = await self._etcd.txn(rpc.TxnRequest(success=[get(key) for key in keys]),
                                      self._leadership.wait)
        return [found(answer, n) for n in range(len(keys))]

    def leads(self) -> bool:
        """Whether no other manager can have taken over, by the clock of this machine."""
        return self._leadership.leads()

    async def lost(self) -> str:
        """Wait until another manager may have taken over; returns why."""
        return await self._leadership.lost()

    async def close(self) -> None:
        """Let another manager lead at once."""
        await self._leadership.let_go()
        self._leadership.lose("this manager has let go of the store")
        await self._etcd.close()

    # Records and events -------------------------------------------------------------------------

    async def load(self) -> tuple[dict[str, str], int]:
        """All records, and the number of the newest event."""
        keys = self._keys
        try:
            records = {pair.key[len(keys.records):].decode(): pair.value.decode() async for pair in
                       self._etcd.pages(*keys.all_of(keys.records), PATIENCE)}
            newest, = await self._read(keys.newest)
        except Unanswered as error:
            raise StoreError(str(error)) from None
        return records, number_in(newest, "newest event")

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Events with higher numbers, in order."""
        keys = self._keys
        try:
            async for pair in self._etcd.pages(
                    *keys.all_of(keys.events, keys.event(after + 1)), PATIENCE):
                yield event_of(pair.key, pair.value)
        except Unanswered as error:
            raise StoreError(str(error)) from None

    async def outrank(self, epoch: int) -> None:
        """Have a higher epoch than another one from now on."""
        if epoch >= self.epoch:
            keys, before = self._keys, self.epoch - self._leadership.revision
            base = self._base_above(epoch)
            await self._leadership.guarded(
                [put(keys.base, str(base))],
                if_is(keys.base, str(before)) if before else if_created(keys.base, 0))
            self.epoch = base + self._leadership.revision

    async def forget(self, before: int) -> None:
        """Forget events with lower numbers, but for those that give the records by then; some at a
        time."""
        last: dict[str, int] = {}
        numbers: list[int] = []
        async for event in self.events():
            if event.number >= before:
                break
            numbers.append(event.number)
            last[event.key] = event.number if event.text is not None else 0
        stays = set(last.values())
        goes = [number for number in numbers if number not in stays]
        for n in range(0, len(goes), _FEW):
            await self._leadership.guarded([delete(self._keys.event(number))
                                            for number in goes[n:n + _FEW]])

    # Other records in place of all ----------------------------------------------------------------

    async def _bring(self, version: int) -> None:
        """Bring all to the present version."""
        try:
            held, newest = await self.load()
            records = {key: brought(key, text, version) for key, text in held.items()}
            await self.replace(records, self._brought(version), newest)
        except ValueError as error:
            raise StoreError(f"the store in etcd cannot be brought to version {VERSION}: a record: "
                             f"{error}: restore a backup with --damaged") from None

    async def _brought(self, version: int) -> AsyncIterator[Event]:
        async for event in self.events():
            yield event if event.text is None else event.with_text(
                brought(event.key, event.text, version))

    async def replace(self, records: Mapping[str, str], events: AsyncIterator[Event], newest: int,
                      *, above: int = 0) -> None:
        """Put other records and events in place of all, at one instant; the former ones stay in
        etcd, at their place, until the next time.

        Parameters
        ----------
        records : mapping
        events : iterator
            In order; their newest number is ``newest``.
        above : int
            An epoch that nodes may have had; that of this manager is higher afterwards.

        Raises
        ------
        StoreError, Deposed
            All is as before.
        """
        keys, now = self._keys, self._keys.next()
        # An attempt that comes late finds another place, and does nothing.
        here = if_is(keys.at, keys.place) if keys.place else if_created(keys.at, 0)

        async def write(operations: Sequence[Any]) -> None:
            await self._leadership.guarded(operations, here)

        # What an interrupted attempt has left goes, and what was before the present place.
        await write(keys.others())
        await fill(write, now, records, events, newest)
        base = self._base_above(max(self.epoch - 1, above))
        await write([put(keys.at, now.place), put(keys.version, version_text(VERSION)),
                     put(keys.base, str(base))])
        self._keys, self._newest = now, newest
        self.epoch = base + self._leadership.revision

    # Writes -------------------------------------------------------------------------------------

    def takes(self, events: Sequence[Event]) -> int:
        """As many as fit into a transaction of etcd."""
        room = ROOM
        for n, event in enumerate(events):
            room -= (len(event_text(event)) + len((event.text or "").encode())
                     + 2 * len(self._keys.record(event.key)) + 64)
            if room < 0 or n == EVENTS:
                return n
        return len(events)

    def _request(self, events: Sequence[Event]) -> Any:
        """The transaction that writes events, unless another manager leads or other events are the
        newest; then it says who leads, and which event is the newest."""
        keys = self._keys
        records = {keys.record(event.key): event.text for event in events}
        operations = [
            *(put(keys.event(event.number), event_text(event)) for event in events),
            *(delete(key) if text is None else put(key, text)
              for key, text in records.items())]
        return rpc.TxnRequest(
            compare=[if_created(keys.leader, self._leadership.revision),
                     if_is(keys.newest, str(events[0].number - 1))],
            success=[put(keys.newest, str(events[-1].number)), *parts(operations)],
            failure=[get(keys.leader), get(keys.newest)])

    async def write(self, events: Sequence[Event]) -> None:
        """Write events and records in one transaction.

        An attempt without an answer is made again, with what is not written yet: numbers of events
        tell, also if the first attempt comes to etcd later.
        """
        numbers = [event.number for event in events]
        if numbers != list(range(self._newest + 1, self._newest + 1 + len(numbers))):
            raise StoreError(f"events {', '.join(map(str, numbers))} do not follow event "
                             f"{self._newest}, which is the newest")
        left = list(events)
        while left:
            if not self.leads():
                raise Deposed(self._leadership.why_not())
            try:
                answer = await self._etcd.txn(self._request(left), self._leadership.wait)
            except Unanswered:
                await asyncio.sleep(PAUSE)
                continue
            if answer.succeeded:
                break
            newest = number_in(found(answer, 1), "newest event")
            if not self._leadership.is_ours(found(answer, 0)):
                self._leadership.lose("another manager leads")
                raise Deposed("another manager has taken over")
            done = newest - left[0].number + 1
            if not 0 < done <= len(left):
                raise StoreError(f"event {newest} in etcd is of no manager: restore a "
                                 "backup with --damaged")
            del left[:done]
        self._newest = numbers[-1] if numbers else self._newest
