"""Round trips that a host proxy measures (:mod:`dxpu_sim.system.benches.observed`)."""

import json

from dxpu_sim.run.runner import Design, said, simulate
from dxpu_sim.system.design import System
from tests.system.test_managed import SMALL


def test_round_trips_are_those_that_the_host_sees():
    print(said(simulate(Design(System, SMALL), "dxpu_sim.system.benches.observed",
                        env={"DXPU_SYSTEM": json.dumps(SMALL)}), "observed"))
