"""dxpu.factory.NodeKey: the key of the record, or half of it, whole before it is said to be
there."""

import random

import pytest
from amaranth import *

from dxpu.factory import FactoryState, NodeKey
from tests.support.testbench import seed, simulate


@pytest.mark.parametrize("pair", [False, True])
def test_the_key_is_whole_when_it_is_valid(pair):
    """After each reading; while one runs there is none. Each half has a port of its own."""
    rng, dut = random.Random(seed()), NodeKey(pair=pair)
    key = [rng.randbytes(32)]

    async def reader(ctx):
        async for *_, address in ctx.tick().sample(dut.key_address):
            ctx.set(dut.key, key[0][address])

    async def process(ctx):
        for _ in range(5):
            ctx.set(dut.state, FactoryState.READING)
            await ctx.tick().repeat(rng.randrange(1, 40))
            assert not ctx.get(dut.valid)
            key[0] = rng.randbytes(32)
            ctx.set(dut.state, FactoryState.VALID)
            cycles = 0
            while not ctx.get(dut.valid):
                await ctx.tick()
                cycles += 1
            assert cycles == (33 if pair else 17)
            for column in rng.sample(range(4), 4):
                other = rng.randrange(4)
                ctx.set(dut.column, column)
                if pair:
                    ctx.set(dut.pair_column, other)
                await ctx.delay(1e-9)
                assert ctx.get(dut.key_column).to_bytes(4, "little") == (
                    key[0][4 * column:4 * column + 4])
                if pair:
                    assert ctx.get(dut.pair_key_column).to_bytes(4, "little") == (
                        key[0][16 + 4 * other:20 + 4 * other])
            await ctx.tick().repeat(rng.randrange(1, 30))
            assert ctx.get(dut.valid)

    simulate(dut, process, background=[reader])
