"""dxpu.proxy.host_pool and dxpu.proxy.stall: TLPs that wait in a host, and for whom they wait."""

import random

import pytest
from dxpu.fabric.credit.sizing import (
    DEEP_GRANTS, FAST_GRANTS, GRANTS, WIDE_GRANTS, space_for,
)
from dxpu.proxy.host_pool import HostPool
from dxpu.proxy.stall import StallWatch
from dxpu.tlp.types import TlpClass
from tests.support.raw_tlps import completion, memory
from tests.support.testbench import (
    Packet, check_stream, collect_packets, count_pulses, drive_packets, seed, simulate,
)

P, NP, CPL = TlpClass


def of_class(rng, cls, units):
    data = rng.randbytes(16 * units)
    return {P: memory(0x1000, data=data or bytes(4)), CPL: completion(data),
            NP: memory(0x1000, data=data, kind=0x0E) if units else memory(0x1000, length=4)}[cls]


def all_that_is_granted(rng, row, grants):
    """As many TLPs as a row may send while none leaves, with as much data, classes mixed."""
    tlps = []
    for cls, (headers, units) in zip(TlpClass, grants, strict=True):
        each = [2 if cls is NP else 32 for _ in range(headers)]
        for n in range(headers):
            each[n] = min(each[n], units - sum(each[:n]))
            if cls is P:  # a write has data
                each[n] = max(1, min(each[n], units - sum(each[:n]) - (headers - 1 - n)))
        tlps += [(cls, of_class(rng, cls, n)) for n in each]
    rng.shuffle(tlps)
    return [Packet(raw, dict(row=row, life=row)) for _, raw in tlps]


@pytest.mark.parametrize("width, grants", [
    (64, GRANTS), pytest.param(32, GRANTS, marks=pytest.mark.long),
    pytest.param(512, GRANTS, marks=pytest.mark.long), (128, WIDE_GRANTS),
    pytest.param(64, FAST_GRANTS, marks=pytest.mark.long),
    pytest.param(512, DEEP_GRANTS, marks=pytest.mark.long)])
def test_a_host_that_takes_nothing_holds_back_nobody(width, grants):
    """All that is granted finds its place, and leaves in order when there is room."""
    rng = random.Random(seed())
    rows = 2
    dut = HostPool(width, rows=rows, space=space_for(width, grants), initial=grants)
    sent = [p for row in range(rows) for p in all_that_is_granted(rng, row, grants)]
    got, pulses = [], {}

    async def process(ctx):
        ctx.set(dut.link_active, 0b11)
        await ctx.tick().until(dut.receiving == 0b11)
        await drive_packets(dut.i, sent)(ctx)
        assert not got and pulses["overflow"] == 0
        assert ctx.get(dut.receiving) == 0b11
        ctx.set(dut.room, 1)
        while len(got) < len(sent) - rows * grants[1][0]:
            await ctx.tick()
        await ctx.tick().repeat(300)
        assert len(got) == len(sent) - rows * grants[1][0], "non-posted ones wait"
        ctx.set(dut.np_room, 1)
        while len(got) < len(sent):
            await ctx.tick()

    simulate(dut, process, background=[collect_packets(dut.o, 10**6, got), check_stream(dut.o),
                                       count_pulses(dut, pulses, "overflow", "waited")])
    assert pulses["waited"] == len(sent) and pulses["overflow"] == 0
    for row in range(rows):
        for kind in (0x40, 0x4A, 0x0A, 0x00):
            mine = [p.data for p in sent if p.meta["row"] == row and p.data[0] == kind]
            assert [p.data for p in got if p.meta.row == row and p.data[0] == kind] == mine


def test_credits_begin_when_nothing_of_the_old_life_is_left():
    rng = random.Random(seed())
    dut = HostPool(64, rows=2, space=space_for(64), initial=GRANTS)
    pulses, named = {}, set()

    async def name(ctx):
        async for *_, rows in ctx.tick().sample(dut.overflow):
            named.update(n for n in range(2) if rows >> n & 1)

    async def process(ctx):
        ctx.set(dut.link_active, 0b11)
        await ctx.tick().repeat(20)
        assert ctx.get(dut.receiving) == 0b11
        await drive_packets(dut.i, [Packet(of_class(rng, P, 4), dict(row=1))])(ctx)
        await ctx.tick().repeat(20)
        assert ctx.get(dut.receiving) == 0b11
        ctx.set(dut.link_active, 0b01)
        await ctx.tick().repeat(2)
        assert ctx.get(dut.receiving) == 0b01
        ctx.set(dut.link_active, 0b11)
        await ctx.tick().repeat(20)
        assert ctx.get(dut.receiving) == 0b01
        ctx.set(dut.room, 1)
        ctx.set(dut.o.ready, 1)
        await ctx.tick().repeat(40)
        assert ctx.get(dut.receiving) == 0b11
        # What was sent without credits is dropped, and forgotten; its row is named.
        ctx.set(dut.room, 0)
        await drive_packets(dut.i, [Packet(of_class(rng, P, 4), dict(row=1))] * 30)(ctx)
        assert pulses["overflow"] == 30 - GRANTS[P.value][0] and named == {1}
        ctx.set(dut.link_active, 0)
        ctx.set(dut.room, 1)
        await ctx.tick().repeat(600)
        ctx.set(dut.link_active, 0b10)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.receiving) == 0b10

    simulate(dut, process, background=[name, count_pulses(dut, pulses, "overflow")])


