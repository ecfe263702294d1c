"""SQLite exports of Nsight Systems (``nsys export --type sqlite``).

Tables are made only for what occurred, and their columns differ by version, so that the reader
looks at the schema of each file. Ref: Nsight Systems, "SQLite Export Schema Reference"
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from ..workload import (CallKind, Calls, Copies, Direction, Integers, Operations, Timeline,
                        Workload, WorkloadError)
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
#: Rows between two reports of progress.
_STEP = 1 << 16

Rows = npt.NDArray[Any]


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

    def workload(self, name: str) -> Workload:
        kernels = self._operations("KERNEL", name=("shortName", "demangledName", "mangledName"))
        graphs = self._operations("GRAPH_TRACE")
        if not len(kernels) + len(graphs):
            raise WorkloadError(self._without_kernels())
        if len(graphs):
            self._notes.append(
                f"{len(graphs)} graphs are recorded as a whole, and count as one kernel each; "
                "`nsys profile --cuda-graph-trace=node` records their kernels.")
        copies = self._operations("MEMCPY", bytes=("bytes",), kind=("copyKind",))
        memsets = self._operations("MEMSET")
        calls, waits = self._calls(), self._waits()
        if not len(calls):
            self._notes.append(f"{_PREFIX}RUNTIME is missing, the calls of CUDA: depths of queues "
                               "and synchronisations are unknown. `nsys profile --trace=cuda` "
                               "records them.")
        elif not len(waits) and (calls["kind"] == CallKind.SYNCHRONISE).any():
            self._notes.append(f"{_PREFIX}SYNCHRONIZATION is missing: which stream a "
                               "synchronisation waits for is unknown.")
        tables = (kernels, graphs, copies, memsets, calls, waits)
        _keep_processes_apart(tables)
        self._number_devices(tables)
        names, numbers = self._kernel_names(kernels["name"])
        running = {key: np.concatenate([kernels[key], graphs[key]])
                   for key in ("start", "duration", "device", "stream", "correlation")}
        running["name"] = np.concatenate([numbers, np.full(len(graphs), len(names))])
        return Workload.of(name, Timeline.of(
            Operations.of(**running),
            Copies.of(**_common(copies), bytes=np.maximum(copies["bytes"], 0),
                      direction=_directions(copies["kind"])),
            Operations.of(**_common(memsets)), _with_waits(calls, waits),
            (*names, "CUDA graph")), source=SOURCE, notes=self._notes)

    def _last_row(self, kind: str) -> int:
        if _PREFIX + kind not in self._tables:
            return 0
        return self._sql.execute(f"SELECT max(rowid) FROM {_PREFIX}{kind}").fetchone()[0] or 0

    def _columns(self, table: str) -> set[str]:
        return {row[1] for row in self._sql.execute(f"PRAGMA table_info({table})")}

    def _rows(self, what: str, /, **wanted: tuple[str, ...]) -> Rows:
        """Rows of a table: for each name the first of some columns that the table has, or -1."""
        table = _PREFIX + what
        wanted = {"start": ("start",), "end": ("end",), **wanted}
        dtype = np.dtype([(name, np.int64) for name in wanted])
        present = self._columns(table) if table in self._tables else set()
        if present and not {"start", "end"} <= present:
            raise WorkloadError(f"{table} has no column 'start', or no 'end'")
        chosen = [next((f'"{column}"' for column in columns if column in present), "-1")
                  for columns in wanted.values()]
        query = f"SELECT {', '.join(f'coalesce({column}, -1)' for column in chosen)} FROM {table}"
        try:
            rows = np.fromiter(self._counted(self._sql.execute(query)) if present else (), dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise WorkloadError(f"{table} has a value that is no number: {error}") from None
        good = (rows["start"] >= 0) & (rows["end"] >= rows["start"])
        if not good.all():
            self._notes.append(f"{len(rows) - good.sum()} rows of {table} end before they begin, "
                               "and are left out.")
            rows = rows[good]
        rows["end"] -= rows["start"]
        rows.dtype.names = tuple("duration" if name == "end" else name for name in wanted)
        return rows

    def _counted(self, rows: Iterator[Any]) -> Iterator[Any]:
        for row in rows:
            if self._progress and self._done % _STEP == 0:
                self._progress(min(self._done / max(self._total, 1), 1.0))
            self._done += 1
            yield row

    def _operations(self, what: str, /, **more: tuple[str, ...]) -> Rows:
        return self._rows(what, device=("deviceId",), stream=("streamId",),
                          correlation=("correlationId",), process=("globalPid",), **more)

    def _calls(self) -> Rows:
        rows = self._rows("RUNTIME", thread=("globalTid",), correlation=("correlationId",),
                          process=("globalTid",), kind=("nameId",), device=(), stream=())
        ids, place = np.unique(rows["kind"], return_inverse=True)
        texts = self._strings(ids)
        kinds = np.array([call_kind(texts.get(int(number), "")) for number in ids], np.int64)
        rows["kind"] = kinds[place] if len(ids) else 0
        return rows

    def _waits(self) -> Rows:
        return self._operations("SYNCHRONIZATION")

    def _strings(self, ids: Integers) -> dict[int, str]:
        if "StringIds" not in self._tables or not len(ids):
            return {}
        found: dict[int, str] = {}
        numbers = ids.tolist()
        for begin in range(0, len(numbers), 500):
            part = numbers[begin:begin + 500]
            found.update((number, str(text)) for number, text in self._sql.execute(
                f"SELECT id, value FROM StringIds WHERE id IN ({','.join('?' * len(part))})", part))
        return found

    def _kernel_names(self, column: Integers) -> tuple[list[str], Integers]:
        ids, place = np.unique(column, return_inverse=True)
        texts = self._strings(ids)
        return [texts.get(int(number), f"kernel {number}") for number in ids], place

    def _number_devices(self, tables: tuple[Rows, ...]) -> None:
        """Give GPUs the numbers of the machine: processes may count those that they see."""
        table = "TARGET_INFO_CUDA_DEVICE"
        if table not in self._tables or not {"gpuId", "cudaId", "pid"} <= self._columns(table):
            return
        seen = self._sql.execute(f"SELECT pid, cudaId, gpuId FROM {table}").fetchall()
        if not all(type(value) is int for row in seen for value in row):
            raise WorkloadError(f"{table} has a value that is no number")
        for rows in tables:
            process = (rows["process"] >> _PROCESS_BIT) & 0xFF_FFFF
            device = rows["device"].copy()
            for pid, counted, number in seen:
                rows["device"][(process == pid) & (device == counted)] = number

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


def _common(rows: Rows) -> dict[str, Integers]:
    return {key: rows[key] for key in ("start", "duration", "device", "stream", "correlation")}


def _directions(kinds: Integers) -> Integers:
    table = np.full(max(_DIRECTIONS) + 2, Direction.OTHER, np.int64)
    table[list(_DIRECTIONS)] = list(_DIRECTIONS.values())
    return table[np.where((kinds >= 0) & (kinds < len(table)), kinds, -1)]


def _keep_processes_apart(tables: tuple[Rows, ...]) -> None:
    """Numbers of correlations and streams that differ by process."""
    processes = np.unique(np.concatenate([rows["process"] >> _PROCESS_BIT for rows in tables]))
    for rows in tables:
        number = np.searchsorted(processes, rows["process"] >> _PROCESS_BIT) << 32
        none = (rows["stream"] == _NO_STREAM) | (rows["stream"] < 0)
        rows["stream"] = np.where(none, -1, rows["stream"] + number)
        rows["correlation"] = np.where(rows["correlation"] < 0, -1, rows["correlation"] + number)


def _with_waits(calls: Rows, waits: Rows) -> Calls:
    """Calls; those that synchronise have what they wait for."""
    order = np.argsort(waits["correlation"], kind="stable")
    known = waits["correlation"][order]
    if len(known):
        place = np.minimum(np.searchsorted(known, calls["correlation"]), len(known) - 1)
        found = ((known[place] == calls["correlation"]) & (calls["correlation"] >= 0)
                 & (calls["kind"] == CallKind.SYNCHRONISE))
        for key in ("device", "stream"):
            calls[key][found] = waits[key][order][place[found]]
    return Calls.of(**_common(calls), thread=calls["thread"], kind=calls["kind"])
