"""Copies of files of SQLite."""

import contextlib
import os
import sqlite3
from pathlib import Path

from .errors import StoreError

__all__ = ["copy", "take_away"]


def copy(database: sqlite3.Connection, to: Path) -> None:
    """Copy a database, as it is at one instant, to a file that its owner alone reads; a file of
    that name is replaced by the whole copy.

    Raises
    ------
    StoreError
    """
    part = to.with_name(to.name + ".part")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_RDWR, 0o600))
        with contextlib.closing(sqlite3.connect(part)) as made:
            database.backup(made)
        take_away(part, "-wal", "-shm")
        part.replace(to)
        folder = os.open(to.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except (OSError, sqlite3.Error) as error:
        with contextlib.suppress(OSError):
            part.unlink()
        why = getattr(error, "strerror", None) or str(error)
        raise StoreError(f"cannot copy the store to {str(to)!r}: {why}") from None


def take_away(path: Path, *ends: str) -> None:
    """Remove a file's companions with such ends, which may be missing."""
    for end in ends:
        path.with_name(path.name + end).unlink(missing_ok=True)
