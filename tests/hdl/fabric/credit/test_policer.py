"""dxpu.fabric.credit.policer: what was granted passes, what was not is dropped whole and named."""

import random
from collections import Counter, defaultdict

import pytest
from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.credit.policer import CreditPolicer
from dxpu.fabric.credit.sizing import GRANTS, LARGEST
from dxpu.rows import ClassMeta
from dxpu.stream import PacketLayout, Register, connect
from dxpu.tlp.types import TlpClass
from tests.support.testbench import (
    Packet, check_stream, collect_packets, count_pulses, drive_packets, seed, simulate,
)

P, NP, CPL = TlpClass
ROWS = 3
SMALL = ((2, 40), (3, 6), (1, 33))


def tlp(rng, row, cls, units, discard=False, dwords=None):
    """What says that it has so many units of data."""
    return Packet(rng.randbytes(4 * (dwords or rng.randint(1, 9))),
                  dict(row=row, cls=cls, units=units, life=rng.randrange(256)), discard)


def plain(packet):
    return (packet.data, packet.meta["row"], TlpClass(packet.meta["cls"]), packet.meta["units"])


class Model:
    """Who passes, from the sentence: so many were granted, less so many that were used."""

    def __init__(self, initial):
        self.initial, self.open = initial, set()
        self.free = {}

    def begin(self, row):
        self.open.add(row)
        for cls in TlpClass:
            self.free[row, cls] = list(self.initial[cls.value])

    def end(self, row):
        self.open.discard(row)

    def take(self, packet):
        """"passes", "overflow" or "large"."""
        row, cls, units = packet.meta["row"], packet.meta["cls"], packet.meta["units"]
        if row not in self.open:
            return "passes"
        free = self.free[row, cls]
        if free[0] < 1 or free[1] < units:
            return "overflow"
        if units > LARGEST:
            return "large"
        if not packet.discard:
            self.give(row, cls, units, -1)
        return "passes"

    def give(self, row, cls, units, sign=1):
        self.free[row, cls][0] += sign
        self.free[row, cls][1] += sign * units


class Bench:
    def __init__(self, initial=SMALL, width=64):
        self.dut = CreditPolicer(width, rows=ROWS, initial=initial, largest=LARGEST)
        self.pulses, self.passed, self.bad = {}, [], []
        self.released, self.named = Counter(), Counter()
        self.waits = 0

    def run(self, *processes, background=(), deadline=50_000):
        dut = self.dut

        async def watch(ctx):
            wait = 0
            async for *_, strobe, row, cls, units, over, valid, ready in ctx.tick().sample(
                    dut.released_strobe, dut.released.row, dut.released.cls, dut.released.units,
                    dut.overflow, dut.i.valid, dut.i.ready):
                if strobe:
                    self.released[row, TlpClass(cls), units] += 1
                for row in range(ROWS):
                    self.named[row] += over >> row & 1
                wait = wait + 1 if valid and not ready else 0
                self.waits = max(self.waits, wait)

        simulate(dut, *processes, deadline=deadline, background=[
            watch, check_stream(dut.o), count_pulses(dut, self.pulses, "overflow", "large"),
            *background])

    async def leave(self, ctx, row, cls, units):
        """One of those that passed has left."""
        ctx.set(self.dut.departed, dict(row=row, cls=cls, units=units))
        ctx.set(self.dut.departed_strobe, 1)
        await ctx.tick()
        ctx.set(self.dut.departed_strobe, 0)


def test_thirty_writes_of_512_bytes_for_credits_for_two():
    """Those that have credits pass, the others are dropped and named, and another row of the same
    class, and another class of the same row, do not notice."""
    rng = random.Random(seed())
    bench = Bench(GRANTS)
    dut, passed = bench.dut, bench.passed
    writes = [tlp(rng, 1, P, 32) for _ in range(30)]
    others = [tlp(rng, 1, NP, 0), tlp(rng, 1, CPL, 32), tlp(rng, 2, P, 32)]

    async def process(ctx):
        ctx.set(dut.open, 0b110)
        await ctx.tick()
        await drive_packets(dut.i, [*writes, *others])(ctx)

    bench.run(process, background=[collect_packets(dut.o, 10**6, passed)])
    # 76 units are granted: two TLPs of 32 fit, a third does not.
    assert [p.data for p in passed] == [p.data for p in [*writes[:2], *others]]
    assert bench.pulses == {"overflow": 28, "large": 0}
    assert bench.named == {0: 0, 1: 28, 2: 0} and not bench.released


