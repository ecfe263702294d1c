"""dxpu_performance.readers: one run as each profiler records it, and files that lack something.

The samples are made by hand after the formats: a copy to the GPU, two kernels, a memset, a graph of
two kernels, a copy back in another stream, and a call that waits for that stream.
"""

import gzip
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from dxpu_performance.readers import read
from dxpu_performance.readers.names import call_kind, copy_direction
from dxpu_performance.workload import CallKind, Direction, WorkloadError

SAMPLES = Path(__file__).parent / "samples"

KERNELS = ([12500, 41000, 46000, 47200], [28000, 3000, 1000, 800])
CALLS = [(0, 4000, 11, CallKind.COPY), (5000, 3000, 12, CallKind.KERNEL),
         (9000, 2500, 13, CallKind.KERNEL), (12000, 2000, 14, CallKind.MEMSET),
         (15000, 6000, 15, CallKind.GRAPH), (21500, 800, 16, CallKind.EVENT),
         (22500, 400, 17, CallKind.WAIT), (23000, 3500, 18, CallKind.COPY),
         (27000, 24000, 19, CallKind.SYNCHRONISE)]


def database(path: Path, script: str) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(f"BEGIN; {script}; COMMIT")
    connection.close()
    return path


def nsight(tmp_path, year=2024, more=""):
    return database(tmp_path / f"{year}.sqlite",
                    (SAMPLES / f"nsight-{year}.sql").read_text() + more)


def operations(table):
    return (table.start.tolist(), table.duration.tolist())


def is_the_run(timeline, begin=0):
    """All but names, calls and what depends on calls; times are from ``begin`` on."""
    kernels, copies = timeline.kernels, timeline.copies
    assert operations(kernels) == ([start - begin for start in KERNELS[0]], KERNELS[1])
    assert kernels.correlation.tolist() == [12, 13, 15, 15]
    assert (kernels.device.tolist(), kernels.stream.tolist()) == ([0] * 4, [7] * 4)
    assert operations(copies) == ([8000 - begin, 48500 - begin], [4000, 2000])
    assert (copies.stream.tolist(), copies.correlation.tolist()) == ([7, 13], [11, 18])
    assert copies.direction.tolist() == [Direction.TO_DEVICE, Direction.TO_HOST]
    memsets = timeline.memsets
    assert (*operations(memsets), memsets.stream.tolist()) == ([44500 - begin], [1000], [7])


def calls(timeline):
    table = timeline.calls
    return list(zip(table.start, table.duration, table.correlation, table.kind, strict=True))


def waits(timeline):
    """Device and stream of the call that synchronises; the others have none."""
    table = timeline.calls
    assert (table.stream[:-1] == -1).all() and (table.device[:-1] == -1).all()
    return int(table.device[-1]), int(table.stream[-1])


@pytest.mark.parametrize("packed", [False, True])
def test_kineto(packed, tmp_path):
    path = SAMPLES / "kineto.json"
    if packed:
        (tmp_path / "x").write_bytes(gzip.compress(path.read_bytes()))  # recognised without a name
        path = tmp_path / "x"
    workload = read(path)
    is_the_run(workload.timeline)
    assert calls(workload.timeline) == CALLS
    assert waits(workload.timeline) == (0, 13)
    assert workload.timeline.copies.bytes.tolist() == [65536, 4096]
    assert set(workload.timeline.calls.thread.tolist()) == {1042}
    assert workload.timeline.names == ("void gemm<float, 4>(float*)", "relu")
    assert workload.timeline.kernels.name.tolist() == [0, 1, 0, 1]
    assert workload.timeline.span_ns == 51000
    assert (workload.name, workload.notes) == (path.name, ())


