"""``dxpu model sweep``."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from dxpu_cli.main import main
from dxpu_cli.model.sweep import values

SAMPLE = Path(__file__).parents[2] / "model/performance/samples/kineto.json"


def test_a_list_or_a_span_of_values():
    assert values("tags=64, 128") == ("tags", ["64", "128"])
    assert values("rtt=2:3:0.25") == ("rtt", ["2", "2.25", "2.5", "2.75", "3"])
    assert values("km=0.1:0.7:0.1")[1] == ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7"]


def test_each_combination_has_a_row(tmp_path, capsys):
    """1 / (1 + (t - 1.2) / k) for kernels of k us at t us."""
    out = tmp_path / "table.csv"
    assert main(["model", "sweep", "--paper", "--kernel-us", "1", "--launches", "20", "--vary",
                 "rtt=2,6.8", "--vary", "kernel-us=50,200", "--closed-form", "--jobs", "1",
                 "--out", str(out)]) == 0
    rows = list(csv.DictReader(out.open()))
    assert [(row["kernel-us"], row["rtt"]) for row in rows] == [
        ("50", "2"), ("50", "6.8"), ("200", "2"), ("200", "6.8")]
    for row in rows:
        kernel, trip = float(row["kernel-us"]), float(row["rtt"])
        assert float(row["kept_percent"]) == pytest.approx(
            100 / (1 + (trip - 1.2) / kernel), abs=1e-3)
        assert float(row["longest_round_trip_us"]) == pytest.approx(1.2 + kernel / 9, abs=1e-3)
        assert row["low_percent"] == ""
    assert "4 cases in 1 process in" in capsys.readouterr().out


def test_a_fleet_of_traces_has_a_row_each(capsys):
    other = SAMPLE.with_name("cuda_gpu_trace.csv")
    assert main(["model", "sweep", "--paper", str(SAMPLE), "--trace", str(other), "--vary",
                 "rtt=3,6.8", "--jobs", "1"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["workload"] for row in rows] == [str(SAMPLE)] * 2 + [str(other)] * 2
    for row in rows:
        assert float(row["low_percent"]) < float(row["kept_percent"]) < float(row["high_percent"])


def test_a_trace_that_cannot_be_read_is_left_out(tmp_path, capsys):
    out = tmp_path / "table.json"
    assert main(["model", "sweep", "--paper", "no.json", "--trace", str(SAMPLE), "--vary",
                 "rtt=1.2,6.8", "--jobs", "1", "--closed-form", "--out", str(out)]) == 1
    left_out = f"{os.path.abspath('no.json')}: no such file or directory"
    assert capsys.readouterr().err == f"dxpu model: left out: {left_out}\n"
    table = json.loads(out.read_text())
    assert table["left_out"] == [left_out] and len(table["cases"]) == 2
    near, far = table["cases"]
    assert near | {"kept_percent": 0, "longest_round_trip_us": 0} == {
        "workload": str(SAMPLE), "rtt": "1.2", "kept_percent": 0, "low_percent": None,
        "high_percent": None, "longest_round_trip_us": 0}
    assert 98 < near["kept_percent"] < 100 and far["kept_percent"] < 60
    assert os.listdir(tmp_path) == ["table.json"]


def test_nothing_is_written_if_all_traces_are_left_out(tmp_path, capsys):
    assert main(["model", "sweep", "--paper", "no.json", "--jobs", "1", "--out",
                 str(tmp_path / "t.csv")]) == 1
    assert capsys.readouterr().out == "" and os.listdir(tmp_path) == []


def test_a_mistake_is_told_before_traces_are_read(capsys):
    assert main(["model", "sweep", "--paper", "no.json", "--vary", "tags=1,0"]) == 2
    assert main(["model", "sweep", "--paper", "no.json", "--vary", "kernel-us=1,2"]) == 2
    assert capsys.readouterr().err == (
        "dxpu model: error: --tags must be a whole number from 1 to 1048576, not '0'\n"
        "dxpu model: error: a trace and --kernel-us are two workloads: give one\n")


def test_an_interrupt_leaves_what_was_there(tmp_path):
    """Neither a half-written file nor processes."""
    out = tmp_path / "r.csv"
    out.write_text("old\n")
    run = subprocess.Popen(
        [sys.executable, "-m", "dxpu_cli", "model", "sweep", str(SAMPLE), "--paper", "--vary",
         "rtt=2:100:0.01", "--jobs", "2", "--out", str(out)], stderr=subprocess.PIPE, text=True,
        start_new_session=True,
        # A shell's background commands ignore Ctrl-C, and so do their children.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL))
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    end = time.monotonic() + 60
    while len(children.read_text().split()) < 2 and time.monotonic() < end:  # server, tracker
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    assert run.communicate(timeout=60)[1].endswith("dxpu model: interrupted\n")
    assert run.returncode == 130
    assert (out.read_text(), os.listdir(tmp_path)) == ("old\n", ["r.csv"])
    while time.monotonic() < end:
        try:
            os.killpg(run.pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.05)
    else:
        raise AssertionError("processes stay")


@pytest.mark.parametrize("argv, text", [
    (("--vary", "colour=1,2"), "--vary must be NAME=VALUES with a name of rtt, tags, read-bytes, "
     "payload-bytes, line-gbit, pcie, proxies, km, loss, load, gpus, like, exposed, kernel-us, "
     "launches, streams, syncs, copies, copy-mb, copies-back, launch-us, rate, not 'colour=1,2'"),
    (("--vary", "rtt="), "--vary rtt needs values such as 1,2,4 or 1:9:0.5, not ''"),
    (("--vary", "rtt=1:2"), "--vary rtt needs values such as 1,2,4 or 1:9:0.5, not '1:2'"),
    (("--vary", "rtt=5:2:1"), "--vary rtt must rise from FIRST to LAST in at most 1,000,000 "
     "steps, not '5:2:1'"),
    (("--vary", "rtt=3", "--vary", "rtt=4"), "--vary has one of its names twice"),
    (("--vary", "rtt=2:4000:0.01", "--vary", "tags=1,2,4"),
     "1,199,403 combinations are too many: at most 1,000,000"),
    (("--vary", "tags=0"), "--tags must be a whole number from 1 to 1048576, not '0'"),
    (("--rtt", "2,3"), "--rtt has several values: vary them by --vary rtt=..."),
    (("--out", "table.txt"), "--out must end in .csv or .json, not 'table.txt'"),
    (("--jobs", "0"), "--jobs must be a whole number from 1 to 1024, not '0'"),
    (("--jobs", "2", "--dask", "tcp://x:1"),
     "--jobs is for this machine, --dask for a cluster: give one")])
def test_a_mistake_is_one_line(argv, text, capsys):
    assert main(["model", "sweep", "--paper", "--kernel-us", "5", *argv]) == 2
    assert capsys.readouterr().err == f"dxpu model: error: {text}\n"
