"""Traces of the PyTorch profiler: Kineto's JSON, also packed by gzip.

The file is parsed as a stream, event by event, so that memory grows with the kernels, copies and
calls, and not with the file. Ref: Kineto, libkineto/src/output_json.cpp (events) and
CuptiActivity.cpp (their arguments).
"""

import io
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from ..workload import CallKind, Calls, Copies, Operations, Timeline, Workload, WorkloadError
from .names import call_kind, copy_direction
from .rows import Rows
from .stream import PIECE, Progress, stream

__all__ = ["read_kineto"]

SOURCE = "PyTorch profiler (Kineto)"
#: What each category of events is; those of 2021 had capitals.
_CATEGORIES = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "memset",
               "cuda_runtime": "call", "cuda_driver": "call", "hip_runtime": "call",
               "cuda_sync": "sync", "Kernel": "kernel", "Memcpy": "copy", "Memset": "memset",
               "Runtime": "call"}
#: Largest time in us whose ns fit a column.
_MOST_US = 1 << 52
#: Control characters become blanks: names of Python functions have held some unescaped.
_BLANKS = bytes(32 if code < 32 and code not in b"\t\n\r" else code for code in range(256))


class _Text:
    """The bytes of a trace as a JSON parser takes them: valid UTF-8 without control characters."""

    def __init__(self, source: io.BufferedReader):
        self._lines = io.TextIOWrapper(source, "utf-8-sig", "replace", newline="")

    def read(self, size: int) -> bytes:
        return self._lines.read(size).encode().translate(_BLANKS)


def read_kineto(path: Path, progress: Progress | None = None) -> Workload:
    """The workload of a trace.

    Raises
    ------
    WorkloadError
        If the file is no trace, is damaged, or has no kernels; the message says what is missing.
    """
    operations = ("start", "duration", "device", "stream", "correlation", "name")
    tables = {"kernel": Rows(*operations), "memset": Rows(*operations),
              "copy": Rows(*operations, "direction", "bytes"),
              "call": Rows("start", "duration", "thread", "correlation", "kind"),
              "sync": Rows("correlation", "device", "stream")}
    names: dict[str, int] = {}
    events = 0
    for event in _events(path, progress):
        events += 1
        category = event.get("cat")
        kind = _CATEGORIES.get(category) if type(category) is str else None
        if kind is None or event.get("ph") != "X":
            continue
        name = str(event.get("name", ""))
        given = event.get("args")
        args = given if type(given) is dict else {}
        if kind == "sync":
            tables[kind].add(_number(args, "correlation"), _number(args, "device"),
                             _waited_for(args))
            continue
        begin, length = _ns(event, "ts"), _ns(event, "dur")
        if kind == "call":
            tables[kind].add(begin, length, _number(event, "tid"), _number(args, "correlation"),
                             call_kind(name))
            continue
        device = _number(args, "device", _number(args, "inDevice", _number(event, "pid")))
        row = (begin, length, device, _number(args, "stream", _number(event, "tid")),
               _number(args, "correlation"))
        if kind == "kernel":
            tables[kind].add(*row, names.setdefault(name, len(names)))
        elif kind == "copy":
            tables[kind].add(*row, -1, copy_direction(name), _number(args, "bytes", 0))
        else:
            tables[kind].add(*row, -1)
    if not len(tables["kernel"]):
        raise WorkloadError(_without_kernels(events, len(tables["call"])))
    notes = []
    if not len(tables["call"]):
        notes.append("No call of CUDA is in the trace: depths of queues and synchronisations are "
                     "unknown. ProfilerActivity.CUDA records them.")
    return Workload.of(path.name, Timeline.of(
        Operations.of(**tables["kernel"].columns()), Copies.of(**tables["copy"].columns()),
        Operations.of(**tables["memset"].columns()), _calls(tables["call"], tables["sync"]),
        tuple(names)), source=SOURCE, notes=notes)


def _events(path: Path, progress: Progress | None) -> Iterator[dict[str, Any]]:
    """The events of a trace, whether the list of events is the whole file or ``traceEvents``."""
    import ijson

    with stream(path, progress) as source:
        start = source.peek(PIECE).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        try:
            for event in ijson.items(_Text(source), "item" if start == b"[" else "traceEvents.item",
                                     buf_size=PIECE):
                if type(event) is dict:
                    yield event
        except ijson.IncompleteJSONError as error:
            if "premature EOF" in str(error):
                raise WorkloadError("its end is missing: the trace is not complete") from None
            raise WorkloadError(_damaged(error)) from None
        except ijson.JSONError as error:
            raise WorkloadError(_damaged(error)) from None


def _damaged(error: Exception) -> str:
    reason = str(error).strip().splitlines() or [""]
    return (f"its JSON is damaged: {reason[0].strip()}; names of Python functions can do that: "
            "record without with_stack")


def _without_kernels(events: int, calls: int) -> str:
    if not events:
        return "no traceEvents are in the file"
    if calls:
        return "the trace has calls of CUDA, but no kernel: nothing ran on a GPU while it recorded"
    return (f"none of its {events} events is a kernel: record with "
            "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]")


def _ns(event: dict[str, Any], key: str) -> int:
    """A time in us as ns, exactly."""
    value = event.get(key)
    if type(value) not in (int, Decimal) or not -_MOST_US < value < _MOST_US:  # type: ignore
        raise WorkloadError(f"an event, {str(event.get('name'))[:40]!r}, has no time in {key!r}")
    return int(value * 1000)  # type: ignore[operator]


def _number(values: dict[str, Any], key: str, default: int = -1) -> int:
    value = values.get(key)
    return value if type(value) is int else default


def _waited_for(args: dict[str, Any]) -> int:
    """Stream that a synchronisation waits for, or -1; 2^32 - 1 stands for none, too."""
    number = _number(args, "wait_on_stream")
    number = number if number >= 0 else _number(args, "stream")
    return -1 if number == 0xFFFF_FFFF else number


def _calls(calls: Rows, syncs: Rows) -> Calls:
    """Calls; those that synchronise have what they wait for, where that was recorded."""
    columns, waits = calls.columns(), syncs.columns()
    device = np.full(len(calls), -1, np.int64)
    stream_ = device.copy()
    if len(syncs):
        order = np.argsort(waits["correlation"], kind="stable")
        known = waits["correlation"][order]
        place = np.minimum(np.searchsorted(known, columns["correlation"]), len(known) - 1)
        found = (known[place] == columns["correlation"]) & (
            columns["kind"] == CallKind.SYNCHRONISE) & (columns["correlation"] >= 0)
        device[found] = waits["device"][order][place[found]]
        stream_[found] = waits["stream"][order][place[found]]
    return Calls.of(**columns, device=device, stream=stream_)
