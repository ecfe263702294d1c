"""The virtual switch below cocotbext-pcie's root complex."""

import pytest

from dxpu_sim.hdl.virtual_switch import SwitchTop
from dxpu_sim.runner import Design, simulate


@pytest.mark.parametrize("width", [
    64, *(pytest.param(n, marks=pytest.mark.long) for n in (32, 128, 256, 512))])
def test_virtual_switch(width):
    folder = simulate(Design(SwitchTop, {"width": width, "ports": 3}),
                      "dxpu_sim.benches.virtual_switch")
    print((folder / "run.log").read_text()[-2000:])
