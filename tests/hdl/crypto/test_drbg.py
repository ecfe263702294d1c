"""dxpu.crypto.drbg: random words as SP 800-90A makes them, and none without a seed."""

import random

import pytest
from dxpu.crypto.drbg import CtrDrbg
from tests.support.crypto_bench import blocks, with_cipher, words
from tests.support.ctr_drbg import Drbg
from tests.support.testbench import collect_words, drive_words, seed, simulate


def test_the_reference_is_that_of_the_standard():
    """NIST CAVP, CTR_DRBG, AES-128 no df, without reseeding: the second of two draws of 64
    bytes."""
    drbg = Drbg(bytes.fromhex("ce50f33da5d4c1d3d4004eb35244b7f2cd7f2e5076fbf6780a7ff634b249a5fc"))
    drbg.generate(4)
    assert drbg.generate(4).hex() == (
        "6545c0529d372443b392ceb3ae3a99a30f963eaf313280f1d1a1e87f9db373d3"
        "61e75d18018266499cccd64d9bbb8de0185f213383080faddec46bae1f784e5a")


def design(draws):
    drbg = CtrDrbg(draws=draws)
    return with_cipher(drbg), drbg


def test_draws_between_seeds_are_as_many_as_may_be():
    rng = random.Random(seed())
    seeds, draws = [rng.randbytes(32) for _ in range(3)], 5
    m, drbg = design(draws)
    got, expected, reference = [], [], None
    for text in seeds:
        if reference is None:
            reference = Drbg(text)
        else:
            reference.update(text)
        expected += [reference.generate() for _ in range(draws)]

    async def process(ctx):
        await ctx.tick().repeat(500)
        assert not got, "drawn without a seed"
        for n, text in enumerate(seeds):
            await drive_words(drbg.seed, words(text), rng=rng, density=0.3)(ctx)
            while len(got) < 4 * draws * (n + 1):
                await ctx.tick()
            await ctx.tick().repeat(500)
            assert len(got) == 4 * draws * (n + 1)

    simulate(m, process, deadline=20_000, background=[
        collect_words(drbg.o, 10**6, got, rng=rng, density=0.6)])
    assert blocks(got) == expected


def test_a_seed_at_any_time():
    """What was drawn is given first; the cipher is free while words wait."""
    rng = random.Random(seed())
    m, drbg = design(1 << 16)
    first, second = rng.randbytes(32), rng.randbytes(32)
    got = []

    async def take(ctx):
        word = await ctx.tick().sample(drbg.o.payload).until(drbg.o.valid & drbg.o.ready)
        got.append(word[0])

    async def process(ctx):
        await drive_words(drbg.seed, words(first))(ctx)
        await ctx.tick().until(drbg.o.valid)
        ctx.set(drbg.reseed, 1)
        for _ in range(300):
            await ctx.tick()
            assert not ctx.get(drbg.cipher.busy) and ctx.get(drbg.o.valid)
        ctx.set(drbg.o.ready, 1)
        for _ in range(4):
            await take(ctx)
        await drive_words(drbg.seed, words(second))(ctx)
        ctx.set(drbg.reseed, 0)
        for _ in range(8):
            await take(ctx)

    simulate(m, process, deadline=5000)
    reference = Drbg(first)
    expected = [reference.generate()]
    reference.update(second)
    assert blocks(got) == [*expected, reference.generate(), reference.generate()]


def test_v_counts_over_all_its_bytes():
    """A seed that makes V all ones, or ones in its last words only."""
    made = Drbg(bytes(32))
    for v in (b"\xff" * 16, bytes(4) + b"\xff" * 12, bytes(12) + b"\xff" * 4):
        text = bytes(16) + bytes(a ^ b for a, b in zip(made.v, v, strict=True))
        m, drbg = design(4)
        reference, got = Drbg(text), []
        assert reference.v == v

        async def process(ctx, drbg=drbg, text=text, got=got):
            await drive_words(drbg.seed, words(text))(ctx)
            while len(got) < 8:
                await ctx.tick()

        simulate(m, process, deadline=5000, background=[collect_words(drbg.o, 10**6, got)])
        assert blocks(got)[:2] == [reference.generate(), reference.generate()]


def test_cycles_of_a_draw():
    m, drbg = design(1 << 16)
    times = []

    async def process(ctx):
        await drive_words(drbg.seed, [1] * 8)(ctx)
        ctx.set(drbg.o.ready, 1)
        cycle = last = 0
        while len(times) < 5:
            cycle += 1
            _, _, valid = await ctx.tick().sample(drbg.o.valid)
            if valid:
                if cycle != last + 1:
                    times.append(cycle - last)
                last = cycle

    simulate(m, process, deadline=5000)
    assert set(times[1:]) == {3 * 63 + 10}


@pytest.mark.parametrize("draws", [0, -1, 1 << 49, "many"])
def test_wrong_arguments(draws):
    with pytest.raises(ValueError, match=r"draws must be 1 to 2\^48, not "):
        CtrDrbg(draws=draws)
