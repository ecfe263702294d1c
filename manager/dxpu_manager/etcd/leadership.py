"""Who leads among several managers: the leader's key in etcd, which lives as long as a lease."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from aetcd import rpc

from ..errors import Deposed, StoreError
from .client import Etcd, Unanswered
from .layout import found, get, if_created, put

__all__ = ["PAUSE", "Leadership", "boot_time"]

_LOG = logging.getLogger("dxpu_manager")

#: Seconds before another attempt.
PAUSE = 0.1


def boot_time() -> float:
    """Seconds of a clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leadership:
    """The leader's key, of this manager or of another one.

    Each write is a transaction that asks for the key as it was created. So a manager without the
    key writes nothing, whatever its clock says.

    Parameters
    ----------
    etcd : Etcd
    key : bytes
    name : str
        What the key says of this manager.
    ttl : int
        Seconds of the lease.
    clock : function
        Seconds of a clock that never stops.

    Attributes
    ----------
    revision : int
        Revision of etcd at which the key of this manager was created; 0: not yet.
    wait : float
        Seconds for an answer of etcd.
    """

    def __init__(self, etcd: Etcd, key: bytes, name: str, ttl: int,
                 clock: Callable[[], float]) -> None:
        self._etcd, self._key, self._name, self._ttl, self.clock = etcd, key, name, ttl, clock
        self.revision, self.wait = 0, max(1.0, ttl / 3)
        self._lease, self._deadline = 0, 0.0
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._keeping: list[asyncio.Task[None]] = []

    async def take(self, conditions: Sequence[Any], operations: Sequence[Any]) -> bool:
        """Take the key, if nobody has it and the conditions hold, and do operations with that.

        Raises
        ------
        StoreError, Unanswered
        """
        if self._lost.done():
            self._lost = asyncio.get_running_loop().create_future()
        sent = self.clock()
        self._lease, seconds = await self._etcd.grant(self._ttl, self.wait)
        request = rpc.TxnRequest(
            compare=[if_created(self._key, 0), *conditions],
            success=[put(self._key, self._name, lease=self._lease), *operations])
        with suppress(Unanswered):  # the key says what has become of it
            await self._etcd.txn(request, self.wait)
        leader, _ = await self._now()
        if leader is None or leader.lease != self._lease:
            await self._etcd.revoke(self._lease, self.wait)
            return False
        self.revision, self._deadline = leader.create_revision, sent + seconds
        begin_task = asyncio.get_running_loop().create_task
        self._keeping = [begin_task(self._keep()), begin_task(self._mind_the_clock())]
        return True

    async def _now(self) -> tuple[Any, int]:
        """The leader's key, and etcd's revision."""
        answer = await self._etcd.txn(rpc.TxnRequest(success=[get(self._key)]), self.wait)
        return found(answer, 0), answer.header.revision

    async def until_free(self) -> None:
        """Wait until the leader's key has gone: by a watch from what was seen last, and by another
        look now and then, as a watch may die in silence."""
        while True:
            leader, revision = await self._now()
            if leader is None:
                return
            try:
                async with asyncio.timeout(self._ttl):
                    await self._etcd.until_deleted(self._key, revision + 1)
            except TimeoutError:
                continue

    async def _keep(self) -> None:
        """Let the lease go on, and see that the key is there."""
        while self.leads():
            sent, pause = self.clock(), self._ttl / 3
            try:
                seconds = await self._etcd.keep_alive(self._lease, self.wait)
                if seconds <= 0:
                    return self.lose("the lease of this manager has ended")
                leader, _ = await self._now()
                if not self.is_ours(leader):
                    return self.lose("the leader's key in etcd is not this manager's any more")
                self._deadline = sent + seconds
            except (Unanswered, StoreError) as error:
                _LOG.warning("the lease of this manager is not renewed: %s", error)
                pause = PAUSE
            await asyncio.sleep(pause)
        return None

    async def _mind_the_clock(self) -> None:
        while (left := self._deadline - self.clock()) > 0:
            await asyncio.sleep(left)
        self.lose("the lease of this manager may have run out: etcd has not answered in time")

    def is_ours(self, leader: Any) -> bool:
        """Whether a pair is this manager's key."""
        return leader is not None and leader.create_revision == self.revision

    def lose(self, why: str) -> None:
        """Lead no more, for a reason."""
        if not self._lost.done():
            self._lost.set_result(why)

    def leads(self) -> bool:
        """Whether no other manager can have taken over, by the clock of this machine."""
        return not self._lost.done() and self.clock() < self._deadline

    async def lost(self) -> str:
        """Wait until another manager may have taken over; returns why."""
        return await asyncio.shield(self._lost)

    async def let_go(self) -> None:
        """Lead no longer; perhaps again later, unless another manager may have taken over."""
        has_lease = self._lease and (self.leads() or not self._keeping)
        keeping, self._keeping, self._deadline = self._keeping, [], 0.0
        for task in keeping:
            task.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)
        if has_lease:
            try:
                await self._etcd.revoke(self._lease, self.wait)
            except (Unanswered, StoreError) as error:
                _LOG.warning("the lease of this manager ends by itself: %s", error)

    def why_not(self) -> str:
        """Why this manager leads no more."""
        return self._lost.result() if self._lost.done() else (
            "the lease of this manager may have run out")

    async def guarded(self, operations: Sequence[Any], *conditions: Any) -> None:
        """Do operations that do no harm if done twice, if this manager leads; nothing more is done
        when an earlier attempt has ended the conditions."""
        request = rpc.TxnRequest(
            compare=[if_created(self._key, self.revision), *conditions],
            success=operations, failure=[get(self._key)])
        while self.leads():
            try:
                answer = await self._etcd.txn(request, self.wait)
            except Unanswered:
                await asyncio.sleep(PAUSE)
                continue
            if answer.succeeded or self.is_ours(found(answer, 0)):
                return
            self.lose("another manager leads")
        raise Deposed("another manager has taken over")
