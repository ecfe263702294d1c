"""dxpu.fabric.opening.tags: tags are those of the golden model."""

import random

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
        for _ in range(300):
            ctx.set(dut.drawn, rng.getrandbits(16))
            for _ in range(rng.randint(1, 25)):
                await ctx.tick()
                if ctx.get(dut.done):
                    seen += 1
                    assert ctx.get(dut.image) == tags(key, bytes(table()), ctx.get(dut.drawn))

    simulate(dut, process)
    assert seen > 300
