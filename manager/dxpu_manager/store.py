"""Where the pool's records survive a crash."""

import asyncio
import contextlib
import fcntl
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from .copies import copy
from .errors import StoreError
from .versions import STEPS, VERSION, brought

__all__ = ["Event", "HIGHEST", "SqliteStore", "Store", "VERSION", "kept", "replay", "version_of"]

_LOG = logging.getLogger("dxpu_manager")


@dataclass(frozen=True)
class Event:
    """A change that is written down.

    ``key`` and ``text`` are the record as it is from then on, ``None`` if it is gone; so all events
    in order give all records. ``said`` is for people; ``who`` is the user who wished it, empty if
    there was none.
    """

    number: int
    time: float
    key: str
    text: str | None
    said: str
    who: str = ""

    def with_text(self, text: str) -> "Event":
        """The event of another record."""
        return replace(self, text=text)


class Store(Protocol):
    """Records by key, and the events that made them.

    A write is durable, and whole or not at all. Only one manager writes; ``epoch`` is higher than
    that of each manager before, and fits into 32 bits.
    """

    epoch: int

    async def load(self) -> tuple[dict[str, str], int]:
        """All records, and the number of the newest event; raises :exc:`StoreError`."""

    def takes(self, events: Sequence[Event]) -> int:
        """How many of the events, from the first one on, a single write can take."""

    async def write(self, events: Sequence[Event]) -> None:
        """Write events, whose numbers go on from the newest one, and the records that they say.

        Raises
        ------
        StoreError
            Nothing was written.
        Deposed
            Another manager may have taken over, who knows if the events were written.
        """

    def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Events with higher numbers, in order; raises :exc:`StoreError`."""

    async def outrank(self, epoch: int) -> None:
        """Have a higher epoch than another one from now on, durably.

        Raises
        ------
        StoreError
        Deposed
            Another manager may have taken over.
        """

    async def forget(self, before: int) -> None:
        """Forget events with lower numbers, but for the last one of each record that was there by
        then.

        What is left gives the records at each number from ``before - 1`` on, as ever. The event
        ``before`` is there and stays, so the newest one is never forgotten. A store that takes
        several steps forgets lower numbers first, as a removal may be forgotten only after what it
        removes; so what an interrupted attempt leaves is right too. Writes may go on beside.

        Raises
        ------
        StoreError
        Deposed
            Another manager may have taken over.
        """

    def leads(self) -> bool:
        """Whether no other manager can have taken over, by the clock of this machine."""

    async def lost(self) -> str:
        """Wait until another manager may have taken over, for ever if need be; returns why."""

    async def close(self) -> None:
        """Let another manager have the store."""


#: "DXPU", so that no other file is taken for a store.
_APPLICATION = 0x44585055
#: The highest epoch: that of a node's register.
HIGHEST = 0xFFFF_FFFF


class SqliteStore:
    """A store in a file of SQLite, for a single manager.

    Only its owner may read the file, as the keys of pairs are in it. Next to it are a lock, which
    keeps a second manager out, and SQLite's own log.

    Parameters
    ----------
    path : Path
        Made if it is not there. A store of an older version is brought to the present one, whole or
        not at all, after a copy of the older one was laid beside it (:func:`kept`).
    write_down : function
        Called before each transaction becomes durable, and after; for tests.
    keeps : bool
        Whether that copy is made.

    Raises
    ------
    StoreError
        If the file is no store, or is of a newer version, or in use, or cannot be written.
    """

    def __init__(self, path: Path, write_down: Callable[[str], None] = lambda when: None, *,
                 keeps: bool = True) -> None:
        self.path, self._write_down, self._keeps = path, write_down, keeps
        self._lock = self._take_lock()
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._database = sqlite3.connect(path, isolation_level=None)
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            os.close(self._lock)
            raise self._wrong(error) from None
        except StoreError:
            self.shut()
            raise

    def _wrong(self, error: Exception) -> StoreError:
        if isinstance(error, sqlite3.DatabaseError) and "not a database" in str(error):
            return StoreError(f"{str(self.path)!r} is no store: give another file, or restore a "
                              "backup")
        why = getattr(error, "strerror", None) or str(error)
        return StoreError(f"the store {str(self.path)!r} cannot be used: {why}")

    def _take_lock(self) -> int:
        try:
            lock = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise self._wrong(error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise StoreError(f"the store {str(self.path)!r} is in use by another manager: stop "
                             "that one first") from None
        return lock

    def _prepare(self) -> None:
        do = self._database.execute
        application, = do("PRAGMA application_id").fetchone()
        version, = do("PRAGMA user_version").fetchone()
        is_empty = not do("SELECT 1 FROM sqlite_master").fetchone()
        if application != _APPLICATION and not is_empty:
            raise StoreError(f"{str(self.path)!r} is a database, but no store of a pool: give "
                             "another file")
        if version > VERSION:
            raise StoreError(f"the store {str(self.path)!r} has version {version}, and this "
                             f"program knows {VERSION}: use the newer program")
        damage, = do("PRAGMA quick_check(1)").fetchone()
        if damage != "ok":
            raise StoreError(f"the store {str(self.path)!r} is damaged ({damage}): restore a "
                             "backup")
        do("PRAGMA journal_mode = WAL")
        do("PRAGMA synchronous = FULL")
        if 0 < version < VERSION and self._keeps:
            copy(self._database, kept(self.path, version))
            _LOG.warning("the store %r has version %d: it is kept as %r, and brought to version %d",
                         str(self.path), version, str(kept(self.path, version)), VERSION)
        do("BEGIN IMMEDIATE")
        self._upgrade(version)
        do("UPDATE manager SET epoch = epoch + 1")
        self.epoch: int = do("SELECT epoch FROM manager").fetchone()[0]
        do("COMMIT")

    def _upgrade(self, version: int) -> None:
        """Take all steps from a version on, within a transaction."""
        do = self._database.execute
        for step in STEPS[version:]:
            for statement in step.tables:
                do(statement)
        for table, name in (("record", "key"), ("event", "number")):
            rows = do(f"SELECT {name}, key, text FROM {table} WHERE text IS NOT NULL").fetchall()
            for row, key, text in rows:
                try:
                    now = brought(key, text, version)
                except ValueError as error:
                    raise StoreError(f"the store {str(self.path)!r} cannot be brought to version "
                                     f"{VERSION}: record {key!r}: {error}: restore a backup"
                                     ) from None
                if now != text:
                    do(f"UPDATE {table} SET text = ? WHERE {name} = ?", (now, row))
        do(f"PRAGMA application_id = {_APPLICATION}")
        do(f"PRAGMA user_version = {VERSION}")

    async def load(self) -> tuple[dict[str, str], int]:
        """All records, and the number of the newest event."""
        do = self._database.execute
        try:
            newest, = do("SELECT max(number) FROM event").fetchone()
            return dict(do("SELECT key, text FROM record")), newest or 0
        except sqlite3.Error as error:
            raise self._wrong(error) from None

    def takes(self, events: Sequence[Event]) -> int:
        """A transaction takes any number of events."""
        return len(events)

    async def write(self, events: Sequence[Event]) -> None:
        """Write events and records; the loop waits until they are on the disk."""
        do = self._database.execute
        self._write_down("before")
        try:
            do("BEGIN IMMEDIATE")
            for event in events:
                do("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)",
                   (event.number, event.time, event.key, event.text, event.said, event.who))
                if event.text is None:
                    do("DELETE FROM record WHERE key = ?", (event.key,))
                else:
                    do("INSERT INTO record VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET text = "
                       "excluded.text", (event.key, event.text))
            do("COMMIT")
        except (OSError, sqlite3.Error) as error:
            if self._database.in_transaction:
                do("ROLLBACK")
            raise self._wrong(error) from None
        self._write_down("after")

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Events with higher numbers, in order."""
        try:
            for row in self._database.execute(
                    "SELECT * FROM event WHERE number > ? ORDER BY number", (after,)):
                yield Event(*row)
        except sqlite3.Error as error:
            raise self._wrong(error) from None

    async def forget(self, before: int) -> None:
        """Forget events with lower numbers, but for those that give the records by then; the file
        does not shrink, but has room."""
        try:
            self._database.execute(
                "DELETE FROM event WHERE number < :before AND (text IS NULL OR number NOT IN "
                "(SELECT max(number) FROM event WHERE number < :before GROUP BY key))",
                {"before": before})
        except sqlite3.Error as error:
            raise self._wrong(error) from None

    async def outrank(self, epoch: int) -> None:
        """Have a higher epoch than another one from now on."""
        if epoch >= HIGHEST:
            raise StoreError(f"no epoch is above {epoch}: reset the nodes")
        try:
            self._database.execute("UPDATE manager SET epoch = max(epoch, ?)", (epoch + 1,))
        except sqlite3.Error as error:
            raise self._wrong(error) from None
        self.epoch = max(self.epoch, epoch + 1)

    def leads(self) -> bool:
        """The lock keeps other managers out."""
        return True

    async def lost(self) -> str:
        """Nobody takes over from the holder of the lock."""
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    async def close(self) -> None:
        """Let another manager have the store."""
        self.shut()

    def shut(self) -> None:
        """As :meth:`close`, for who has no loop."""
        self._database.close()
        os.close(self._lock)


def kept(path: Path, version: int) -> Path:
    """Where the copy of a store is that had an older version."""
    return path.with_name(f"{path.name}.version-{version}")


def version_of(path: Path) -> int:
    """Version of a store that is there; 0 if nobody can tell."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(
            sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        application, = database.execute("PRAGMA application_id").fetchone()
        version, = database.execute("PRAGMA user_version").fetchone()
        return int(version) if application == _APPLICATION else 0
    return 0


def replay(events: Iterable[Event]) -> Mapping[str, str]:
    """The records that events give."""
    records: dict[str, str] = {}
    for event in events:
        if event.text is None:
            records.pop(event.key, None)
        else:
            records[event.key] = event.text
    return records
