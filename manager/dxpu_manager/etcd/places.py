"""Records and events at another place, before they are those of the pool."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from ..store import Event
from .layout import EVENTS, ROOM, Keys, event_text, parts, put

__all__ = ["fill"]


async def fill(write: Callable[[Sequence[Any]], Awaitable[None]], keys: Keys,
               records: Mapping[str, str], events: AsyncIterator[Event], newest: int) -> None:
    """Write all records and events at a place, in as many transactions as it takes.

    Parameters
    ----------
    write : function
        Does the operations of one transaction.
    keys : Keys
    records : mapping
    events : iterator
    newest : int
        Number of the newest event.
    """
    batch: list[Any] = []
    room = ROOM

    async def add(key: bytes, value: str) -> None:
        nonlocal room
        size = len(key) + len(value.encode()) + 64
        if batch and (room < size or len(batch) == EVENTS):
            await write(parts(batch))
            batch.clear()
            room = ROOM
        batch.append(put(key, value))
        room -= size

    for key, text in records.items():
        await add(keys.record(key), text)
    async for event in events:
        await add(keys.event(event.number), event_text(event))
    await add(keys.newest, str(newest))
    await write(parts(batch))
