"""Sessions under keys in the whole system (:mod:`dxpu_sim.system.benches.keyed`)."""

import json

import pytest
from dxpu_sim.run.runner import Design, simulate
from dxpu_sim.system.design import System
from tests.support.bench_cases import bench_cases

SMALL = {"width": 64, "boxes": (1,), "ports": 1, "paths": 1, "peers": 2, "streams": 1, "keys": True}


@pytest.mark.parametrize("case", bench_cases("dxpu_sim.system.benches.keyed"))
def test_a_host_and_a_box_with_keys(case):
    simulate(Design(System, SMALL), "dxpu_sim.system.benches.keyed", testcase=f"{case}$",
             env={"DXPU_SYSTEM": json.dumps(SMALL)})
