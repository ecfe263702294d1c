"""Durable events of a pool, handed to everybody who listens."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from ..pool import Pool
from ..records import Record, parse
from ..store import Event

__all__ = ["Hub", "Listener", "Notice"]

#: Events that wait for a listener; one that is slower is told so, and ends.
BACKLOG = 1000


@dataclass(frozen=True)
class Notice:
    """An event for people and programs, without secrets.

    ``kind`` and ``name`` are those of the record, which is ``None`` if it has gone; ``who`` is the
    user who wished it.
    """

    number: int
    time: float
    kind: str
    name: str
    said: str
    record: Record | None
    who: str = ""


class Listener:
    """Notices for a reader, in order; an iterator that ends if the reader is too slow."""

    def __init__(self, backlog: int) -> None:
        self._backlog: int = backlog
        self._waiting: deque[Notice] = deque()
        self._woken = asyncio.Event()
        #: Notices were lost, as the reader was too slow.
        self.lagged = False
        self.closed = False

    def give(self, notice: Notice) -> None:
        """Another notice, if there is room."""
        if self.closed:
            return
        if len(self._waiting) >= self._backlog:
            self.lagged = self.closed = True
        else:
            self._waiting.append(notice)
        self._woken.set()

    def close(self) -> None:
        """End after what waits already."""
        self.closed = True
        self._woken.set()

    async def next(self, timeout: float | None = None) -> Notice | None:
        """The next notice; ``None`` after a time without one, or at the end."""
        while not self._waiting:
            if self.closed:
                return None
            self._woken.clear()
            try:
                await asyncio.wait_for(self._woken.wait(), timeout)
            except TimeoutError:
                return None
        return self._waiting.popleft()


class Hub:
    """Hands each durable event of a pool to all listeners.

    Parameters
    ----------
    pool : Pool
    backlog : int
        Events that may wait for a listener.
    """

    def __init__(self, pool: Pool, backlog: int = BACKLOG) -> None:
        self.pool, self._backlog = pool, backlog
        self.listeners: set[Listener] = set()
        #: Listeners that were too slow, since the start.
        self.lagged = 0
        pool.listeners.append(self._came)

    def _came(self, event: Event) -> None:
        notice = _notice(event)
        for listener in list(self.listeners):
            listener.give(notice)
            if listener.lagged:
                self.lagged += 1
                self.listeners.discard(listener)

    def listen(self) -> Listener:
        """A listener to all events from now on; :meth:`leave` ends it."""
        listener = Listener(self._backlog)
        self.listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        """Hand nothing more to a listener."""
        listener.close()
        self.listeners.discard(listener)

    def close(self) -> None:
        """End all listeners."""
        for listener in list(self.listeners):
            self.leave(listener)

    async def follow(self, after: int | None = None, *,
                     quiet: float | None = None) -> AsyncIterator[Notice | None]:
        """Notices with numbers above ``after``, old ones first; without ``after``, new ones alone.

        ``None`` is given after ``quiet`` seconds without a notice.
        """
        listener = self.listen()
        try:
            newest = after
            if after is not None:
                async for event in self.pool.store.events(after):
                    newest = event.number
                    yield _notice(event)
            while True:
                notice = await listener.next(quiet)
                if notice is None:
                    if listener.closed:
                        return
                    yield None
                elif newest is None or notice.number > newest:
                    yield notice
        finally:
            self.leave(listener)


def _notice(event: Event) -> Notice:
    kind, _, name = event.key.partition("/")
    record = None if event.text is None else parse(event.key, event.text)
    return Notice(event.number, event.time, kind, name, event.said, record, event.who)
