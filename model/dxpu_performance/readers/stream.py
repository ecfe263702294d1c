"""Bytes of a file, packed by gzip or plain, piece by piece, with the share that was read."""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..workload import WorkloadError

__all__ = ["Progress", "head", "lines", "stream"]

#: Called with the share of a file that was read, 0 to 1, now and then.
Progress = Callable[[float], None]
#: Bytes taken at a time.
PIECE = 1 << 20


class _Stream(io.RawIOBase):
    """Reads ``source``, and reports how far ``raw``, the file below, was read."""

    def __init__(self, source: Any, raw: IO[bytes], size: int, progress: Progress | None):
        self._source, self._raw, self._size, self._progress = source, raw, size, progress

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        data = self._source.read(len(buffer))
        buffer[:len(data)] = data
        if self._progress and self._size:
            self._progress(min(self._raw.tell() / self._size, 1.0))
        return len(data)


@contextmanager
def stream(path: Path, progress: Progress | None = None) -> Iterator[io.BufferedReader]:
    """The bytes of a file, unpacked if gzip packed them.

    Raises
    ------
    WorkloadError
        If what gzip packed is damaged or its end is missing.
    """
    with open(path, "rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        size = path.stat().st_size
        source: Any = gzip.GzipFile(fileobj=raw) if packed else raw
        try:
            yield io.BufferedReader(_Stream(source, raw, size, progress), PIECE)
        except EOFError:
            raise WorkloadError("its end is missing: what gzip packed is not complete") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise WorkloadError(f"what gzip packed is damaged: {error}") from None


def head(path: Path, length: int = 1 << 16) -> bytes:
    """The first bytes of a file, unpacked; raises :exc:`WorkloadError` as :func:`stream` does."""
    with stream(path) as source:
        return source.read(length)


def lines(source: io.BufferedReader) -> io.TextIOWrapper:
    """The bytes as lines of text; what is no UTF-8 becomes U+FFFD."""
    return io.TextIOWrapper(source, "utf-8-sig", "replace", newline="")
