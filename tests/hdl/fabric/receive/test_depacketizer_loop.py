"""Packetizer to depacketizer, without a model between them: TLPs come out as they went in."""

import random

import pytest
from amaranth import *
from amaranth.lib import wiring

from dxpu.fabric.receive.depacketizer import Depacketizer
from dxpu.fabric.send.packetizer import Packetizer
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.stream import PacketSignature, connect
from tests.support.testbench import (
    Packet, check_stream, collect_packets, collect_words, drive_packets, drive_words, seed,
    simulate,
)


class Loop(wiring.Component):
    """A packetizer whose frames go straight into a depacketizer."""

    def __init__(self, width, split):
        super().__init__({})
        self.tx = Packetizer(width, split=split, depth=2048 * 32 // width)
        self.rx = Depacketizer(width, split=split, depth=2048 * 32 // width)
        self.frames = PacketSignature(width).create()

    def elaborate(self, platform):
        m = Module()
        m.submodules.tx, m.submodules.rx = self.tx, self.rx
        m.d.comb += [self.frames.payload[k].eq(self.tx.o.payload[k])
                     for k in ("data", "dwords", "first", "last", "discard")]
        m.d.comb += [self.frames.valid.eq(self.tx.o.valid), self.tx.o.ready.eq(self.frames.ready)]
        connect(m, self.frames, self.rx.i)
        return m


def tlp(rng):
    """A memory write or read, 3 or 4 dwords of header, sometimes with prefixes and digest."""
    prefixes = b"".join(bytes([0x91, 0, 0, n]) for n in range(rng.choice([0, 0, 0, 1, 3])))
    four, payload, td = rng.getrandbits(1), rng.choice([0, 1, 2, 7, 16, 33]), rng.random() < 0.2
    head = bytes([four << 5 | bool(payload) << 6, 0, td << 7, payload or 1])
    return prefixes + head + rng.randbytes(8 + 4 * four + 4 * payload + 4 * td)


@pytest.mark.parametrize("width, split", [
    (64, False), (512, False), (64, True),
    *(pytest.param(width, split, marks=pytest.mark.long) for width, split in (
        (32, False), (128, False), (256, False), (32, True), (128, True), (256, True),
        (512, True)))])
def test_tlps_come_out_as_they_went_in(width, split):
    rng = random.Random(seed())
    row, tlps = 0, []
    for _ in range(30 if split else 60):
        row = row if rng.random() < 0.7 else rng.randrange(8)
        tlps.append(Packet(tlp(rng), {"row": row}))
    controls = [{"type": rng.choice([FrameType.ACK, FrameType.SACK, FrameType.EVENT]),
                 "row": rng.randrange(8), "code": rng.getrandbits(8),
                 "generation": rng.getrandbits(16), "argument": rng.getrandbits(32)}
                for _ in range(10)]
    entries = [{"cls": n, "generation": 7, "header_limit": 0x1234 + n, "data_limit": 0xABCD - n,
                "echo": 99} for n in range(3)]
    dut = Loop(width, split)
    got, events, committed, dropped = [], [], [], []

    async def routes(ctx):
        seq = 0
        while True:
            ctx.set(dut.tx.request.ready, 1)
            request, = await ctx.tick().sample(dut.tx.request.payload).until(dut.tx.request.valid)
            ctx.set(dut.tx.request.ready, 0)
            ctx.set(dut.tx.route.payload, {
                "dst_slot": request.session if request.direct else request.row,
                "src_node": 0x123, "dst_node": 0x456, "tag": 0xBEEF,
                "seq": seq, "ack": 3, "crx": request.consumes and rng.getrandbits(1),
                "credit": entries[1], "credits": entries, "ok": 1})
            seq += request.consumes
            ctx.set(dut.tx.route.valid, 1)
            await ctx.tick().until(dut.tx.route.ready)
            ctx.set(dut.tx.route.valid, 0)

    async def verdicts(ctx):
        while True:
            valid = ctx.get(dut.rx.header.valid)
            ctx.set(dut.rx.verdict.payload, {
                "accept": 1, "row": ctx.get(dut.rx.header.payload.dst_slot)})
            ctx.set(dut.rx.verdict.valid, valid)
            ctx.set(dut.rx.header.ready, valid)
            await ctx.tick()

    async def forget(ctx):
        while True:
            stored, = await ctx.tick().sample(dut.tx.stored).until(dut.tx.stored_strobe)
            ctx.set(dut.tx.free.payload, stored.cell)
            ctx.set(dut.tx.free.valid, 1)
            await ctx.tick().until(dut.tx.free.ready)
            ctx.set(dut.tx.free.valid, 0)

    async def watch(ctx):
        drops = [getattr(dut.rx, name) for name in dir(dut.rx)
                 if name.startswith("stat_") and name != "stat_frames"]
        ctx.set(dut.rx.committed.ready, 1)
        ctx.set(dut.tx.packing_limit, 100 if split else 512)
        async for *_, valid, frame, credits, drop in ctx.tick().sample(
                dut.rx.committed.valid, dut.rx.committed.payload, dut.rx.credits, Cat(drops)):
            if drop:
                dropped.append(drop)
            if valid:
                committed.append(frame)
                if frame.header.type in (FrameType.ACK, FrameType.SACK):
                    assert [c.header_limit for c in credits] == [
                        e["header_limit"] for e in entries]
                if frame.header.crx:
                    assert frame.header.credit.data_limit == entries[1]["data_limit"]

    wanted = sorted((c["row"], c["code"], c["generation"], c["argument"])
                    for c in controls if c["type"] == FrameType.EVENT)
    sent = [{k: v for k, v in c.items() if k != "type"} for c in controls
            if c["type"] == FrameType.EVENT]
    replies = [{"type": c["type"], "session": c["row"]} for c in controls
               if c["type"] != FrameType.EVENT]
    simulate(
        dut, drive_packets(dut.tx.i, tlps, rng=rng, density=0.9),
        drive_words(dut.tx.control, sent, rng=rng, density=0.1),
        drive_words(dut.tx.reply, replies, rng=rng, density=0.1),
        collect_packets(dut.rx.o, len(tlps), got, rng=rng, density=0.9),
        collect_words(dut.rx.event, len(wanted), events, rng=rng, density=0.9),
        background=[forget, routes, verdicts, watch, check_stream(dut.rx.i, "frames"),
                    check_stream(dut.rx.o, "o")])
    assert [(p.data, p.meta.row) for p in got] == [(p.data, p.meta["row"]) for p in tlps]
    assert sorted((e.row, e.code, e.generation, e.argument) for e in events) == wanted
    assert dropped == []
    types = {f.header.type for f in committed} - {
        FrameType.ACK, FrameType.SACK, FrameType.EVENT}
    assert types == ({FrameType.HDR, FrameType.DATA} if split else {FrameType.TLP})
    sequenced = [f.header.seq for f in committed
                 if f.header.type not in (FrameType.ACK, FrameType.SACK)]
    assert sequenced == list(range(len(sequenced)))
