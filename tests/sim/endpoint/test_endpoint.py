"""The soft GPU in Verilator."""

import pytest

from dxpu.endpoint.config_map import GpuIdentity
from dxpu_sim.endpoint.design import EndpointBench
from dxpu_sim.run.runner import Design, simulate
from tests.support.testbench import seed


WIDTHS = (64, *(pytest.param(width, marks=pytest.mark.long) for width in (32, 512)))


def bench(width):
    return Design(EndpointBench, {"width": width, "gpu": {
        "identity": GpuIdentity(serial=0x0011223344556677, name="GPU in hardware"),
        "timeout": 4000}})


@pytest.mark.parametrize("width", WIDTHS)
def test_driver(width):
    simulate(bench(width), "dxpu_sim.endpoint.bench")


@pytest.mark.parametrize("width", WIDTHS)
def test_any_host(width):
    simulate(bench(width), "dxpu_sim.endpoint.raw_bench")


@pytest.mark.long
@pytest.mark.parametrize("number", range(5))
def test_any_host_with_other_seeds(number):
    simulate(bench(64), "dxpu_sim.endpoint.raw_bench", seed=100 * seed() + number)
