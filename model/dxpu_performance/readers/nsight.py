"""SQLite exports of Nsight Systems (``nsys export --type sqlite``).

Tables are made only for what occurred, and their columns differ by version, so that the reader
looks at the schema of each file. Ref: Nsight Systems, "SQLite Export Schema Reference"
"""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from ..workload import (NARROW, CallKind, Calls, Copies, Direction, Integers, Operations, Timeline,
                        Workload, WorkloadError, fits)
from .names import call_kind
from .stream import Progress

__all__ = ["read_nsight"]

SOURCE = "Nsight Systems SQLite"
_PREFIX = "CUPTI_ACTIVITY_KIND_"
#: Direction of each copyKind. Ref: ENUM_CUDA_MEMCPY_OPER; arrays are memory of the GPU.
_DIRECTIONS = {1: Direction.TO_DEVICE, 2: Direction.TO_HOST, 3: Direction.TO_DEVICE,
               4: Direction.TO_HOST, 5: Direction.IN_DEVICE, 6: Direction.IN_DEVICE,
               7: Direction.IN_DEVICE, 8: Direction.IN_DEVICE, 10: Direction.PEER,
               11: Direction.TO_DEVICE, 12: Direction.TO_HOST, 13: Direction.PEER}
#: A stream of this number, or of -1, is none. Ref: CUPTI_SYNCHRONIZATION_INVALID_VALUE
_NO_STREAM = 0xFFFF_FFFF
#: Bits of a GlobalId below those of the process. Ref: "Serialized process and thread identifiers"
_PROCESS_BIT = 24
#: Bytes that a row takes at least.
_LEAST_ROW = 8
#: Rows that are read at a time.
_STEP = 1 << 14

Rows = dict[str, npt.NDArray[Any]]
#: Types of columns that are kept in less than 64 bits.
_TYPES = {"device": np.int32, "name": np.int32, "kind": np.int16}


def read_nsight(path: Path, progress: Progress | None = None) -> Workload:
    """The workload of an export.

    Correlations and streams of several processes are kept apart: those of the second process begin
    at 2^32, and so on.

    Raises
    ------
    WorkloadError
        If the file is damaged, or has no kernels; the message says which table is missing.
    """
    _check_end(path)
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)
        try:
            return _Export(connection, progress).workload(path.name)
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise WorkloadError(f"its SQLite database is damaged: {error}") from None


def _check_end(path: Path) -> None:
    """SQLite takes missing pages for empty ones. Ref: "Database File Format", 1.3"""
    with open(path, "rb") as file:
        header = file.read(100).ljust(100, b"\0")
    page = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big") if header[24:28] == header[92:96] else 0
    if path.stat().st_size < (65536 if page == 1 else page) * pages:
        raise WorkloadError("its end is missing: the database is not complete")


