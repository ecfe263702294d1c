"""Power is lost while keys are changed (:mod:`dxpu_sim.fabric.power_bench`)."""

import json
from itertools import product

import pytest
from dxpu_sim.fabric.fault_design import ENDS
from dxpu_sim.fabric.power_bench import WRITES
from dxpu_sim.fabric.power_design import PowerBench
from dxpu_sim.run.runner import Design, simulate

#: Who gets the next key first, who loses power, after how many writes.
ALL = list(product(ENDS, ENDS, range(WRITES + 1)))
#: In the middle of the words of the other end; when one end has the next key.
SOME = [("box", "host", 7), ("host", "box", 5)]


@pytest.mark.parametrize("cuts", [SOME, pytest.param(ALL, marks=pytest.mark.long)],
                         ids=["some", "all"])
def test_an_end_without_power_comes_back_by_the_procedure(cuts):
    """It is given the old key, then the next one: a session opens, whatever the peer has, TLPs go
    on, and the change of keys ends. Then the old key opens nothing."""
    folder = simulate(Design(PowerBench, {}), "dxpu_sim.fabric.power_bench",
                      env={"DXPU_POWER": json.dumps(cuts)})
    found = json.loads((folder / "result.json").read_text())
    for end in ENDS:
        total = {name: found[f"to_{end}_total_{name}"] for name in (
            "doubled", "reordered", "changed")}
        assert total == dict(doubled=0, reordered=0, changed=0)
        # TLPs in flight when a session ended are gone; all else came.
        assert found[f"to_{end}_total_tlps"] > 0 < found[f"to_{end}_total_lost"]
        assert found[f"{end}_opening_proof"] == 0
        dark = sum(cut[1] != end for cut in cuts)
        assert found[f"{end}_session_rebooted"] == dark
    # HELLOs under a key that the box has not.
    assert found["box_opening_knock"]