@pytest.mark.parametrize("none", ["4294967295", "-1"])
def test_a_call_that_waits_for_a_device_has_no_stream(none, tmp_path):
    """CUPTI has the largest number of 32 bits where no stream is; Kineto writes both."""
    text = (SAMPLES / "kineto.json").read_text()
    (tmp_path / "t").write_text(text.replace('"stream": 13, "correlation": 19',
                                             f'"stream": {none}, "correlation": 19'))
    assert waits(read(tmp_path / "t").timeline) == (0, -1)
    assert waits(read(nsight(tmp_path, more="UPDATE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION SET "
                             f"streamId = {none} WHERE correlationId = 19")).timeline) == (0, -1)


@pytest.mark.parametrize("name", ["kineto.json", "cuda_gpu_trace.csv", "x.gz", "2024.sqlite"])
def test_progress_rises_to_the_end(name, tmp_path):
    nsight(tmp_path)
    for path in SAMPLES.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "x.gz").write_bytes(gzip.compress((SAMPLES / "kineto.json").read_bytes()))
    shares = []
    read(tmp_path / name, shares.append)
    assert shares and shares == sorted(shares) and all(0 <= share <= 1 for share in shares)
    assert shares[-1] == 1 or name.endswith("sqlite")  # there now and then, by number of rows


def test_kineto_times_since_1970_lose_no_nanosecond(tmp_path):
    """Older versions wrote microseconds since 1970: a float of 64 bits would round them."""
    events = [{"ph": "X", "cat": "Kernel", "name": "a", "ts": "1712183498123456.789", "dur": "1.5",
               "pid": 3, "tid": 9},
              {"ph": "X", "cat": "Kernel", "name": "a", "ts": "1712183498123458.291", "dur": "2",
               "pid": 3, "tid": 9}]
    text = json.dumps(events)
    for number in ("1712183498123456.789", "1712183498123458.291", "1.5", "2"):
        text = text.replace(f'"{number}"', number)
    (tmp_path / "list.json").write_text(text)  # the list of events is the whole file
    timeline = read(tmp_path / "list.json").timeline
    assert operations(timeline.kernels) == ([0, 1502], [1500, 2000])
    assert (timeline.devices, timeline.kernels.stream.tolist()) == ((3,), [9, 9])


def test_kineto_with_names_that_are_no_text(tmp_path):
    """Names of Python functions have held control characters and bytes that are no UTF-8."""
    data = (SAMPLES / "kineto.json").read_bytes()
    (tmp_path / "t.json").write_bytes(data.replace(b"<module>", b"\x01\xff\x1b"))
    is_the_run(read(tmp_path / "t.json").timeline)


@pytest.mark.parametrize("year", [2021, 2024])
def test_nsight(year, tmp_path):
    workload = read(nsight(tmp_path, year))
    is_the_run(workload.timeline)
    assert calls(workload.timeline) == CALLS
    assert waits(workload.timeline) == ((0, 13) if year == 2024 else (-1, -1))
    assert workload.timeline.copies.bytes.tolist() == [65536, 4096]
    assert workload.timeline.names[:2] == ("gemm", "relu")
    assert workload.timeline.kernels.name.tolist() == [0, 1, 0, 1]
    assert [note.split(":")[0] for note in workload.notes] == (
        [] if year == 2024 else ["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION is missing"])


def test_nsight_with_values_of_more_than_32_bits(tmp_path):
    """Columns are narrow while all values fit, and no longer."""
    path = nsight(tmp_path, more="""
        UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start + 5000000000
            WHERE start = (SELECT max(start) FROM CUPTI_ACTIVITY_KIND_KERNEL);""")
    kernels = read(path).timeline.kernels
    assert kernels.duration.max() == 5_000_000_000
    assert kernels.stream.dtype == kernels.correlation.dtype == np.int32
    plain = nsight(tmp_path, year=2021)
    assert read(plain).timeline.kernels.duration.dtype == np.int32


