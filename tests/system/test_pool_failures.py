"""The pool of ``dxpu demo`` when something fails: one line, and nobody is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

#: Runs the pool alone, with little patience, and prints its outcome.
ALONE = """
import json, sys
from pathlib import Path
from dxpu_cli.pool import demonstration
from dxpu_cli.progress import Progress
from dxpu_tools.children import ending_with_us
demonstration.PATIENCE = 20
with ending_with_us():
    pool = demonstration.PoolDemo("on", 1, Path(sys.argv[1]))
    print(json.dumps(pool.run(Progress(sys.stderr, terminal=False))))
"""
STEP = "step dxpu attach"


def those_of(folder):
    """Command lines of processes at work in a folder or below, by number."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and Path(os.readlink(entry / "cwd")).is_relative_to(folder):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
    return found


def find(folder, *words):
    """The process at work there whose command line has these words, one after the other."""
    pid, = (pid for pid, line in those_of(folder).items() if words in zip(
        *(line[n:] for n in range(len(words))), strict=False))
    return pid


@pytest.mark.parametrize("victim, number, says", [
    ("manager", signal.SIGKILL, r"ManagerFailed: the manager has ended with -9: "),
    ("manager", signal.SIGSTOP, r"ManagerFailed: `dxpu attach "),
    ("simulator", signal.SIGKILL, r"dxpu_sim.system.benches.pool: "),
    ("command", signal.SIGTERM, None)], ids=lambda value: getattr(value, "name", str(value)))
def test_a_failure_is_a_line_and_ends_all(tmp_path, victim, number, says):
    folder = tmp_path / "pool"
    with subprocess.Popen([sys.executable, "-c", ALONE, str(folder)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        end = time.monotonic() + 500
        while STEP not in (said := (folder / "progress.txt").read_text()
                           if (folder / "progress.txt").exists() else ""):
            assert command.poll() is None and time.monotonic() < end, said
            time.sleep(0.1)
        manager = find(folder, "manager", "run")
        os.kill({"manager": manager, "command": command.pid,
                 "simulator": os.getpgid(manager)}[victim], number)
        output, _ = command.communicate(timeout=120)
    assert not those_of(folder)
    if says is None:
        assert command.returncode and not output
        return
    error = json.loads(output)["error"]
    assert error.startswith(says) and "\n" not in error
