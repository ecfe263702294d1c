"""The PCIe-side models against each other, through hardware that is only queues."""

import pytest

from dxpu_sim.run.runner import Design, said, simulate
from dxpu_sim.switch.passthrough_design import Passthrough


@pytest.mark.parametrize("width, link", [
    (64, 1), (64, 0), *(pytest.param(*p, marks=pytest.mark.long)
                        for p in ((32, 0), (512, 0), (512, 1)))])
def test_passthrough(width, link):
    folder = simulate(Design(Passthrough, {"width": width}), "dxpu_sim.switch.passthrough_bench",
                      env={"DXPU_LINK": link})
    print(said(folder, "passthrough"))


@pytest.mark.parametrize("case", ["hang_is_named", "hang_of_a_register_read_ends_the_test",
                                  "hang_of_the_design_ends_the_test"])
def test_hangs(case):
    simulate(Design(Passthrough, {"width": 64}), "dxpu_sim.switch.passthrough_hangs",
             testcase=case)


@pytest.mark.long
def test_broken_stream():
    simulate(Design(Passthrough, {"width": 64, "broken": True}),
             "dxpu_sim.switch.passthrough_hangs", testcase="broken_stream")


def test_library_switch():
    simulate(Design(Passthrough, {"width": 64}), "dxpu_sim.switch.library_bench")
