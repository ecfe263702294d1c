"""Traces of a gigabyte: memory grows with what is kept of them, and not with the file."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "samples"
GIGABYTE = 10 ** 9

READ = """
import json, re, sys, time
from dxpu_performance.readers import read
def most():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024
before, begin = most(), time.process_time()
workload = read(sys.argv[1])
print(json.dumps({"kernels": len(workload.timeline.kernels), "calls": len(workload.timeline.calls),
                  "MiB": most() - before, "seconds": time.process_time() - begin}))
"""


def read_apart(path):
    """Figures of a process that reads the file; more than its size is never needed."""
    done = subprocess.run([sys.executable, "-c", READ, str(path)], capture_output=True, text=True,
                          check=True)
    print(path.name, path.stat().st_size, done.stdout)
    return json.loads(done.stdout)


def kineto(path, size):
    """A trace with a launch and a kernel among functions of Python; returns their number."""
    frame = ('{"ph": "X", "cat": "python_function", "name": "module.py(1501): _call_impl", '
             '"pid": 4242, "tid": 4242, "ts": %d.125, "dur": 20.113, "args": {"External id": %d, '
             '"Python parent id": 81, "Python id": %d, "Ev Idx": %d}},\n')
    launch = ('{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 4242, "tid": '
              '4242, "ts": %d.125, "dur": 5.113, "args": {"External id": %d, "cbid": 211, '
              '"correlation": %d}},\n')
    kernel = ('{"ph": "X", "cat": "kernel", "name": "vectorized_elementwise_kernel<4, float>", '
              '"pid": 0, "tid": 7, "ts": %d.125, "dur": 9.216, "args": {"External id": %d, '
              '"queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": %d, '
              '"registers per thread": 22, "shared memory": 0, "blocks per SM": 1.2, "warps per SM"'
              ': 4.9, "grid": [132, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %%": 8}},'
              '\n')
    number = 0
    with open(path, "w") as file:
        file.write('{"schemaVersion": 1, "baseTimeNanoseconds": 1727740800000000000, '
                   '"traceEvents": [\n')
        while file.tell() < size:
            for _ in range(1000):
                number += 1
                at = 30 * number
                file.writelines(frame % (at, number, number, number) for _ in range(6))
                file.write(launch % (at + 6, number, number))
                file.write(kernel % (at + 15, number, number))
        file.write('{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", '
                   '"ts": 1}], "traceName": "t"}')
    return number


def nsight(path, size):
    """An export with a launch for each kernel, by copies of those in the sample."""
    connection = sqlite3.connect(path)
    connection.executescript(f"""
        PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;
        {(SAMPLES / "nsight-2024.sql").read_text()}""")
    while connection.execute("SELECT page_count * page_size FROM pragma_page_count, "
                             "pragma_page_size").fetchone()[0] < size:
        for kind in ("KERNEL", "RUNTIME"):
            table = f"CUPTI_ACTIVITY_KIND_{kind}"
            connection.execute(f"CREATE TEMP TABLE t AS SELECT * FROM {table} LIMIT 500000")
            connection.execute("UPDATE t SET start = start + 1000000, end = end + 1000000")
            connection.execute(f"INSERT INTO {table} SELECT * FROM t")
            connection.execute("DROP TABLE t")
    connection.commit()
    number, = connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    connection.close()
    return number


def test_json_of_ten_megabytes_in_less(tmp_path):
    number = kineto(tmp_path / "trace.json", GIGABYTE // 100)
    found = read_apart(tmp_path / "trace.json")
    assert (found["kernels"], found["calls"]) == (number, number)
    assert found["MiB"] < 32  # most of it modules


@pytest.mark.long
def test_json_of_a_gigabyte(tmp_path):
    number = kineto(tmp_path / "trace.json", GIGABYTE)
    found = read_apart(tmp_path / "trace.json")
    (tmp_path / "trace.json").unlink()
    assert (found["kernels"], found["calls"]) == (number, number)
    assert found["MiB"] < 150


@pytest.mark.long
def test_sqlite_of_a_gigabyte(tmp_path):
    number = nsight(tmp_path / "run.sqlite", GIGABYTE)
    found = read_apart(tmp_path / "run.sqlite")
    (tmp_path / "run.sqlite").unlink()
    assert found["kernels"] == number > 3_000_000
    # Rows of nothing but kernels and launches, in no order: the most that a gigabyte can hold.
    assert found["MiB"] * 2 ** 20 < 0.97 * GIGABYTE
