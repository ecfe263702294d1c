"""What goes on beside the caller: tasks of :mod:`asyncio`, of which no fault is lost."""

import asyncio
import logging
from collections.abc import Coroutine
from contextvars import Context
from typing import Any

from dxpu_manage import Stale

from .errors import Deposed
from .pool import Pool

__all__ = ["Background"]

_LOG = logging.getLogger("dxpu_manager")


class Background:
    """Coroutines that go on by themselves until :meth:`close`.

    An exception is written to the log; :exc:`~dxpu_manage.Stale` and :exc:`Deposed` end the
    manager's work, as another manager has taken over.

    Parameters
    ----------
    pool : Pool

    Attributes
    ----------
    deposed : asyncio.Event
        Set when another manager has taken over.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.deposed = asyncio.Event()
        self._doing: set[asyncio.Task[None]] = set()

    def begin(self, does: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let a coroutine go on, for nobody in particular."""
        task = asyncio.get_running_loop().create_task(does, context=Context())
        self._doing.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._doing.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, (Stale, Deposed)):
            self.depose()
        elif isinstance(error, Exception):
            _LOG.error("a fault of the manager itself", exc_info=error)

    def depose(self) -> None:
        """Another manager has taken over, or may have: nothing is changed any more."""
        self._pool.depose()
        self.deposed.set()
        for task in self._doing - {asyncio.current_task()}:
            task.cancel()

    async def until_lost(self) -> None:
        """End the manager's work when the store is lost to another manager."""
        _LOG.warning("%s; this manager stops", await self._pool.store.lost())
        self.depose()

    async def close(self) -> None:
        """Cancel all coroutines, and wait until each has ended."""
        doing = [*self._doing]
        for each in doing:
            each.cancel()
        await asyncio.gather(*doing, return_exceptions=True)
