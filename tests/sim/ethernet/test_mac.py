"""The MAC under Verilator against GMII models that nobody here wrote."""

import pytest

from dxpu_sim.ethernet.mac_design import MacBench
from dxpu_sim.run.runner import Design, simulate

#: The bench reads and writes the memories in these modules.
PUBLIC = ("top.source", "top.sink")


@pytest.mark.parametrize("width, core_period_ps", [
    (64, 8000),
    (64, 16000),  # 62.5 MHz
    (64, 4000),  # 250 MHz
    # 1.25 Gb/s, the least that can feed the line.
    pytest.param(32, 25600, marks=pytest.mark.long),
])
def test_mac(width, core_period_ps):
    simulate(Design(MacBench, {"width": width}), "dxpu_sim.ethernet.mac_bench", public=PUBLIC,
             env={"FRAMES": 20, "CORE_PERIOD_PS": core_period_ps})


@pytest.mark.long
@pytest.mark.parametrize("width, core_period_ps, rx_period_ps", [
    (64, 8000, 7998), (128, 8000, 8002), (512, 4000, 8000), (32, 8000, 8000), (256, 10000, 8000),
])
def test_mac_long(width, core_period_ps, rx_period_ps):
    design = Design(MacBench, {"width": width, "rx_period_ps": rx_period_ps})
    simulate(design, "dxpu_sim.ethernet.mac_bench", public=PUBLIC,
             env={"FRAMES": 300, "CORE_PERIOD_PS": core_period_ps, "RX_PERIOD_PS": rx_period_ps})
