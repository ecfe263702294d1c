"""The virtual switch below cocotbext-pcie's root complex."""

import pytest

from dxpu_sim.run.runner import Design, simulate
from dxpu_sim.switch.design import SwitchTop


@pytest.mark.parametrize("width", [
    64, *(pytest.param(n, marks=pytest.mark.long) for n in (32, 128, 256, 512))])
def test_virtual_switch(width):
    folder = simulate(Design(SwitchTop, {"width": width, "ports": 3}),
                      "dxpu_sim.switch.bench")
    print((folder / "run.log").read_text()[-2000:])


@pytest.mark.parametrize("width, memory, prefetchable", [
    pytest.param(*p, marks=pytest.mark.long) for p in (
        (32, 1 << 20, 256 << 20), (512, 32 << 20, 64 << 30), (64, 1 << 20, 1 << 30))])
def test_placeholders(width, memory, prefetchable):
    """Room for a GPU of 1 MiB and 256 MiB, in 64-bit space beyond 4 GiB or below."""
    simulate(Design(SwitchTop, {"width": width, "ports": 2,
                                "placeholder": (memory, prefetchable, 500, 100)}),
             "dxpu_sim.switch.placeholder_bench",
             env={"DXPU_PLACEHOLDER": f"[{memory}, {prefetchable}]"})
