"""dxpu_cli.output: good results stay until there are better ones, and one run at a time has a
folder."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from dxpu_cli import main as cli, output
from dxpu_cli.output import OutputFolder
from dxpu_tools import room
from dxpu_tools.errors import UserError

NAMES = ("report.json", "picture", "tables")


@pytest.fixture
def folder(tmp_path):
    """Results of a good run."""
    with OutputFolder("--out", str(tmp_path / "out")) as out:
        make(out, "first")
        out.good(NAMES)
    return tmp_path / "out"


def make(out, text):
    (out.work / "report.json").write_text(text)
    (out.work / "tables").mkdir()
    (out.work / "tables" / "x").write_text(text)
    (out.work / "log").write_text(text)


def content(folder):
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*")
            if path.is_file()}


FIRST = {"report.json": "first", "tables/x": "first"}


def test_a_good_run_replaces_all(folder):
    (folder / "picture").write_text("of a run before the first")
    (folder / "notes").write_text("of the user")
    with OutputFolder("--out", str(folder)) as out:
        make(out, "second")
        assert content(folder).items() >= FIRST.items()
        out.good(NAMES)
    assert content(folder) == {"report.json": "second", "tables/x": "second",
                               "notes": "of the user"}


def test_a_bad_run_replaces_nothing(folder):
    for text in ("second", "third"):
        with OutputFolder("--out", str(folder)) as out:
            make(out, text)
            assert out.bad() == folder / "failed"
        assert content(folder) == FIRST | {
            f"failed/{name}": text for name in ("report.json", "tables/x", "log")}
    with OutputFolder("--out", str(folder)) as out:
        make(out, "fourth")
        out.good(NAMES)
    assert content(folder) == {"report.json": "fourth", "tables/x": "fourth"}


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interrupted_run_leaves_nothing(folder, tmp_path, error):
    for path in (folder, tmp_path / "new" / "one"):
        with pytest.raises(error), OutputFolder("--out", str(path)) as out:
            make(out, "second")
            raise error
    assert content(folder) == FIRST and not (tmp_path / "new").exists()


@pytest.mark.parametrize("step", range(4))
def test_an_error_in_the_middle_of_replacing_brings_the_old_ones_back(folder, monkeypatch, step):
    calls, rename = [], output.Path.rename

    def fails(self, target):
        calls.append(self)
        if len(calls) == step + 1:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    with pytest.raises(OSError), OutputFolder("--out", str(folder)) as out:
        make(out, "second")
        monkeypatch.setattr(output.Path, "rename", fails)
        out.good(NAMES)
    assert content(folder) == FIRST


#: Is killed when the old results have been moved, and the new ones have not.
KILLED = """
import os, signal, sys
from dxpu_cli.output import OutputFolder, Path
rename = Path.rename
def dies(self, target):
    if self.parent.name == ".new":
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)
with OutputFolder("--out", sys.argv[1]) as out:
    (out.work / "report.json").write_text("second")
    Path.rename = dies
    out.good(["report.json", "tables"])
