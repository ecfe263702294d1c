"""A GPU between two hosts in the whole system (:mod:`dxpu_sim.system.benches.scrub`)."""

import json

import pytest
from dxpu_sim.run.runner import Design, simulate
from dxpu_sim.system.design import System
from tests.support.bench_cases import bench_cases
from tests.system.test_managed import SMALL


@pytest.mark.parametrize("case", bench_cases("dxpu_sim.system.benches.scrub"))
def test_the_next_host_finds_nothing(case):
    simulate(Design(System, SMALL), "dxpu_sim.system.benches.scrub", testcase=f"{case}$",
             env={"DXPU_SYSTEM": json.dumps(SMALL)})
