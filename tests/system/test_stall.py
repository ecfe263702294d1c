"""Slots that take nothing of a class, in the whole system."""

import json

import pytest

from dxpu_cli.commands.demo import system_design
from dxpu_sim.run.runner import Design, simulate
from dxpu_sim.system.design import System

BENCH = "dxpu_sim.system.benches.stall"
#: As ``dxpu demo`` runs it by default, so that both need one build.
DEMO = system_design().kwargs


@pytest.mark.parametrize("case", [
    "reads_that_are_not_taken",
    *(pytest.param(case, marks=pytest.mark.long) for case in (
        "writes_that_are_not_taken", "completions_that_are_not_taken",
        "a_slot_that_takes_no_posted_tlp_loses_its_card"))])
def test_two_boxes_with_three_gpus(case):
    simulate(Design(System, DEMO), BENCH, testcase=f"{case}$",
             env={"DXPU_SYSTEM": json.dumps(DEMO)},
             waves="fst", window=True)
