"""`dxpu manager run` and commands to it, before real proxies in Verilator over a veth."""

import json

import pytest

from dxpu_sim.ethernet.namespace import why_not
from dxpu_sim.run.runner import Design, said, simulate
from dxpu_sim.system.design import System

SYSTEM = {"width": 64, "boxes": (2,), "hosts": 2, "ports": 2, "paths": 1, "peers": 2,
          "streams": 1, "keys": True, "managed": True, "wipes": True}


def test_commands_give_gpus_to_hosts(tmp_path):
    if reason := why_not():
        pytest.skip(reason)
    run = simulate(Design(System, SYSTEM), "dxpu_sim.system.benches.pool",
                   env={"DXPU_SYSTEM": json.dumps(SYSTEM)}, folder=tmp_path / "run")
    words = said(run, "pool")
    print(words)
    assert words.count("dxpu attach: ") == 3 and words.count(": completed") == 5
    assert "the second host finds nothing of the first one" in words
    assert "GPUs are used without a manager" in words
