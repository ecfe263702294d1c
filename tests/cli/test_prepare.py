"""dxpu_cli.prepare: what is missing is built, in parallel, and said; what is not, is not."""

import io
import threading

import pytest

from dxpu_cli import main as cli, prepare as preparing
from dxpu_cli.prepare import Simulator, prepare
from dxpu_cli.progress import Progress
from dxpu_sim.run.runner import Design
from dxpu_tools import cache
from dxpu_tools.errors import Failed, UserError
from tests.support.hanging_bench import Tiny

TWO = {"narrow": Simulator(Design(Tiny, {})), "wide": Simulator(Design(Tiny, {}), {"waves": "vcd"})}


@pytest.fixture
def built(monkeypatch):
    """Which of them the cache has; a build adds to it."""
    there = set()
    monkeypatch.setattr(preparing, "is_built", lambda design, **options: any(
        TWO[name] == Simulator(design, options) for name in there))
    monkeypatch.setattr(preparing, "_build", lambda name, simulator, news: there.add(name))
    return there


def said(names, *, jobs=2):
    stream = io.StringIO()
    prepare({name: TWO[name] for name in names}, Progress(stream, terminal=False), jobs=jobs)
    return stream.getvalue().split()


def test_cached_is_only_what_was(built):
    assert "cached" not in said(["narrow"])
    assert said(["narrow"])[-1] == "cached" and said(TWO)[-4:] == ["1", "of", "2", "cached"]
    assert said(TWO)[-1] == "cached" and "of" not in said(TWO)


def test_all_are_built_at_the_same_time(built, monkeypatch):
    together = threading.Barrier(2, timeout=20)
    monkeypatch.setattr(preparing, "_build", lambda name, simulator, news: together.wait())
    said(TWO)
    assert not together.broken


def test_what_is_waited_for_is_said(monkeypatch):
    assert preparing._together({"demo": "making Verilog"}) == "making Verilog"
    assert preparing._together({"64 bits": "Verilator", "512 bits": "waiting"}) == (
        "64 bits: Verilator; 512 bits: waiting")


def test_a_simulator_is_built_by_another_process(tmp_path, monkeypatch):
    """From nothing, but for Verilator's own library, of which there may be objects already."""
    library = cache.cache_root() / "runtime"
    library.mkdir(exist_ok=True)
    monkeypatch.setenv("DXPU_CACHE", str(tmp_path))
    (tmp_path / "runtime").symlink_to(library)
    assert not preparing.is_built(TWO["narrow"].design)
    news = []

    class News(dict):
        def __setitem__(self, name, text):
            news.append(text)

    preparing._build("narrow", TWO["narrow"], News())
    assert preparing.is_built(TWO["narrow"].design)
    assert not preparing.is_built(TWO["wide"].design, **TWO["wide"].options)
    assert news[0] == "making Verilog" and news[-1] == "done" and any(
        text.startswith("compiling, ") for text in news)


@pytest.mark.parametrize("argv", [("demo",), ("faults", "--case", "everything"),
                                  ("bench", "traversal")], ids=" ".join)
@pytest.mark.parametrize("tool", ["g++", "make"])
def test_a_machine_without_a_compiler_says_so_before_minutes_have_gone(
        argv, tool, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DXPU_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    if tool == "make":
        (tmp_path / "bin" / "c++").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert cli.main([*argv]) == 2
    assert capsys.readouterr().err == (
        f"dxpu {argv[0]}: error: no {tool} here, and Verilator needs it to build a simulator; "
        f"Debian: apt-get install {tool}\n")
    assert not (tmp_path / "cache" / "verilog").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"bin", "cache"}


@pytest.mark.parametrize("script, error, words", [
    ("echo news Verilator; echo the disk is full; exit 1", Failed, "the disk is full"),
    ("echo no g++; exit 2", UserError, "no g++"),
    ("kill -9 $$", Failed, "the simulator narrow could not be built: status -9")])
def test_a_build_that_fails_is_one_line(script, error, words, tmp_path, monkeypatch):
    (tmp_path / "python").write_text(f"#!/bin/sh\ncat > /dev/null\n{script}\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(preparing.sys, "executable", str(tmp_path / "python"))
    with pytest.raises(error) as raised:
        preparing._build("narrow", TWO["narrow"], {})
    assert str(raised.value) == words


def test_the_line_of_a_log_that_says_why():
    from dxpu_sim.run.verilate import _reason
    assert _reason("a\n%Error: top.v:3: syntax error\nb") == (
        "the simulator cannot be built: %Error: top.v:3: syntax error")
    assert _reason("Vtop.cpp:1:10: fatal error: lz4.h: No such file or directory\nmake: ***") == (
        "the simulator cannot be built: Vtop.cpp:1:10: fatal error: lz4.h: No such file or "
        "directory")
    assert _reason("c++: x.s: No space left on device\nmake: *** error").startswith(
        "the disk is full: free some space")
    assert _reason("all is well") == ""
