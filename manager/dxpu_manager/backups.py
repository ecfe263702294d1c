"""Copies of a store of SQLite, and back.

Ref: dxpu_manager.etcd.backups for those of a pool in etcd
"""

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from .copies import copy as _copied, take_away
from .errors import StoreError
from .store import Event, SqliteStore

__all__ = ["FAR", "backup", "copied", "make", "restore"]

#: More starts than any manager had since a backup.
FAR = 1 << 16


def backup(path: Path, to: Path) -> None:
    """Copy a store, as it is at one instant, to a file that is not there yet; a manager may work
    with the store meanwhile.

    Raises
    ------
    StoreError
    """
    if to.exists():
        raise StoreError(f"{str(to)!r} is there already")
    if not path.exists():
        raise StoreError(f"there is no store {str(path)!r}")
    copied(path, to)


def make(path: Path, records: Iterable[tuple[str, str]], events: Iterable[Event],
         epoch: int) -> None:
    """Make a store of records and events, whole or not at all.

    Raises
    ------
    StoreError
    """
    part = path.with_name(path.name + ".part")
    try:
        take_away(part, "", "-wal", "-shm")
        SqliteStore(part).shut()
        with contextlib.closing(sqlite3.connect(part)) as database, database:
            database.executemany("INSERT INTO record VALUES (?, ?)", records)
            database.executemany("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)", (
                (event.number, event.time, event.key, event.text, event.said, event.who)
                for event in events))
            database.execute("UPDATE manager SET epoch = ?", (epoch,))
        part.replace(path)
    except (OSError, sqlite3.Error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise StoreError(f"cannot make the store {str(path)!r}: {why}") from None
    finally:
        take_away(part, "", "-wal", "-shm", ".lock")


def restore(copy: Path, path: Path) -> Path | None:
    """Put a copy in place of a store that nobody uses; returns the name of the former store.

    The epoch is above that of each manager that had the former store.

    Raises
    ------
    StoreError
    """
    if not copy.exists():
        raise StoreError(f"there is no backup {str(copy)!r}")
    with _nobody_uses(path):
        part = path.with_name(path.name + ".restored")
        copied(copy, part)
        try:
            _raise_epoch(part, _epoch_of(path))
            SqliteStore(part, keeps=False).shut()
            kept = _put_aside(path)
            part.rename(path)
        except OSError as error:
            raise StoreError(f"cannot put {str(copy)!r} in place: {error.strerror}") from None
        finally:
            take_away(part, "", "-wal", "-shm", ".lock")
    return kept


@contextlib.contextmanager
def _nobody_uses(path: Path) -> Iterator[None]:
    try:
        lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise StoreError(f"cannot write beside {str(path)!r}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StoreError(f"the store {str(path)!r} is in use by a manager: stop it first") from None
    finally:
        os.close(lock)


def _epoch_of(path: Path) -> int | None:
    """Epoch of the newest manager of a store, if somebody can read it."""
    if not path.exists():
        return None
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return int(database.execute("SELECT epoch FROM manager").fetchone()[0])
    except (sqlite3.Error, TypeError):
        return None


def _raise_epoch(path: Path, former: int | None) -> None:
    """Nodes refuse managers with lower epochs than that of the last one, which may be unknown."""
    try:
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            if former is None:
                database.execute("UPDATE manager SET epoch = epoch + ?", (FAR,))
            else:
                database.execute("UPDATE manager SET epoch = max(epoch, ?)", (former,))
    except sqlite3.Error as error:
        raise StoreError(f"the copy is no store: {error}") from None


def _put_aside(path: Path) -> Path | None:
    """Rename a store, with SQLite's files beside it."""
    if not path.exists():
        return None
    stamp, number = time.strftime("%Y%m%d-%H%M%S"), 0
    kept = path.with_name(f"{path.name}.{stamp}")
    while kept.exists():
        number += 1
        kept = path.with_name(f"{path.name}.{stamp}-{number}")
    for end in ("", "-wal", "-shm"):
        if path.with_name(path.name + end).exists():
            path.with_name(path.name + end).rename(kept.with_name(kept.name + end))
    return kept


def copied(path: Path, to: Path) -> None:
    """Copy a store to a file; raises :exc:`StoreError`."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
            _copied(store, to)
    except sqlite3.Error as error:
        raise StoreError(f"cannot copy {str(path)!r} to {str(to)!r}: {error}") from None
