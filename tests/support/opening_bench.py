"""What surrounds the agent of keyed sessions, or an engine that has one: cipher, random source,
keys."""

from dxpu_model.keyed import mac
from tests.support.crypto_bench import words

__all__ = ["authenticates", "draws", "give_key", "halves"]


def halves(text):
    """Words of 16 bits, the first byte in the lowest bits."""
    return [int.from_bytes(text[n:n + 2], "little") for n in range(0, len(text), 2)]


def authenticates(part):
    """Process that does what a CMAC at ``part`` does, in almost no time."""
    async def process(ctx):
        use = part.cmac
        i, o = use.i, use.o
        while True:
            text, last = b"", False
            ctx.set(i.ready, 1)
            while not last:
                _, _, valid, data, count, last = await ctx.tick().sample(
                    i.valid, i.payload.data, i.payload.bytes, i.payload.last)
                last = valid and last
                if valid:
                    text += data.to_bytes(4, "little")[:count]
            ctx.set(i.ready, 0)
            key = []
            for column in range(4):
                ctx.set(use.column, column)
                await ctx.delay(0)
                key.append(ctx.get(use.key_column))
            key = b"".join(word.to_bytes(4, "little") for word in key)
            for word in words(mac(key, text)):
                ctx.set(o.payload, word)
                ctx.set(o.valid, 1)
                await ctx.tick().until(o.ready)
            ctx.set(o.valid, 0)
    return process


def draws(part, rng, first=()):
    """Process that always has a random word for ``part``, beginning with ``first``."""
    async def process(ctx):
        ctx.set(part.random.valid, 1)
        for word in first:
            ctx.set(part.random.payload, word)
            await ctx.tick().until(part.random.ready)
        while True:
            ctx.set(part.random.payload, rng.getrandbits(32))
            await ctx.tick().until(part.random.ready)
    return process


async def give_key(ctx, part, key, *, peer, node, following=False):
    """Give ``part`` a key; it may still be at work with it."""
    stream = part.new_key
    for word in halves(key):
        ctx.set(stream.payload, {
            "peer": peer, "node": node, "following": following, "data": word})
        ctx.set(stream.valid, 1)
        await ctx.tick().until(stream.ready)
    ctx.set(stream.valid, 0)
