"""Content-addressed cache of results that are slow to make (generated Verilog, Verilator builds,
proofs).

The cache lies outside the clone, so that a fresh clone of the same sources is as quick as the old
clone: ``$DXPU_CACHE``, else ``$XDG_CACHE_HOME/dxpu``, else ``~/.cache/dxpu``. Deleting the cache is
always safe.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Entry", "cache_root", "digest", "entries", "entry", "holds", "remove", "sweep",
           "version"]


def cache_root() -> Path:
    """Folder of the cache; created if missing."""
    root = os.environ.get("DXPU_CACHE")
    if not root:
        root = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                            "dxpu")
    path = Path(root)
    path.mkdir(parents=True, exist_ok=True)
    return path


def digest(*parts: object) -> str:
    """Hexadecimal digest of ``parts``; strings and bytes by value, all else by ``repr``."""
    h = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            part = part.encode()
        elif not isinstance(part, bytes):
            part = repr(part).encode()
        h.update(len(part).to_bytes(8, "little") + part)
    return h.hexdigest()[:32]


@cache
def version(package: str) -> str:
    """Installed version of ``package``."""
    return importlib.metadata.version(package)


@contextlib.contextmanager
def entry(kind: str, key: str, waiting: Callable[[], None] = lambda: None):
    """Folder of the cache entry ``kind``/``key``, and whether the entry is complete.

    Yields ``(path, done)``. If ``done`` is false, the caller fills ``path``. The entry becomes
    complete when the block ends without an exception, and is emptied otherwise. Only one process at
    a time is inside the block for one key, so parallel tests build a design once; ``waiting`` is
    called before waiting for another process. Before a process fills an entry, remains of killed
    processes are removed.
    """
    path, stamp = _places(kind, key)
    with _locked(kind, key, waiting):
        done = stamp.exists() and path.exists()
        if not done:
            sweep()
            # A process killed while filling the entry must not leave an old stamp behind.
            stamp.unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
        try:
            yield path, done
        except BaseException:
            if not done:
                shutil.rmtree(path, ignore_errors=True)
            raise
        # The time of the stamp is also the time of last use.
        with contextlib.suppress(*[OSError] if done else []):
            stamp.touch()


def holds(kind: str, key: str) -> bool:
    """Whether an entry is complete."""
    path, stamp = _places(kind, key)
    return stamp.exists() and path.exists()


@dataclass(frozen=True)
class Entry:
    """An item of the cache. ``used`` is the time of last use, in seconds since the epoch."""

    kind: str
    key: str
    complete: bool
    size: int
    used: float


def entries() -> list[Entry]:
    """All entries of the cache, including those of interrupted or running builds."""
    found = []
    for folder in sorted(path for path in cache_root().iterdir() if path.is_dir()):
        for path in sorted(folder.iterdir()):
            if path.suffix not in (".done", ".lock"):
                stamp = folder / f"{path.name}.done"
                with contextlib.suppress(FileNotFoundError):
                    found.append(Entry(
                        folder.name, path.name, not _unfinished(path), _size(path),
                        (stamp if stamp.exists() else path).stat().st_mtime))
    return found


def remove(entry: Entry) -> bool:
    """Remove an entry; returns False if a process is using the entry."""
    path, stamp = _places(entry.kind, entry.key)
    try:
        with _locked(entry.kind, entry.key, _refuse) as lock:
            stamp.unlink(missing_ok=True)
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    return True


_swept = False


def sweep() -> None:
    """Remove remains of killed builds; only the first call in a process has an effect."""
    global _swept
    if _swept:
        return
    _swept = True
    for path in list(cache_root().glob("*/*")):
        if _unfinished(path):
            with contextlib.suppress(OSError):
                remove(Entry(path.parent.name, path.name, False, 0, 0.0))


def _unfinished(path):
    """Whether ``path`` is a folder under construction, or left by a killed process.

    Folders not made by :func:`entry` have no lock.
    """
    return (path.with_name(f"{path.name}.lock").exists()
            and not path.with_name(f"{path.name}.done").exists() and path.is_dir())


def _places(kind, key):
    folder = cache_root() / kind
    return folder / key, folder / f"{key}.done"


def _refuse():
    raise BlockingIOError


@contextlib.contextmanager
def _locked(kind, key, waiting):
    """Exclusive access to an entry in the block; yields the lock file, which may be removed."""
    path = cache_root() / kind / f"{key}.lock"
    with contextlib.ExitStack() as held:
        while True:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = held.enter_context(open(path, "w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(lock, fcntl.LOCK_EX)
            # The former holder may have removed the file; others then lock a new file.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                    break
            held.close()
        yield path


def _size(path):
    """Bytes on the disk, of a file or of all files below a folder."""
    total = path.lstat().st_blocks * 512
    if path.is_dir() and not path.is_symlink():
        for below in path.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                total += below.lstat().st_blocks * 512
    return total
