"""Sessions under keys in the whole system (:mod:`dxpu_sim.system.benches.keyed`)."""

import json

import pytest
from dxpu_sim.run.runner import Design, simulate
from dxpu_sim.system.design import System
from tests.support.bench_cases import bench_cases
from tests.system.test_managed import SMALL


@pytest.mark.parametrize("case", bench_cases("dxpu_sim.system.benches.keyed"))
@pytest.mark.parametrize("managed", [True, pytest.param(False, marks=pytest.mark.long)],
                         ids=["managed", "not managed"])
def test_a_host_and_a_box_with_keys(case, managed):
    options = {**SMALL, "managed": managed}
    simulate(Design(System, options), "dxpu_sim.system.benches.keyed", testcase=f"{case}$",
             env={"DXPU_SYSTEM": json.dumps(options)})
