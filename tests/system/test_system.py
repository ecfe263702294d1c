"""The whole system in Verilator, below cocotbext-pcie's root complex."""

import json
import pytest

from dxpu_cli.commands.demo import system_design
from dxpu_sim.run.runner import Design, build, simulate
from dxpu_sim.system.design import System
from tests.support.bench_cases import bench_cases

BENCH = "dxpu_sim.system.benches.system"
#: The bench's tests; each has a run of its own, so that it begins with a reset.
CASES = bench_cases(BENCH)
#: Whose subject the demo, another case or the bench of the switch has, too, but for what stands
#: behind slots.
LONG = ("copies_of_all_gpus_at_once", "functions_and_switches_behind_slots", "msi", "msix",
        "wrong_accesses_are_unsupported")
#: As ``dxpu demo`` runs it by default, so that both need one build.
DEMO = system_design().kwargs
SMALL = {"boxes": (2,), "ports": 2, "paths": 1}
#: Without those that need two paths.
SMALL_CASES = [case for case in CASES if case not in (
    "a_path_that_dies_is_left_for_the_other", "bound_rows_take_another_path_and_no_gpu_notices")]


def run(options, case, **others):
    simulate(Design(System, options), BENCH, testcase=f"{case}$",
             env={"DXPU_SYSTEM": json.dumps(options)}, **others)


def test_nothing_is_computed_twice():
    """Verilator finds an order for all of the logic; it repeats what is in a loop."""
    built = build(Design(System, DEMO), waves="fst")
    assert "UNOPTFLAT" not in (built / "build.log").read_text()


def test_a_wave_shows_all_clocks():
    """A part at rest has a clock that stays low, so waves are made without such parts."""
    built = build(Design(System, DEMO), waves="fst")
    assert "always_latch" not in (built / "top.v").read_text()
    assert System.rests


@pytest.mark.parametrize("case", [
    pytest.param(case, marks=pytest.mark.long) if case in LONG else case for case in CASES])
def test_two_boxes_with_three_gpus(case):
    run(DEMO, case, waves="fst", window=True)


@pytest.mark.long
@pytest.mark.parametrize("case", SMALL_CASES)
@pytest.mark.parametrize("width", [32, 256, 512])
def test_widths(width, case):
    run({**SMALL, "width": width}, case)


@pytest.mark.long
@pytest.mark.parametrize("case", SMALL_CASES)
def test_split_form(case):
    """Also the one width that :func:`test_widths` leaves out."""
    run({**SMALL, "width": 128, "split": True}, case)


@pytest.mark.long
@pytest.mark.parametrize("case", SMALL_CASES)
def test_core_clock_faster_than_the_line(case):
    """A core clock of 200 MHz beside the Ethernet clock of 125 MHz."""
    run({**SMALL, "width": 64, "period_ps": 5000}, case)