def test_nsight_keeps_processes_apart(tmp_path):
    """A second process has the same numbers, and sees only the second GPU, as its first one."""
    other = (1 << 56) | (1043 << 24)
    copy = "; ".join(
        f"CREATE TABLE t AS SELECT * FROM CUPTI_ACTIVITY_KIND_{kind}; UPDATE t SET {column} = "
        f"{other} + {column} % 16777216; INSERT INTO CUPTI_ACTIVITY_KIND_{kind} SELECT * FROM t; "
        "DROP TABLE t" for kind, column in (
            ("KERNEL", "globalPid"), ("RUNTIME", "globalTid"), ("SYNCHRONIZATION", "globalPid")))
    timeline = read(nsight(tmp_path, more=copy + (
        "; INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (1, 0, 1043, 'x', 108)"))).timeline
    assert timeline.devices == (0, 1)
    second = timeline.kernels.where(timeline.kernels.device == 1)
    assert operations(second) == KERNELS
    assert second.stream.tolist() == [(1 << 32) + 7] * 4
    launches = timeline.calls.where(timeline.launch_of(second))
    assert (launches.thread >> 24 == other >> 24).all()
    assert launches.start.tolist() == [5000, 9000, 15000, 15000]


def test_nsight_without_processes(tmp_path):
    """Of an unknown process is what is not said: operations find their calls."""
    timeline = read(nsight(tmp_path, 2021, "".join(
        f"ALTER TABLE CUPTI_ACTIVITY_KIND_{kind} DROP COLUMN globalPid;"
        for kind in ("KERNEL", "MEMCPY", "MEMSET")))).timeline
    is_the_run(timeline)
    assert timeline.launch_of(timeline.kernels).tolist() == [1, 2, 4, 4]


def test_nsight_graphs_as_a_whole(tmp_path):
    """Without --cuda-graph-trace=node a graph is one row of another table."""
    workload = read(nsight(tmp_path, more="""
        DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE correlationId = 15;
        CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL,
            deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER,
            streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
            graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL);
        INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE SELECT 700046000, 700048000, 0, 1, NULL, 7, 15,
            globalPid, 1, 1 FROM CUPTI_ACTIVITY_KIND_KERNEL LIMIT 1"""))
    assert operations(workload.timeline.kernels) == ([12500, 41000, 46000], [28000, 3000, 2000])
    kernels = workload.timeline.kernels
    assert [workload.timeline.names[name] for name in kernels.name] == ["gemm", "relu",
                                                                        "CUDA graph"]
    assert "--cuda-graph-trace=node" in workload.notes[0]


