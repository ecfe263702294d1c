"""dxpu.fabric.depacketizer against the golden wire model."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from dxpu.fabric.depacketizer import Depacketizer
from dxpu.fabric.format import DropCause, FrameType
from dxpu_sim import wire_random
from dxpu_sim.golden.wire import Ack, Event, Frame, FrameError, Tlps, build, parse
from dxpu_sim.testbench import (
    Packet, check_stream, collect_packets, collect_words, drive_packets, seed, simulate,
)

WIDTHS = [32, 64, 128, 256, 512]
HANDLED = (FrameType.TLP, FrameType.ACK, FrameType.EVENT)


def judge(packet):
    """What the golden model says of a received frame: the frame, or a cause."""
    if packet.discard:
        return DropCause.FCS
    try:
        frame = parse(packet.data)
    except FrameError as error:
        # Bodies of types that are not handled are not looked at.
        if error.cause > DropCause.FIELD and packet.data[14] & 15 not in HANDLED:
            return DropCause.UNHANDLED
        return error.cause
    return frame if frame.type in HANDLED else DropCause.UNHANDLED


@dataclass
class Outcome:
    """All that left a depacketizer."""

    tlps: list = field(default_factory=list)
    packets: list = field(default_factory=list)
    events: list = field(default_factory=list)
    committed: list = field(default_factory=list)
    headers: int = 0
    stats: Counter = field(default_factory=Counter)
    cycles: int = 0


def header_values(frame):
    values = {"type": frame.type, "crx": frame.credit is not None, "ar": frame.ar,
              "count": frame.count,
              **{k: getattr(frame, k) for k in ("dst_node", "src_node", "dst_slot", "src_slot",
                                                "path", "stream", "tag", "seq", "ack")}}
    if frame.credit:
        values["credit"] = vars(frame.credit)
    return values


def seen_values(header):
    values = {k: int(getattr(header, k)) for k in (
        "type", "crx", "ar", "count", "dst_node", "src_node", "dst_slot", "src_slot", "path",
        "stream", "tag", "seq", "ack")}
    if header.crx:
        values["credit"] = credit_values(header.credit)
    return values


def credit_values(credit):
    return {k: int(getattr(credit, k))
            for k in ("cls", "generation", "header_limit", "data_limit", "echo")}


def expected(packets, verdicts=None):
    """The :class:`Outcome` of ``packets`` if verdict ``(accept, row)`` n answers sound header n."""
    out = Outcome()
    for packet in packets:
        frame = judge(packet)
        # The header is asked about before the body is known.
        sound = judge_header(packet)
        if sound:
            accept, row = verdicts(out.headers) if verdicts else (1, 0)
            out.headers += 1
        if isinstance(frame, Frame) and not accept:
            frame = DropCause.REFUSED
        if isinstance(frame, DropCause):
            out.stats[frame.name.lower()] += 1
            continue
        out.stats["frames"] += 1
        out.committed.append((row, header_values(frame)))
        if isinstance(frame.body, Ack):
            out.committed[-1] += ([vars(entry) for entry in frame.body.entries],)
        if isinstance(frame.body, Tlps):
            out.tlps += [(tlp, row) for tlp in frame.body.tlps]
        elif isinstance(frame.body, Event):
            out.events.append((row, *vars(frame.body).values()))
    return out


def judge_header(packet):
    """Whether the link is asked about this frame (the golden model knows whole frames only)."""
    data = packet.data
    if len(data) < 60:
        # Asked if the header is there and nothing but the length is wrong.
        data = data.ljust(60, b"\0") if len(data) >= (40 if data[15:16] >= b"\x80" else 32) else b""
    cause = judge(Packet(data))
    return cause not in (DropCause.RUNT, DropCause.ETHERTYPE, DropCause.VERSION, DropCause.HCRC,
                         DropCause.TYPE, DropCause.FIELD, DropCause.UNHANDLED)


def run(dut, packets, *, verdicts=None, rng=None, i=1.0, o=1.0, slow=0, want=None):
    """Send ``packets`` through ``dut``; everything that comes out, until nothing moves."""
    out = Outcome()
    want = want or expected(packets, verdicts)

    async def answer(ctx):
        while True:
            while not ctx.get(dut.header.valid):
                await ctx.tick()
            accept, row = verdicts(out.headers) if verdicts else (1, 0)
            out.headers += 1
            if slow:
                await ctx.tick().repeat(rng.randint(1, slow))
            ctx.set(dut.verdict.payload, {"accept": accept, "row": row})
            ctx.set(dut.verdict.valid, 1)
            ctx.set(dut.header.ready, 1)
            await ctx.tick()
            ctx.set(dut.header.ready, 0)
            ctx.set(dut.verdict.valid, 0)

    async def commits(ctx):
        while True:
            if slow:
                await ctx.tick().repeat(rng.randint(1, slow))
            ctx.set(dut.committed.ready, 1)
            payload, credits = await ctx.tick().sample(
                dut.committed.payload, dut.credits).until(dut.committed.valid)
            ctx.set(dut.committed.ready, 0)
            out.committed.append((int(payload.row), seen_values(payload.header)))
            if payload.header.type == FrameType.ACK:
                out.committed[-1] += ([credit_values(entry) for entry in credits],)

    names = ["frames", *(cause.name.lower() for cause in DropCause)]

    async def count(ctx):
        still = 0
        async for _, _, *stats in ctx.tick().sample(*(getattr(dut, f"stat_{n}") for n in names)):
            out.cycles += 1
            for name, value in zip(names, stats, strict=True):
                out.stats[name] += value
            if (out.stats.total() >= len(packets) and len(out.packets) >= len(want.tlps)
                    and len(out.events) >= len(want.events)):
                still += 1
                if still == 30:
                    break

    simulate(
        dut, drive_packets(dut.i, packets, rng=rng, density=i), count,
        background=[
            answer, commits,
            collect_packets(dut.o, 1 << 60, out.packets, rng=rng, density=o),
            collect_words(dut.event, 1 << 60, out.events, rng=rng, density=o),
            check_stream(dut.o, "o"), check_stream(dut.header, "header"),
            check_stream(dut.event, "event"), check_stream(dut.committed, "committed"),
        ], deadline=60_000)
    out.tlps = [(packet.data, packet.meta.row) for packet in out.packets]
    out.events = [(e.row, e.code, e.generation, e.argument) for e in out.events]
    return out


def compare(out, want):
    assert +out.stats == +want.stats
    assert out.headers == want.headers
    assert out.committed == want.committed
    assert out.tlps == want.tlps
    assert out.events == want.events


def rows(rng):
    """Random verdicts that mostly accept; stable per header."""
    memory = {}
    return lambda n: memory.setdefault(n, (rng.random() < 0.85, rng.randrange(64)))


@pytest.mark.parametrize("densities", [(1, 1), (0.6, 0.6)])
@pytest.mark.parametrize("width", WIDTHS)
def test_valid_frames_act_whole(width, densities):
    rng = random.Random(seed())
    packets = [Packet(build(wire_random.frame(rng, "handled", most=12))) for _ in range(25)]
    want = expected(packets)
    assert want.stats == {"frames": 25}
    out = run(Depacketizer(width, depth=1024), packets, rng=rng, i=densities[0], o=densities[1])
    compare(out, want)


@pytest.mark.parametrize("width", WIDTHS)
def test_verdicts_and_slow_link(width):
    rng = random.Random(seed())
    packets = [Packet(build(wire_random.frame(rng, "any", most=4))) for _ in range(30)]
    verdicts = rows(rng)
    want = expected(packets, verdicts)
    assert want.stats["refused"] and want.stats["unhandled"]
    out = run(Depacketizer(width, depth=512), packets, verdicts=verdicts, rng=rng, i=0.9, o=0.7,
              slow=20, want=want)
    compare(out, want)


@pytest.mark.parametrize("width", WIDTHS)
def test_accepts_exactly_what_the_golden_model_accepts(width):
    """Random damage, most of it with an HCRC that fits; wrong FCS; other types."""
    rng = random.Random(seed())
    packets = []
    for _ in range(140):
        data = build(wire_random.frame(rng, rng.choice(["handled", "any"]), most=4, largest=16))
        packets.append(Packet(data if rng.random() < 0.2 else wire_random.mutate(rng, data),
                              discard=rng.random() < 0.05))
    verdicts = rows(rng)
    want = expected(packets, verdicts)
    assert len(want.stats) >= 8
    out = run(Depacketizer(width, depth=512), packets, verdicts=verdicts, rng=rng, i=0.9,
              slow=rng.choice([0, 9]), want=want)
    compare(out, want)
