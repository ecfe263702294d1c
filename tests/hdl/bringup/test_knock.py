"""dxpu.bringup.KnockJudge behind a depacketizer, with a real cipher: whose HELLO has the knock that
the golden model calculates."""

import random
from dataclasses import replace

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.bringup import Greeted, HelloListener, KnockJudge
from dxpu.crypto import Aes128, Cmac
from dxpu.fabric.receive.depacketizer import Depacketizer
from dxpu.fabric.receive.types import Verdict
from dxpu.fabric.wire.format import SecurityMode
from dxpu.stream import PacketSignature, connect
from dxpu_model.keyed import Ends
from dxpu_model.wire import Frame, build
from tests.hdl.bringup.test_listener import BODY, PATHS, STREAMS
from tests.support.stand_alone_bench import attach_listener
from tests.support.testbench import Packet, drive_packets, seed, simulate
from tests.support.widths import some_widths

KEY = bytes(range(0x30, 0x40))
#: What the page says of the time, and cycles between HELLOs that are all judged.
CYCLES = 128
ENDS = Ends(0x001, 0x101, 1)


class Door(wiring.Component):
    """A judge, with what it needs, at a depacketizer all of whose frames are refused."""

    def __init__(self, width):
        self._width = width
        super().__init__({"i": In(PacketSignature(width)), "needs": In(1, init=1),
                          "greets": Out(1), "knocked": Out(1), "knocker": Out(Greeted),
                          "frames": Out(16)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.rx = rx = Depacketizer(self._width, depth=512, keyed=True)
        m.submodules.listener = listener = HelloListener(paths=PATHS, streams=STREAMS)
        m.submodules.judge = judge = KnockJudge()
        m.submodules.aes, m.submodules.cmac = aes, cmac = Aes128(ram=True), Cmac()
        connect(m, wiring.flipped(self.i), rx.i)
        connect(m, cmac.cipher.i, aes.i)
        connect(m, aes.o, cmac.cipher.o)
        wiring.connect(m, judge.cmac, cmac.use)
        key = Const(int.from_bytes(KEY, "little"), 128)
        m.d.comb += [
            rx.header.ready.eq(1), rx.verdict.payload.eq(Verdict.const({"accept": 0})),
            listener.mode.eq(SecurityMode.KEYED),
            rx.keep.eq(judge.body_look.keep), judge.body_look.word.eq(rx.came_word),
            # Who else looks must not be in the way.
            rx.came_at.eq(Mux(judge.body_look.looks, judge.body_look.at, 3)),
            judge.greets.eq(listener.greets & self.needs), judge.heard.eq(listener.heard),
            judge.who.eq(listener.who),
            judge.key_column.eq(key.word_select(judge.column, 32)),
            self.greets.eq(judge.greets),
            self.knocked.eq(judge.knocked), self.knocker.eq(judge.knocker),
        ]
        attach_listener(m, rx, listener, self.frames)
        return m


def hello(ends=ENDS, *, knock=None, path=0, **changes):
    """A HELLO; under the key unless another ``knock`` is given."""
    rng = random.Random(ends.opener)
    body = replace(BODY, security_mode=1, **changes)
    proof = ends.knock(KEY) if knock is None else knock
    return Packet(build(Frame(
        replace(body, keyed=rng.randbytes(8) + bytes(8) + proof), dst_node=ends.answerer,
        src_node=ends.opener, stream=ends.stream, path=path)))


def who(ends, path=0):
    return {"host": ends.opener, "node": ends.answerer, "stream": ends.stream, "path": path}


def judged(packets, width=64, *, gap=2 * CYCLES, needs=1):
    """Who has knocked, and the longest time from the newest HELLO to that."""
    dut, knocked, times = Door(width), [], []

    async def watch(ctx):
        cycle = begun = 0
        async for *_, greets, strobe, knocker in ctx.tick().sample(
                dut.greets, dut.knocked, dut.knocker):
            cycle += 1
            if greets:
                begun = cycle
            if strobe:
                times.append(cycle - begun)
                knocked.append({name: getattr(knocker, name) for name in (
                    "host", "node", "stream", "path")})

    async def drive(ctx):
        ctx.set(dut.needs, needs)
        for packet in packets:
            await drive_packets(dut.i, [packet])(ctx)
            if gap:
                await ctx.tick().repeat(gap)

    async def settle(ctx):
        await ctx.tick().until(dut.frames == len(packets))
        await ctx.tick().repeat(2 * CYCLES)

    simulate(dut, drive, settle, background=[watch], deadline=100_000)
    return knocked, max(times, default=0)


@pytest.mark.parametrize("width", some_widths(32, 64, 512))
def test_who_has_the_key_is_heard(width):
    """Nodes, stream and path are those of the HELLO; in the time that the docstring says."""
    rng = random.Random(seed())
    ends = [Ends(rng.randrange(1, 0x800), rng.randrange(0x800, 0xFFF), n % STREAMS)
            for n in range(6)]
    found, time = judged([hello(e, path=n % PATHS) for n, e in enumerate(ends)], width)
    assert found == [who(e, n % PATHS) for n, e in enumerate(ends)]
    assert time == CYCLES


#: What a stranger can try.
RIGHT = ENDS.knock(KEY)
STRANGERS = {
    "another key": hello(knock=ENDS.knock(bytes(16))),
    "nothing": hello(knock=bytes(16)),
    "all of it but the first bit": hello(knock=bytes([RIGHT[0] ^ 1]) + RIGHT[1:]),
    "all of it but the last bit": hello(knock=RIGHT[:15] + bytes([RIGHT[15] ^ 0x80])),
    "all of it but a word in the middle": hello(knock=RIGHT[:8] + bytes(2) + RIGHT[10:]),
    "the knock of another host": hello(replace(ENDS, opener=2), knock=RIGHT),
    "that to another box": hello(replace(ENDS, answerer=0x102), knock=RIGHT),
    "that of another stream": hello(replace(ENDS, stream=0), knock=RIGHT),
    "in clear": Packet(build(Frame(BODY, dst_node=0x101, src_node=0x001, stream=1))),
    "a role that is no host's": hello(role=2),
    "a wrong FCS": replace(hello(), discard=True),
}


@pytest.mark.parametrize("what", STRANGERS)
def test_strangers_are_not_heard(what):
    """Nor do they keep the one behind them from being heard."""
    good = replace(ENDS, opener=3)
    assert judged([STRANGERS[what], hello(good)])[0] == [who(good)]


def test_the_body_that_is_compared_is_that_of_the_hello():
    """While it is judged others come, back to back, with a wrong knock, or with the one that this
    should have had: they are lost, and change nothing."""
    good, other = replace(ENDS, opener=3), replace(ENDS, opener=4)
    assert judged([hello(good), *[hello(other, knock=bytes(16))] * 4], gap=0)[0] == [who(good)]
    right = hello(replace(ENDS, opener=5), knock=other.knock(KEY))
    assert judged([hello(other, knock=bytes(16)), *[right] * 4], gap=0)[0] == []


def test_nobody_is_judged_unless_it_is_wanted():
    assert judged([hello()], needs=0)[0] == []
