"""``dxpu pool simulate``: figures, a plot, and one line for each mistake."""

import json
import struct

import pytest

from dxpu_cli import main as cli


def test_the_day_that_comes_with_it(tmp_path, capsys):
    assert cli.main(["pool", "simulate", "--out", str(tmp_path / "day.json"), "--plot",
                     str(tmp_path / "day.svg")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "536 jobs, 64 GPUs, 12 servers"
    rows = {row.pop("policy"): row for row in json.loads((tmp_path / "day.json").read_text())}
    assert list(rows) == [line[:24].strip() for line in lines[4:]]
    fixed, pool = rows["fixed servers, backfill"], rows["pool, backfill"]
    assert pool["in_use"] > fixed["in_use"]
    assert pool["idle_while_somebody_waits"] < fixed["idle_while_somebody_waits"]
    assert f"{pool['in_use']:.1%}" in lines[-1]
    assert "jobs that wait" not in lines and (tmp_path / "day.svg").read_text().startswith("<?xml")


def test_a_trace_of_ones_own(tmp_path, capsys):
    trace = tmp_path / "trace.csv"
    trace.write_text("name,cpu_milli,num_gpu,creation_time,deletion_time\na,1000,9,0,3600\n"
                     "b,1000,1,0,7200\n")
    assert cli.main(["pool", "simulate", "--trace", str(trace), "--boxes", "1", "--servers", "1",
                     "--plot", str(tmp_path / "day.png")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == [
        "pool,", "backfill", "0.0%", "0.0%", "0", "s", "0", "s", "0", "s", "1", "2.0", "h"]
    data = (tmp_path / "day.png").read_bytes()
    assert struct.unpack(">II", data[16:24]) == (800, 550)


@pytest.mark.parametrize("argv, message", [
    (("--trace", "no.csv"), "--trace: cannot read 'no.csv': No such file or directory"),
    (("--trace", "empty.csv"), "--trace: 'empty.csv' has no job with a GPU"),
    (("--trace", "wrong.csv"), "--trace: 'wrong.csv', line 1: no column name; it needs name, "
     "cpu_milli, num_gpu, creation_time, deletion_time"),
    (("--trace", "bytes.csv"), "--trace: 'bytes.csv' is no text"),
    (("--servers", "0"), "--servers must be a whole number from 1 to 100000, not '0'"),
    (("--servers", "2", "--boxes", "3"), "--boxes is at most the 2 servers, as so many of them "
     "have GPUs when these are fixed, not 3"),
    (("--plot", "x.gif"), "--plot must end in .svg or .png, not 'x.gif'"),
])
def test_mistakes(tmp_path, monkeypatch, capsys, argv, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.csv").write_text("name,cpu_milli,num_gpu,creation_time,deletion_time\n")
    (tmp_path / "wrong.csv").write_text("cow\n")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    assert cli.main(["pool", "simulate", *argv]) == 2
    assert capsys.readouterr().err == f"dxpu pool: error: {message}\n"