def test_a_header_alone_is_not_enough_nor_are_units_alone():
    rng = random.Random(seed())
    bench = Bench()
    dut, passed = bench.dut, bench.passed
    sent = [tlp(rng, 0, P, 40 - 32), tlp(rng, 0, P, 32), tlp(rng, 0, P, 0),   # no header is left
            tlp(rng, 1, P, 32), tlp(rng, 1, P, 9), tlp(rng, 1, P, 8)]         # 8 units are

    async def process(ctx):
        ctx.set(dut.open, 0b111)
        await ctx.tick()
        await drive_packets(dut.i, sent)(ctx)

    bench.run(process, background=[collect_packets(dut.o, 10**6, passed)])
    assert [p.data for p in passed] == [sent[n].data for n in (0, 1, 3, 5)]
    assert bench.named == {0: 1, 1: 1, 2: 0}


def test_a_tlp_above_the_largest_payload_is_dropped_and_gives_its_credits_back():
    """A write of 4096 bytes: 256 units. It had credits, so nobody is fenced."""
    rng = random.Random(seed())
    bench = Bench(((2, 300), (3, 6), (1, 33)))
    dut, passed = bench.dut, bench.passed
    sent = [tlp(rng, 0, P, 256), tlp(rng, 0, P, 33), tlp(rng, 0, P, 256), tlp(rng, 0, P, 32)]

    async def process(ctx):
        ctx.set(dut.open, 0b001)
        await ctx.tick()
        await drive_packets(dut.i, sent)(ctx)
        await ctx.tick().repeat(5)

    bench.run(process, background=[collect_packets(dut.o, 10**6, passed)])
    assert [p.data for p in passed] == [sent[3].data]
    assert bench.pulses == {"overflow": 0, "large": 3} and not any(bench.named.values())
    assert bench.released == {(0, P, 256): 2, (0, P, 33): 1}


def test_a_tlp_that_ends_with_discard_gives_its_credits_back():
    rng = random.Random(seed())
    bench = Bench()
    dut, passed = bench.dut, bench.passed  # nothing passes
    sent = [tlp(rng, 0, CPL, 33 - n, discard=True) for n in range(1, 6)]

    async def process(ctx):
        ctx.set(dut.open, 0b001)
        await ctx.tick()
        await drive_packets(dut.i, sent)(ctx)
        await ctx.tick().repeat(5)

    bench.run(process, background=[collect_packets(dut.o, 1, passed, discarded=bench.bad)])
    assert len(bench.bad) == 5
    assert bench.released == {(0, CPL, 33 - n): 1 for n in range(1, 6)}
    assert bench.pulses == {"overflow": 0, "large": 0}


def test_a_release_waits_for_tlps_that_leave():
    """Two at a time: none is forgotten, and what comes waits until it was told."""
    rng = random.Random(seed())
    bench = Bench()
    dut = bench.dut
    before = [tlp(rng, 0, P, 1, dwords=1), tlp(rng, 0, NP, 0, dwords=1)]
    sent = [tlp(rng, 1, CPL, 3, discard=True, dwords=1), tlp(rng, 1, CPL, 2, dwords=1)]

    async def process(ctx):
        ctx.set(dut.open, 0b011)
        ctx.set(dut.o.ready, 1)
        await ctx.tick()
        await drive_packets(dut.i, before)(ctx)
        await drive_packets(dut.i, sent[:1])(ctx)
        ctx.set(dut.departed_strobe, 1)
        for cls, units in ((P, 1), (NP, 0)):
            ctx.set(dut.departed, dict(row=0, cls=cls, units=units))
            assert not ctx.get(dut.i.ready)
            await ctx.tick()
        ctx.set(dut.departed_strobe, 0)
        await drive_packets(dut.i, sent[1:])(ctx)

    bench.run(process)
    assert bench.released == {(0, P, 1): 1, (0, NP, 0): 1, (1, CPL, 3): 1}
    assert bench.pulses["overflow"] == 0


