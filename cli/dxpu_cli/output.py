"""Result folder of a command.

Only one run at a time uses the folder. The files of a run stay apart until they are complete. Files
of a good run replace the files of the last good run. Files of a bad run go to the folder
:data:`FAILED`. An interrupted run leaves nothing.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from dxpu_tools.errors import UserError
from dxpu_tools.room import check_room

from .options import folder_to_write

__all__ = ["FAILED", "OutputFolder"]

#: Names in the folder: files of the present run, files of the last bad run, lock of the present
#: run.
WORK, FAILED, LOCK = ".new", "failed", ".lock"


class OutputFolder:
    """Context manager for the result folder of a command; the block has the folder for itself.

    Parameters
    ----------
    option : str
        Option for the folder, used in messages; empty without an option.
    text : str
        Value of the option.
    room : int
        Bytes that a run may write; entry fails with less free room.

    Attributes
    ----------
    path : path
        The folder; created if missing.
    work : path
        Folder inside ``path`` for the files of the run; removed at the end of the block.

    Raises
    ------
    ~dxpu_tools.errors.UserError
        On entry: the folder is no folder, cannot be written, is full, or is in use by another run.
    """

    def __init__(self, option: str, text: str, *, room: int = 1 << 20):
        self._option, self._room = option, room
        self._name = f"{option} {text!r}" if option else f"folder {text!r}"
        self.path = folder_to_write(option or "the folder", text)
        self.work = self.path / WORK
        self._old = self.path / f"{WORK}-old"
        self._lock = None
        self._made: list[Path] = []

    def __enter__(self):
        elsewhere = f" or give another {self._option}" if self._option else ""
        check_room(self.path, self._room, self._name, f"free some space,{elsewhere}"
                   if elsewhere else "free some space")
        try:
            missing = [p for p in (self.path, *self.path.parents) if not p.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            self._made = missing
            self._take(f"wait until it has ended,{elsewhere}" if elsewhere
                       else "wait until it has ended")
            self._clear()
            self.work.mkdir()
        except OSError as error:
            self._release()
            reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
            raise UserError(f"cannot write to {self._name}: {reason}") from None
        return self

    def _take(self, remedy):
        path = self.path / LOCK
        while True:
            lock = open(path, "a+")  # noqa: SIM115
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with lock:
                    who = _reader(lock)
                raise UserError(f"another run{who} writes to {self._name}: {remedy}") from None
            # The former owner may have removed the file.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                    break
            lock.close()
        self._lock = lock
        lock.truncate(0)
        json.dump({"process": os.getpid(), "since": time.strftime("%H:%M:%S")}, lock)
        lock.flush()

    def _clear(self):
        """Clean up after a killed run: results under replacement come back."""
        shutil.rmtree(self.work, ignore_errors=True)
        if self._old.is_dir():
            for place in list(self._old.iterdir()):
                if not (self.path / place.name).exists():
                    place.rename(self.path / place.name)
            shutil.rmtree(self._old)

    def good(self, names: Iterable[str]) -> None:
        """End a good run: its files under ``names`` replace the former files.

        A name without a new file has no file afterwards.
        """
        names = list(names)
        old = self._old
        old.mkdir()
        moved = []
        try:
            for name in names:
                place = self.path / name
                if place.exists() or place.is_symlink():
                    place.rename(old / name)
                    moved.append(name)
            for name in names:
                if (self.work / name).exists():
                    (self.work / name).rename(self.path / name)
        except BaseException:
            # Either all former files or all new files.
            for name in names:
                if name in moved:
                    _remove(self.path / name)
                    (old / name).rename(self.path / name)
            raise
        finally:
            shutil.rmtree(old, ignore_errors=True)
        _remove(self.path / FAILED)

    def bad(self) -> Path:
        """End a bad run: keep its files in place of those of the last bad run; returns the
        folder."""
        kept = self.path / FAILED
        _remove(kept)
        self.work.rename(kept)
        return kept

    def as_kept(self, words: str) -> str:
        """A message with file names of a bad run, changed to the names given by :meth:`bad`."""
        for work in (self.work.absolute(), self.work):
            words = words.replace(str(work), str(self.path / FAILED))
        return words

    def __exit__(self, kind, error, trace):
        shutil.rmtree(self.work, ignore_errors=True)
        self._release()

    def _release(self):
        if self._lock is not None:
            (self.path / LOCK).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None
        for path in self._made:
            try:
                path.rmdir()
            except OSError:  # the folder is not empty
                break


def _reader(lock):
    """Owner of a lock, as text from the lock file."""
    try:
        lock.seek(0)
        said = json.load(lock)
        return f" (process {said['process']}, since {said['since']})"
    except (ValueError, KeyError, TypeError):
        return ""


def _remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