"""


def test_a_run_that_was_killed_is_cleaned_up_by_the_next_one(folder):
    run = subprocess.run([sys.executable, "-c", KILLED, str(folder)])
    assert run.returncode == -signal.SIGKILL and "report.json" not in content(folder)
    with OutputFolder("--out", str(folder)):
        pass
    assert content(folder) == FIRST


def test_two_runs_into_one_folder(folder):
    with OutputFolder("--out", str(folder)):
        with pytest.raises(UserError) as error:
            OutputFolder("--out", str(folder)).__enter__()
        assert re.fullmatch(
            rf"another run \(process {os.getpid()}, since \d\d:\d\d:\d\d\) writes to --out "
            rf"{str(folder)!r}: wait until it has ended, or give another --out", str(error.value))
    assert content(folder) == FIRST
    with OutputFolder("", str(folder)):
        with pytest.raises(UserError, match=r"writes to folder '.*': wait until it has ended$"):
            OutputFolder("", str(folder)).__enter__()


def test_a_disk_that_is_full_is_seen_before_anything_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(room.shutil, "disk_usage", lambda path: SimpleNamespace(free=60 << 20))
    with pytest.raises(UserError) as error:
        OutputFolder("--out", str(tmp_path / "a" / "b"), room=256 << 20).__enter__()
    assert str(error.value) == (
        f"--out {str(tmp_path / 'a' / 'b')!r} has 60 MiB free, and up to 256 MiB are needed: free "
        "some space, or give another --out")
    assert not (tmp_path / "a").exists()


def test_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        with pytest.raises(UserError, match="--out"):
            OutputFolder("--out", str(tmp_path / name)).__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """``dxpu demo`` with a simulation that has no wave, and holds or does not."""
    def run(holds, *argv):
        def simulate(design, bench, *, folder, **others):
            folder.mkdir(parents=True)
            (folder / "run.log").write_text("log")
            (folder / "result.json").write_text(json.dumps({"checks": {"tree": holds}}))

        monkeypatch.setattr("dxpu_sim.run.runner.simulate", simulate)
        monkeypatch.setattr("dxpu_cli.prepare.prepare", lambda *_: None)
        return cli.main(["demo", "--wave", "off", "--out", str(tmp_path / "out"), *argv])
    return run


def test_a_demo_that_fails_leaves_the_last_good_one(demo, tmp_path, capsys):
    out = tmp_path / "out"
    assert demo(True, "--seed", "7") == 0
    (out / "wave.fst").write_text("of an earlier one")
    assert demo(False, "--seed", "8") == 1
    assert json.loads((out / "report.json").read_text())["seed"] == 7
    failed = json.loads((out / "failed" / "report.json").read_text())
    assert failed["seed"] == 8 and not failed["ok"]
    assert (out / "failed" / "simulation" / "run.log").read_text() == "log"
    assert "(what the last good run made is still there)" in capsys.readouterr().out
    assert demo(True, "--seed", "9") == 0
    assert [path.name for path in out.iterdir()] == ["report.json"]
    assert json.loads((out / "report.json").read_text())["seed"] == 9


def test_a_pool_that_fails_is_said_in_a_line(demo, tmp_path, capsys, monkeypatch):
    def run(self, progress):
        (tmp_path / "out/.new/pool").mkdir()
        return {"checks": {"attach": False}, "error": "ManagerFailed: it has ended", "veth": True}

    monkeypatch.setattr("dxpu_cli.pool.demonstration.PoolDemo.run", run)
    assert demo(True, "--pool", "socket") == 1
    said = capsys.readouterr().out
    assert re.search(r"\na pool: 2 hosts, .* has their keys, at a UNIX socket\n", said)
    log = tmp_path / "out/failed/pool/run.log"
    assert said.endswith(f"\nFAILED: the pool: ManagerFailed: it has ended\nlog: {log}\n")
    assert demo(True, "--pool", "off") == 0
    said = capsys.readouterr().out
    assert "a pool" not in said and "\nok: 1 checks of the fabric held, in " in said


def test_a_machine_without_networks_gets_a_pool_at_a_socket(demo, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("dxpu_sim.ethernet.namespace.why_not", lambda: "network: no program ip")
    assert demo(True, "--pool", "veth") == 2
    assert capsys.readouterr().err == ("dxpu demo: error: --pool veth cannot be here (network: no "
                                       "program ip); --pool socket can\n")
    assert demo(True) == 0
    assert "at a UNIX socket, not a veth (network: no program ip)\n" in capsys.readouterr().out


def test_two_demos_into_one_folder(demo, tmp_path, capsys):
    with OutputFolder("--out", str(tmp_path / "out")):
        assert demo(True) == 2
    said = capsys.readouterr().err
    assert said.startswith("dxpu demo: error: another run") and said.count("\n") == 1


@pytest.mark.parametrize("option", [("--wave", "all"), ()])
def test_a_demo_on_a_small_disk_says_so_at_once(demo, tmp_path, capsys, monkeypatch, option):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 20))
    assert demo(True, *option) == 2
    said = capsys.readouterr().err
    assert "1 MiB free" in said and said.count("\n") == 1 and not (tmp_path / "out").exists()
