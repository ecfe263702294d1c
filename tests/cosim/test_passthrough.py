"""The PCIe-side models against each other, through hardware that is only queues."""

import pytest

from dxpu_sim.hdl.passthrough import Passthrough
from dxpu_sim.runner import Design, simulate


@pytest.mark.parametrize("width", [64, 512])
def test_passthrough(width):
    folder = simulate(Design(Passthrough, {"width": width}), "dxpu_sim.benches.passthrough")
    print(*(line for line in (folder / "run.log").read_text().splitlines()
            if line.startswith("passthrough:")))