@pytest.mark.parametrize("width", [64, 32, 512])
def test_random_traffic_and_lives(width):
    """As the model says, TLP by TLP, while TLPs leave and rows open and close."""
    rng = random.Random(seed())
    initial = ((3, 120), (3, 6), (2, 80))
    bench, model = Bench(initial, width), Model(initial)
    dut, passed = bench.dut, bench.passed
    expected, inside, counts = [], defaultdict(list), Counter()

    async def process(ctx):
        for _ in range(600):
            row = rng.randrange(ROWS)
            if rng.random() < 0.05:
                if row in model.open:
                    model.end(row)
                else:
                    model.begin(row)
                inside[row].clear()
                ctx.set(dut.open, sum(1 << n for n in model.open))
                await ctx.tick().repeat(2)
            elif inside[row] and rng.random() < 0.4:
                one = inside[row].pop(rng.randrange(len(inside[row])))
                await bench.leave(ctx, row, *one)
                model.give(row, *one)
            else:
                packet = tlp(rng, row, rng.choice(list(TlpClass)), rng.choice([0, 1, 2, 7, 32, 33]),
                             rng.random() < 0.1)
                fate = model.take(packet)
                counts[fate] += 1
                if fate == "passes":
                    expected.append(packet)
                    if row in model.open and not packet.discard:
                        inside[row].append((packet.meta["cls"], packet.meta["units"]))
                await drive_packets(dut.i, [packet])(ctx)
                await ctx.tick().repeat(rng.randint(1, 3))
        await ctx.tick().repeat(5)

    bench.run(process, background=[collect_packets(
        dut.o, 10**6, passed, rng=rng, density=0.7, discarded=bench.bad)])
    for got, bad in ((passed, False), (bench.bad, True)):
        assert [(p.data, p.meta.row, TlpClass(p.meta.cls), p.meta.units) for p in got] == [
            plain(p) for p in expected if p.discard == bad]
    assert min(counts[k] for k in ("passes", "overflow", "large")) > 10
    assert bench.pulses == {k: counts[k] for k in ("overflow", "large")}
    assert sum(bench.named.values()) == counts["overflow"]


def test_totals_wrap():
    """Many more TLPs than the totals count to."""
    rng = random.Random(seed())
    bench = Bench()
    dut = bench.dut
    initial = SMALL[P.value]

    async def process(ctx):
        ctx.set(dut.open, 0b001)
        ctx.set(dut.o.ready, 1)
        await ctx.tick()
        for n in range(60):
            both = [rng.randint(0, 20), rng.randint(0, 20)]
            await drive_packets(dut.i, [tlp(rng, 0, P, units) for units in both])(ctx)
            await ctx.tick()
            assert bench.pulses["overflow"] == n
            await drive_packets(dut.i, [tlp(rng, 0, P, 0)])(ctx)  # a third header
            await ctx.tick()
            assert bench.pulses["overflow"] == n + 1
            for units in both:
                await bench.leave(ctx, 0, P, units)

    bench.run(process)
    assert initial[0] == 2


class Fed(wiring.Component):
    """A policer behind a register that shows what comes next."""

    def __init__(self, width):
        self.policer = CreditPolicer(width, rows=ROWS, initial=GRANTS, largest=LARGEST)
        shape = PacketLayout(width, ClassMeta)
        self._register = Register(shape)
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.register, m.submodules.policer = register, policer = (
            self._register, self.policer)
        connect(m, wiring.flipped(self.i), register.i)
        connect(m, register.o, policer.i)
        connect(m, policer.o, wiring.flipped(self.o))
        m.d.comb += [policer.open.eq(-1), policer.ahead.eq(register.following.meta)]
        return m


def test_what_was_announced_does_not_wait():
    """TLPs of several beats, all classes and rows, one behind the other."""
    rng = random.Random(seed())
    dut, waits, passed = Fed(64), [], []
    sent = [tlp(rng, row, cls, 0, dwords=rng.randint(3, 6))
            for row in range(ROWS) for cls in (P, P, CPL, NP, P)]

    async def watch(ctx):
        i = dut.policer.i
        async for *_, valid, ready in ctx.tick().sample(i.valid, i.ready):
            if valid:
                waits.append(not ready)

    simulate(dut, drive_packets(dut.i, sent), deadline=1000,
             background=[watch, collect_packets(dut.o, 10**6, passed)])
    assert len(passed) >= len(sent) - 1 and not any(waits)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="initial must be enough for the largest TLP, not"):
        CreditPolicer(64, rows=1, initial=((1, 31), (1, 1), (1, 32)), largest=32)
