"""Bytes as the words of :mod:`dxpu.crypto`, and back."""

from amaranth import Module
from amaranth.lib.wiring import connect
from dxpu.crypto.aes import Aes128

__all__ = ["blocks", "give_message", "hold_key", "with_cipher", "words"]


def with_cipher(part):
    """A module with ``part`` and the cipher that it uses."""
    m = Module()
    m.submodules.part = part
    m.submodules.aes = aes = Aes128(ram=True)
    connect(m, part.cipher.i, aes.i)
    connect(m, aes.o, part.cipher.o)
    return m


def words(text):
    """32-bit words of bytes, the first byte in the lowest bits; zeros fill the last one."""
    return [int.from_bytes(text[n:n + 4], "little") for n in range(0, len(text), 4)]


def blocks(words):
    """16 bytes of four words each."""
    text = b"".join(word.to_bytes(4, "little") for word in words)
    return [text[n:n + 16] for n in range(0, len(text), 16)]


async def give_message(ctx, stream, message, *, rng=None, **fields):
    """Put a message on a stream of words with ``bytes`` and ``last``; gaps if ``rng``."""
    parts = [message[n:n + 4] for n in range(0, len(message), 4)] or [b""]
    for n, part in enumerate(parts):
        while rng and rng.random() < 0.3:
            await ctx.tick()
        # Bytes behind the message are anything.
        filled = part + (rng.randbytes(4) if rng else bytes(4))[len(part):]
        ctx.set(stream.payload, dict(data=int.from_bytes(filled, "little"), bytes=len(part),
                                     last=n == len(parts) - 1, **fields))
        ctx.set(stream.valid, 1)
        await ctx.tick().until(stream.ready)
        ctx.set(stream.valid, 0)


def hold_key(use, key, when):
    """Process that gives the columns of ``key[0]``, which is another one only if ``when`` is."""
    async def process(ctx):
        async for column in ctx.changed(use.column, when):
            ctx.set(use.key_column, words(key[0])[column[0]])
    return process
