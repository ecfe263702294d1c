"""The command ``dxpu`` as a shell sees it."""

import subprocess
import sys

import pytest

from dxpu_sim import cli

DXPU = (sys.executable, "-c", "import sys; from dxpu_sim.cli import main; sys.exit(main())")


@pytest.mark.parametrize("buffered", [True, False])
def test_a_reader_that_goes_away_ends_the_command_quietly(buffered):
    """Python notices it while it prints, or when it writes what it held at the end."""
    command = DXPU if buffered else (DXPU[0], "-u", *DXPU[1:])
    with subprocess.Popen([*command, "build", "--list"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_another_broken_pipe_is_not_hidden(monkeypatch, capfd):
    """A simulator that died is no reader that went away."""
    def dies(argv):
        raise BrokenPipeError
    monkeypatch.setattr(cli, "_run", dies)
    with pytest.raises(BrokenPipeError):
        cli.main([])


def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run([*DXPU[:1], "-u", *DXPU[1:], "build", "--list"], stdout=full,
                              stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        1, "dxpu build: error: the disk is full: free some space and run it again\n")
