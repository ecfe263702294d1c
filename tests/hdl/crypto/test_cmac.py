"""dxpu.crypto.cmac: tags as RFC 4493 and SP 800-38B have them, in constant time."""

import random

import pytest
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.cmac import CMAC
from dxpu.crypto.cmac import Cmac
from tests.support.crypto_bench import blocks, give_message, hold_key, with_cipher
from tests.support.testbench import collect_words, seed, simulate

KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
MESSAGE = bytes.fromhex(
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710")


def cmac(key, message):
    mac = CMAC(algorithms.AES128(key))
    mac.update(message)
    return mac.finalize()


def run(jobs, *, rng=None, times=None):
    """Tags of ``(key, message)``."""
    cmac = Cmac()
    tags, key = [], [bytes(16)]

    async def process(ctx):
        for key[0], message in jobs:
            before = len(tags)
            await give_message(ctx, cmac.use.i, message, rng=rng)
            while len(tags) < before + 4:
                await ctx.tick()

    async def clock(ctx):
        start, cycle, words = None, 0, 0
        use = cmac.use
        async for _, _, i, o in ctx.tick().sample(use.i.valid, use.o.valid & use.o.ready):
            cycle += 1
            if i and start is None:
                start = cycle
            words += o
            if words == 4:
                if times is not None:
                    times.append(cycle - start + 1)
                start, words = None, 0

    simulate(with_cipher(cmac), process, background=[
        collect_words(cmac.use.o, 10**6, tags, rng=rng, density=0.5),
        hold_key(cmac.use, key, cmac.cipher.i.valid), clock])
    return blocks(tags)


@pytest.mark.parametrize("length, tag", [
    # RFC 4493, section 4
    (0, "bb1d6929e95937287fa37d129b756746"), (16, "070a16b46b4d4144f79bdd9dd04a287c"),
    (40, "dfa66747de9ae63030ca32611497c827"), (64, "51f0bebf7e3b9d92fc49741779363cfe")])
def test_the_examples_of_the_standard(length, tag):
    assert run([(KEY, MESSAGE[:length])]) == [bytes.fromhex(tag)]


def test_every_length_and_any_key():
    rng = random.Random(seed())
    jobs = [(rng.randbytes(16), rng.randbytes(n)) for n in (*range(36), 63, 64, 65, 86)]
    assert run(jobs, rng=rng) == [cmac(*job) for job in jobs]


def test_the_time_depends_on_the_length_only():
    """Zeros, ones, and subkeys with and without the carry."""
    rng = random.Random(seed())
    for length in (5, 16, 86):
        times = []
        keys = bytes(16), b"\xff" * 16, *(rng.randbytes(16) for _ in "1234")
        jobs = [(key, text) for key in keys
                for text in (bytes(length), b"\xff" * length, rng.randbytes(length))]
        assert run(jobs, times=times) == [cmac(*job) for job in jobs]
        n = -(-length // 16)
        assert set(times) == {63 * n + 59}
