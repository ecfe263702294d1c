"""The format of a file, by content, and its reader."""

import re
from collections.abc import Callable
from pathlib import Path

from ..workload import Workload, WorkloadError
from .durations import read_durations
from .kineto import read_kineto
from .nsight import read_nsight
from .stream import Progress, head
from .table import read_table

__all__ = ["read"]

#: What to do with files that are known by name, but are not read.
_OTHERS = {".nsys-rep": "export it: `nsys export --type sqlite FILE`",
           ".qdrep": "export it: `nsys export --type sqlite FILE`",
           ".ncu-rep": "Nsight Compute has no timeline: record with Nsight Systems",
           ".pb": "export the trace as JSON: `prof.export_chrome_trace(\"trace.json\")`"}
#: How JSON with durations begins; traces begin with other keys.
_DURATIONS = re.compile(rb'\{\s*"(?:counts|durations_)')


def read(path: str | Path, progress: Progress | None = None) -> Workload:
    """The workload of a file: SQLite of Nsight Systems, JSON of Kineto, CSV, or durations as JSON.

    JSON and CSV may be packed by gzip. ``progress`` is called with the share that was read.

    Raises
    ------
    WorkloadError
        If the file cannot be opened, is of no known format, is damaged, or lacks what the model
        needs. The message is one line that begins with the name of the file.
    """
    path = Path(path)
    try:
        return _reader(path)(path, progress)
    except WorkloadError as error:
        message = str(error)
    except OSError as error:
        message = (error.strerror or str(error)).lower()
    except MemoryError:
        message = "there is not enough memory for it"
    raise WorkloadError(" ".join(f"{path}: {message}".split()))


def _reader(path: Path) -> Callable[[Path, Progress | None], Workload]:
    if not path.is_file() and path.exists():
        raise WorkloadError("is no file")
    start = head(path)
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"SQLite format 3\0"):
        return read_nsight
    if path.suffix in _OTHERS:
        raise WorkloadError(_OTHERS[path.suffix])
    if not text:
        raise WorkloadError("is empty")
    if _DURATIONS.match(text):
        return read_durations
    if text[:1] in (b"{", b"["):
        return read_kineto
    if b"\0" in text:
        raise WorkloadError("is no SQLite database, no JSON and no CSV")
    return read_table
