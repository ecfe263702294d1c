"""Strangers beside sessions under a key and in clear (:mod:`dxpu_sim.fabric.strangers_bench`)."""

import json
import random

import pytest
from dxpu_model.wire import parse
from dxpu_sim.fabric.fault_design import ENDS, NODES
from dxpu_sim.fabric.stranger import Stranger, templates
from dxpu_sim.fabric.strangers_design import StrangersBench
from dxpu_sim.run.runner import Design, simulate
from tests.support.testbench import seed
from tests.support.testbench import simulate as in_python

#: An opening under flood may take so long.
MOST_US = 1000
#: Minimum frame, and an opening frame, with preamble, FCS and gap: cycles of 125 MHz at 1 Gb/s.
SMALLEST, OPENING = 84, 120


def run(case, *, keys, **options):
    """What the bench found."""
    folder = simulate(Design(StrangersBench, {"keys": keys}), "dxpu_sim.fabric.strangers_bench",
                      testcase=f"{case}$",
                      env={"DXPU_STRANGERS": json.dumps({"keys": keys, **options})})
    return json.loads((folder / "result.json").read_text())


def test_an_opening_under_flood_takes_less_than_a_millisecond():
    """Nobody, then each kind of frames at line rate at both ends."""
    found = run("floods", keys=True)
    assert set(found) == {"nobody", "HELLO", "HELLO_ACK", "HELLO_DONE", "MGMT", "HELLO to MGMT"}
    for name, took in found.items():
        print(f"{name}: {took['us']} us, {took['frames']}")
        assert took["us"] < MOST_US
        # The line to each end was full, but for the frames of the opening.
        for count in took["frames"].values():
            if name == "nobody":
                assert count == 0
            else:
                assert count >= took["cycles"] // OPENING - 6


@pytest.mark.parametrize("frames", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_blind_frames_do_not_act(frames):
    """All tags in turn with SEQ 0 to 63: TLPs, and FENCE, into a session that is open and used."""
    rng, tlps = random.Random(seed()), 1000
    found = run("blind", keys=True, frames=frames, start=rng.getrandbits(16), tlps=tlps)
    for end in ENDS:
        assert found[f"{end}_session_lost"] == found[f"{end}_session_opened"] == 0
        refused = [found[f"{end}_link_{cause}"] for cause in ("wrong_tag", "stray")]
        assert sum(refused) == frames and found[f"stranger_{end}_count"] == frames
        total = {name: found[f"to_{end}_total_{name}"] for name in (
            "tlps", "lost", "doubled", "reordered", "changed")}
        assert total == dict(tlps=tlps, lost=0, doubled=0, reordered=0, changed=0)
        assert found[f"{end}_rx_tlps"] == tlps and found[f"{end}_retry_timeout"] == 0


def test_without_keys_blind_frames_end_the_session():
    """The tags of the two ends are near the one that anyone can work out."""
    found = run("blind", keys=False, frames=20_000, start=0x2000 - 100, tlps=1000)
    assert all(found[f"{end}_session_lost"] for end in ENDS)
    assert max(found[f"stranger_{end}_count"] for end in ENDS) < 5000


@pytest.mark.parametrize("keys", [True, False], ids=["keys", "clear"])
def test_a_stranger_takes_over_only_without_a_key(keys):
    """25 blind frames to a box: a HELLO, and guessed tags."""
    found = run("take_over", keys=keys)
    assert found["box_session_lost"] == found["box_session_opened"] == (not keys)
    assert found["stranger_box_count"] == 25
    if keys:
        assert found["box_session_unfit"] == 1 and found["box_link_wrong_tag"] == 24


@pytest.mark.parametrize("keys", [True, False], ids=["keys", "clear"])
def test_a_stranger_is_taken_for_the_box_only_without_a_key(keys):
    """48 blind frames to a host that waits for its box."""
    found = run("pose", keys=keys)
    assert found["host_session_opened"] == (not keys)
    assert found["stranger_host_count"] == 48
    if keys:
        assert found["host_session_unfit"] == 24 and found["host_link_wrong_tag"] == 24


def frames_of(part, into):
    async def process(ctx):
        frame = b""
        ctx.set(part.o.ready, 1)
        while True:
            _, _, valid, data, dwords, last = await ctx.tick().sample(
                part.o.valid, part.o.payload.data, part.o.payload.dwords, part.o.payload.last)
            if valid:
                frame += data.to_bytes(8, "little")[:4 * dwords]
                if last:
                    into.append(frame)
                    frame = b""
    return process


def test_frames_with_other_tags_are_well_made():
    """The golden model takes them, and finds all tags, with SEQ 0 to 63."""
    made = templates(random.Random(seed()), "box", NODES)
    names = ("TLP", "EVENT", "ACK", "SACK", "FENCE")
    dut, got, start = Stranger([frame for name in names for frame in made[name]]), [], 0xFFF0

    async def process(ctx):
        ctx.set(dut.last, len(names) - 1)
        ctx.set(dut.sweeps, 1)
        ctx.set(dut.start, start)
        ctx.set(dut.limit, 5 * 64)
        await ctx.tick()
        ctx.set(dut.enable, 1)
        await ctx.tick().until(dut.count == 5 * 64)
        await ctx.tick().repeat(20)

    in_python(dut, process, background=[frames_of(dut, got)])
    frames = [parse(data) for data in got]
    assert [frame.tag for frame in frames] == [
        (start + n // 5) % (1 << 16) for n in range(5 * 64)]
    assert [frame.type.name for frame in frames] == [*names] * 64
    assert len({frame.seq for frame in frames}) > 32 and max(f.seq for f in frames) < 64
