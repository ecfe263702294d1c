"""dxpu_tools.children: nothing that dxpu started outlives it, whatever ends it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dxpu_tools import children

#: Runs a program that starts another one, as `dxpu linux` does, with what every command has.
PROGRAM = """
import signal, sys
from dxpu_cli import main as cli
from dxpu_tools import children
# As in a terminal, whatever started the tests: nohup, or a shell in the background, ignores these.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
def add_arguments(parser): pass
def run(arguments):
    children.run(["sh", "-c", "sleep 300 & echo $! $$ > numbers; wait"])
cli.COMMANDS["sleep"] = ("__main__", "sleep")
sys.modules["__main__"].add_arguments, sys.modules["__main__"].run = add_arguments, run
sys.exit(cli.main(["sleep"]))
"""


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def runs(pid):
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number, words", [
    (signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM"),
    (signal.SIGHUP, "ended by SIGHUP")])
def test_a_signal_to_dxpu_alone_ends_all(number, words, tmp_path):
    numbers = tmp_path / "numbers"
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=tmp_path, text=True,
                          stderr=subprocess.PIPE) as process:
        wait_for(lambda: numbers.exists() and numbers.read_text().endswith("\n"))
        started = list(map(int, numbers.read_text().split()))
        assert all(map(runs, started))
        process.send_signal(number)
        assert process.stderr.read() == f"dxpu sleep: {words}\n"
    assert process.returncode == 128 + number
    wait_for(lambda: not any(map(runs, started)), 5)


def test_what_is_stopped_stops_all(tmp_path):
    """As by Ctrl-Z: the processor is free then."""
    def states():
        return [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                for pid in started]

    numbers = tmp_path / "numbers"
    with subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=tmp_path, text=True,
                          stderr=subprocess.PIPE) as process:
        wait_for(lambda: numbers.exists() and numbers.read_text().endswith("\n"))
        started = [process.pid, *map(int, numbers.read_text().split())]
        process.send_signal(signal.SIGTSTP)
        wait_for(lambda: states() == ["T"] * 3)
        process.send_signal(signal.SIGCONT)
        wait_for(lambda: "T" not in states())
        process.terminate()
        process.communicate()
    wait_for(lambda: not any(map(runs, started)), 5)


def test_an_error_ends_the_program_and_its_own(tmp_path):
    numbers = tmp_path / "numbers"

    def look(group):
        if numbers.exists() and numbers.read_text().endswith("\n"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        children.run(["sh", "-c", "sleep 300 & echo $! $$ > numbers; wait"], cwd=tmp_path,
                     look=look)
    wait_for(lambda: not any(map(runs, map(int, numbers.read_text().split()))), 5)


def test_what_a_program_left_running_ends_with_it(tmp_path):
    assert children.run(["sh", "-c", "sleep 300 & echo $! > numbers; exit 3"], cwd=tmp_path) == 3
    wait_for(lambda: not runs(int((tmp_path / "numbers").read_text())), 5)


def test_a_program_has_a_group_of_its_own():
    with children.child([sys.executable, "-c", "import os; print(os.getpgrp())"], text=True,
                        stdout=subprocess.PIPE) as process:
        assert int(process.stdout.read()) == process.pid != os.getpgrp()


@pytest.mark.parametrize("when", ["elaboration", "Yosys"])
def test_an_interrupt_of_generate_is_one_line(when, tmp_path):
    """The terminal's interrupt goes to the whole group, so to Yosys too, if it does not leave it;
    and a design that is half made has parts that nobody has used."""
    file = tmp_path / "x.v"
    argv = ["generate", "box", "-o", str(file), "--width", "32", "--slots", "1", "--paths", "1"]
    with subprocess.Popen(
            [sys.executable, "-c", "import signal, sys\n"
             "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
             "from dxpu_cli.main import main\nsys.exit(main())", *argv],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True) as process:
        def yosys():
            return [pid for pid in children.members(process.pid) if pid != process.pid]

        if when == "Yosys":
            wait_for(yosys)
        else:
            process.stdout.readline()
            time.sleep(0.5)
        started = yosys()
        assert bool(started) == (when == "Yosys")
        os.killpg(process.pid, signal.SIGINT)
        said, complaint = process.communicate()
    assert complaint == "dxpu generate: interrupted\n" and process.returncode == 130
    assert "Traceback" not in said and not list(tmp_path.iterdir())
    wait_for(lambda: not any(map(runs, started)), 5)


def test_a_task_gives_its_result_or_its_error():
    assert children.Task(lambda: 7).outcome() == 7
    with pytest.raises(ZeroDivisionError):
        children.Task(lambda: 1 // 0).outcome()


#: Starts a program as `dxpu linux` starts QEMU, which has no pulses of its own.
PARENT = """
import subprocess
from dxpu_sim.run.pulse import end_with_parent
process = subprocess.Popen(["sleep", "300"], preexec_fn=end_with_parent)
print(process.pid, flush=True)
process.wait()
"""


def test_a_program_can_end_with_who_started_it_even_by_a_kill():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE,
                          text=True) as parent:
        started = int(parent.stdout.readline())
        assert runs(started)
        parent.kill()
    wait_for(lambda: not runs(started), 5)
