"""A host that sends without credits, before a whole box
(:mod:`dxpu_sim.software_host.overdraw`)."""

import pytest

from dxpu_sim.run.runner import Design, said, simulate
from dxpu_sim.software_host.box_design import BoxBench


@pytest.mark.parametrize("case", [
    "a_host_that_sends_without_credits_loses_its_slot_alone",
    "a_tlp_above_the_largest_payload_is_dropped_and_costs_nobody_anything"])
def test_one_box_and_two_hosts(case):
    folder = simulate(Design(BoxBench, {}), "dxpu_sim.software_host.overdraw", testcase=f"{case}$")
    print(said(folder, "overdraw"))
