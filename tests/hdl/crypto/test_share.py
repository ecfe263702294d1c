"""dxpu.crypto.share: several parts use one cipher, and none sees that of the others."""

import random

import pytest
from amaranth import Module
from amaranth.lib.wiring import connect
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.cmac import CMAC
from dxpu.crypto.aes import Aes128
from dxpu.crypto.cmac import Cmac
from dxpu.crypto.share import CipherShare
from tests.support.crypto_bench import blocks, give_message, hold_key
from tests.support.testbench import collect_words, seed, simulate

#: A use: a block for the subkeys, a block of message.
USE = 63 + 59


def design(count):
    m = Module()
    macs = [Cmac() for _ in range(count)]
    m.submodules.aes, m.submodules.share = aes, share = Aes128(ram=True), CipherShare(count=count)
    connect(m, share.i, aes.i)
    connect(m, aes.o, share.o)
    for n, mac in enumerate(macs):
        m.submodules[f"mac{n}"] = mac
        connect(m, mac.cipher, share.users[n])
    return m, macs


def tag(key, message):
    mac = CMAC(algorithms.AES128(key))
    mac.update(message)
    return mac.finalize()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_messages_at_the_same_time(count):
    """Different keys, lengths and paces; nobody waits for longer than one use by each other."""
    rng = random.Random(seed())
    m, macs = design(count)
    jobs = [[(rng.randbytes(16), rng.randbytes(rng.choice([0, 5, 16, 30]))) for _ in range(8)]
            for _ in macs]
    got, keys = [[] for _ in macs], [[bytes(16)] for _ in macs]
    gaps = [random.Random(n) for n in range(count)]

    def give(n):
        async def process(ctx):
            for key, message in jobs[n]:
                keys[n][0] = key
                before = len(got[n])
                await give_message(ctx, macs[n].i, message, rng=gaps[n])
                while len(got[n]) < before + 4:
                    await ctx.tick()
        return process

    simulate(m, *(give(n) for n in range(count)), background=[
        process for n, mac in enumerate(macs) for process in (
            collect_words(mac.o, 10**6, got[n], rng=gaps[n], density=0.5), hold_key(mac, keys[n]))])
    for mine, words in zip(jobs, got, strict=True):
        assert blocks(words) == [tag(*job) for job in mine]


def test_turns():
    """Three that always want the cipher have it in turn, with a cycle between their uses."""
    m, macs = design(3)
    ends, cycle = [], [0]

    def give(n):
        async def process(ctx):
            ctx.set(macs[n].i.payload, dict(data=n, bytes=4, last=1))
            ctx.set(macs[n].i.valid, 1)
            ctx.set(macs[n].o.ready, 1)
            words = 0
            async for _, _, valid in ctx.tick().sample(macs[n].o.valid):
                words += valid
                if valid and words % 4 == 0:
                    ends.append((n, cycle[0]))
        return process

    async def clock(ctx):
        while len(ends) < 12:
            await ctx.tick()
            cycle[0] += 1

    simulate(m, clock, background=[give(n) for n in range(3)])
    assert [n for n, _ in ends] == [0, 1, 2] * 4
    apart = {after - before for (_, before), (_, after) in zip(ends[1:], ends[2:], strict=False)}
    assert len(apart) == 1 and apart.pop() in range(USE, USE + 3)


@pytest.mark.parametrize("count", [0, -1, "2"])
def test_wrong_arguments(count):
    with pytest.raises(ValueError, match="count must be a positive integer, not "):
        CipherShare(count=count)
