"""The virtual switch against the switch model of cocotbext-pcie."""

import pytest

from dxpu_sim.hdl.virtual_switch import SwitchTop
from dxpu_sim.runner import Design, said, simulate


@pytest.mark.parametrize("count", [2500, pytest.param(30_000, marks=pytest.mark.long)])
def test_same_decisions(count):
    folder = simulate(Design(SwitchTop, {"width": 64, "ports": 3}),
                      "dxpu_sim.benches.differential", env={"DXPU_TLPS": count})
    print(said(folder, "differential"))
