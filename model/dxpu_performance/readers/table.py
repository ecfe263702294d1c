"""CSV files: reports of ``nsys stats``, and durations that a user writes.

The titles of the columns say which file it is, and in which unit its times are. Lines before the
titles are passed over, as ``nsys`` prints some.
"""

import csv
import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path

from ..workload import Copies, Durations, Operations, Timeline, Workload, WorkloadError
from .names import copy_direction
from .rows import Rows
from .stream import Progress, lines, stream

__all__ = ["UNITS", "read_table"]

#: Nanoseconds in each unit of time.
UNITS = {"ns": 1, "nsec": 1, "us": 1000, "usec": 1000, "µs": 1000, "μs": 1000, "ms": 10 ** 6,
         "msec": 10 ** 6, "s": 10 ** 9, "sec": 10 ** 9}
#: Bytes in each unit of size. Ref: nsys, whose MB are 10^6 bytes
_SIZES = {"byte": 1, "b": 1, "bytes": 1, "kb": 10 ** 3, "mb": 10 ** 6, "gb": 10 ** 9,
          "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
#: The titles are within this many lines.
_FIRST_LINES = 100
#: ``Duration (ns)``, ``Bytes (MB)``, ``duration_us``
_TITLE = re.compile(r"\s*(.*?)(?:\s*\(([^)]*)\)|_([a-zµμ]+))?\s*$")

WANTED = ("a line of titles is missing: `duration_us` or `duration_us,count` (or ns, ms, s), or "
          "those of `nsys stats --format csv` with --report cuda_gpu_trace or cuda_gpu_kern_sum")


class _Titles:
    """Places and units of columns, by lower-case title without unit."""

    def __init__(self, row: list[str]):
        self._places: dict[str, tuple[int, str]] = {}
        for place, text in enumerate(row):
            found = _TITLE.match(text)
            if found and found[1]:
                unit = (found[2] or found[3] or "").lower()
                self._places.setdefault(found[1].strip().lower(), (place, unit))

    def __contains__(self, title: str) -> bool:
        return title in self._places

    def has_time(self, title: str) -> bool:
        return title in self and self._places[title][1] in UNITS

    def text(self, row: list[str], title: str) -> str:
        place = self._places[title][0] if title in self else len(row)
        return row[place].strip() if place < len(row) else ""

    def value(self, row: list[str], title: str, default: float | None = None) -> float:
        text = self.text(row, title)
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise WorkloadError(f"{text[:40]!r} in column {title!r} is no number") from None
        if not math.isfinite(value) or value < 0:
            raise WorkloadError(f"{text[:40]!r} in column {title!r} is negative or no number")
        return value

    def scaled(self, row: list[str], title: str, units: dict[str, int],
               default: float | None = None) -> float:
        if title not in self and default is not None:
            return default
        return self.value(row, title, default) * units.get(self._places[title][1], 1)


def read_table(path: Path, progress: Progress | None = None) -> Workload:
    """The workload of a CSV file; raises :exc:`WorkloadError` with the number of a bad line."""
    with stream(path, progress) as source:
        rows = csv.reader(lines(source))
        try:
            titles = _find_titles(rows)
            if titles is None:
                raise WorkloadError(WANTED)
            if titles.has_time("start") and titles.has_time("duration") and "name" in titles:
                return _of_trace(path.name, titles, rows)
            return _of_durations(path.name, titles, rows)
        except WorkloadError as error:
            if titles is None or "in column" not in str(error):
                raise
            raise WorkloadError(f"line {rows.line_num}: {error}") from None
        except csv.Error as error:
            raise WorkloadError(f"line {rows.line_num}: {error}") from None


def _find_titles(rows: Iterator[list[str]]) -> _Titles | None:
    for row in itertools.islice(rows, _FIRST_LINES):
        titles = _Titles(row)
        if titles.has_time("duration") or (titles.has_time("avg") and "instances" in titles):
            return titles
    return None


def _of_durations(name: str, titles: _Titles, rows: Iterator[list[str]]) -> Workload:
    """A list or a histogram, or the summary of kernels by name."""
    by_name = not titles.has_time("duration")
    duration, count = ("avg", "instances") if by_name else ("duration", "count")
    pairs = Rows("ns", "count", real=True)
    for row in _filled(rows):
        pairs.add(titles.scaled(row, duration, UNITS), titles.value(row, count, 1.0))
    notes = ["Each kernel counts with the mean time of its name: short ones may hide in it. The "
             "report cuda_gpu_trace has each of its own."] if by_name else []
    return Workload(name, Durations.of(**pairs.columns()),
                    source="nsys stats, cuda_gpu_kern_sum" if by_name else "durations",
                    notes=tuple(notes))


def _of_trace(name: str, titles: _Titles, rows: Iterator[list[str]]) -> Workload:
    """Operations of GPUs, without calls of the processor."""
    columns = ("start", "duration", "device", "stream", "correlation", "name")
    kernels, memsets = Rows(*columns, real=True), Rows(*columns, real=True)
    copies = Rows(*columns, "direction", "bytes", real=True)
    names: dict[str, int] = {}
    for row in _filled(rows):
        text = titles.text(row, "name")
        common = (titles.scaled(row, "start", UNITS), titles.scaled(row, "duration", UNITS),
                  _device(titles.text(row, "device")), titles.value(row, "strm", -1.0),
                  titles.value(row, "corrid", -1.0))
        if text.startswith("[CUDA memset"):
            memsets.add(*common, -1)
        elif text.startswith("[CUDA memcpy"):
            copies.add(*common, -1, copy_direction(text),
                       titles.scaled(row, "bytes", _SIZES, 0.0))
        else:
            kernels.add(*common, names.setdefault(text, len(names)))
    timeline = Timeline.of(Operations.of(**kernels.columns()), Copies.of(**copies.columns()),
                           Operations.of(**memsets.columns()), names=tuple(names))
    return Workload.of(name, timeline, source="nsys stats, cuda_gpu_trace", notes=[
        "The report has no calls of CUDA: depths of queues and synchronisations are unknown. "
        "`nsys export --type sqlite` has them."])


def _device(text: str) -> int:
    """Number of a GPU from a text such as ``NVIDIA A100-SXM4-40GB (0)``."""
    found = re.search(r"\((\d{1,6})\)$", text)
    return int(found[1]) if found else 0


def _filled(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    return (row for row in rows if any(cell.strip() for cell in row))
