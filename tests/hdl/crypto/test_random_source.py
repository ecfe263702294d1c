"""dxpu.crypto.random_source: words are those that the standards make of the noise, and end with
it."""

import pytest
from amaranth import Module, Signal
from amaranth.lib.wiring import connect
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.cmac import CMAC
from dxpu.crypto.aes import Aes128
from dxpu.crypto.cmac import Cmac
from dxpu.crypto.pretended_noise import PretendedNoise
from dxpu.crypto.random_source import RandomSource
from dxpu.crypto.share import CipherShare
from tests.support.crypto_bench import blocks, words
from tests.support.ctr_drbg import Drbg
from tests.support.testbench import seed, simulate

KEY = bytes(range(16))
START, HALF = 1024, 1024


def design(*, noise, **options):
    """A source with its cipher. With ``stop`` the noise is zeros."""
    m = Module()
    source, stop = RandomSource(**options), Signal()
    m.submodules.source, m.submodules.noise = source, noise
    m.submodules.aes, m.submodules.share = aes, share = Aes128(ram=True), CipherShare(count=2)
    m.submodules.mac = mac = Cmac()
    connect(m, share.i, aes.i)
    connect(m, aes.o, share.o)
    connect(m, source.cmac, mac.use)
    connect(m, mac.cipher, share.users[0])
    connect(m, source.cipher, share.users[1])
    m.d.comb += [source.noise.valid.eq(noise.o.valid), noise.o.ready.eq(source.noise.ready),
                 source.noise.payload.eq(noise.o.payload & ~stop)]
    return m, source, stop, mac.cipher.busy


def key_of(source):
    async def process(ctx):
        async for column in ctx.changed(source.column):
            ctx.set(source.key_column, words(KEY)[column[0]])
    return process


def bits(state, count):
    """Of a shift register that takes x^64 + x^63 + x^61 + x^60 + 1 back into its lowest bit."""
    for _ in range(count):
        yield state >> 63
        back = (state >> 63 ^ state >> 62 ^ state >> 60 ^ state >> 59) & 1
        state = state << 1 & (1 << 64) - 1 | back


def mac(some):
    """Of bits, the first one in the lowest bit of the first byte."""
    text = sum(bit << n for n, bit in enumerate(some)).to_bytes(len(some) // 8, "little")
    cmac = CMAC(algorithms.AES128(KEY))
    cmac.update(text)
    return cmac.finalize()


def test_words_are_those_of_the_noise():
    start, draws, seeds = 0x0123456789ABCDEF ^ seed(), 3, 3
    m, source, _, busy_mac = design(noise=PretendedNoise(seed=start), draws=draws)
    got, uses = [], []

    async def process(ctx):
        ctx.set(source.o.ready, 1)
        busy = 0
        async for _, _, valid, word, user in ctx.tick().sample(
                source.o.valid, source.o.payload, busy_mac):
            if valid:
                got.append(word)
            if busy and not user:
                uses.append(busy)
            busy = busy + 1 if user else 0
            if len(got) == 4 * draws * seeds:
                break
        assert ctx.get(source.started) and not ctx.get(source.stuck | source.biased)

    simulate(m, process, background=[key_of(source)])
    noise, reference, expected = list(bits(start, START + 2 * HALF * seeds)), None, []
    for n in range(START, len(noise), 2 * HALF):
        text = mac(noise[n:n + HALF]) + mac(noise[n + HALF:n + 2 * HALF])
        if reference is None:
            reference = Drbg(text)
        else:
            reference.update(text)
        expected += [reference.generate() for _ in range(draws)]
    assert blocks(got) == expected
    # A MAC of eight blocks; at most one block of the generator is waited for.
    assert len(uses) >= 2 * seeds and set(uses) <= set(range(63 * 8 + 59, 63 * 9 + 63))


@pytest.mark.parametrize("after", [0, START - 1, START + 700, START + 2 * HALF + 700, 20_000])
def test_there_are_no_words_without_noise(after):
    """It stops before the start-up test, within it, within a seed, while words are drawn."""
    m, source, stop, _ = design(noise=PretendedNoise(seed=1234567))
    count = [0]

    async def process(ctx):
        ctx.set(stop, after == 0)
        seen = 0
        while seen < after:
            _, _, taken = await ctx.tick().sample(source.noise.valid & source.noise.ready)
            seen += taken or not ctx.get(source.noise.ready)
        ctx.set(stop, 1)
        await ctx.tick().repeat(START + 200)
        failed = ctx.get(source.stuck)
        assert failed or not ctx.get(source.noise.ready)
        before = count[0]
        await ctx.tick().repeat(2000)
        if failed:
            assert count[0] == before
            ctx.set(stop, 0)  # it stays so
            await ctx.tick().repeat(5000)
            assert count[0] == before
        else:  # a seed was ready, and the noise was not needed any more
            assert count[0] > before

    async def count_words(ctx):
        ctx.set(source.o.ready, 1)
        async for _, _, valid in ctx.tick().sample(source.o.valid):
            count[0] += valid

    simulate(m, process, background=[key_of(source), count_words])


def test_an_offered_word_stays():
    m, source, stop, _ = design(noise=PretendedNoise(seed=99), draws=2)

    async def process(ctx):
        await ctx.tick().until(source.o.valid)
        word = ctx.get(source.o.payload)
        ctx.set(stop, 1)
        await ctx.tick().until(source.stuck)
        assert ctx.get(source.o.valid) and ctx.get(source.o.payload) == word
        ctx.set(source.o.ready, 1)
        await ctx.tick()
        for _ in range(3000):
            await ctx.tick()
            assert not ctx.get(source.o.valid)

    simulate(m, process, background=[key_of(source)])


@pytest.mark.parametrize("wrong", [0, 1 << 64, -1, "x"])
def test_wrong_arguments(wrong):
    with pytest.raises(ValueError, match=r"seed must be 1 to 2\^64 - 1, not "):
        PretendedNoise(seed=wrong)
