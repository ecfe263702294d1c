"""The store in etcd: a leader by lease, whose epoch guards each write.

Keys below the prefix: ``version`` of this layout, ``leader`` with the leader's name while the lease
lasts, ``newest`` with the number of the newest event, ``record/KEY``, ``event/NUMBER``.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any

from aetcd import rpc

from ..errors import Deposed, StoreError
from ..store import Event
from .client import Etcd, Unanswered

__all__ = ["EtcdStore", "leader_of"]

_LOG = logging.getLogger("dxpu_manager")

#: Version of the layout that this program writes.
VERSION = 1
_MARK = "dxpu pool "
#: The highest epoch: that of a node's register.
HIGHEST = 0xFFFF_FFFF
#: Bytes of one write, and of events in it: etcd takes 1.5 MiB, and in each of nested transactions
#: as many operations as 128 less those of the outer one.
ROOM, EVENTS = 1_000_000, 1500
_PART = 64
#: Seconds before another attempt, and those in which etcd must be found at the start.
PAUSE, PATIENCE = 0.1, 5.0


def _boot_time() -> float:
    """Seconds of a clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _get(key: bytes, **words: Any) -> Any:
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key, **words))


def _put(key: bytes, value: str, **words: Any) -> Any:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value.encode(), **words))


def _delete(key: bytes) -> Any:
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))


def _if_created(key: bytes, revision: int) -> Any:
    """Whether a key was created at a revision; 0: whether there is none."""
    return rpc.Compare(key=key, target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL,
                       create_revision=revision)


def _if_is(key: bytes, value: str) -> Any:
    return rpc.Compare(key=key, target=rpc.Compare.VALUE, result=rpc.Compare.EQUAL,
                       value=value.encode())


def _found(answer: Any, number: int) -> Any:
    """The pair that an operation of a transaction has read, or ``None``."""
    pairs = answer.responses[number].response_range.kvs
    return pairs[0] if pairs else None


def _text(event: Event) -> str:
    return json.dumps([event.time, event.key, event.text, event.said], separators=(",", ":"))


async def leader_of(etcd: Etcd, seconds: float = PATIENCE) -> str | None:
    """Name of the manager that leads; ``None``: there is none at present.

    Raises
    ------
    StoreError
    """
    try:
        answer = await etcd.txn(rpc.TxnRequest(success=[_get(etcd.prefix + b"leader")]), seconds)
    except Unanswered as error:
        raise StoreError(str(error)) from None
    found = _found(answer, 0)
    return None if found is None else found.value.decode()


