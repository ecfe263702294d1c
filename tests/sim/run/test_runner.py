"""dxpu_sim.run.runner: simulations that do not end by themselves end all the same."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dxpu_sim.run import verilate
from dxpu_sim.run.runner import Design, build, is_built, simulate
from dxpu_tools.cache import cache_root
from tests.support.hanging_bench import Tiny

#: Simulates in a process of its own, with little patience.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path += {path!r}
from dxpu_sim.run import watchdog
from dxpu_tools import children
watchdog.Watchdog.__init__.__kwdefaults__["stuck"] = 3.0
watchdog.LEAST_ROOM = {room}
from dxpu_sim.run.runner import Design, SimulationFailed, simulate
from tests.support.hanging_bench import Tiny
with children.ending_with_us():
    try:
        simulate(Design(Tiny, {{}}), "tests.support.hanging_bench", folder={out!r}, waves={waves!r},
                 env={{"DXPU_HANG": {how!r}}})
    except SimulationFailed as error:
        sys.exit(str(error).splitlines()[0])
"""


@pytest.fixture(scope="module", autouse=True)
def built(tmp_path_factory):
    """One that ends well; it also builds the program for the others."""
    out = tmp_path_factory.mktemp("ends")
    simulate(Design(Tiny, {}), "tests.support.hanging_bench", folder=out / "run",
             env={"DXPU_HANG": "ends"})


def start(out, how, *, room=8 << 20, waves=""):
    text = PROGRAM.format(path=sys.path, out=str(out), how=how, room=room, waves=waves)
    return subprocess.Popen([sys.executable, "-c", text], text=True, stderr=subprocess.PIPE)


def begun(out):
    """Number of the simulator, once it is in the middle of it."""
    end = time.monotonic() + 60
    while not (out / "begun").exists() or not (out / "begun").read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    return int((out / "begun").read_text())


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def ends(pid, seconds=5.0):
    end = time.monotonic() + seconds
    while runs(pid):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_one_that_is_stuck_is_ended(tmp_path):
    with start(tmp_path / "run", "stops") as process:
        simulator = begun(tmp_path / "run")
        said = process.stderr.read()
    assert process.returncode == 1 and "the simulation does nothing any more" in said
    assert said.count("\n") == 1 and str(tmp_path / "run" / "run.log") in said
    ends(simulator)


def test_one_that_fills_the_disk_is_ended(tmp_path):
    with start(tmp_path / "run", "for ever", room=1 << 60) as process:
        said = process.stderr.read()
    assert process.returncode == 1 and "the disk is full" in said and said.count("\n") == 1
    if (tmp_path / "run" / "begun").exists():
        ends(begun(tmp_path / "run"))


@pytest.fixture
def small_disk(tmp_path):
    """A folder with room for a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder],
                      capture_output=True).returncode:
        pytest.skip("tmpfs: may not be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.long
def test_one_whose_trace_has_filled_the_disk_is_ended(small_disk):
    """Verilator's trace writer then waits for itself."""
    with start(small_disk / "run", "for ever", room=0, waves="vcd") as process:
        simulator = begun(small_disk / "run")
        said = process.stderr.read()
    assert process.returncode == 1 and said.count("\n") == 1
    assert "the disk is full: free some space" in said and "does nothing any more" in said
    ends(simulator)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_one_whose_program_is_ended_ends(tmp_path, number):
    """To the program alone, which can hear of none but the first two."""
    with start(tmp_path / "run", "for ever") as process:
        simulator = begun(tmp_path / "run")
        assert runs(simulator)
        process.send_signal(number)
        process.communicate()
    ends(simulator)


#: The same with all packages, sources and the cache below a folder with a blank in its name.
BLANKS = """
import os, sys, sysconfig
from pathlib import Path
here = Path({here!r})
paths = sysconfig.get_paths()
(here / "site packages").symlink_to(paths["purelib"])
sys.path = [{tests!r}, str(here / "site packages"),
            *(p for p in sys.path + {path!r} if p != paths["purelib"])]
sysconfig.get_paths = lambda: {{**paths, "purelib": str(here / "site packages")}}
from cocotb_tools import config
config.libs_dir = here / "site packages" / config.libs_dir.relative_to(paths["purelib"])
config.share_dir = here / "site packages" / config.share_dir.relative_to(paths["purelib"])
from dxpu_sim.run import runner, verilate
(here / "trace.cpp").write_bytes(verilate._TRACE.read_bytes())
verilate._TRACE = here / "trace.cpp"
from tests.support.hanging_bench import Tiny
runner.simulate(runner.Design(Tiny, {{}}), "tests.support.hanging_bench", folder=here / "run",
                waves="vcd", env={{"DXPU_HANG": "ends"}})
"""


def test_registers_have_no_copies():
    """Each register would have one if there were a delay anywhere in the Verilog."""
    header = (build(Design(Tiny, {})) / "Vtop___024root.h").read_text()
    assert "count" in header and "__Vdly" not in header


def test_options_of_the_compiler_belong_to_the_key(monkeypatch):
    assert is_built(Design(Tiny, {}))
    monkeypatch.setitem(verilate._OPTIMISE, "OPT_FAST", "-O0")
    assert not is_built(Design(Tiny, {}))


def test_code_of_each_cycle_stays_in_its_order():
    """Blocks that are moved to the end of a function are a third of the time of a large design."""
    log = (build(Design(Tiny, {})) / "build.log").read_text()
    line, = (line for line in log.splitlines() if " Vtop__ALL.cpp" in line and " -c " in line)
    assert " -fno-reorder-blocks " in line


@pytest.mark.long
def test_paths_may_have_blanks(tmp_path):
    """`make` cannot have them, so nothing that it sees has any."""
    here = tmp_path / "a b"
    (here / "the cache").mkdir(parents=True)
    library = cache_root() / "runtime"
    library.mkdir(exist_ok=True)
    (here / "the cache" / "runtime").symlink_to(library)
    run = subprocess.run(
        [sys.executable, "-c", BLANKS.format(
            here=str(here), path=sys.path, tests=str(Path(__file__).parents[3]))],
        env={**os.environ, "DXPU_CACHE": str(here / "the cache")}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert (here / "run" / "dump.vcd").stat().st_size > 1000
