"""dxpu.bringup.HelloListener behind the depacketizer: which frames count as a host's HELLO."""

import random
from dataclasses import replace

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.bringup import Greeted, HelloListener
from dxpu.fabric.receive.depacketizer import Depacketizer
from dxpu.fabric.receive.types import Verdict
from dxpu.stream import PacketSignature, connect
from dxpu_model import receiver, wire_random
from dxpu_model.wire import Frame, Hello, build
from dxpu_model.wire_vectors import MISTAKES, edit
from tests.support.stand_alone_bench import attach_listener
from tests.support.testbench import Packet, drive_packets, seed, simulate
from tests.support.widths import some_widths

PATHS, STREAMS = 3, 2
BODY = Hello(nonce=0x1234_5678, tag_offered=0x4321, tag_echoed=0, role=1, slots=0, arq_mode=0,
             security_mode=0, largest_frame=1514, window=64, smallest_timer=250,
             give_up_timer=7500, capabilities=0, boot_counter=7, table_generation=0)
GOOD = Frame(BODY, dst_node=0x101, src_node=0x001)


class Ear(wiring.Component):
    """A listener at a depacketizer all of whose frames are refused, as before any set-up."""

    def __init__(self, width):
        self._width = width
        super().__init__({"i": In(PacketSignature(width)), "wanted": In(12, init=0xFFF),
                          "heard": Out(1), "who": Out(Greeted), "frames": Out(16)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.rx = rx = Depacketizer(self._width, depth=512)
        m.submodules.listener = listener = HelloListener(paths=PATHS, streams=STREAMS)
        connect(m, wiring.flipped(self.i), rx.i)
        refuse = Verdict.const({"accept": 0})
        m.d.comb += [
            rx.header.ready.eq(1), rx.verdict.payload.eq(refuse),
            listener.wanted.eq(self.wanted),
            self.heard.eq(listener.heard), self.who.eq(listener.who),
        ]
        attach_listener(m, rx, listener, self.frames)
        return m


def counts(packet, wanted=0xFFF):
    """What the page on stand-alone boxes says: who is heard, or None."""
    if packet.discard:
        return None
    frame = receiver.judge(packet.data)
    if not isinstance(frame, Frame) or not isinstance(frame.body, Hello):
        return None
    body = frame.body
    nodes = frame.src_node, frame.dst_node
    if (body.answer or body.role != 1 or body.security_mode or not body.tag_offered or frame.tag
            or any(node in (0, 0xFFF) for node in nodes) or nodes[0] == nodes[1]
            or wanted not in (0xFFF, frame.dst_node)
            or frame.path >= PATHS or frame.stream >= STREAMS):
        return None
    return {"host": frame.src_node, "node": frame.dst_node, "stream": frame.stream,
            "path": frame.path}


def listen(packets, width=64, *, rng=None, density=1.0, wanted=0xFFF):
    """Who is heard."""
    dut, heard = Ear(width), []

    async def watch(ctx):
        ctx.set(dut.wanted, wanted)
        async for *_, strobe, who in ctx.tick().sample(dut.heard, dut.who):
            if strobe:
                heard.append({name: getattr(who, name) for name in ("host", "node", "stream",
                                                                    "path")})

    async def settle(ctx):
        await ctx.tick().until(dut.frames == len(packets))
        await ctx.tick().repeat(4)

    simulate(dut, drive_packets(dut.i, packets, rng=rng, density=density), settle,
             background=[watch])
    return heard


def hello(frame=GOOD, **changes):
    """A HELLO with changes of its header or its body."""
    body = {k: v for k, v in changes.items() if hasattr(frame.body, k)}
    header = {k: v for k, v in changes.items() if k not in body}
    return Packet(build(replace(frame, body=replace(frame.body, **body), **header)))


@pytest.mark.parametrize("width", some_widths(32, 64, 512))
def test_a_hello_on_each_path_and_stream(width):
    """Back to back, among frames that fill the body with other things."""
    rng = random.Random(seed())
    packets = []
    for n in range(12):
        packets += [
            hello(path=n % PATHS, stream=n % STREAMS, src_node=1 + n, dst_node=0xFFE - n,
                  nonce=rng.getrandbits(32)),
            Packet(build(wire_random.frame(rng, "handled", most=3)))]
    want = [who for packet in packets if (who := counts(packet))]
    assert len(want) >= 12 and {who["path"] for who in want} == set(range(PATHS))
    assert listen(packets, width) == want


#: What nobody is to hear.
WRONG = {
    "FCS": Packet(build(GOOD), discard=True),
    "cut": Packet(build(GOOD)[:60]),
    "cut in its header": Packet(build(GOOD)[:28]),
    "a dword too long": Packet(build(GOOD) + bytes(4)),
    "EtherType": Packet(edit(GOOD, (12, 1))),
    "version": Packet(edit(GOOD, (14, 0x30))),
    "HCRC": Packet(edit(GOOD, (31, 1), seal=False)),
    "CRC of the body": Packet(edit(GOOD, (60, 1), seal=False)),
    "HELLO_ACK": hello(answer=True),
    "role box": hello(role=2),
    "role manager": hello(role=0),
    "keyed": hello(security_mode=1),
    "offers no tag": hello(tag_offered=0),
    "session tag": hello(tag=5),
    "to everybody": hello(dst_node=0xFFF),
    "to the manager": hello(dst_node=0),
    "from nobody": hello(src_node=0xFFF),
    "from the manager": hello(src_node=0),
    "to itself": hello(src_node=0x101),
    "path": hello(path=PATHS),
    "stream": hello(stream=STREAMS),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_not_heard(what):
    """Nor does it keep the one behind it from being heard."""
    assert counts(WRONG[what]) is None
    good = hello(src_node=2, dst_node=0x102)
    assert listen([WRONG[what], good]) == [counts(good)]


@pytest.mark.parametrize("density", [0.5, pytest.param(1, marks=pytest.mark.long)])
def test_any_frames(density):
    """Frames of all types, good and damaged, HELLOs with random fields, with and without gaps."""
    rng = random.Random(seed())
    packets = [Packet(data) for data, _ in MISTAKES.values() if data]
    for _ in range(250):
        kind = rng.random()
        if kind < 0.4:
            packets.append(hello(
                role=rng.choice([0, 1, 1, 1, 2]), answer=rng.random() < 0.2,
                path=rng.randrange(PATHS + 1), stream=rng.randrange(STREAMS + 1),
                dst_node=rng.choice([0, 1, 0x101, 0xFFE, 0xFFF]), src_node=rng.choice([1, 0x42])))
        elif kind < 0.6:
            packets.append(Packet(wire_random.mutate(rng, build(GOOD)),
                                  discard=rng.random() < 0.1))
        else:
            packets.append(Packet(build(wire_random.frame(rng, "any", most=3, largest=64))))
    rng.shuffle(packets)
    want = [who for packet in packets if (who := counts(packet))]
    assert 10 < len(want) < 100
    assert listen(packets, rng=rng, density=density) == want


def test_the_node_that_is_wanted():
    packets = [hello(dst_node=node, src_node=node - 1) for node in (0x101, 0x102, 0x103)]
    assert [who["node"] for who in listen(packets, wanted=0x102)] == [0x102]
