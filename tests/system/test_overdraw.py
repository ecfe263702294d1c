"""A host that sends without credits, before a whole box (:mod:`dxpu_sim.benches.overdraw`)."""

import pytest

from dxpu_sim.hdl.box_bench import BoxBench
from dxpu_sim.runner import Design, said, simulate


@pytest.mark.parametrize("case", [
    "a_host_that_sends_without_credits_loses_its_slot_alone",
    "a_tlp_above_the_largest_payload_is_dropped_and_costs_nobody_anything"])
def test_one_box_and_two_hosts(case):
    folder = simulate(Design(BoxBench, {}), "dxpu_sim.benches.overdraw", testcase=f"{case}$")
    print(said(folder, "overdraw"))
