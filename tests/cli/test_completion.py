"""Completion of command lines, by a real bash, and with the names that a manager knows."""

import os
import pty
import re
import select
import shlex
import shutil
import socket
import subprocess
import sys
import time

import pytest

from dxpu_cli import main as cli
from dxpu_cli.pool.names import _GOES_ON, _PHASES, _STATES, FITS, SECONDS
from dxpu_manager import TRANSITIONS, Cause, Phase, State
from dxpu_manager.service.redfish.shown import _TASK_STATES
from tests.support.manager_process import DXPU, processes, tell, wait_for

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")

A, B, C, D = "00010000.1", "00010000.2", "00010001.1", "00010001.2"
H0, H1, H2 = "00000100", "00000101", "00000102"
ALL = {A, B, C, D}


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """Environment in which `dxpu` is a command."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "dxpu").write_text(f"#!/bin/sh\nexec {shlex.join(DXPU)} \"$@\"\n")
    (folder / "dxpu").chmod(0o755)
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}",
                         "PYTHONPATH": os.pathsep.join(sys.path)}


#: A line is cut into words as readline cuts the line, at COMP_WORDBREAKS.
BASH = """
COMP_WORDBREAKS=$' \\t\\n"\\'@><=;|&(:'
eval "$(dxpu completion bash)"
complete -p dxpu >&2
while IFS= read -r COMP_LINE; do
  COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMPREPLY=()
  _python_argcomplete dxpu
  echo "${COMPREPLY[*]}"
done
"""


@pytest.fixture
def bash(there, tmp_path):
    """What bash offers for each of some lines, as a set of words."""
    def offers(*lines, **more):
        run = subprocess.run(["bash", "--norc", "--noprofile", "-c", BASH], cwd=tmp_path,
                             input="".join(f"{line}\n" for line in lines), env=there | more,
                             capture_output=True, text=True, timeout=120)
        assert run.returncode == 0 and "-F _python_argcomplete dxpu" in run.stderr, run.stderr
        found = [set(line.split()) for line in run.stdout.splitlines()]
        return found[0] if len(lines) == 1 else found

    return offers


def test_commands_options_choices_and_files(bash, tmp_path):
    (tmp_path / "pool.toml").touch()
    commands, jobs, options, where, files, nothing = bash(
        "dxpu ", "dxpu manager re", "dxpu attach host --c", "dxpu attach h --where j",
        "dxpu manager run po", "dxpu attach h --count ")
    assert commands == set(cli.COMMANDS)
    assert (jobs, options, where, files, nothing) == (
        {"restore"}, {"--count"}, {"joined"}, {"pool.toml"}, set())


def test_a_terminal(there, tmp_path):
    """Tab in an interactive bash."""
    process, terminal = pty.fork()
    if not process:
        os.chdir(tmp_path)
        os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], there | {
            "PS1": "ready$ ", "TERM": "dumb", "INPUTRC": "/dev/null"})

    def until(text):
        said, end = "", time.monotonic() + 60
        while text not in said:
            assert select.select([terminal], [], [], end - time.monotonic())[0], said
            said += os.read(terminal, 4096).decode()

    try:
        until("ready$ ")
        os.write(terminal, b'eval "$(dxpu completion bash)"\n')
        until("ready$ ")
        os.write(terminal, b"dxpu quaran\t\x15dxpu manager ba\t")
        until("backup ")
        os.write(terminal, b"\x15dxpu nod\t")
        until("nodes ")
    finally:
        os.close(terminal)
        os.kill(process, 9)
        os.waitpid(process, 0)


def test_names_that_a_manager_knows(bash, there, tmp_path):
    with processes(tmp_path, "unix:m.sock", cards=2) as (nodes, manager):
        more = {"DXPU_MANAGER": manager.start()}

        def dxpu(*argv):
            run = subprocess.run([*DXPU, *argv], env=there | more, capture_output=True, text=True)
            assert run.returncode == 0, run.stderr
            return run.stdout

        wait_for(lambda: bash("dxpu attach 100 ", **more) == ALL)
        dxpu("host", "name", H1, "render")
        dxpu("attach", H0, A)
        dxpu("attach", H1, B)
        dxpu("gpu", "spare", C)
        dxpu("attach", H2, "-n", "1", "--keep")
        hosts, boxes, either, free, second, mine, labelled, spares, every = bash(
            "dxpu attach ", "dxpu box show ", "dxpu drain 0001", "dxpu attach 100 ",
            f"dxpu attach 100 {C} ", f"dxpu detach {H0} ", "dxpu detach render ",
            "dxpu gpu unspare ", "dxpu gpu show 00010001.", **more)
        assert hosts == {H0, H1, H2, "render"}
        assert boxes == either == {"00010000", "00010001"}
        assert (free, second) == ({C, D}, {D})
        assert (mine, labelled, spares, every) == ({A}, {B}, {C}, {C, D})
        # A task that goes on; a request that keeps a GPU.
        tell(nodes, "cut 10000")
        number = re.match(r"task (\d+)", dxpu("detach", H0, A, "--force", "--no-wait"))[1]
        shown, goes_on, kept, renewed = bash(
            "dxpu task show ", "dxpu task watch ", "dxpu request take-up ", "dxpu request renew ",
            **more)
        assert goes_on == {number} and {"1", "2", number} <= shown
        assert kept == renewed == {"1"}
        # By an address in the line; a command that is not the manager's asks nobody.
        address = more.pop("DXPU_MANAGER")
        assert bash(f"dxpu gpu unspare --manager {address} ", **more) == {C}
        assert bash("dxpu gpu unspare ", DXPU_MANAGER="unix:/nobody") == set()


def test_a_manager_that_says_nothing_is_not_waited_for(bash, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        assert bash("dxpu completion ", DXPU_MANAGER=address) == {"bash", "zsh", "fish"}
        without = time.monotonic() - began
        began = time.monotonic()
        assert bash("dxpu attach ", DXPU_MANAGER=address) == set()
        assert time.monotonic() - began < without + SECONDS + 2.0


def test_what_is_offered_is_what_the_manager_takes():
    causes = {"admit": Cause.ADMITTED, "set-aside": Cause.SET_ASIDE, "spare": Cause.SPARED,
              "unspare": Cause.UNSPARED, "retire": Cause.RETIRED}
    assert {words: set(states) for words, states in FITS.items()} == {
        **{("gpu", job): set(TRANSITIONS[cause][0]) for job, cause in causes.items()},
        ("attach",): set(TRANSITIONS[Cause.ATTACH][0]),
        ("detach",): {State.ATTACHED}, ("swap",): {State.ATTACHED}}
    assert tuple(map(str, State)) == _STATES
    assert {state for progress, state in _TASK_STATES.items() if not progress.ended} == _GOES_ON
    assert set().union(*_PHASES.values()) <= set(map(str, Phase))


def test_who_completes_nothing_loads_nothing_for_it(there):
    code = ("import sys\nfrom dxpu_cli.main import parse\nparse(['gpu', 'list'])\n"
            "print({'argcomplete', 'httpx', 'dxpu_cli.completion'} & set(sys.modules))")
    run = subprocess.run([sys.executable, "-c", code], env=there, capture_output=True, text=True)
    assert run.stdout == "set()\n", run.stderr