@pytest.mark.parametrize("change, message", [
    ("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL is missing: no kernel "
     "ran while nsys recorded, or the recording was without `--trace=cuda`"),
    ("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_KERNEL is empty: no kernel"),
    ("; ".join(f"DROP TABLE CUPTI_ACTIVITY_KIND_{kind}" for kind in
               ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION")),
     "neither CUPTI_ACTIVITY_KIND_KERNEL nor another table of CUDA is in the database: record with "
     "`nsys profile --trace=cuda`"),
    ("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME end TO stop",
     "CUPTI_ACTIVITY_KIND_KERNEL has no column 'start', or no 'end'"),
    ("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET streamId = 'seven'",
     "CUPTI_ACTIVITY_KIND_MEMCPY has a value that is no number"),
    ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1",
     "no row of CUPTI_ACTIVITY_KIND_KERNEL ends after it begins"),
])
def test_nsight_without(change, message, tmp_path):
    path = nsight(tmp_path, more=change)
    with pytest.raises(WorkloadError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: {message}")


def test_nsight_without_calls(tmp_path):
    workload = read(nsight(tmp_path, more="DROP TABLE CUPTI_ACTIVITY_KIND_RUNTIME; UPDATE "
                           "CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1 WHERE shortName = 4"))
    assert len(workload.timeline.calls) == 0 and len(workload.timeline.kernels) == 2
    assert workload.notes[0].startswith("2 rows of CUPTI_ACTIVITY_KIND_KERNEL end before")
    assert workload.notes[1].startswith("CUPTI_ACTIVITY_KIND_RUNTIME is missing")


def test_a_trace_of_nsys_stats():
    workload = read(SAMPLES / "cuda_gpu_trace.csv")
    is_the_run(workload.timeline, begin=8000)
    assert workload.timeline.copies.bytes.tolist() == [66000, 4000]  # nsys rounds to kB
    assert workload.timeline.names == ("void gemm<float, 4>(float*)", "relu")
    assert "no calls of CUDA" in workload.notes[0]


def test_a_summary_of_nsys_stats():
    workload = read(SAMPLES / "cuda_gpu_kern_sum.csv")
    assert workload.timeline is None
    assert workload.durations.ns.tolist() == [1900, 14500]
    assert workload.durations.count.tolist() == [2, 2]
    assert "mean time of its name" in workload.notes[0]


@pytest.mark.parametrize("text, ns, count", [
    ("duration_us,count\n4.1,120\n9,7\n", [4100, 9000], [120, 7]),
    ("\ufeffDuration (ms)\r\n0.5\r\n\r\n0.25\r\n", [250_000, 500_000], [1, 1]),
    ("name,count,duration_ns\na,2,10\nb,3,10\n", [10], [5]),
    ('{"durations_us": [4.1, 9], "counts": [120, 7]}', [4100, 9000], [120, 7]),
    ('{"counts": [1, 1], "durations_ms": [1, 2]}', [1_000_000, 2_000_000], [1, 1]),
    (' {"durations_s": [1]}', [1_000_000_000], [1]),
])
def test_durations(text, ns, count, tmp_path):
    (tmp_path / "d").write_text(text)
    workload = read(tmp_path / "d")
    assert workload.durations.ns.tolist() == pytest.approx(ns)
    assert workload.durations.count.tolist() == count


@pytest.mark.parametrize("name, data, message", [
    ("d", b"", "is empty"),
    ("d", b" \n", "is empty"),
    ("run.nsys-rep", b"\x00\x01", "export it: `nsys export --type sqlite FILE`"),
    ("d", b"\x7fELF\0\0", "is no SQLite database, no JSON and no CSV"),
    ("d", b"4.1\n9\n", "a line of titles is missing: `duration_us` or `duration_us,count`"),
    ("d", b"duration\n9\n", "a line of titles is missing"),
    ("d", b"duration_us\nlong\n", "line 2: 'long' in column 'duration' is no number"),
    ("d", b"duration_us\n1\n-2\n", "line 3: '-2' in column 'duration' is negative"),
    ("d", b"duration_us,count\n1,nan\n", "line 2: 'nan' in column 'count' is negative or no"),
    ("d", b"duration_us\n", "no kernel at all"),
    ("d", b"Start (ns),Duration (ns),Name\n1,2,[CUDA memset]\n", "no kernel at all"),
    ("d", b"{", "its end is missing: the trace is not complete"),
    ("d", b"{}", "no traceEvents are in the file"),
    ("d", b'{"traceEvents": [1, {}]}', "none of its 1 events is a kernel: record with "
     "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"),
    ("d", b'{"traceEvents": [{"ph": "X", "cat": "cuda_runtime", "name": "a", "ts": 1, "dur": 1}]}',
     "the trace has calls of CUDA, but no kernel"),
    ("d", b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1}]}',
     "an event, 'a', has no time in 'dur'"),
    ("d", b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1e999999, "dur": 1}]}',
     "an event, 'a', has no time in 'ts'"),
    ("d", b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": -1}]}',
     "Operations: a duration is negative: -1000"),
    ("d", b'{"traceEvents": [{"name": "{"device": "cpu"}(1): run"}]}', "its JSON is damaged: "),
    ("d", b'{"durations_us": [1], "count": [1]}', "key 'count' is unknown; keys are durations_us"),
    ("d", b'{"durations_us": [1], "counts": [1, 2]}', "1 durations, but 2 counts"),
    ("d", b'{"durations_us": ["1"]}', "durations_us must be a list of numbers"),
    ("d", b'{"durations_us": [1' + b"0" * 400 + b"]}", "a duration is too large"),
    ("d", b'{"durations_us": [NaN]}', "a duration or a count is not finite"),
    ("d", b'{"durations_min": [1]}', "one of these keys must hold the durations: durations_ns"),
    ("d", gzip.compress(b"duration_us\n1\n" * 99)[:-9], "its end is missing: what gzip packed"),
    ("d", gzip.compress(b"duration_us\n1\n")[:-8] + b"\0" * 8, "what gzip packed is damaged: "),
    ("d", b"SQLite format 3\0" + b"\0" * 99, "its SQLite database is damaged: "),
])
def test_files_that_are_no_workload(name, data, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(WorkloadError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_opened(tmp_path):
    with pytest.raises(WorkloadError, match="no: no such file or directory$"):
        read(tmp_path / "no")
    with pytest.raises(WorkloadError, match=": is no file$"):
        read(tmp_path)


@pytest.mark.parametrize("name, kind", [
    ("cudaLaunchKernel_v7000", CallKind.KERNEL), ("cudaLaunchKernelExC_v11060", CallKind.KERNEL),
    ("cuLaunchKernel", CallKind.KERNEL), ("cuLaunchKernelEx", CallKind.KERNEL),
    ("cudaLaunchCooperativeKernel_v9000", CallKind.KERNEL), ("cudaLaunch_v3020", CallKind.KERNEL),
    ("hipLaunchKernel", CallKind.KERNEL), ("hipExtModuleLaunchKernel", CallKind.KERNEL),
    ("hipModuleLaunchKernel", CallKind.KERNEL), ("cudaGraphLaunch_v10000", CallKind.GRAPH),
    ("cudaMemcpyAsync_ptsz_v7000", CallKind.COPY), ("cuMemcpyHtoDAsync_v2", CallKind.COPY),
    ("cuMemsetD8Async", CallKind.MEMSET), ("cudaDeviceSynchronize_v3020", CallKind.SYNCHRONISE),
    ("cuCtxSynchronize", CallKind.SYNCHRONISE), ("cudaEventSynchronize", CallKind.SYNCHRONISE),
    ("cudaStreamWaitEvent_v3020", CallKind.WAIT), ("cudaEventRecord", CallKind.EVENT),
    ("cudaEventQuery", CallKind.OTHER), ("cudaLaunchHostFunc_v10000", CallKind.OTHER),
    ("cudaMalloc_v3020", CallKind.OTHER), ("cudaStreamIsCapturing", CallKind.OTHER),
])
def test_kinds_of_calls(name, kind):
    assert call_kind(name) is kind


@pytest.mark.parametrize("name, direction", [
    ("Memcpy HtoD (Pageable -> Device)", Direction.TO_DEVICE),
    ("Memcpy DtoH (Device -> Pinned)", Direction.TO_HOST),
    ("Memcpy DtoD (Device -> Device)", Direction.IN_DEVICE),
    ("Memcpy PtoP (Device -> Device)", Direction.PEER),
    ("[CUDA memcpy Host-to-Device]", Direction.TO_DEVICE),
    ("[CUDA memcpy HtoA]", Direction.TO_DEVICE), ("[CUDA memcpy DtoH]", Direction.TO_HOST),
    ("[CUDA memcpy Peer-to-Peer]", Direction.PEER), ("CopyHostToDevice", Direction.TO_DEVICE),
    ("Memcpy Unknown", Direction.OTHER), ("Memcpy HtoH (a -> b)", Direction.OTHER),
])
def test_directions_of_copies(name, direction):
    assert copy_direction(name) is direction
