"""A manager with nothing but an Ethernet interface of Linux sets up a whole system in Verilator."""

import json

import pytest

from dxpu_sim.ethernet.namespace import why_not
from dxpu_sim.run.runner import Design, said, simulate
from dxpu_sim.system.design import System
from tests.system.test_managed import SMALL

#: The demo's system, with one path.
DEMO = {"width": 64, "boxes": (2, 1), "ports": 8, "paths": 1, "peers": 2, "streams": 1,
        "keys": True, "managed": True}


@pytest.mark.parametrize("options, bindings", [
    (SMALL, "0:257.1"),
    pytest.param(DEMO, "0:257.1 1:257.2 2:258.1", marks=pytest.mark.long)], ids=["small", "demo"])
def test_a_program_sets_a_system_up_over_veth(tmp_path, options, bindings):
    if reason := why_not():
        pytest.skip(reason)
    run = simulate(Design(System, options), "dxpu_sim.system.benches.network",
                   env={"DXPU_SYSTEM": json.dumps(options)}, folder=tmp_path / "run")
    words = said(run, "managed_network")
    print(words)
    assert "stranger: no answer\n" in words
    assert f"bindings: {bindings}\n" in words
    assert words.count(" in use") == len(bindings.split())
