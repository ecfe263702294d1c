"""Downstream Port Containment in the whole system."""

import json
import pytest

from dxpu_sim.run.runner import Design, simulate
from dxpu_sim.system.design import System
from tests.support.bench_cases import bench_cases

SMALL = {"width": 64, "boxes": (2,), "ports": 2, "paths": 1, "dpc": True}
BENCH = "dxpu_sim.system.benches.dpc"
CASES = bench_cases(BENCH)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_is_contained(case):
    simulate(Design(System, SMALL), BENCH, testcase=f"{case}$",
             env={"DXPU_SYSTEM": json.dumps(SMALL)})
