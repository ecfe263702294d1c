"""dxpu.switch.errors.messages: one of each kind and port at a time, none forgotten."""

import random
from collections import Counter

from dxpu.switch.errors.messages import ErrorMessages
from dxpu.tlp.types import MessageCode
from tests.support.testbench import check_stream, seed, simulate

CODES = (MessageCode.ERR_COR, MessageCode.ERR_NONFATAL, MessageCode.ERR_FATAL)
PORTS = 3


def bench(dut, sent, ready):
    async def watch(ctx):
        ctx.set(dut.upstream_id, 0x100 >> 3)
        ctx.set(dut.states[0].secondary, 2)
        while True:
            ctx.set(dut.o.ready, ready())
            *_, valid, taken, p = await ctx.tick().sample(dut.o.valid, dut.o.ready, dut.o.p)
            if valid and taken:
                sent.append((p.requester_id, p.code))
    return [watch, check_stream(dut.o, "o")]


def requester(function):
    return 0x200 | function - 1 << 3 if function else 0x100


def test_each_is_sent_or_counted():
    """At any rate and however slow the way up is: sent and counted ones are all, and each kind of
    each port that had one is sent."""
    rng = random.Random(seed())
    dut, sent, made, counted = ErrorMessages(PORTS), [], Counter(), 0

    async def main(ctx):
        nonlocal counted
        await ctx.tick().repeat(10)
        for n in range(1500):
            code, function = rng.choice(CODES), rng.randrange(PORTS + 1)
            strobe = rng.random() < (1 if n % 100 < 50 else 0.05)
            ctx.set(dut.i, dict(strobe=strobe, function=function, code=code))
            counted += ctx.get(dut.stat_unsent)
            made[requester(function), code] += strobe
            await ctx.tick()
        ctx.set(dut.i.strobe, 0)
        await ctx.tick().repeat(300)
        assert made.total() == len(sent) + counted and counted > 100
        assert set(sent) == set(+made) and not Counter(sent) - made

    simulate(dut, main, background=bench(dut, sent, lambda: rng.random() < 0.3))


def test_containment_is_announced():
    """With ERR_COR before it if that is enabled on the way, and at once if not."""
    dut, sent = ErrorMessages(PORTS), []

    async def main(ctx):
        await ctx.tick().repeat(10)
        for own, asked, passes in ((1, 1, 1), (0, 1, 1), (1, 0, 1), (1, 1, 0)):
            ctx.set(dut.states[2].correctable, own)
            ctx.set(dut.states[2].dpc_correctable, asked)
            ctx.set(dut.states[0].forward_errors, passes)
            ctx.set(dut.announce, 0b010)
            await ctx.tick()
            ctx.set(dut.announce, 0)
            for _ in range(30):
                if ctx.get(dut.announced):
                    break
                await ctx.tick()
            assert ctx.get(dut.announced) == 0b010
            await ctx.tick().repeat(2)
            expected = [(0x208, MessageCode.ERR_COR)] * (own and asked and passes)
            assert sent == expected and not ctx.get(dut.announced)
            sent.clear()
            await ctx.tick().repeat(20)
            assert not sent

    simulate(dut, main, background=bench(dut, sent, lambda: 1))
