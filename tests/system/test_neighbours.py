"""Frames of bad neighbours into the whole system (:mod:`dxpu_sim.system.benches.neighbours`)."""

import json

import pytest

from dxpu_cli.commands.demo import system_design
from dxpu_sim.run.runner import said, simulate


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_frames_of_bad_neighbours_have_no_effect(count):
    design = system_design()  # as ``dxpu demo`` runs it by default, so that both need one build
    folder = simulate(design, "dxpu_sim.system.benches.neighbours",
                      env={"DXPU_SYSTEM": json.dumps(design.kwargs), "DXPU_FRAMES": count},
                      waves="fst", window=True)
    print(said(folder, "neighbours"))
