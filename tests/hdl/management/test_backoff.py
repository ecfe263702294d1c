"""dxpu.management.backoff: waits become twice as long, up to the longest one, and begin anew."""

import pytest

from dxpu.management.backoff import Backoff
from tests.support.testbench import simulate

FIRST, DOUBLED = 3, 2


async def ticks_until_due(ctx, dut):
    """Ticks, each four cycles after the one before, until it is due."""
    await ctx.tick()
    count = 0
    while not ctx.get(dut.due):
        ctx.set(dut.tick, 1)
        await ctx.tick()
        ctx.set(dut.tick, 0)
        await ctx.tick().repeat(3)
        count += 1
        assert count < 100
    return count


def run(process, **options):
    dut = Backoff(first=FIRST, doubled=DOUBLED, **options)

    async def bench(ctx):
        await process(ctx, dut)

    simulate(dut, bench)


async def strobe(ctx, signal):
    ctx.set(signal, 1)
    await ctx.tick()
    ctx.set(signal, 0)


def test_waits_become_twice_as_long():
    async def process(ctx, dut):
        assert ctx.get(dut.due)
        for wait in (3, 6, 12, 12, 12):
            await strobe(ctx, dut.sent)
            assert not ctx.get(dut.due)
            assert await ticks_until_due(ctx, dut) == wait
        await strobe(ctx, dut.sent)
        await ctx.tick()
        await strobe(ctx, dut.anew)  # in the middle of a wait
        assert await ticks_until_due(ctx, dut) == 0
        await strobe(ctx, dut.sent)
        assert await ticks_until_due(ctx, dut) == 3

    run(process)


@pytest.mark.parametrize("delay", [0, 1, 20])
def test_a_delay_comes_before(delay):
    async def process(ctx, dut):
        ctx.set(dut.delay, delay)
        await strobe(ctx, dut.anew)
        ctx.set(dut.delay, 0)
        assert not ctx.get(dut.due)
        assert await ticks_until_due(ctx, dut) == delay
        await strobe(ctx, dut.sent)
        assert await ticks_until_due(ctx, dut) == 3

    run(process, delay=20)
