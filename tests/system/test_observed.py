"""What proxies measure of themselves (:mod:`dxpu_sim.system.benches.observed`)."""

import json

import pytest
from dxpu_sim.run.runner import Design, said, simulate
from dxpu_sim.system.design import System
from tests.support.bench_cases import bench_cases
from tests.system.test_managed import SMALL


@pytest.mark.parametrize("case", bench_cases("dxpu_sim.system.benches.observed"))
def test_an_observed_host_and_an_observed_box(case):
    folder = simulate(Design(System, SMALL), "dxpu_sim.system.benches.observed",
                      testcase=f"{case}$", env={"DXPU_SYSTEM": json.dumps(SMALL)})
    print(said(folder, "observed"))
