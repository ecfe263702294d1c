"""Where a simulated manager keeps its records: a file, or an etcd outside of the simulated time."""

import asyncio
import sqlite3
import threading
from contextlib import closing

from dxpu_cli.bench.etcd_members import PATIENCE
from dxpu_manager import SqliteStore

__all__ = ["EtcdShelf", "FileShelf"]

#: Seconds that a write takes.
_SLOW = 0.05


class _SlowFile(SqliteStore):
    """A store on a disk that takes its time."""

    async def write(self, events):
        await asyncio.sleep(_SLOW)
        await super().write(events)


class FileShelf:
    """A file.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path):
        self._path = path

    def open(self, act):
        """The store; ``act`` is called before and after each write."""
        return _SlowFile(self._path, act)

    def text(self, key):
        """A record as it is written down, or ``None``."""
        with closing(sqlite3.connect(self._path)) as database:
            found = database.execute("SELECT text FROM record WHERE key = ?", (key,)).fetchone()
        return found and found[0]


class _SlowEtcd:
    """A store in etcd, in a loop of its own; time in the manager's stands still meanwhile."""

    def __init__(self, store, do, act):
        self._store, self._do, self._act = store, do, act
        self.takes, self.leads = store.takes, store.leads

    @property
    def epoch(self):
        return self._store.epoch

    async def outrank(self, epoch):
        self._do(self._store.outrank(epoch))

    async def load(self):
        return self._do(self._store.load())

    async def write(self, events):
        await asyncio.sleep(_SLOW)
        self._act("before")
        self._do(self._store.write(events))
        self._act("after")

    async def events(self, after=0):
        async def all():
            return [event async for event in self._store.events(after)]

        for event in self._do(all()):
            yield event

    async def forget(self, before):
        self._do(self._store.forget(before))

    async def lost(self):
        await asyncio.get_running_loop().create_future()

    async def close(self):
        self._do(self._store.close())


class EtcdShelf:
    """A prefix in an etcd.

    Parameters
    ----------
    endpoints, prefix : str
    """

    def __init__(self, endpoints, prefix):
        self._endpoints, self._prefix = endpoints, prefix
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._reads = None

    def _do(self, does):
        return asyncio.run_coroutine_threadsafe(does, self._loop).result(PATIENCE)

    def open(self, act):
        """The store; ``act`` is called before and after each write."""
        from dxpu_manager.etcd import Etcd, EtcdStore

        async def lead():
            if self._reads is None:
                self._reads = Etcd(self._endpoints)
            return await EtcdStore.lead(Etcd(self._endpoints, prefix=self._prefix), ttl=60)

        return _SlowEtcd(self._do(lead()), self._do, act)

    def text(self, key):
        """A record as it is written down, or ``None``."""
        async def read():
            begin = f"{self._prefix}store/00000001/record/{key}".encode()
            return [pair.value.decode() async for pair in
                    self._reads.pages(begin, begin + b"\0", PATIENCE)]

        found = self._do(read())
        return found[0] if found else None

    def close(self):
        """No store is open any more."""
        if self._reads is not None:
            self._do(self._reads.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
