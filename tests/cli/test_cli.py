"""The command ``dxpu`` as a shell sees it."""

import errno
import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dxpu_cli import main as cli
from dxpu_cli.model.command import JOBS

DXPU = (sys.executable, "-m", "dxpu_cli")


def start(*argv, buffered, **options):
    """What a shell starts; Python notices a failure of the output while it prints, or when it
    writes what it held at the end."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen([DXPU[0], *["-u"] * (not buffered), *DXPU[1:], *argv], text=True,
                            stderr=subprocess.PIPE, env=environment, **options)


@pytest.mark.parametrize("argv, buffered", [
    (("build", "--list"), True), (("build", "--list"), False), (("build", "--help"), True)])
def test_a_reader_that_goes_away_ends_the_command_quietly(argv, buffered):
    with start(*argv, buffered=buffered, stdout=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


@pytest.mark.parametrize("buffered", [True, False])
def test_a_full_disk_is_one_line(buffered):
    with open("/dev/full", "w") as full, start("build", "--list", buffered=buffered,
                                               stdout=full) as process:
        assert process.stderr.read() == (
            "dxpu build: error: the disk is full: free some space and run it again\n")
    assert process.returncode == 1


def test_another_broken_pipe_is_not_hidden(monkeypatch, capfd):
    """A simulator that died is no reader that went away."""
    def dies(argv):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
    monkeypatch.setattr(cli, "_run", dies)
    with pytest.raises(BrokenPipeError):
        cli.main([])


#: Every command and those below it that take options of their own.
HELPS = [(), *((name,) for name in cli.COMMANDS), *(("bench", what) for what in (
    "traversal", "wire", "paper", "size", "scale", "clock", "allocation", "pool",
    "takeover")), *(
        ("console", "port", job) for job in ("read", "write", "counters", "setup", "bind", "unbind")
        ), ("cache", "clean"), *(
        ("wireshark", job) for job in ("install", "remove", "show")), *(
        ("pool", job) for job in ("show", "paths", "spares", "simulate")), *(
        ("manager", job) for job in ("run", "check", "account", "backup", "restore", "try")), *(
        ("gpu", job) for job in ("list", "show", "admit", "set-aside", "spare", "unspare", "retire",
                                 "model")), *(
        (node, job) for node in ("host", "box") for job in ("list", "show", "close", "open", "name")
        ), ("box", "kind"), ("host", "agent"), ("host", "confirm"), *(
        ("task", job) for job in ("list", "show", "watch", "cancel")), *(
        ("request", job) for job in ("list", "show", "renew", "take-up", "end")), *(
        ("model", job) for job in JOBS)]
#: How the field spells what a lower-case letter would make another word of.
SPELLINGS = {word.lower(): word for word in (
    "TLP", "TLPs", "PCIe", "PCI", "LUT", "LUTs", "RAM", "RAMs", "MHz", "Gbit/s", "GPU", "GPUs",
    "FPGA", "UART", "BAR", "BARs", "ECP5", "QEMU", "JSON", "SVG", "URL", "Linux", "Verilog",
    "Ethernet", "Verilator", "DXPU", "HELLO", "GMII", "MAC")}


def help_of(argv, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([*argv, "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("argv", HELPS, ids=" ".join)
def test_help_is_spelled_as_the_field_does(argv, capsys):
    text = help_of(argv, capsys)
    assert "default: None" not in text and "default: False" not in text
    assert not re.search(r"\(default[^)]*\)\s+\(default", text)
    # Options, the values between braces and defaults are typed, so they are as they are.
    prose = re.sub(r"usage:.*?\n\n|--?[\w-]+|\{.*?\}|\(default: [^)]*\)|\S*/\S*", " ", text,
                   flags=re.DOTALL)
    wrong = {word for word in re.findall(r"[A-Za-z][\w/]*", prose)
             if SPELLINGS.get(word.lower(), word) != word
             and word not in ("dxpu", *cli.COMMANDS) and not word.isupper()}
    assert not wrong
    about = text.split("\n\n")[1]
    assert about[0].isupper() and about.rstrip().endswith(".")


def test_a_default_that_is_one_is_shown(capsys):
    assert "(default: 64)" in " ".join(help_of(("generate",), capsys).split())


def test_version(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"dxpu {importlib.metadata.version('dxpu')}\n"


#: A Python in which no package of an extra can be imported.
BARE = """
import importlib.util, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {extras!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
importlib.util.find_spec = lambda name, find=importlib.util.find_spec: (
    None if name in {extras!r} else find(name))
sys.meta_path.insert(0, Missing())
from dxpu_cli.main import main
sys.exit(main())
"""


HELP_OF_ALL = """
import contextlib
for argv in {helps!r}:
    with contextlib.suppress(SystemExit):
        main([*argv, "--help"])
"""


def bare(*argv):
    return subprocess.run([sys.executable, "-c", BARE.format(extras=set(cli.EXTRAS)), *argv],
                          capture_output=True, text=True)


def test_help_needs_no_extra():
    """All in one process, as starting Python takes longer than the rest."""
    every = BARE.replace("sys.exit(main())", HELP_OF_ALL)
    run = subprocess.run(
        [sys.executable, "-c", every.format(extras=set(cli.EXTRAS), helps=HELPS)],
        capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.count("usage: dxpu") == len(HELPS)


@pytest.mark.parametrize("argv, missing, extra", [
    (("console", "/dev/x", "list"), "serial", "boards"),
    (("build", "--list"), "amaranth_boards", "boards"),
    (("demo", "--out", "{tmp}"), "cocotb", "sim manager"),
    (("demo", "--pool", "off", "--out", "{tmp}"), "cocotb", "sim"),
    (("linux", "--list"), "cocotb", "sim"),
    (("faults", "--out", "{tmp}"), "cocotb", "sim"),
    (("bench", "traversal"), "cocotb", "sim"),
    (("bench", "size"), "amaranth_boards", "boards formal"),
    (("model", "paper"), "simpy", "performance"),
    (("pool", "show"), "starlette", "manager"),
    (("manager", "run", "{tmp}"), "starlette", "manager")])
def test_a_part_that_is_not_installed_comes_with_the_command_that_installs_it(
        argv, missing, extra, tmp_path):
    """The command has to work anywhere: no index of packages has this one."""
    run = bare(*(word.format(tmp=tmp_path / "out") for word in argv))
    assert run.returncode == 2 and run.stderr.count("\n") == 1, run.stderr
    line = re.fullmatch(rf"dxpu {argv[0]}: error: {missing}\S* is missing: (.*)\n", run.stderr)
    python, *words = shlex.split(line[1])
    assert python == sys.executable and words[:3] == ["-m", "pip", "install"]
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert sorted(words[3:]) == sorted(
        name for part in extra.split() for name in project["optional-dependencies"][part])
    assert not (tmp_path / "out").exists()


def test_a_module_of_our_own_that_is_missing_is_not_hidden(monkeypatch):
    monkeypatch.setitem(sys.modules, "dxpu_cli.commands.generate", None)
    with pytest.raises(ModuleNotFoundError):
        cli.main(["generate", "--help"])
