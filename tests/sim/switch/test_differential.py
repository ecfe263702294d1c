"""The virtual switch against the switch model of cocotbext-pcie."""

import pytest

from dxpu_sim.run.runner import Design, said, simulate
from dxpu_sim.switch.design import SwitchTop


@pytest.mark.parametrize("count", [2500, pytest.param(30_000, marks=pytest.mark.long)])
def test_same_decisions(count):
    folder = simulate(Design(SwitchTop, {"width": 64, "ports": 3}),
                      "dxpu_sim.switch.differential", env={"DXPU_TLPS": count})
    print(said(folder, "differential"))
