"""dxpu.fabric.opening.tags: tags are those of the golden model."""

import random

import pytest

from dxpu.crypto.sbox import table
from dxpu.fabric.opening.tags import TagPermutation
from dxpu_model.keyed import tags
from tests.support.testbench import seed, simulate

#: Cycles from a change of the number to its image.
LATENCY = 9


def test_images_are_those_of_the_model():
    rng = random.Random(seed())
    dut = TagPermutation()

    async def process(ctx):
        ctx.set(dut.tag_key_valid, 1)
        for _ in range(3):
            key = rng.randbytes(4)
            ctx.set(dut.tag_key, int.from_bytes(key, "little"))
            before = ctx.get(dut.drawn)
            # The key changes with the number only.
            for count in [before ^ 0xFFFF, *(rng.getrandbits(16) for _ in range(40)), 0, 1, 2]:
                if count == ctx.get(dut.drawn):
                    continue
                ctx.set(dut.drawn, count)
                await ctx.delay(0)
                assert not ctx.get(dut.done)
                cycles = 0
                while not ctx.get(dut.done):
                    await ctx.tick()
                    cycles += 1
                assert cycles <= LATENCY
                assert ctx.get(dut.image) == tags(key, bytes(table()), count)

    simulate(dut, process)


def test_a_number_that_changes_meanwhile_has_no_image_of_another():
    rng = random.Random(seed())
    dut, key, seen = TagPermutation(), bytes(range(4)), 0

    async def process(ctx):
        nonlocal seen
        ctx.set(dut.tag_key, int.from_bytes(key, "little"))
        ctx.set(dut.tag_key_valid, 1)
        for _ in range(300):
            ctx.set(dut.drawn, rng.getrandbits(16))
            for _ in range(rng.randint(1, 25)):
                await ctx.tick()
                if ctx.get(dut.done):
                    seen += 1
                    assert ctx.get(dut.image) == tags(key, bytes(table()), ctx.get(dut.drawn))

    simulate(dut, process)
    assert seen > 300


@pytest.mark.parametrize("wait", range(1, 12))
def test_no_image_is_made_without_the_key(wait):
    """The first number is there from reset on, long before the key: whoever knows that there is
    none must not know the first tag."""
    dut, key = TagPermutation(), bytes(range(7, 11))

    async def process(ctx):
        await ctx.tick().repeat(wait)
        assert not ctx.get(dut.done)
        ctx.set(dut.tag_key, int.from_bytes(key, "little"))
        ctx.set(dut.tag_key_valid, 1)
        await ctx.tick().repeat(LATENCY)
        assert ctx.get(dut.done)
        assert ctx.get(dut.image) == tags(key, bytes(table()), 0)

    simulate(dut, process)
