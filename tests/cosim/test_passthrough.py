"""The PCIe-side models against each other, through hardware that is only queues."""

import pytest

from dxpu_sim.hdl.passthrough import Passthrough
from dxpu_sim.runner import Design, said, simulate


@pytest.mark.parametrize("width, link", [
    (64, 1), (64, 0), *(pytest.param(*p, marks=pytest.mark.long)
                        for p in ((32, 0), (512, 0), (512, 1)))])
def test_passthrough(width, link):
    folder = simulate(Design(Passthrough, {"width": width}), "dxpu_sim.benches.passthrough",
                      env={"DXPU_LINK": link})
    print(said(folder, "passthrough"))


@pytest.mark.parametrize("case", ["hang_is_named", "hang_of_a_register_read_ends_the_test",
                                  "hang_of_the_design_ends_the_test"])
def test_hangs(case):
    simulate(Design(Passthrough, {"width": 64}), "dxpu_sim.benches.passthrough_hangs",
             testcase=case)


@pytest.mark.long
def test_broken_stream():
    simulate(Design(Passthrough, {"width": 64, "broken": True}),
             "dxpu_sim.benches.passthrough_hangs", testcase="broken_stream")


def test_library_switch():
    simulate(Design(Passthrough, {"width": 64}), "dxpu_sim.benches.library_switch")
