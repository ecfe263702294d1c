"""The ports of AXI under Verilator against models that nobody here wrote, on a line at its rate."""

from dxpu_sim.ethernet.axi_design import axi_pair
from dxpu_sim.run.runner import Design, simulate


def test_10_gigabit():
    """64 bits at 156.25 MHz, core and MAC: the core fills the line, both ways."""
    simulate(Design(axi_pair, {"width": 64}), "dxpu_sim.ethernet.axi_bench",
             env={"HOST_FLOOR": 0.97, "BOX_FLOOR": 0.97, "WRITES": 1500})
