"""The command ``dxpu`` as a shell sees it."""

import errno
import os
import re
import subprocess
import sys

import pytest

from dxpu_sim import cli

DXPU = (sys.executable, "-c", "import sys; from dxpu_sim.cli import main; sys.exit(main())")


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


@pytest.mark.parametrize("argv", [("console", "/dev/x", "list"), ("build", "--list")],
                         ids=" ".join)
def test_parts_that_are_not_installed_are_named(argv, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.startswith(("dxpu_boards", "amaranth_b"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "amaranth_boards", None)
    assert cli.main([*argv]) == 2
    assert re.fullmatch(rf"dxpu {argv[0]}: error: amaranth_boards\S* is missing: "
                        r"pip install 'dxpu\[boards\]'\n", capsys.readouterr().err)


def test_a_module_of_our_own_that_is_missing_is_not_hidden(monkeypatch):
    monkeypatch.setitem(sys.modules, "dxpu_sim.generate", None)
    with pytest.raises(ModuleNotFoundError):
        cli.main(["generate", "--help"])
