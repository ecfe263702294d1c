"""Sessions that are lost and open again by themselves, in the whole system."""

import json
import re

import pytest

import dxpu_sim.benches
from dxpu_sim.hdl.system import System
from dxpu_sim.runner import Design, said, simulate

SMALL = {"width": 64, "boxes": (2,), "ports": 2, "paths": 1}
TWO_PATHS = {**SMALL, "paths": 2}
with open(f"{dxpu_sim.benches.__path__[0]}/sessions.py") as source:
    CASES = re.findall(r"^async def (\w+)\(dut\)", source.read(), re.MULTILINE)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_one_box_with_two_gpus(case):
    simulate(Design(System, SMALL), "dxpu_sim.benches.sessions", testcase=f"{case}$",
             env={"DXPU_SYSTEM": json.dumps(SMALL)})


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_timers_as_in_hardware(case):
    """With two paths and the default timers all is told within 10 ms."""
    folder = simulate(Design(System, TWO_PATHS), "dxpu_sim.benches.sessions", testcase=f"{case}$",
                      env={"DXPU_SYSTEM": json.dumps(TWO_PATHS), "DXPU_TIMERS": "default"})
    print(said(folder, "sessions"))
