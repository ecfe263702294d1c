"""dxpu.crypto.share: several parts use one cipher, or one CMAC, and none sees what is another's."""

import random

import pytest
from amaranth import Module, Signal
from amaranth.lib.wiring import connect
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.cmac import CMAC
from dxpu.crypto.aes import Aes128
from dxpu.crypto.cmac import Cmac
from dxpu.crypto.share import CipherShare, MacShare
from tests.support.crypto_bench import blocks, give_message
from tests.support.testbench import collect_words, seed, simulate

#: A use: a block for the subkeys, a block of message.
USE = 63 + 59
BLOCKS = 2


def key_of(m, use):
    """Register of the key of a use."""
    key = Signal(128)
    m.d.comb += use.key_column.eq(key.word_select(use.column, 32))
    return key


def several_macs(count):
    """CMACs that share a cipher."""
    m = Module()
    macs = [Cmac() for _ in range(count)]
    m.submodules.aes, m.submodules.share = aes, share = Aes128(ram=True), CipherShare(count=count)
    connect(m, share.i, aes.i)
    connect(m, aes.o, share.o)
    for n, mac in enumerate(macs):
        m.submodules[f"mac{n}"] = mac
        connect(m, mac.cipher, share.users[n])
    return m, [(mac.use, key_of(m, mac.use)) for mac in macs]


def one_mac(count):
    """A CMAC that is shared."""
    m = Module()
    m.submodules.share = share = MacShare(count=count)
    m.submodules.mac, m.submodules.aes = mac, aes = Cmac(), Aes128(ram=True)
    connect(m, share.use, mac.use)
    connect(m, mac.cipher.i, aes.i)
    connect(m, aes.o, mac.cipher.o)
    return m, [(user, key_of(m, user)) for user in share.users]


def tag(key, message):
    mac = CMAC(algorithms.AES128(key))
    mac.update(message)
    return mac.finalize()


@pytest.mark.parametrize("design", [several_macs, one_mac])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_messages_at_the_same_time(design, count):
    """Different keys, lengths and paces; all get their own tags."""
    rng = random.Random(seed())
    m, uses = design(count)
    jobs = [[(rng.randbytes(16), rng.randbytes(rng.choice([0, 5, 16, 30]))) for _ in range(8)]
            for _ in uses]
    got = [[] for _ in uses]
    gaps = [random.Random(n) for n in range(count)]

    def give(n):
        async def process(ctx):
            for key, message in jobs[n]:
                ctx.set(uses[n][1], int.from_bytes(key, "little"))
                before = len(got[n])
                await give_message(ctx, uses[n][0].i, message, rng=gaps[n])
                while len(got[n]) < before + 4:
                    await ctx.tick()
        return process

    simulate(m, *(give(n) for n in range(count)), background=[
        collect_words(use.o, 10**6, got[n], rng=gaps[n], density=0.5)
        for n, (use, _) in enumerate(uses)])
    for mine, words in zip(jobs, got, strict=True):
        assert blocks(words) == [tag(*job) for job in mine]


@pytest.mark.parametrize(("design", "more"), [(several_macs, 2), (one_mac, 0)])
def test_turns(design, more):
    """Three that always want it have it in turn, with a few cycles between their uses. A block by a
    cipher that is shared takes two cycles more."""
    m, uses = design(3)
    ends, cycle = [], [0]

    def give(n):
        async def process(ctx):
            ctx.set(uses[n][0].i.payload, dict(data=n, bytes=4, last=1))
            ctx.set(uses[n][0].i.valid, 1)
            ctx.set(uses[n][0].o.ready, 1)
            words = 0
            async for _, _, valid in ctx.tick().sample(uses[n][0].o.valid):
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
    use = USE + more * BLOCKS
    assert len(apart) == 1 and apart.pop() in range(use, use + 3)


@pytest.mark.parametrize("user", range(3))
def test_words_take_a_cycle_each_way(user):
    """A word in each cycle, to the cipher and back, once a change of hands is over; nobody else is
    offered one."""
    share = CipherShare(count=3)
    sent = [random.Random(seed()).getrandbits(32) for _ in range(8)]
    there, back = [], []

    async def process(ctx):
        use = share.users[user]
        ctx.set(use.busy, 1)
        await ctx.tick().repeat(2)
        for given, got, words, offered in ((use.i, share.i, there, []),
                                           (share.o, use.o, back, [user])):
            ctx.set(got.ready, 1)
            for word in sent:
                ctx.set(given.payload, word if offered else {"data": word, "key": 5, "chain": 1})
                ctx.set(given.valid, 1)
                assert ctx.get(given.ready)
                await ctx.tick()
                assert ctx.get(got.valid)
                assert [n for n, one in enumerate(share.users) if ctx.get(one.o.valid)] == offered
                words.append(ctx.get(got.payload if offered else got.payload.data))
            if not offered:
                assert (ctx.get(got.payload.key), ctx.get(got.payload.chain)) == (5, 1)
            ctx.set(given.valid, 0)
            await ctx.tick()
            assert not ctx.get(got.valid)

    simulate(share, process)
    assert there == back == sent


@pytest.mark.parametrize("count", [0, -1, "2"])
def test_wrong_arguments(count):
    with pytest.raises(ValueError, match="count must be a positive integer, not "):
        CipherShare(count=count)
    with pytest.raises(ValueError, match="count must be a positive integer, not "):
        MacShare(count=count)
