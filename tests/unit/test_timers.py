"""Timers that share a memory: :mod:`dxpu.fabric.timers`."""

import random

import pytest

from dxpu.fabric.timers import UNIT, Timers
from dxpu_sim.testbench import seed, simulate


def test_each_is_over_after_its_value_and_not_before():
    rng = random.Random(seed())
    dut, values = Timers(count=5, width=4), [0, 1, 3, 15, 7]
    seen = []

    async def process(ctx):
        begun, over = {}, {}
        ctx.set(dut.runs, 1)
        for now in range(60 * UNIT):
            start = 0
            for n in range(5):
                idle = n not in begun or over.get(n, now) + 100 < now
                if idle and rng.random() < 0.02:
                    start |= 1 << n
                    begun[n] = now
                    over.pop(n, None)
            ctx.set(dut.start, start)
            ctx.set(dut.value, values[ctx.get(dut.turn)])
            looks = ctx.get(dut.looks)
            assert looks == (1 << ctx.get(dut.turn) if now % UNIT < 5 else 0)
            if ctx.get(dut.over):
                n = ctx.get(dut.turn)
                if begun.get(n, now) < now and n not in over:
                    seen.append((n, now - begun[n]))
                    over[n] = now
            await ctx.tick()

    simulate(dut, process)
    assert {n for n, _ in seen} == set(range(5)) and len(seen) > 20
    for n, took in seen:
        value = max(1, values[n])
        assert value * UNIT < took <= (value + 1) * UNIT, (n, took)


def test_only_what_runs_counts_and_who_is_over_may_start_anew():
    dut = Timers(count=2, width=4)

    async def process(ctx):
        async def until_look(n):
            while not ctx.get(dut.looks) >> n & 1:
                await ctx.tick()

        ctx.set(dut.value, 2)
        ctx.set(dut.start, 0b10)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.runs, 1)
        await until_look(1)
        await ctx.tick()  # loaded
        await until_look(1)
        assert not ctx.get(dut.over)
        await ctx.tick()
        ctx.set(dut.runs, 0)
        for _ in range(3):
            await until_look(1)
            assert not ctx.get(dut.over)
            await ctx.tick()
        ctx.set(dut.runs, 1)
        await until_look(1)
        assert ctx.get(dut.over)
        ctx.set(dut.start, 0b10)
        await ctx.tick()
        ctx.set(dut.start, 0)
        looks = 0
        while not ctx.get(dut.over) or not ctx.get(dut.looks) >> 1:
            looks += ctx.get(dut.looks) >> 1
            await ctx.tick()
        assert looks == 2, "the one that loads, and the first of two"

    simulate(dut, process)


def test_arguments():
    for count in (0, UNIT + 1, "2"):
        with pytest.raises(ValueError, match="count must be 1 to 64"):
            Timers(count=count, width=4)
