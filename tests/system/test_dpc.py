"""Downstream Port Containment in the whole system."""

import json
import re

import pytest

import dxpu_sim.benches
from dxpu_sim.hdl.system import System
from dxpu_sim.runner import Design, simulate

SMALL = {"width": 64, "boxes": (2,), "ports": 2, "paths": 1, "dpc": True}
BENCH = "dxpu_sim.benches.dpc"
with open(f"{dxpu_sim.benches.__path__[0]}/dpc.py") as source:
    CASES = re.findall(r"^async def (\w+)\(dut\)", source.read(), re.MULTILINE)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_gpu_is_contained(case):
    simulate(Design(System, SMALL), BENCH, testcase=f"{case}$",
             env={"DXPU_SYSTEM": json.dumps(SMALL)})
