"""dxpu.proxy.keys: a key reaches the engine whole, once, and for the peer that it was given to."""

import random

import pytest
from dxpu.proxy.keys import KeyShadow
from tests.support.testbench import count_pulses, seed, simulate


async def strobe(ctx, signal, **values):
    """Set members for a cycle of ``signal``."""
    shadow, name = signal
    for member, value in values.items():
        ctx.set(getattr(shadow, member), value)
    ctx.set(getattr(shadow, name), 1)
    await ctx.tick()
    ctx.set(getattr(shadow, name), 0)


def taken(shadow, into, rng):
    """Process that takes words with gaps."""
    async def process(ctx):
        while True:
            ctx.set(shadow.o.ready, rng.random() < 0.5)
            _, _, valid, ready, word = await ctx.tick().sample(
                shadow.o.valid, shadow.o.ready, shadow.o.payload)
            if valid and ready:
                into.append((word.peer, word.node, word.following, word.data))
    return process


def test_keys_are_handed_on_whole_and_once():
    """Words in any order, some twice; then to a peer, for whom it may be the next."""
    rng, shadow, got, counts, wanted = random.Random(seed()), KeyShadow(), [], {}, []

    async def process(ctx):
        for _ in range(20):
            key, order = rng.randbytes(16), [0, 1, 2, 3, rng.randrange(4)]
            rng.shuffle(order)
            for n in order:
                await strobe(ctx, (shadow, "put"), column=n,
                             word=int.from_bytes(key[4 * n:4 * n + 4], "little"))
            assert ctx.get(shadow.whole)
            to = rng.randrange(16), rng.getrandbits(12), rng.getrandbits(1)
            await strobe(ctx, (shadow, "give"), peer=to[0], node=to[1], as_next=to[2])
            assert ctx.get(shadow.busy) and not ctx.get(shadow.whole)
            await ctx.tick().until(~shadow.busy)
            wanted.extend((*to, int.from_bytes(key[n:n + 2], "little"))
                          for n in range(0, 16, 2))
        # Once: the same key again is none.
        await strobe(ctx, (shadow, "give"))
        await ctx.tick().repeat(30)

    simulate(shadow, process, background=[
        taken(shadow, got, random.Random(1)), count_pulses(shadow, counts)])
    assert got == wanted and counts == {"incomplete": 1}


@pytest.mark.parametrize("missing", range(4))
def test_three_words_are_no_key(missing):
    """And what was written before counts no more: a key is never a mixture of two."""
    shadow, got, counts = KeyShadow(), [], {}

    async def process(ctx):
        for n in range(4):
            if n != missing:
                await strobe(ctx, (shadow, "put"), column=n, word=n)
        assert not ctx.get(shadow.whole)
        await strobe(ctx, (shadow, "give"))
        await strobe(ctx, (shadow, "put"), column=missing, word=9)
        assert not ctx.get(shadow.whole) and not ctx.get(shadow.busy)
        await strobe(ctx, (shadow, "give"))
        await ctx.tick().repeat(30)

    simulate(shadow, process, background=[
        taken(shadow, got, random.Random(1)), count_pulses(shadow, counts)])
    assert got == [] and counts == {"incomplete": 2}
