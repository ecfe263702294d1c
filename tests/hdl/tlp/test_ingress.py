"""dxpu.tlp.tail_parser and dxpu.tlp.ingress against the golden model, and at full rate."""

import random
from collections import Counter

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import WIDTHS, PacketSignature
from dxpu.tlp.header import decode
from dxpu.tlp.ingress import Ingress
from dxpu.tlp.tail_parser import TailParser
from dxpu.tlp.types import NO_LIMIT, Malformed, TlpClass, TlpInfo
from dxpu_model import tlp as golden
from tests.hdl.tlp.test_parser import Causes, compare, compare_info, hostile_batch, run, watch
from tests.model.test_tlp import RULES, SIDES
from tests.support.testbench import (
    Packet, check_stream, collect_packets, collect_words, drive_packets, seed, simulate,
)


class Decoded(wiring.Component):
    """A TailParser, with the decoded header on the last beat of each packet, and on those after it
    until the next last one."""

    def __init__(self, width, completer=False):
        self.parser = TailParser(width, completer=completer)
        super().__init__({
            "i": In(PacketSignature(width)),
            "max_payload": In(3, init=NO_LIMIT),
            "o": Out(PacketSignature(width)),
            "info": Out(TlpInfo),
            "stat_malformed": Out(1),
            "malformed_cause": Out(Malformed),
            "malformed_header": Out(self.parser.malformed_header.shape()),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.parser = parser = self.parser
        decode(m, parser.tlp_header, self.info)
        wiring.connect(m, wiring.flipped(self.i), parser.i)
        wiring.connect(m, parser.o, wiring.flipped(self.o))
        m.d.comb += [
            parser.max_payload.eq(self.max_payload),
            self.stat_malformed.eq(parser.stat_malformed),
            self.malformed_cause.eq(parser.malformed_cause),
            self.malformed_header.eq(parser.malformed_header),
        ]
        return m


def pass_through(width, packets, *, completer=False, **options):
    """As :func:`run`, through a :class:`TailParser`; packets get what it says of them as meta."""
    dut, infos = Decoded(width, completer), []

    async def last_beats(ctx):
        async for *_, ends, info in ctx.tick().sample(
                dut.o.valid & dut.o.ready & dut.o.payload.last, dut.info):
            if ends:
                infos.append(info)

    out, causes = run(width, packets, dut=dut, background=[last_beats], **options)
    for packet, info in zip(out, infos, strict=True):
        packet.meta = info
    return out, causes


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("densities", [(1, 1), (0.5, 1), (1, 0.5)])
def test_hostile_batch_with_the_header_at_the_end(width, densities):
    rng = random.Random(seed())
    packets = hostile_batch(rng, 60)
    limits = [rng.choice([0, 1, 5]) for _ in packets]
    out, causes = pass_through(width, packets, rng=rng, densities=densities, limits=limits)
    compare(packets, out, causes, limits)
    assert len(causes) > 10


@pytest.mark.parametrize("width", [32, 256])
def test_rules_of_one_side(width):
    """Those of completers are not those of a switch's ports."""
    for rules in ([(raw, (cause, cause)) for raw, cause in RULES],
                  [(raw, causes) for raw, *causes in SIDES]):
        packets = [Packet(bytes.fromhex(raw)) for raw, _ in rules]
        for completer in (False, True):
            out, causes = pass_through(width, packets, completer=completer)
            compare(packets, out, causes, completer=completer)
            assert causes == [both[completer] for _, both in rules if both[completer]]


@pytest.mark.parametrize("width", [32, 64])
def test_hostile_batch_at_a_completer(width):
    rng = random.Random(seed())
    packets = hostile_batch(rng, 60)
    out, causes = pass_through(width, packets, completer=True)
    compare(packets, out, causes, completer=True)


def test_overlong_by_the_counter_period_is_still_malformed_at_the_end():
    """A packet longer than its header says by exactly 2**11 or 2**12 dwords must not pass."""
    raw = golden.Tlp(0, 0, length=1, first_be=15).pack()
    packets = [Packet(raw + bytes(4 << n)) for n in (11, 12, 13)] + [Packet(raw)]
    out, causes = pass_through(512, packets)
    compare(packets, out, causes)
    assert causes == [Malformed.LENGTH] * 3


@pytest.mark.parametrize("width", WIDTHS)
def test_ingress_latency_and_rate(width):
    """Header-only TLPs back to back: none waits, and each takes three cycles to its information and
    four to its first beat."""
    packets = [Packet(golden.Tlp(0, 0, length=1, first_be=15, tag=n).pack()) for n in range(40)]
    beats = -(-12 * 8 // width)
    dut = Ingress(width, depth=64)
    ends, infos, firsts, taken = [], [], [], []

    async def clock(ctx):
        ctx.set(dut.info.ready, 1)
        ctx.set(dut.beats.ready, 1)
        for now in range(40 * beats + 20):
            *_, i, last, info, o, first = await ctx.tick().sample(
                dut.i.valid & dut.i.ready, dut.i.payload.last, dut.info.valid, dut.beats.valid,
                dut.beats.payload.first)
            if i:
                taken.append(now)
            if i and last:
                ends.append(now)
            if info:
                infos.append(now)
            if o and first:
                firsts.append(now)

    simulate(dut, drive_packets(dut.i, packets), clock)
    assert taken == list(range(taken[0], taken[0] + 40 * beats))
    assert [b - a for a, b in zip(ends, infos, strict=True)] == [3] * 40
    assert [b - a for a, b in zip(ends, firsts, strict=True)] == [4] * 40


@pytest.mark.parametrize("width", WIDTHS)
def test_ingress_passes_only_whole_well_formed_tlps(width):
    rng = random.Random(seed())
    packets = hostile_batch(rng, 100)
    for packet in packets:
        packet.discard = not rng.randrange(8)
    depth = 2048 * 32 // width
    packets.insert(20, Packet(golden.Tlp(0, 0, length=1).pack() + bytes(4 * 2200)))
    causes = [golden.malformed(p.data) for p in packets]
    good = [p for p, cause in zip(packets, causes, strict=True)
            if cause is Malformed.NONE and not p.discard]
    dut = Ingress(width, depth=depth)
    got, infos, reported, removed, overflows, released = [], [], Causes(), [], [], []

    async def totals(ctx):
        async for *_, a, b, left, cls, dwords in ctx.tick().sample(
                dut.stat_discarded, dut.stat_overflow, dut.released_strobe, dut.released_cls,
                dut.released_dwords):
            removed.extend([1] * a)
            overflows.extend([1] * b)
            released.extend([(cls, dwords)] * left)

    async def flush(ctx):
        while len(got) < len(good) or len(removed) < len(packets) - len(good) - 1:
            await ctx.tick()
        await ctx.tick().repeat(20)

    simulate(dut, drive_packets(dut.i, packets, rng=rng, density=0.9),
             collect_packets(dut.beats, len(good), got, rng=rng, density=0.9),
             collect_words(dut.info, len(good), infos, rng=rng, density=0.9), flush,
             background=[check_stream(dut.beats), check_stream(dut.info), watch(dut, reported),
                         totals])
    assert [p.data for p in got] == [p.data for p in good]
    for packet, info in zip(got, infos, strict=True):
        compare_info(packet.data, info)
    assert reported == [c for p, c in zip(packets, causes, strict=True)
                        if not p.discard and c is not Malformed.NONE]
    assert len(removed) + len(overflows) == len(packets) - len(good)
    assert len(overflows) == 1
    # Everybody gets his credits back, by what the header says, if it says something.
    came = [(p, cause) for p, cause in zip(packets, causes, strict=True) if not p.discard]
    assert len(released) == len(came)
    known = Counter(
        (info.cls, info.payload_dwords) for p, cause in came
        if cause not in (Malformed.TRUNCATED, Malformed.PREFIX, Malformed.FORMAT)
        for info in [golden.classify(p.data)])
    assert known <= Counter(released) and known.total() > len(good) + 5


@pytest.mark.parametrize("width", WIDTHS)
def test_ingress_releases_malformed_tlps_of_one_beat_in_a_row(width):
    """At full rate, with good ones between them that wait in the queue, and leave at full rate."""
    rng = random.Random(seed())
    good = golden.Tlp(1, 0, length=1, first_be=15).pack()
    bad = golden.Tlp(1, 0, length=2, first_be=15, last_be=0).pack()  # byte enables
    assert golden.malformed(bad) is Malformed.BYTE_ENABLE
    packets = [Packet(rng.choice((good, bad, bad))) for _ in range(60)]
    wanted = [p for p in packets if p.data == good]
    dut = Ingress(width, depth=256)
    got, released = [], []

    async def watched(ctx):
        async for *_, left in ctx.tick().sample(dut.released_strobe):
            released.extend([1] * left)

    async def late(ctx):
        await ctx.tick().repeat(40)
        await collect_packets(dut.beats, len(wanted), got)(ctx)
        await ctx.tick().repeat(20)

    simulate(dut, drive_packets(dut.i, packets), late,
             background=[watched, collect_words(dut.info, 10**6, [])])
    assert [p.data for p in got] == [p.data for p in wanted]
    assert len(released) == len(packets)


@pytest.mark.parametrize("density", [1, 0.3])
def test_ingress_releases_tlps_that_are_too_large_for_its_queue(density):
    """Well-formed ones, as no Max_Payload_Size counts while a link is down; by what they say."""
    rng = random.Random(seed())

    def write(dwords):
        return golden.Tlp(2, 0, length=dwords, first_be=15, last_be=15, address=0x1000,
                          payload=rng.randbytes(4 * dwords)).pack()

    sizes = [8, 256, 8, 8, 128, 160, 8]
    packets = [Packet(write(n)) for n in sizes] + [Packet(write(200), discard=True)]
    assert all(golden.malformed(p.data) is Malformed.NONE for p in packets)
    dut = Ingress(64, depth=64)
    got, released = [], []

    async def watched(ctx):
        async for *_, left, cls, dwords in ctx.tick().sample(
                dut.released_strobe, dut.released_cls, dut.released_dwords):
            if left:
                released.append((TlpClass(cls), dwords))

    async def end(ctx):
        await drive_packets(dut.i, packets)(ctx)
        await ctx.tick().repeat(100)

    simulate(dut, end, background=[watched, collect_words(dut.info, 10**6, []),
                         collect_packets(dut.beats, 10**6, got, rng=rng, density=density)])
    assert [p.data for p in got] == [p.data for p, n in zip(packets, sizes, strict=False)
                                     if n == 8]
    assert sorted(released) == sorted((TlpClass.P, n) for n in sizes)


@pytest.mark.parametrize("block", [TailParser, lambda width: Ingress(width, depth=16)])
def test_arguments(block):
    with pytest.raises(ValueError, match="width must be one of 32, 64, 128, 256, 512, not 48"):
        block(48)
    with pytest.raises(ValueError, match="depth must be a power of two of at least 2, not 3"):
        Ingress(32, depth=3)
    with pytest.raises(TypeError, match="completer must be a bool, not 1"):
        TailParser(32, completer=1)