class _Export:
    """One export, with what was noticed while it was read."""

    def __init__(self, connection: sqlite3.Connection, progress: Progress | None):
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        self._sql, self._progress = connection, progress
        self._notes: list[str] = []
        self._tables = {name for name, in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'")}
        self._total = sum(self._last_row(kind) for kind in (
            "KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION"))
        self._done = 0
        self._names: list[str] = []  # of kernels
        self._numbers: dict[str, dict[int, int]] = {"name": {}, "kind": {}, "process": {-1: 0}}
        self._devices = self._device_numbers()

    def workload(self, name: str) -> Workload:
        # Each table is put in order before the next one is read, as that takes its room again.
        kernels = self._kernels()
        rows = self._operations("MEMCPY", bytes=("bytes",), kind=("copyKind",))
        copies = Copies.of(direction=_directions(rows.pop("kind")),
                           bytes=np.maximum(rows.pop("bytes"), 0), **rows)
        memsets = Operations.of(**self._operations("MEMSET"))
        timeline = Timeline.of(kernels, copies, memsets, self._calls(),
                               (*self._names, "CUDA graph"))
        return Workload.of(name, timeline, source=SOURCE, notes=self._notes)

    def _kernels(self) -> Operations:
        rows = self._operations("KERNEL", name=("shortName", "demangledName", "mangledName"))
        graphs = self._operations("GRAPH_TRACE")
        count = len(graphs["start"])
        if not len(rows["start"]) + count:
            raise WorkloadError(self._without_kernels())
        if count:
            self._notes.append(
                f"{count} graphs are recorded as a whole, and count as one kernel each; "
                "`nsys profile --cuda-graph-trace=node` records their kernels.")
            graphs["name"] = np.full(count, len(self._names))
            rows = {key: np.concatenate([rows[key], graphs[key]]) for key in rows}
        return Operations.of(**rows)

    def _calls(self) -> Calls:
        waits = self._operations("SYNCHRONIZATION")
        rows = self._rows("RUNTIME", thread=("globalTid",), correlation=("correlationId",),
                          process=("globalTid",), kind=("nameId",))
        if not len(rows["start"]):
            self._notes.append(f"{_PREFIX}RUNTIME is missing, the calls of CUDA: depths of queues "
                               "and synchronisations are unknown. `nsys profile --trace=cuda` "
                               "records them.")
        elif not len(waits["start"]) and (rows["kind"] == CallKind.SYNCHRONISE).any():
            self._notes.append(f"{_PREFIX}SYNCHRONIZATION is missing: which stream a "
                               "synchronisation waits for is unknown.")
        return _with_waits(rows, waits)

    def _last_row(self, kind: str) -> int:
        if _PREFIX + kind not in self._tables:
            return 0
        return self._sql.execute(f"SELECT max(rowid) FROM {_PREFIX}{kind}").fetchone()[0] or 0

    def _most_rows(self, kind: str) -> int:
        """Rows of a table, or more, but no more than the file can hold."""
        size, = self._sql.execute("SELECT page_count * page_size FROM pragma_page_count, "
                                  "pragma_page_size").fetchone()
        return max(0, min(self._last_row(kind), int(size) // _LEAST_ROW))

    def _columns(self, table: str) -> set[str]:
        return {row[1] for row in self._sql.execute(f"PRAGMA table_info({table})")}

    def _rows(self, what: str, /, **wanted: tuple[str, ...]) -> Rows:
        """Columns of a table: for each name the first of some columns that the table has, or -1.

        The table is read in parts, and each column has the type that is kept.
        """
        table = _PREFIX + what
        present = self._columns(table) if table in self._tables else set()
        if present and not {"start", "end"} <= present:
            raise WorkloadError(f"{table} has no column 'start', or no 'end'")
        wanted = {"start": ("start",), "duration": ("end",), **wanted}
        chosen = [next((f'"{column}"' for column in columns if column in present), "-1")
                  for columns in wanted.values()]
        query = f"SELECT {', '.join(f'coalesce({column}, -1)' for column in chosen)} FROM {table}"
        room = self._most_rows(what)
        found: Rows = {name: np.empty(room, np.int32 if name in NARROW else
                                      _TYPES.get(name, np.int64))
                       for name in wanted if name != "process"}
        count = 0
        bad = 0
        for part in self._parts(query) if present else ():
            try:
                rows = np.array(part, np.int64)
            except (TypeError, ValueError, OverflowError) as error:
                raise WorkloadError(f"{table} has a value that is no number: {error}") from None
            good = (rows[:, 0] >= 0) & (rows[:, 1] >= rows[:, 0])
            bad += len(rows) - int(good.sum())
            columns = dict(zip(wanted, rows[good].T, strict=True))
            columns["duration"] = columns["duration"] - columns["start"]
            self._number(columns, is_call=what == "RUNTIME")
            end = count + len(columns["start"])
            if end > room:
                room = 2 * end
                found = {name: np.resize(column, room) for name, column in found.items()}
            for name in found:
                if name in NARROW and not fits(columns[name]):
                    found[name] = found[name].astype(np.int64, copy=False)
                found[name][count:end] = columns[name]
            count = end
        if bad:
            self._notes.append(f"{bad} rows of {table} end before they begin, and are left out.")
        return _in_order({name: column[:count] for name, column in found.items()})

    def _parts(self, query: str) -> Iterator[list[Any]]:
        cursor = self._sql.execute(query)
        while part := cursor.fetchmany(_STEP):
            self._done += len(part)
            if self._progress:
                self._progress(min(self._done / max(self._total, 1), 1.0))
            yield part

    def _operations(self, what: str, /, **more: tuple[str, ...]) -> Rows:
        return self._rows(what, device=("deviceId",), stream=("streamId",),
                          correlation=("correlationId",), process=("globalPid",), **more)

    def _number(self, columns: Rows, *, is_call: bool) -> None:
        """Numbers of this reader instead of those of the file: names, kinds, GPUs, and what
        differs by process."""
        process = columns["process"]
        known = process >= 0
        columns["process"] = np.where(known, process >> _PROCESS_BIT, -1)
        apart = self._numbered(columns, "process", self._new_processes) << 32
        for name in ("stream", "correlation"):
            if name in columns:
                none = (columns[name] < 0) | (columns[name] == _NO_STREAM) & (name == "stream")
                columns[name] = np.where(none, -1, columns[name] + apart)
        if "device" in columns and self._devices:
            device = columns["device"].copy()
            for pid, counted, number in self._devices:
                its = columns["process"] & 0xFF_FFFF == pid
                columns["device"][its & (device == counted)] = number
        if "name" in columns:
            columns["name"] = self._numbered(columns, "name", self._new_names)
        if is_call:
            columns["kind"] = self._numbered(columns, "kind", self._new_kinds)

    def _numbered(self, columns: Rows, name: str,
                  new: Callable[[list[int]], list[int]]) -> Integers:
        """A column by the numbers that this reader gives; ``new`` makes those of new values."""
        known = self._numbers[name]
        values, place = np.unique(columns[name], return_inverse=True)
        unknown = [value for value in values.tolist() if value not in known]
        if unknown:
            known.update(zip(unknown, new(unknown), strict=True))
        return np.array([known[value] for value in values.tolist()], np.int64)[place]

    def _new_processes(self, values: list[int]) -> list[int]:
        """The first process has number 0, as one that is not said."""
        first = len(self._numbers["process"]) - 1
        return list(range(first, first + len(values)))

    def _new_names(self, ids: list[int]) -> list[int]:
        texts, first = self._strings(ids), len(self._names)
        self._names += [texts.get(number, f"kernel {number}") for number in ids]
        return list(range(first, len(self._names)))

    def _new_kinds(self, ids: list[int]) -> list[int]:
        texts = self._strings(ids)
        return [call_kind(texts.get(number, "")) for number in ids]

    def _strings(self, ids: list[int]) -> dict[int, str]:
        if "StringIds" not in self._tables:
            return {}
        found: dict[int, str] = {}
        for begin in range(0, len(ids), 500):
            part = ids[begin:begin + 500]
            found.update((number, str(text)) for number, text in self._sql.execute(
                f"SELECT id, value FROM StringIds WHERE id IN ({','.join('?' * len(part))})", part))
        return found

    def _device_numbers(self) -> list[tuple[int, int, int]]:
        """Process, number of a GPU there, number in the machine: processes count what they see."""
        table = "TARGET_INFO_CUDA_DEVICE"
        if table not in self._tables or not {"gpuId", "cudaId", "pid"} <= self._columns(table):
            return []
        seen = self._sql.execute(f"SELECT pid, cudaId, gpuId FROM {table}").fetchall()
        if not all(type(value) is int and -1 <= value < 1 << 31 for row in seen for value in row):
            raise WorkloadError(f"{table} has a value that is no number")
        return seen

    def _without_kernels(self) -> str:
        table = _PREFIX + "KERNEL"
        if not any(name.startswith(_PREFIX) for name in self._tables):
            return (f"neither {table} nor another table of CUDA is in the database: record with "
                    "`nsys profile --trace=cuda`")
        if self._last_row("KERNEL"):
            return f"no row of {table} ends after it begins"
        state = "is empty" if table in self._tables else "is missing"
        return (f"{table} {state}: no kernel ran while nsys recorded, or the recording was without "
                "`--trace=cuda`")


def _in_order(rows: Rows) -> Rows:
    """The same rows by start; in place, as a second table of ten million rows is much."""
    start = rows["start"]
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        for column in rows.values():
            column[:] = column[order]
    return rows


def _directions(kinds: Integers) -> Integers:
    table = np.full(max(_DIRECTIONS) + 2, Direction.OTHER, np.int64)
    table[list(_DIRECTIONS)] = list(_DIRECTIONS.values())
    return table[np.where((kinds >= 0) & (kinds < len(table)), kinds, -1)]


def _with_waits(calls: Rows, waits: Rows) -> Calls:
    """Calls; those that synchronise have what they wait for."""
    for key, dtype in (("device", np.int32), ("stream", np.int64)):
        calls[key] = np.full(len(calls["start"]), -1, dtype)
    order = np.argsort(waits["correlation"], kind="stable")
    known = waits["correlation"][order]
    if len(known):
        rows = np.flatnonzero((calls["kind"] == CallKind.SYNCHRONISE) & (calls["correlation"] >= 0))
        wanted = calls["correlation"][rows]
        place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        found = known[place] == wanted
        for key in ("device", "stream"):
            calls[key][rows[found]] = waits[key][order][place[found]]
    return Calls.of(**calls)
