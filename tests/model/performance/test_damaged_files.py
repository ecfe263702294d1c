"""Damaged files of each format: one line, never another error, and soon."""

import gzip
import json
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dxpu_performance.readers import read
from dxpu_performance.summary import summarise
from dxpu_performance.workload import Workload, WorkloadError

SAMPLES = Path(__file__).parent / "samples"


def samples():
    """Bytes of a good file of each format."""
    with sqlite3.connect(":memory:") as connection:
        connection.executescript((SAMPLES / "nsight-2024.sql").read_text())
        database = connection.serialize()
    kineto = (SAMPLES / "kineto.json").read_bytes()
    return {"kineto": kineto, "packed": gzip.compress(kineto), "nsight": database,
            "trace": (SAMPLES / "cuda_gpu_trace.csv").read_bytes(),
            "summary": (SAMPLES / "cuda_gpu_kern_sum.csv").read_bytes(),
            "list": b"duration_us,count\n4.1,120\n9,7\n",
            "json": b'{"durations_us": [4.1, 9], "counts": [120, 7]}'}


GOOD = samples()


def outcome(data):
    """The workload of a file, or the line that says why there is none."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            workload = read(file.name)
        except WorkloadError as error:
            assert str(error).startswith(f"{file.name}: ") and "\n" not in str(error)
            return str(error).removeprefix(f"{file.name}: ")
        summarise(workload)
        return workload


@pytest.mark.parametrize("kind", GOOD)
def test_a_good_file_is_read(kind):
    assert isinstance(outcome(GOOD[kind]), Workload)


@pytest.mark.parametrize("kind", ["kineto", "packed", "nsight", "json"])
def test_a_file_without_its_end(kind):
    """At any place; a table of text may end anywhere."""
    data = GOOD[kind]
    for length in range(1, len(data) - 1, max(len(data) // 40, 1)):
        assert isinstance(outcome(data[:length]), str), length


@settings(max_examples=80, deadline=5000)
@given(st.sampled_from(sorted(GOOD)), st.data())
def test_changed_bytes(kind, data):
    changed = bytearray(GOOD[kind])
    for place, value in data.draw(st.lists(st.tuples(
            st.integers(0, len(changed) - 1), st.integers(0, 255)), min_size=1, max_size=8)):
        changed[place] = value
    outcome(bytes(changed))


@settings(max_examples=60, deadline=5000)
@given(st.sampled_from([b"", b"{", b"[", b'{"traceEvents": [', b"duration_us\n", b"\x1f\x8b\x08",
                        b"SQLite format 3\0", b"Start (ns),Duration (ns),Name\n"]),
       st.binary(max_size=300))
def test_any_bytes(begin, data):
    outcome(begin + data)


ODD = [None, True, 0, -1, 7, 1 << 62, 1 << 80, 1.5, -0.25, 1e300, "", "X", "7", "kernel", "\u2028",
       [], [1], {}, {"stream": [7]}]
values = st.sampled_from(ODD)


@settings(max_examples=100, deadline=5000)
@given(st.lists(st.fixed_dictionaries({}, optional={
    "ph": st.just("X") | values, "cat": values | st.sampled_from(
        ["kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_sync"]),
    "name": values, "ts": values, "dur": values, "pid": values, "tid": values,
    "args": values | st.fixed_dictionaries({}, optional={
        key: values for key in ("device", "stream", "correlation", "bytes")})}), max_size=4))
def test_events_with_any_values(events):
    outcome(json.dumps({"traceEvents": events}).encode())
