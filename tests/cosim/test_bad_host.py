"""Bad hosts before the virtual switch, in Verilator."""

import re

import pytest

import dxpu_sim.benches
from dxpu_sim.hdl.virtual_switch import SwitchTop
from dxpu_sim.runner import Design, said, simulate

BENCH = "dxpu_sim.benches.bad_host"
with open(f"{dxpu_sim.benches.__path__[0]}/bad_host.py") as source:
    CASES = re.findall(r"^@cocotb.test\(\)\nasync def (\w+)\(dut\)", source.read(), re.MULTILINE)


def run(case, **env):
    folder = simulate(Design(SwitchTop, {"width": 64, "ports": 3}), BENCH, testcase=f"{case}$",
                      env=env)
    print(said(folder, "bad_host"))


@pytest.mark.parametrize("case", CASES)
def test_bad_host(case):
    run(case)


@pytest.mark.long
def test_every_register_of_every_function():
    run("every_register", DXPU_FUNCTIONS=4)


@pytest.mark.long
def test_many_nonsense_configurations():
    run("nonsense_configurations", DXPU_ROUNDS=1000)
