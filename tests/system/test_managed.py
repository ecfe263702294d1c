"""Management by frames in the whole system (:mod:`dxpu_sim.system.benches.managed`)."""

import json

import pytest
from dxpu_sim.run.runner import Design, said, simulate
from dxpu_sim.system.design import System
from tests.support.bench_cases import bench_cases

SMALL = {"width": 64, "boxes": (1,), "ports": 1, "paths": 1, "peers": 2, "streams": 1, "keys": True,
         "managed": True, "observed": True}


@pytest.mark.parametrize("case", bench_cases("dxpu_sim.system.benches.managed"))
def test_a_host_and_a_box_that_are_managed(case):
    folder = simulate(Design(System, SMALL), "dxpu_sim.system.benches.managed",
                      testcase=f"{case}$", env={"DXPU_SYSTEM": json.dumps(SMALL)})
    print(said(folder, "flood"))


@pytest.mark.long
def test_a_hundred_thousand_hostile_frames():
    simulate(Design(System, SMALL), "dxpu_sim.system.benches.managed",
             testcase="hostile_frames_change_nothing$",
             env={"DXPU_SYSTEM": json.dumps(SMALL), "DXPU_HOSTILE": "100000"})
