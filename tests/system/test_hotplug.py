"""GPUs that come and go in the whole system, below a hot-plug driver."""

import json
import pytest

from dxpu_cli.commands.demo import system_design
from dxpu_sim.run.runner import Design, simulate
from dxpu_sim.system.design import System
from tests.support.bench_cases import bench_cases

#: As ``dxpu demo`` runs it by default, so that all need one build.
DEMO = system_design().kwargs
SMALL = {"boxes": (2,), "ports": 2, "paths": 1}
BENCH = "dxpu_sim.system.benches.hotplug"
CASES = bench_cases(BENCH)


@pytest.mark.parametrize("case", [
    pytest.param(case, marks=pytest.mark.long)
    if case in ("cycles_on_all_slots", "resets_under_traffic",
                "function_level_reset_is_passed_through",
                "deadline_costs_the_slot_its_card") else case for case in CASES])
def test_two_boxes_with_three_gpus(case):
    simulate(Design(System, DEMO), BENCH, testcase=f"{case}$",
             env={"DXPU_SYSTEM": json.dumps(DEMO)},
             waves="fst", window=True)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("options", [{"width": 32}, {"width": 256}, {"width": 128, "split": True}],
                         ids=["32", "256", "split"])
def test_forms(options, case):
    options = {**SMALL, **options}
    simulate(Design(System, options), BENCH, testcase=f"{case}$",
             env={"DXPU_SYSTEM": json.dumps(options)})


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_slots_that_boot_with_placeholders(case):
    """The same; room comes from the library's enumeration, and nothing is known of hot-plug."""
    options = {**SMALL, "width": 64, "placeholder": (1 << 20, 256 << 20, 500, 100)}
    simulate(Design(System, options), BENCH, testcase=f"{case}$",
             env={"DXPU_SYSTEM": json.dumps(options)})


@pytest.mark.long
def test_a_hundred_lives_on_eight_slots():
    options = {"width": 64, "boxes": (4, 4), "ports": 8, "paths": 2}
    simulate(Design(System, options), BENCH, testcase="cycles_on_all_slots$",
             env={"DXPU_SYSTEM": json.dumps(options), "DXPU_CYCLES": "100"})
