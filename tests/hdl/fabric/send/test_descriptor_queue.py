"""dxpu.fabric.send.tx_queue: the queue of descriptors, whose output is a register."""

import random

import pytest

from dxpu.fabric.send.tx_queue import DescriptorQueue
from tests.support.testbench import check_stream, collect_words, seed, simulate


@pytest.mark.parametrize("density_in, density_out", [(1, 0.3), (0.3, 1), (0.6, 0.6), (1, 1)])
def test_keeps_order(density_in, density_out):
    """Nothing is lost, also when it is full; the level says when that is."""
    rng = random.Random(seed())
    depth = 8
    dut = DescriptorQueue(depth)
    words = [{"row": rng.randrange(64), "life": rng.randrange(256), "pairs": rng.randrange(1024)}
             for _ in range(300)]
    got, levels = [], []

    async def fill(ctx):
        for word in words:
            while rng.random() > density_in or ctx.get(dut.level) == depth:
                await ctx.tick()
            ctx.set(dut.i, word)
            ctx.set(dut.strobe, 1)
            await ctx.tick()
            ctx.set(dut.strobe, 0)
            levels.append(ctx.get(dut.level))

    simulate(dut, fill, collect_words(dut.o, len(words), got, rng=rng, density=density_out),
             background=[check_stream(dut.o)])
    assert [{k: word[k] for k in words[0]} for word in got] == words
    if density_out < density_in:
        assert max(levels) == depth
    if density_in == density_out == 1:
        assert max(levels) <= 1


def test_latency_and_throughput():
    """A cycle, and a descriptor in each, also through the memory."""
    dut, seen = DescriptorQueue(8), []

    async def process(ctx):
        ctx.set(dut.strobe, 1)
        for n in range(4):  # two cycles without a reader
            ctx.set(dut.i.pairs, n)
            ctx.set(dut.o.ready, n >= 2)
            assert ctx.get(dut.o.valid) == (n > 0)
            *_, valid, ready, word = await ctx.tick().sample(
                dut.o.valid, dut.o.ready, dut.o.payload)
            if valid and ready:
                seen.append(word.pairs)
        ctx.set(dut.strobe, 0)
        for _ in range(2):
            *_, valid, word = await ctx.tick().sample(dut.o.valid, dut.o.payload)
            assert valid
            seen.append(word.pairs)
        assert not ctx.get(dut.o.valid)

    simulate(dut, process)
    assert seen == [0, 1, 2, 3]
