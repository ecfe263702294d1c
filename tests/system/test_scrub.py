"""A GPU between two hosts in the whole system (:mod:`dxpu_sim.system.benches.scrub`)."""

import json

import pytest
from dxpu_sim.run.runner import Design, simulate
from dxpu_sim.system.design import System

SMALL = {"boxes": (1,), "ports": 1, "paths": 1, "peers": 2, "streams": 1}


@pytest.mark.parametrize("wipes", [True, False])
def test_the_next_host_finds_nothing(wipes):
    options = {**SMALL, "wipes": wipes}
    simulate(Design(System, options), "dxpu_sim.system.benches.scrub",
             env={"DXPU_SYSTEM": json.dumps(options)})
