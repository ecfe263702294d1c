"""Bad hosts before the virtual switch, in Verilator."""

import pytest

from dxpu_sim.run.runner import Design, said, simulate
from dxpu_sim.switch.design import SwitchTop
from tests.support.bench_cases import bench_cases

BENCH = "dxpu_sim.switch.bad_host"
CASES = bench_cases(BENCH, r"^@cocotb.test\(\)\nasync def (\w+)\(dut\)")


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
