"""Who runs the coroutines of a root port, and what a nanosecond is there.

Outside of a simulation asyncio runs them, and times are those of the clock on the wall.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

__all__ = ["AsyncioTasks", "Tasks"]


class Tasks(Protocol):
    """What a root port needs of a scheduler."""

    def start(self, work: Coroutine) -> None:
        """Run ``work`` beside the caller."""

    def queue(self) -> Any:
        """A queue with ``put_nowait`` and ``await get()``."""

    def event(self) -> Any:
        """An event with ``set``, ``is_set`` and ``await wait()``."""

    async def sleep(self, ns: int) -> None:
        """Wait for at least ``ns`` nanoseconds."""

    async def wait(self, event: Any, ns: int) -> bool:
        """Wait for an event, at most ``ns`` nanoseconds; returns whether it came."""


class AsyncioTasks:
    """:class:`Tasks` of an event loop of asyncio.

    Parameters
    ----------
    failed : function
        Called with the exception of a task that ends in one.
    """

    def __init__(self, failed: Callable[[BaseException], None]):
        self._failed = failed
        self._running: set[asyncio.Task] = set()

    def start(self, work):
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task):
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def end(self) -> None:
        """Cancel all tasks that still run."""
        for task in self._running:
            task.cancel()

    def queue(self):
        return asyncio.Queue()

    def event(self):
        return asyncio.Event()

    async def sleep(self, ns):
        # asyncio's clock is coarser than a nanosecond: a millisecond is the shortest wait.
        await asyncio.sleep(max(ns / 1e9, 0.001))

    async def wait(self, event, ns):
        try:
            await asyncio.wait_for(event.wait(), ns / 1e9)
        except TimeoutError:
            return False
        return True
