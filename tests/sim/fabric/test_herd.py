"""64 sessions under keys open at once (:mod:`dxpu_sim.fabric.herd_bench`)."""

import json
import math

import pytest
from dxpu_model.opening import WAITS
from dxpu_sim.fabric.herd_bench import CLOCK
from dxpu_sim.fabric.herd_design import PEERS, STREAMS, HerdBench
from dxpu_sim.run.runner import Design, simulate

SESSIONS = PEERS * STREAMS
#: Cycles of an attempt.
ATTEMPT = CLOCK * sum(WAITS)
#: Cycles between two HELLOs of a host, at most: a tag is drawn, and all sessions are asked.
SPACING = 1024 + 256


def most_of_a_box(loss):
    """Cycles in which a box opens all: in each series of HELLOs it opens one, if HELLO_ACK and
    HELLO_DONE come through; that fails in four standard deviations more than on the average."""
    comes = (1 - loss) ** 2
    mean = SESSIONS / comes
    series = mean + 4 * math.sqrt(mean * (1 - comes))
    return math.ceil(series / len(WAITS)) * ATTEMPT


def most_of_a_host(loss):
    """Cycles in which a host opens all: of the answers to each round of HELLOs it takes every
    third, if all three frames come through. In 99 % of such runs, if there is loss."""
    if loss:
        stays = 1 - (1 - loss) ** 3 / 3
        rounds = math.log(0.01 / SESSIONS) / math.log(stays)
    else:
        rounds, left = 0, SESSIONS
        while left:
            rounds, left = rounds + 1, 2 * left // 3
    return math.ceil(rounds / len(WAITS)) * ATTEMPT + SESSIONS * SPACING


@pytest.mark.parametrize("opens, loss", [
    pytest.param(True, 0, marks=pytest.mark.long), (True, 0.05),
    pytest.param(False, 0, marks=pytest.mark.long), (False, 0.05)],
    ids=["a host", "a host, with loss", "a box", "a box, with loss"])
def test_all_sessions_open_at_once(opens, loss):
    """All open, by one cipher, within a time that follows from the protocol, and stay open; no
    proof is wrong."""
    folder = simulate(Design(HerdBench, {}), "dxpu_sim.fabric.herd_bench",
                      public=("top.source", "top.sink"),
                      env={"DXPU_HERD": json.dumps({"opens": opens, "loss": loss})})
    found = json.loads((folder / "result.json").read_text())
    print(f"{'host' if opens else 'box'}, loss {loss:.0%}: {found['cycles']} cycles, "
          f"{found['lost']} frames lost, {found['session_stale']} dropped beside others")
    most = most_of_a_host(loss) if opens else most_of_a_box(loss)
    assert found["cycles"] <= most
    assert found["session_opened"] == found["heard"] == SESSIONS
    assert found["session_lost"] == found["proofs"] == found["opening_proof"] == 0
    assert found["strays"] == [] and found["opening_knock"] == found["session_unfit"] == 0
    assert bool(found["lost"]) == bool(loss)
    # The agent was busy when others came.
    assert found["session_stale"]
