"""The soft GPU in Verilator."""

from dxpu.endpoint.config_map import GpuIdentity
from dxpu_sim.hdl.endpoint import EndpointBench
from dxpu_sim.runner import Design, simulate


def bench(width=64, **options):
    return Design(EndpointBench, {"width": width, "gpu": {
        "identity": GpuIdentity(serial=0x0011223344556677, name="GPU in hardware"),
        "timeout": 4000}, **options})


def test_driver():
    simulate(bench(), "dxpu_sim.benches.endpoint")


def test_raw():
    simulate(bench(), "dxpu_sim.benches.endpoint_raw")