def test_a_tlp_above_the_largest_payload_is_dropped_and_gives_its_credits_back():
    """A write of 4096 bytes, where so much was granted: 256 units."""
    rng = random.Random(seed())
    grants = ((2, 300), (2, 4), (2, 32))
    dut = HostPool(64, rows=1, space=space_for(64, grants), initial=grants)
    sent = [Packet(memory(0x1000, data=rng.randbytes(16 * units)), dict(row=0))
            for units in (256, 1, 256, 1)]
    got, pulses, released = [], {}, []

    async def collect(ctx):
        async for *_, strobe, meta in ctx.tick().sample(dut.released_strobe, dut.released):
            if strobe:
                released.append((TlpClass(meta.cls), meta.units))

    async def process(ctx):
        ctx.set(dut.link_active, 1)
        ctx.set(dut.room, 1)
        await ctx.tick().until(dut.receiving == 1)
        await drive_packets(dut.i, sent)(ctx)
        await ctx.tick().repeat(20)

    simulate(dut, process, background=[
        collect, collect_packets(dut.o, 10**6, got), count_pulses(dut, pulses)])
    assert [p.data for p in got] == [sent[n].data for n in (1, 3)]
    assert pulses == {"overflow": 0, "large": 2, "waited": 0}
    assert released == [(P, 256), (P, 1), (P, 256), (P, 1)]


def test_what_passes_has_little_latency():
    rng = random.Random(seed())
    dut = HostPool(64, rows=1, space=space_for(64), initial=GRANTS)
    tlps = [Packet(of_class(rng, CPL, 4), dict(row=0)) for _ in range(4)]
    got, seen, pulses = [], [], {}

    async def watch(ctx):
        async for *_, i, o, done in ctx.tick().sample(dut.i.valid, dut.o.valid,
                                                      dut.released_strobe):
            seen.append((i, o, done))

    async def process(ctx):
        ctx.set(dut.room, 1)
        await ctx.tick().repeat(10)
        await drive_packets(dut.i, tlps)(ctx)
        await ctx.tick().repeat(10)

    simulate(dut, process, background=[collect_packets(dut.o, 10**6, got), watch,
                                       count_pulses(dut, pulses, "waited")])
    assert [p.data for p in got] == [p.data for p in tlps] and pulses["waited"] == 0
    came = [n for n, (i, _, _) in enumerate(seen) if i]
    left = [n for n, (_, o, _) in enumerate(seen) if o]
    assert left[0] == came[0] + 1 and sum(d for *_, d in seen) == len(tlps)


def test_a_row_is_stalled_without_progress_for_eight_intervals():
    dut = StallWatch(rows=3)
    stalled = []

    async def watch(ctx):
        n = 0
        async for *_, value in ctx.tick().sample(dut.stalled):
            n += 1
            if value:
                stalled.append((n, value))

    async def process(ctx):
        ctx.set(dut.interval, 20)

        async def run(cycles, limits=0b111, progress=0, waiting=0b111):
            ctx.set(dut.waiting, waiting)
            for n in range(cycles):
                ctx.set(dut.limits_received, limits if n % 15 == 3 else 0)
                ctx.set(dut.progress, progress if n % 70 == 5 else 0)
                await ctx.tick()

        await run(8 * 21)
        assert not stalled
        await run(50)
        assert [v for _, v in stalled] == [0b111]
        stalled.clear()
        await run(400, progress=0b001, waiting=0b011)  # row 0 goes on, row 2 has nothing
        assert {v for _, v in stalled} == {0b010}
        stalled.clear()
        await run(1, waiting=0)
        await run(400, limits=0b100)                  # no limits for rows 0 and 1
        assert {v for _, v in stalled} == {0b100}
        stalled.clear()
        ctx.set(dut.interval, 0)
        await run(100, waiting=0)
        await run(400)
        assert not stalled

    simulate(dut, process, background=[watch])
