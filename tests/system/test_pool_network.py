"""The manager of a pool and its commands before real proxies in Verilator, over a veth, and at a
UNIX socket where nothing on the network is permitted."""

import json

import pytest

from dxpu_cli.pool.demonstration import SYSTEM
from dxpu_sim.ethernet.namespace import why_not
from dxpu_sim.run.runner import Design, simulate
from dxpu_sim.system.design import System


@pytest.mark.parametrize("veth", [True, False], ids=["veth", "socket"])
def test_commands_give_gpus_to_hosts(veth, tmp_path):
    if veth and (reason := why_not()):
        pytest.skip(reason)
    run = simulate(Design(System, SYSTEM), "dxpu_sim.system.benches.pool", env={
        "DXPU_POOL": json.dumps({"system": SYSTEM, "veth": veth, "patience": 500})},
        folder=tmp_path / "run")
    result = json.loads((run / "result.json").read_text())
    assert result["error"] is None and len(result["checks"]) == 10
    assert all(result["checks"].values())
    print((run / "progress.txt").read_text())
    settings = (run / "pool/manager.toml").read_text()
    assert ('interface = "manager0"' in settings) == veth
    assert ('socket = "fabric.sock"' in settings) == (not veth)