class EtcdStore:
    """A store in etcd, of a manager that leads; :meth:`lead` makes one.

    The leader's key lives as long as the lease, and each write is a transaction that asks for that
    key, as it was created. So a manager without the key writes nothing, whatever its clock says.

    Attributes
    ----------
    epoch : int
        Revision of etcd at which the leader's key was created.
    """

    def __init__(self, etcd: Etcd, name: str, ttl: int, clock: Callable[[], float]) -> None:
        self._etcd, self._name, self._ttl, self._clock = etcd, name, ttl, clock
        self._version, self._leader, self._newest_key = (
            etcd.prefix + key for key in (b"version", b"leader", b"newest"))
        self._wait = max(1.0, ttl / 3)
        self.epoch, self._lease, self._newest = 0, 0, 0
        self._deadline = 0.0
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._keeping: list[asyncio.Task[None]] = []

    # Who leads ----------------------------------------------------------------------------------

    @classmethod
    async def lead(cls, etcd: Etcd, name: str = "", *, ttl: int = 3,
                   clock: Callable[[], float] = _boot_time) -> "EtcdStore":
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
            or those of a newer version; the epoch would not fit into the nodes' registers.
        """
        store = cls(etcd, name, ttl, clock)
        try:
            await store._wait_and_lead()
        except BaseException:
            await store.close()
            raise
        return store

    async def _wait_and_lead(self) -> None:
        began, known, said = self._clock(), False, ""
        while True:
            try:
                if await self._take_over():
                    return
                known = True
                await self._until_free()
                said = ""
            except Unanswered as error:
                if not known and self._clock() - began > PATIENCE:
                    raise StoreError(str(error)) from None
                if known and said != str(error):
                    said = str(error)
                    _LOG.warning("a manager that waits: %s", said)
                await asyncio.sleep(PAUSE)

    async def _take_over(self) -> bool:
        """Take the leader's key, if it is nobody's."""
        prefix = self._etcd.prefix
        answer = await self._etcd.txn(rpc.TxnRequest(success=[
            _get(self._leader), _get(self._version),
            _get(prefix, range_end=prefix[:-1] + bytes([prefix[-1] + 1]), limit=1,
                 keys_only=True)]), self._wait)
        version = self._checked(_found(answer, 1), _found(answer, 2))
        if _found(answer, 0) is not None:
            return False
        sent = self._clock()
        self._lease, seconds = await self._etcd.grant(self._ttl, self._wait)
        first = [] if version else [_put(self._version, f"{_MARK}{VERSION}"),
                                    _put(self._newest_key, "0")]
        request = rpc.TxnRequest(
            compare=[_if_created(self._leader, 0),
                     _if_is(self._version, version) if version else _if_created(self._version, 0)],
            success=[_put(self._leader, self._name, lease=self._lease), *first])
        with suppress(Unanswered):  # the key says what has become of it
            await self._etcd.txn(request, self._wait)
        leader, self._newest, _ = await self._held()
        if leader is None or leader.lease != self._lease:
            await self._etcd.revoke(self._lease, self._wait)
            return False
        if leader.create_revision > HIGHEST:
            await self._etcd.revoke(self._lease, self._wait)
            raise StoreError(f"etcd is at revision {leader.create_revision}, and epochs of nodes "
                             "have 32 bits: move the pool to a new etcd, and reset the nodes")
        self.epoch, self._deadline = leader.create_revision, sent + seconds
        begin = asyncio.get_running_loop().create_task
        self._keeping = [begin(self._keep()), begin(self._mind_the_clock())]
        return True

    def _checked(self, version: Any, any_key: Any) -> str:
        """The version's text, empty if nothing is there yet."""
        if version is None and any_key is None:
            return ""
        text: str = "" if version is None else version.value.decode(errors="replace")
        number = text.removeprefix(_MARK)
        if not text.startswith(_MARK) or not number.isdecimal():
            raise StoreError(f"below {self._etcd.prefix.decode()!r} in etcd is something else than "
                             "a pool: give another prefix")
        if int(number) > VERSION:
            raise StoreError(f"the store in etcd has version {number}, and this program knows "
                             f"{VERSION}: use the newer program")
        return text

    async def _held(self) -> tuple[Any, int, int]:
        """The leader's key, the number of the newest event, and etcd's revision."""
        return self._held_in(await self._etcd.txn(rpc.TxnRequest(
            success=[_get(self._leader), _get(self._newest_key)]), self._wait))

    def _held_in(self, answer: Any) -> tuple[Any, int, int]:
        newest = _found(answer, 1)
        if newest is not None and not newest.value.isdigit():
            raise StoreError("the store in etcd has no number of the newest event: restore a "
                             "snapshot")
        return _found(answer, 0), int(newest.value) if newest else 0, answer.header.revision

    async def _until_free(self) -> None:
        """Wait until the leader's key has gone: by a watch from what was seen last, and by another
        look now and then, as a watch may die in silence."""
        while True:
            leader, _, revision = await self._held()
            if leader is None:
                return
            try:
                async with asyncio.timeout(self._ttl):
                    await self._etcd.until_deleted(self._leader, revision + 1)
            except TimeoutError:
                continue

    async def _keep(self) -> None:
        """Let the lease go on, and see that the key is there."""
        while self.leads():
            sent, pause = self._clock(), self._ttl / 3
            try:
                seconds = await self._etcd.keep_alive(self._lease, self._wait)
                if seconds <= 0:
                    return self._lose("the lease of this manager has ended")
                leader, _, _ = await self._held()
                if not self._is_ours(leader):
                    return self._lose("the leader's key in etcd is not this manager's any more")
                self._deadline = sent + seconds
            except (Unanswered, StoreError) as error:
                _LOG.warning("the lease of this manager is not renewed: %s", error)
                pause = PAUSE
            await asyncio.sleep(pause)
        return None

    async def _mind_the_clock(self) -> None:
        while (left := self._deadline - self._clock()) > 0:
            await asyncio.sleep(left)
        self._lose("the lease of this manager may have run out: etcd has not answered in time")

    def _is_ours(self, leader: Any) -> bool:
        return leader is not None and leader.create_revision == self.epoch

    def _lose(self, why: str) -> None:
        if not self._lost.done():
            self._lost.set_result(why)

    def leads(self) -> bool:
        """Whether no other manager can have taken over, by the clock of this machine."""
        return not self._lost.done() and self._clock() < self._deadline

    async def lost(self) -> str:
        """Wait until another manager may have taken over; returns why."""
        return await asyncio.shield(self._lost)

    async def close(self) -> None:
        """Let another manager lead at once."""
        has_lease = self._lease and (self.leads() or not self._keeping)
        self._lose("this manager has let go of the store")
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        if has_lease:
            try:
                await self._etcd.revoke(self._lease, self._wait)
            except (Unanswered, StoreError) as error:
                _LOG.warning("the lease of this manager ends by itself: %s", error)
        await self._etcd.close()

    # Records and events -------------------------------------------------------------------------

    async def load(self) -> tuple[dict[str, str], int]:
        """All records, and the number of the newest event."""
        begin = self._etcd.prefix + b"record/"
        try:
            records = {pair.key[len(begin):].decode(): pair.value.decode() async for pair in
                       self._etcd.pages(begin, begin[:-1] + b"0", PATIENCE)}
            _, newest, _ = await self._held()
        except Unanswered as error:
            raise StoreError(str(error)) from None
        return records, newest

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Events with higher numbers, in order."""
        begin = self._etcd.prefix + b"event/"
        try:
            async for pair in self._etcd.pages(self._event_key(after + 1), begin[:-1] + b"0",
                                               PATIENCE):
                yield Event(int(pair.key[len(begin):], 16), *json.loads(pair.value))
        except Unanswered as error:
            raise StoreError(str(error)) from None

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
        for n in range(0, len(goes), _PART):
            await self._guarded([_delete(self._event_key(number)) for number in goes[n:n + _PART]])

    async def _guarded(self, operations: Sequence[Any]) -> None:
        """Do operations that do no harm if done twice, if this manager leads."""
        request = rpc.TxnRequest(compare=[_if_created(self._leader, self.epoch)],
                                 success=operations)
        while self.leads():
            try:
                answer = await self._etcd.txn(request, self._wait)
            except Unanswered:
                await asyncio.sleep(PAUSE)
                continue
            if answer.succeeded:
                return
            self._lose("another manager leads")
        raise Deposed("another manager has taken over")

    def _event_key(self, number: int) -> bytes:
        return b"%sevent/%016x" % (self._etcd.prefix, number)

    def _record_key(self, key: str) -> bytes:
        return self._etcd.prefix + b"record/" + key.encode()

    def takes(self, events: Sequence[Event]) -> int:
        """As many as fit into a transaction of etcd."""
        room = ROOM
        for n, event in enumerate(events):
            room -= (len(_text(event)) + len((event.text or "").encode())
                     + 2 * len(self._record_key(event.key)) + 64)
            if room < 0 or n == EVENTS:
                return n
        return len(events)

    def _request(self, events: Sequence[Event]) -> Any:
        """The transaction that writes events, unless another manager leads or other events are the
        newest; then it says who leads, and which event is the newest."""
        records = {self._record_key(event.key): event.text for event in events}
        operations = [
            *(_put(self._event_key(event.number), _text(event)) for event in events),
            *(_delete(key) if text is None else _put(key, text)
              for key, text in records.items())]
        parts = [rpc.RequestOp(request_txn=rpc.TxnRequest(success=operations[n:n + _PART]))
                 for n in range(0, len(operations), _PART)]
        return rpc.TxnRequest(
            compare=[_if_created(self._leader, self.epoch),
                     _if_is(self._newest_key, str(events[0].number - 1))],
            success=[_put(self._newest_key, str(events[-1].number)), *parts],
            failure=[_get(self._leader), _get(self._newest_key)])

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
                raise Deposed(self._lost.result() if self._lost.done() else
                              "the lease of this manager may have run out")
            try:
                answer = await self._etcd.txn(self._request(left), self._wait)
            except Unanswered:
                await asyncio.sleep(PAUSE)
                continue
            if answer.succeeded:
                break
            leader, newest, _ = self._held_in(answer)
            if not self._is_ours(leader):
                self._lose("another manager leads")
                raise Deposed("another manager has taken over")
            done = newest - left[0].number + 1
            if not 0 < done <= len(left):
                raise StoreError(f"event {newest} in etcd is of no manager: restore a snapshot")
            del left[:done]
        self._newest = numbers[-1] if numbers else self._newest
