"""dxpu_sim.fabric.bad_line: the line is true without faults, and does each of them, counted."""

import random

import pytest

from dxpu_sim.fabric.bad_line import PAUSE, BadLine, LineTotals
from dxpu_sim.fabric.fault_design import fields
from tests.support.testbench import (
    Packet, check_stream, collect_packets, drive_packets, seed, simulate,
)

ALL = 0xFFFF


def frames(rng, count, kinds=range(16), dwords=44):
    """Frames of random size and type."""
    made = []
    for _ in range(count):
        data = bytearray(rng.randbytes(4 * rng.randint(9, dwords)))
        data[14] = data[14] & 0xF0 | rng.choice(kinds)
        made.append(Packet(bytes(data)))
    return made


def beats(frame, width=64):
    """Beats of a frame."""
    return -(-8 * len(frame.data) // width)


def run(width, sent, faults, *, dead=0, delay=50, settle=3000, pause=None, taps=None, **options):
    """What arrives of ``sent``, when, and the totals. ``pause``: cycles between two frames;
    ``taps`` gets what the tap says of each frame."""
    dut, got, totals = BadLine(width, seed=seed(), **options), [], {}

    async def process(ctx):
        ctx.set(dut.delay, delay)
        ctx.set(dut.dead, dead)
        for name, value in faults.items():
            ctx.set(dut.faults[name], value)
        for some in [sent] if pause is None else [[frame] for frame in sent]:
            await drive_packets(dut.i, some)(ctx)
            await ctx.tick().repeat(pause or 1)
        await ctx.tick().repeat(settle)
        assert ctx.get(dut.idle)
        for name, _ in fields(LineTotals):
            totals[name] = ctx.get(dut.totals[name])

    async def tap(ctx):
        toggle = 0
        async for _, _, now, said in ctx.tick().sample(dut.tap_toggle, dut.tap):
            if now != toggle and taps is not None:
                taps.append(said)
            toggle = now

    simulate(dut, process, background=[check_stream(dut.o),
                                       collect_packets(dut.o, 10**6, got), tap])
    assert totals["frames"] == len(sent)
    assert totals["frames"] + totals["twice"] == totals["lost"] + totals["delivered"]
    assert len(got) == totals["delivered"]
    return [p.data for p in got], [p.last_cycle for p in got], totals


@pytest.mark.parametrize("width", [64, 512])
def test_without_faults_frames_arrive_at_the_rate_of_the_line(width):
    rng = random.Random(seed())
    sent = frames(rng, 40)
    got, times, totals = run(width, sent, {})
    assert got == [p.data for p in sent]
    assert totals["lost"] == totals["twice"] == totals["late"] == totals["changed"] == 0
    # IEEE 802.3: preamble and start 8, FCS 4, gap 12; at least 60 bytes.
    for n, frame in enumerate(sent[1:]):
        # From its last byte to the beats of the one, and of the other.
        assert times[n + 1] - times[n] == max(len(frame.data), 60) + 24 + (
            beats(frame, width) - beats(sent[n], width))


def test_losses_hit_only_their_types():
    rng = random.Random(seed())
    sent = frames(rng, 80, kinds=(2, 5))
    got, _, totals = run(64, sent, {"types": 1 << 5, "loss": 32768})
    data = [p.data for p in sent if p.data[14] & 15 == 2]
    assert [d for d in got if d[14] & 15 == 2] == data
    left = [d for d in got if d[14] & 15 == 5]
    assert 0 < len(left) < len(sent) - len(data)
    assert totals["lost"] == len(sent) - len(got)


def test_bursts():
    rng = random.Random(seed())
    sent = frames(rng, 150)
    got, _, _ = run(64, sent, {"types": ALL, "burst": 6554, "relief": 16384})
    lost = [p.data not in got for p in sent]
    runs = "".join("x" if one else " " for one in lost).split()
    # One begins after 10 frames and ends after 4, on average.
    assert 15 < sum(lost) < 90 and 2 < sum(map(len, runs)) / len(runs) < 7


@pytest.mark.parametrize("pause, ends", [(PAUSE + 100, True), (PAUSE - 400, False)])
def test_a_burst_ends_with_a_pause(pause, ends):
    """It ends with no frame here. Frames apart: only those are lost with which one begins."""
    sent = frames(random.Random(seed()), 40)
    got, _, _ = run(64, sent, {"types": ALL, "burst": 16384}, pause=pause)
    if ends:
        assert 15 < len(got) < 40
    else:
        first = next(n for n, frame in enumerate(sent) if frame.data not in got)
        assert got == [frame.data for frame in sent[:first]] and first < 30


def test_a_script_loses_just_those_frames():
    rng = random.Random(seed())
    sent = frames(rng, 60, kinds=(2, 5))
    got, _, totals = run(64, sent, {"script_type": 5, "script_first": 3, "script_count": 2})
    acks = [p.data for p in sent if p.data[14] & 15 == 5]
    assert got == [p.data for p in sent if p.data not in acks[3:5]] and totals["lost"] == 2


@pytest.mark.parametrize("place, first, end", [(0, 12, None), (1, 12, 32), (2, 32, None)])
def test_changes_are_of_one_byte_where_they_belong(place, first, end):
    rng = random.Random(seed())
    sent = frames(rng, 60)
    got, _, totals = run(64, sent, {"types": ALL, "change": 32768, "place": place})
    changed, places = 0, set()
    for before, after in zip(sent, got, strict=True):
        wrong = [n for n in range(len(after)) if after[n] != before.data[n]]
        changed += len(wrong)
        assert len(wrong) <= 1 and all(first <= n < (end or len(after)) for n in wrong)
        places |= set(wrong)
    assert changed == totals["changed"] > 15 and len(places) > 8


def test_frames_come_twice_and_late():
    rng = random.Random(seed())
    sent = frames(rng, 60)
    got, _, totals = run(64, sent, {"types": ALL, "twice": 9000, "late": 9000, "lateness": 1023})
    data = [p.data for p in sent]
    assert totals["twice"] > 2 and totals["late"] > 2 and totals["lost"] == 0
    assert sorted(set(got)) == sorted(data)
    assert len(got) == len(sent) + totals["twice"]
    first = [d for n, d in enumerate(got) if d not in got[:n]]
    assert first != data


@pytest.mark.long
def test_what_was_overwritten_is_lost_not_wrong():
    rng = random.Random(seed())
    sent = frames(rng, 100, dwords=120)
    got, _, totals = run(64, sent, {"types": ALL, "late": 6000, "lateness": (1 << 15) - 1},
                         settle=1 << 15, beats=2048)
    assert set(got) < {p.data for p in sent} and totals["late"] > totals["lost"] > 0


def test_a_dead_line():
    sent = frames(random.Random(seed()), 10)
    assert run(64, sent, {}, dead=1)[0] == []


@pytest.mark.parametrize("width", [64, 512])
def test_the_tap_tells_size_and_fate_of_each_frame(width):
    """As the totals and what arrives say; the bytes of a capture are compared in the campaign."""
    rng, taps = random.Random(seed()), []
    sent = frames(rng, 120)
    got, _, totals = run(width, sent, {"types": ALL, "loss": 9000, "twice": 9000, "late": 9000,
                                       "lateness": 0xFF, "change": 9000}, taps=taps)
    assert [tap.size for tap in taps] == [len(frame.data) for frame in sent]
    assert [tap.flight.beats for tap in taps] == [beats(frame, width) for frame in sent]
    for name in ("lost", "twice", "late"):
        assert sum(tap[name] for tap in taps) == totals[name] > 0
    changed = [(frame.data, tap) for frame, tap in zip(sent, taps, strict=True)
               if tap.flight.change and not tap.lost]
    assert len(changed) == totals["changed"] > 0
    for data, tap in changed:
        pattern = tap.flight.pattern.to_bytes(width // 8, "little")
        at = tap.flight.beat * width // 8
        wrong = bytes(one ^ other for one, other in zip(
            data, bytes(at) + pattern + bytes(len(data)), strict=False))
        assert wrong != data and wrong in got
    for frame, tap in zip(sent, taps, strict=True):
        if not tap.lost and not tap.flight.change:
            assert got.count(frame.data) == 1 + tap.twice
