"""dxpu.observe.mirror: every frame of a path in the mirror's format, against the page of it."""

import random
import struct
from dataclasses import dataclass

import pytest

from dxpu.observe import mirror_format
from dxpu.observe.mirror import FrameRecorder, HeadPrepender, Mirror
from dxpu.stream import payload_shape
from tests.support.mutate import mutant
from tests.support.testbench import (
    Packet, beats, check_stream, collect_packets, count_pulses, seed, simulate,
)

PERIOD_PS = 9524
WAYS = {"sent": "outbound", "received": "inbound"}


@dataclass
class Passed:
    """A frame on the observed path, and the cycle of its first beat."""

    data: bytes
    bad: bool
    cycle: int


def golden(way, frame, number, lost, *, path, snap):
    """A mirror's frame, by the table of docs/reference/mirror.md."""
    flags = (way == "received") | frame.bad << 1
    return bytes.fromhex("ffffffffffff 024458ffffff 88b6") + struct.pack(
        ">BBHHIH", 0x10 | flags, path, len(frame.data), PERIOD_PS, number, lost) + (
        frame.cycle.to_bytes(6, "big") + frame.data[:snap])


def observed(dut, way, frames, gaps, rng, into):
    """Process that lets frames pass, and notes the cycle of each; nothing of it can be delayed by
    the mirror."""
    passing, layout = getattr(dut, WAYS[way]), payload_shape(dut.o)

    async def process(ctx):
        cycle = 0
        for data, bad in frames:
            for n, beat in enumerate(beats(layout, Packet(data, discard=bad))):
                gap = rng.randrange(gaps + 1)
                if gap:
                    # What is there between beats has no meaning.
                    ctx.set(passing, {"strobe": 0, "beat": {**beat, "last": rng.random() < 0.5}})
                    await ctx.tick().repeat(gap)
                cycle += gap
                if n == 0:
                    into.append(Passed(data, bad, cycle))
                ctx.set(passing, {"strobe": 1, "beat": beat})
                await ctx.tick()
                cycle += 1
        ctx.set(passing, {"strobe": 0, "beat": {}})
        await ctx.tick().repeat(400)
    return process


