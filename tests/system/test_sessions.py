"""Sessions that are lost and open again by themselves, in the whole system."""

import json
import pytest

from dxpu_sim.run.runner import Design, said, simulate
from dxpu_sim.system.design import System
from tests.support.bench_cases import bench_cases

SMALL = {"width": 64, "boxes": (2,), "ports": 2, "paths": 1}
TWO_PATHS = {**SMALL, "paths": 2}
CASES = bench_cases("dxpu_sim.system.benches.sessions")


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_one_box_with_two_gpus(case):
    simulate(Design(System, SMALL), "dxpu_sim.system.benches.sessions",
                      testcase=f"{case}$",
             env={"DXPU_SYSTEM": json.dumps(SMALL)})


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_timers_as_in_hardware(case):
    """With two paths and the default timers all is told within 10 ms."""
    folder = simulate(Design(System, TWO_PATHS), "dxpu_sim.system.benches.sessions",
                      testcase=f"{case}$",
                      env={"DXPU_SYSTEM": json.dumps(TWO_PATHS), "DXPU_TIMERS": "default"})
    print(said(folder, "sessions"))
