"""Hostile TLPs into the PCIe sides of the whole system (:mod:`dxpu_sim.system.benches.fuzz`)."""

import json

import pytest

from dxpu_cli.commands.demo import system_design
from dxpu_sim.run.runner import Design, said, simulate
from dxpu_sim.system.design import System

#: As ``dxpu demo`` runs it by default, so that both need one build.
DEMO = system_design().kwargs
SMALL = {"boxes": (2,), "ports": 2, "paths": 1}


def fuzz(options, count, **others):
    folder = simulate(Design(System, options), "dxpu_sim.system.benches.fuzz",
                      env={"DXPU_SYSTEM": json.dumps(options), "DXPU_FUZZ": count}, **others)
    print(said(folder, "fuzz"))


@pytest.mark.parametrize("count", [6_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_two_boxes_with_three_gpus(count):
    fuzz(DEMO, count, waves="fst", window=True)


@pytest.mark.long
@pytest.mark.parametrize("options", [
    *({"width": width} for width in (32, 256, 512)), {"width": 128, "split": True}], ids=str)
def test_other_designs(options):
    fuzz({**SMALL, **options}, 10_000)
