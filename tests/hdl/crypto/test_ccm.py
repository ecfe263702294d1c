"""dxpu.crypto.ccm: messages and tags as RFC 3610 and SP 800-38C have them, in constant time."""

import random

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESCCM
from dxpu.crypto.ccm import Ccm
from tests.support.crypto_bench import blocks, give_message, hold_key, with_cipher
from tests.support.testbench import collect_words, seed, simulate


def run(jobs, *, rng=None, times=None):
    """Payloads and tags of ``(key, nonce, associated, payload, decrypt)``."""
    ccm = Ccm()
    out, tags, key = [], [], [bytes(16)]
    results = []

    async def process(ctx):
        for key[0], nonce, associated, payload, decrypt in jobs:
            out.clear(), tags.clear()
            ctx.set(ccm.job.payload, dict(
                nonce=int.from_bytes(nonce, "little"), length=len(payload),
                associated=bool(associated), decrypt=decrypt))
            ctx.set(ccm.job.valid, 1)
            if associated:
                await give_message(
                    ctx, ccm.associated, len(associated).to_bytes(2, "big") + associated, rng=rng)
            if payload:
                await give_message(ctx, ccm.i, payload, rng=rng)
            await ctx.tick().until(ccm.job.ready)
            ctx.set(ccm.job.valid, 0)
            await ctx.tick()
            text = b"".join(word.data.to_bytes(4, "little")[:word.bytes] for word in out)
            assert all(not word.data >> 8 * word.bytes for word in out)
            assert [word.last for word in out] == [0] * (len(out) - 1) + [1] * bool(out)
            results.append((text, *blocks(tags)))

    async def clock(ctx):
        cycles = 0
        async for _, _, valid, ready in ctx.tick().sample(ccm.job.valid, ccm.job.ready):
            cycles += valid
            if ready:
                if times is not None:
                    times.append(cycles)
                cycles = 0

    simulate(with_cipher(ccm), process, deadline=10**6, background=[
        collect_words(ccm.o, 10**6, out, rng=rng, density=0.5),
        collect_words(ccm.tag_o, 10**6, tags, rng=rng, density=0.5),
        hold_key(ccm, key, ccm.cipher.i.valid), clock])
    return results


def expected(jobs):
    """The same of the library; ``payload`` of a job that decrypts is what comes encrypted."""
    results = []
    for key, nonce, associated, payload, decrypt in jobs:
        ccm = AESCCM(key)
        if decrypt:
            # CTR: encrypting the encrypted payload decrypts it.
            payload = ccm.encrypt(nonce, payload, associated)[:-16]
        both = ccm.encrypt(nonce, payload, associated)
        results.append((payload if decrypt else both[:-16], both[-16:]))
    return results


@pytest.mark.parametrize("key, nonce, associated, payload, cipher", [
    # NIST's CAVP vectors for CCM, VADT128.rsp: Alen 0 and 32, Tlen 16, Nlen 13
    ("d24a3d3dde8c84830280cb87abad0bb3", "f1100035bb24a8d26004e0e24b", "",
     "7c86135ed9c2a515aaae0e9a208133897269220f30870006",
     "1faeb0ee2ca2cd52f0aa3966578344f24e69b742c4ab37ab1123301219c70599b7c373ad4b3ad67b"),
])
def test_the_examples_of_the_standard(key, nonce, associated, payload, cipher):
    key, nonce, associated, payload, cipher = map(
        bytes.fromhex, (key, nonce, associated, payload, cipher))
    assert run([(key, nonce, associated, payload, False)]) == [(cipher[:-16], cipher[-16:])]


def lengths(rng, most):
    """Of associated data and payload, around the ends of blocks."""
    return [(a, p) for a in (0, 1, 13, 14, 15, 32) for p in (0, 1, 15, 16, 17)] + [
        (rng.randrange(most), rng.randrange(most)) for _ in range(6)]


@pytest.mark.parametrize("decrypt", [False, True])
def test_every_end_of_a_block(decrypt):
    rng = random.Random(seed() + decrypt)
    jobs = [(rng.randbytes(16), rng.randbytes(13), rng.randbytes(a), rng.randbytes(p), decrypt)
            for a, p in lengths(rng, 70)]
    assert run(jobs, rng=rng) == expected(jobs)


def test_a_large_message_counts_its_blocks_with_two_bytes():
    rng = random.Random(seed())
    jobs = [(rng.randbytes(16), rng.randbytes(13), rng.randbytes(32), rng.randbytes(257 * 16), 0)]
    assert run(jobs) == expected(jobs)


def test_the_time_depends_on_the_lengths_only():
    rng = random.Random(seed())
    for a, p in ((32, 64), (0, 5), (14, 0)):
        times = []
        jobs = [(fill(16), fill(13), fill(a), fill(p), n % 2) for n, fill in enumerate((
            bytes, lambda n: b"\xff" * n, rng.randbytes, rng.randbytes))]
        assert run(jobs, times=times) == expected(jobs)
        blocks_a, blocks_p = -(-(a + 2 * bool(a)) // 16), -(-p // 16)
        assert len(set(times)) == 1, times
        most = 5 * (2 + blocks_a + 2 * blocks_p)
        assert 0 <= times[0] - 59 * (blocks_a + 2 * blocks_p + 2) <= most