def sizes(rng, largest, count):
    """Frames with their badness: the smallest, the largest, those around the limit."""
    return [(rng.randbytes(4 * rng.choice([1, 15, 16, 17, largest // 4 - 1, largest // 4,
                                           largest // 4 + 1, largest // 4 + 40,
                                           rng.randrange(15, largest // 4)])),
             rng.random() < 0.2) for _ in range(count)]


def run(dut, given, gaps, rng, *, density=1.0, deadline=100_000):
    """Frames of both directions through ``dut``; returns those that passed, those that came out of
    it, and the counters."""
    passed, out, counters = {way: [] for way in WAYS}, [], {}

    async def all_passed(ctx):
        while any(len(passed[way]) < len(given[way]) for way in WAYS):
            await ctx.tick()
        while sum(counters.values()) + len(out) < sum(map(len, given.values())):
            await ctx.tick()
        await ctx.tick().repeat(50)

    simulate(dut, *(observed(dut, way, given[way], gaps[way], rng, passed[way]) for way in WAYS),
             all_passed,
             deadline=deadline,
             background=[check_stream(dut.o), count_pulses(dut, counters),
                         collect_packets(dut.o, 1 << 30, out, rng=random.Random(rng.random()),
                                         density=density)])
    return passed, out, counters


def check_all(passed, out, counters, *, path, snap):
    """What came out is what the golden model says of the frames that were not lost."""
    for way in WAYS:
        mine = [packet.data for packet in out if packet.data[14] & 1 == (way == "received")]
        missing, next_number = 0, 0
        for data in mine:
            number = int.from_bytes(data[20:24], "big")
            missing += number - next_number
            next_number = number + 1
            assert data == golden(way, passed[way][number], number, missing, path=path, snap=snap)
        assert len(mine) + counters[f"{way}_lost"] == len(passed[way])


@pytest.mark.parametrize("width", [32, 64, 128, 256])
def test_both_directions_byte_exact(width):
    """As slow as a line of a quarter of the mirror's rate each: nothing is lost."""
    rng, snap = random.Random(seed()), 256
    dut = Mirror(width, period_ps=PERIOD_PS, path=5, memory_bytes=2048, snap=snap)
    given = {way: sizes(rng, snap, 60) for way in WAYS}
    passed, out, counters = run(dut, given, dict.fromkeys(WAYS, 12), rng)
    assert counters == {"sent_lost": 0, "received_lost": 0} and len(out) == 120
    check_all(passed, out, counters, path=5, snap=snap)


@pytest.mark.parametrize("width", [32, 64, 256])
def test_frames_without_room_are_lost_whole_and_counted(width):
    """Back to back on both sides, and a mirror line that stalls: what comes out is exact, each
    header has the number of the lost ones, and the counters agree."""
    rng, snap = random.Random(seed() + 1), 128
    dut = Mirror(width, period_ps=PERIOD_PS, memory_bytes=512, frames=12, snap=snap)
    given = {way: sizes(rng, snap, 150) for way in WAYS}
    passed, out, counters = run(dut, given, {"sent": 0, "received": 1}, rng, density=0.5)
    assert min(counters.values()) > 5 and len(out) > 40
    check_all(passed, out, counters, path=0, snap=snap)


def test_the_number_of_waiting_frames_is_limited():
    """Small frames, and a line that takes nothing for a long time: as many as there are heads."""
    rng = random.Random(seed())
    dut = Mirror(64, period_ps=PERIOD_PS, memory_bytes=4096, frames=4, snap=64)
    given = {way: [(rng.randbytes(8), False) for _ in range(40)] for way in WAYS}
    passed, out, counters = {way: [] for way in WAYS}, [], {}

    async def late(ctx):
        await ctx.tick().repeat(300)
        await collect_packets(dut.o, 8, out)(ctx)
        await ctx.tick().repeat(50)

    simulate(dut, *(observed(dut, way, given[way], 2, rng, passed[way]) for way in WAYS), late,
             background=[check_stream(dut.o), count_pulses(dut, counters)])
    assert counters == {"sent_lost": 36, "received_lost": 36}
    check_all(passed, out, counters, path=0, snap=64)


def test_a_frame_that_has_begun_has_a_beat_in_each_cycle():
    """As a MAC that cuts through needs it."""
    rng, out = random.Random(seed()), []
    dut = Mirror(64, period_ps=PERIOD_PS, snap=256)
    given = {way: sizes(rng, 256, 40) for way in WAYS}
    passed = {way: [] for way in WAYS}
    simulate(dut, *(observed(dut, way, given[way], 20, rng, passed[way]) for way in WAYS),
             collect_packets(dut.o, 80, out))
    for packet in out:
        assert packet.last_cycle - packet.first_cycle == -(-len(packet.data) // 8) - 1


def test_what_is_read_is_what_was_written():
    """``parse`` against the table of the page; another frame is none."""
    frame = golden("received", Passed(b"frame of 18 bytes.", True, 1 << 47 | 5), 1 << 31 | 7, 65535,
                   path=3, snap=99)
    header, data = mirror_format.parse(frame + bytes(20))
    assert header == (True, True, 3, 18, PERIOD_PS, 1 << 31 | 7, 65535, 1 << 47 | 5)
    assert data == b"frame of 18 bytes."
    assert mirror_format.parse(frame[:31]) is None
    for place in (12, 13, 14):
        other = bytearray(frame)
        other[place] ^= 0x20
        assert mirror_format.parse(bytes(other)) is None
    assert mirror_format.parse(frame[:18] + bytes(2) + frame[20:]) is None


@pytest.mark.parametrize("change", [
    ("keeps.eq(Mux(beat.first, room, was_kept))", "keeps.eq(room)"),
    ("stored.last.eq(beat.last | (position == self._beats - 1))", "stored.last.eq(beat.last)"),
    ("head.lost.eq(lost)", "head.lost.eq(0)"),
    ("self._depth - self._beats)", "self._depth)"),
    ("number.eq(number + 1)", "number.eq(number + keeps)"),
])
def test_mutants_are_seen(change, monkeypatch):
    monkeypatch.setattr("dxpu.observe.mirror.FrameRecorder", mutant(FrameRecorder, change))
    rng, snap = random.Random(1), 128
    dut = Mirror(64, period_ps=PERIOD_PS, memory_bytes=512, frames=12, snap=snap)
    given = {way: sizes(rng, snap, 150) for way in WAYS}

    def checked():
        passed, out, counters = run(dut, given, {"sent": 0, "received": 1}, rng, density=0.5,
                                    deadline=20_000)
        check_all(passed, out, counters, path=0, snap=snap)

    with pytest.raises((AssertionError, IndexError, TimeoutError)):
        checked()


@pytest.mark.parametrize("make, text", [
    (lambda: FrameRecorder(64, depth=16, frames=4, snap=12),
     "snap must be a multiple of 8 up to 128, not 12"),
    (lambda: FrameRecorder(64, depth=16, frames=4, snap=136),
     "snap must be a multiple of 8 up to 128, not 136"),
    (lambda: FrameRecorder(64, depth=16, frames=2, snap=64),
     "frames must be an integer of at least 3, not 2"),
    (lambda: HeadPrepender(512, path=0, received=True, period_ps=1),
     "width must be one of 32, 64, 128, 256, not 512"),
    (lambda: HeadPrepender(64, path=16, received=True, period_ps=1),
     "path must be from 0 to 15, not 16"),
    (lambda: HeadPrepender(64, path=0, received=True, period_ps=65536),
     "period_ps must be from 1 to 65535, not 65536"),
])
def test_mistakes(make, text):
    with pytest.raises(ValueError) as error:
        make()
    assert str(error.value) == text
