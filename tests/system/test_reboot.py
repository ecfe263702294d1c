"""The host reboots in the middle of traffic (:mod:`dxpu_sim.system.benches.reboot`)."""

import json

import pytest

from dxpu_cli.commands.demo import system_design
from dxpu_sim.run.runner import Design, said, simulate
from dxpu_sim.system.design import System

#: As ``dxpu demo`` runs it by default, so that both need one build.
DEMO = system_design().kwargs


@pytest.mark.parametrize("count", [1, pytest.param(20, marks=pytest.mark.long)])
def test_two_boxes_with_three_gpus(count):
    folder = simulate(Design(System, DEMO), "dxpu_sim.system.benches.reboot",
                      env={"DXPU_SYSTEM": json.dumps(DEMO), "DXPU_REBOOTS": count},
                      waves="fst", window=True)
    print(said(folder, "reboot"))
