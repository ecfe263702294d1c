"""Content-addressed cache of what is slow to make (generated Verilog, Verilator builds, proofs).

It lives outside the clone, so that a fresh clone of the same sources is as quick as the old one:
``$DXPU_CACHE``, else ``$XDG_CACHE_HOME/dxpu``, else ``~/.cache/dxpu``. Deleting it is always safe.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import shutil
from functools import cache
from pathlib import Path

__all__ = ["cache_root", "digest", "entry", "source_digest", "tree_digest",
           "version"]


def cache_root() -> Path:
    """Folder of the cache; made if it is not there."""
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


@cache
def source_digest() -> str:
    """Digest of every source file that can shape hardware: ``dxpu`` and ``dxpu_sim.hdl``."""
    import dxpu
    import dxpu_sim.hdl
    return digest(version("amaranth"), *(tree_digest(Path(package.__file__).parent)
                                         for package in (dxpu, dxpu_sim.hdl)))


@cache
def tree_digest(root: Path) -> str:
    """Digest of names and text of all Python files below a folder."""
    return digest(*(x for path in sorted(root.rglob("*.py"))
                    for x in (path.relative_to(root).as_posix(), path.read_bytes())))


@contextlib.contextmanager
def entry(kind: str, key: str):
    """Folder of the cache entry ``kind``/``key``, and whether it is complete.

    Yields ``(path, done)``. If ``done`` is false the caller fills ``path``; the entry becomes
    complete when the block is left without an exception, and is emptied otherwise. Only one process
    at a time is inside for one key, so parallel tests build a design once.
    """
    folder = cache_root() / kind
    folder.mkdir(parents=True, exist_ok=True)
    path, stamp = folder / key, folder / f"{key}.done"
    with open(folder / f"{key}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = stamp.exists() and path.exists()
        if not done:
            # Whoever dies while he fills it must not leave it with an old stamp.
            stamp.unlink(missing_ok=True)
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
        try:
            yield path, done
        except BaseException:
            if not done:
                shutil.rmtree(path, ignore_errors=True)
            raise
        if not done:
            stamp.touch()
