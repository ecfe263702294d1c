# amaranth: UnusedElaboratable=no
"""dxpu.cdc: nothing is lost or made between two clock domains of any relation."""

import random
import warnings

import pytest
from amaranth.sim import Simulator

from dxpu.cdc import AsyncPacketQueue, AsyncQueue, EventCrossing
from dxpu.stream import PacketLayout
from tests.support.testbench import seed

#: Periods in ns and phase of the second clock.
CLOCKS = [(8, 8, 0), (8, 8, 3), (8, 16, 1), (16, 8, 5), (4, 8, 1), (25, 8, 2), (8, 7.3, 0)]


def simulate(dut, clocks, *processes, limit_ns=100_000):
    """Run ``processes`` until the last one returns; domains ``a`` and ``b``."""
    sim = Simulator(dut)
    sim.add_clock(clocks[0] * 1e-9, domain="a")
    sim.add_clock(clocks[1] * 1e-9, phase=clocks[2] * 1e-9, domain="b")
    done = []

    def wrap(process):
        async def testbench(ctx):
            await process(ctx)
            done.append(process)
        return testbench

    for process in processes:
        sim.add_testbench(wrap(process))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while len(done) < len(processes):
            sim.advance()
            assert sim._engine.now < limit_ns * 1e6, "the hardware hangs"


@pytest.mark.parametrize("clocks", CLOCKS)
@pytest.mark.parametrize("density", [1, 0.4])
def test_queue(clocks, density):
    rng = random.Random(seed())
    dut = AsyncQueue(16, depth=8, i_domain="a", o_domain="b")
    words = [rng.randrange(1 << 16) for _ in range(200)]
    got = []

    async def drive(ctx):
        for word in words:
            while rng.random() > density:
                await ctx.tick("a")
            ctx.set(dut.i.payload, word)
            ctx.set(dut.i.valid, 1)
            await ctx.tick("a").until(dut.i.ready)
            ctx.set(dut.i.valid, 0)

    async def collect(ctx):
        held = None
        while len(got) < len(words):
            ready = rng.random() < density
            ctx.set(dut.o.ready, ready)
            _, _, valid, payload = await ctx.tick("b").sample(dut.o.valid, dut.o.payload)
            assert held is None or (valid and payload == held)
            held = payload if valid and not ready else None
            if valid and ready:
                got.append(payload)
        ctx.set(dut.o.ready, 1)
        for _ in range(20):
            _, _, valid = await ctx.tick("b").sample(dut.o.valid)
            assert not valid

    simulate(dut, clocks, drive, collect)
    assert got == words


def test_queue_runs_at_full_rate():
    """A word per cycle, and the latency that the docstring states, at equal clocks."""
    dut = AsyncQueue(16, depth=8, i_domain="a", o_domain="b")
    got = []

    async def drive(ctx):
        await ctx.tick("a").repeat(10)
        ctx.set(dut.i.valid, 1)
        for n in range(100):
            ctx.set(dut.i.payload, n)
            await ctx.tick("a").until(dut.i.ready)

    async def collect(ctx):
        ctx.set(dut.o.ready, 1)
        cycle = 0
        while len(got) < 100:
            _, _, valid, payload = await ctx.tick("b").sample(dut.o.valid, dut.o.payload)
            cycle += 1
            if valid:
                got.append((payload, cycle))

    simulate(dut, (8, 8, 0), drive, collect)
    assert [word for word, _ in got] == list(range(100))
    assert got[-1][1] - got[0][1] == 99
    # Offered from cycle 10 on, taken at the end of cycle 11; seen at the end of cycle 15 or 16.
    assert got[0][1] - 11 in (4, 5)


def test_packet_queue_has_packet_streams():
    dut = AsyncPacketQueue(64, depth=16, i_domain="a", o_domain="b", meta=4)
    assert dut.o.payload.shape() == PacketLayout(64, 4)


@pytest.mark.parametrize("depth", [0, 2, 5, 24, "8"])
def test_depth_is_checked(depth):
    with pytest.raises(ValueError, match="depth must be a power of two and at least 4, not"):
        AsyncQueue(8, depth=depth, i_domain="a", o_domain="b")


@pytest.mark.parametrize("clocks", CLOCKS)
def test_events(clocks):
    """Bursts up to the capacity of the count, then pauses: as many pulses arrive."""
    rng = random.Random(seed())
    dut = EventCrossing(i_domain="a", o_domain="b")
    sent, seen = 0, 0

    async def drive(ctx):
        nonlocal sent
        for _ in range(20):
            n = rng.randrange(1, 8)
            ctx.set(dut.i, 1)
            await ctx.tick("a").repeat(n)
            ctx.set(dut.i, 0)
            sent += n
            await ctx.tick("a").repeat(rng.randrange(60, 80))

    async def count(ctx):
        nonlocal seen
        idle = 0
        while idle < 400:
            _, _, event = await ctx.tick("b").sample(dut.o)
            seen += event
            idle = 0 if event else idle + 1

    simulate(dut, clocks, drive, count)
    assert seen == sent


@pytest.mark.parametrize("bits", [0, 1, None])
def test_bits_are_checked(bits):
    with pytest.raises(ValueError, match="bits must be an integer of at least 2, not"):
        EventCrossing(i_domain="a", o_domain="b", bits=bits)
