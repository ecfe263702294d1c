"""``dxpu cache``: what is in it, and what of it goes."""

import os
import re
import time

import pytest

from dxpu_cli import main as cli
from dxpu_tools import cache
from dxpu_tools.room import size_text


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Two simulators, one of which nobody has used for a week, and the log of a run."""
    monkeypatch.setenv("DXPU_CACHE", str(tmp_path))
    for key in ("old", "new"):
        with cache.entry("verilator", key) as (path, _):
            (path / "top").write_bytes(bytes(3 << 20))
    with cache.entry("runs", "x") as (path, _):
        (path / "run.log").write_text("log")
    week = time.time() - 7 * 24 * 3600
    os.utime(tmp_path / "verilator" / "old.done", (week, week))
    return tmp_path


def test_what_is_there(root, capsys):
    assert cli.main(["cache"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(root)
    assert re.fullmatch(r" +6 MiB +2  verilator +simulators", lines[3])
    assert re.fullmatch(r" +6 MiB +3  in all", lines[4]) and len(lines) == 5


def test_clean(root, capsys):
    with cache.entry("runs", "x"):
        assert cli.main(["cache", "clean"]) == 0
    said = capsys.readouterr().out
    assert "6 MiB free again" in said and "1 entries are in use, and stay" in said
    assert [(e.kind, e.key) for e in cache.entries()] == [("runs", "x")]


@pytest.mark.parametrize("unused, stays", [("6", {"new", "x"}), ("8", {"new", "old", "x"}),
                                           ("100h", {"new", "x"}), ("0.001h", {"new", "x"})])
def test_clean_what_nobody_uses(unused, stays):
    assert cli.main(["cache", "clean", "--unused", unused]) == 0
    assert {e.key for e in cache.entries()} == stays


def test_use_is_seen(root):
    with cache.entry("verilator", "old"):
        pass
    assert cli.main(["cache", "clean", "--unused", "1"]) == 0
    assert {e.key for e in cache.entries()} == {"old", "new", "x"}


@pytest.mark.parametrize("text", ["soon", "-1", "3w"])
def test_mistakes_get_one_line(text, capsys):
    assert cli.main(["cache", "clean", f"--unused={text}"]) == 2
    assert capsys.readouterr().err == (
        "dxpu cache: error: --unused must be a number of days such as 30, or of hours such as "
        f"12h, not {text!r}\n")
    assert len(cache.entries()) == 3


def test_sizes():
    assert [size_text(n) for n in (0, 1023, 1536, 5 << 20, 3 << 29)] == [
        "0 B", "1023 B", "2 KiB", "5 MiB", "1.5 GiB"]
