"""dxpu.fabric.credit.class_queues: nothing lost, no order broken, no class held back by another."""

import random
from collections import defaultdict

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.fabric.credit import class_queues
from dxpu.fabric.credit.class_queues import ClassQueues, ClassSpace
from dxpu.fabric.credit.queues.queue_ends import QueueEnds
from dxpu.fabric.credit.queues.queue_flags import QueueFlags
from dxpu.tlp.types import TlpClass
from tests.support.mutate import mutant
from tests.support.testbench import (
    Packet, check_stream, collect_packets, count_pulses, drive_packets, seed, simulate,
)

P, NP, CPL = TlpClass
ROWS = 3


def allowed(queues, meta):
    """The bit of a TLP's queue."""
    return queues.bit_select(Cat(Value.cast(meta.cls), meta.row), 1)


class Gated(wiring.Component):
    """Queues in which bit 4 * row + class of ``allow`` lets a queue's TLPs pass; ``sure``: that is
    known at once."""

    allow: In(4 * ROWS)
    sure: In(1, init=1)

    def __init__(self, width, *, overflow="wait", space=None):
        super().__init__()
        self.queues = ClassQueues(width, rows=ROWS, overflow=overflow, space=space or ClassSpace(
            width, p=400, np=200, cpl=300))

    def elaborate(self, platform):
        m = Module()
        m.submodules.queues = queues = self.queues
        before = Signal.like(self.allow)
        m.d.sync += before.eq(self.allow)
        rises = self.allow & ~before
        m.d.sync += queues.ok.eq(allowed(self.allow, queues.checked))
        m.d.comb += queues.sure.eq(allowed(self.allow, queues.i.payload.meta) & self.sure)
        m.d.comb += queues.wake.eq(Cat(rises.word_select(n, 4).any() for n in range(ROWS)))
        return m


def some(rng, count, *, rows=range(ROWS), classes=tuple(TlpClass), discard=0.0, largest=40):
    return [Packet(rng.randbytes(4 * (rng.randint(3, 6) if cls is NP else rng.randint(3, largest))),
                   dict(row=rng.choice(rows), cls=cls, life=rng.randrange(256),
                        units=rng.randrange(300)), rng.random() < discard)
            for cls in (rng.choice(classes) for _ in range(count))]


def key(packet):
    meta = packet.meta
    if isinstance(meta, dict):
        return meta["row"], meta["cls"]
    return meta.row, meta.cls


def check_order(sent, got):
    """All came, each queue in order, and nothing before a posted TLP that is older."""
    queues, older, posted = defaultdict(list), {}, defaultdict(int)
    for packet in sent:
        row, cls = key(packet)
        queues[row, cls].append(packet)
        older[id(packet)] = posted[row]
        posted[row] += cls is P
    assert len(got) == len(sent)
    gone = defaultdict(int)
    for packet in got:
        row, cls = key(packet)
        mine = queues[row, cls].pop(0)
        assert packet.data == mine.data
        assert (packet.meta.life, packet.meta.units) == (mine.meta.get("life", 0),
                                                          mine.meta.get("units", 0))
        assert gone[row] >= older[id(mine)]
        gone[row] += cls is P


@pytest.mark.parametrize("width, density", [
    (64, 1), (512, 0.5), *(pytest.param(w, d, marks=pytest.mark.long)
                           for w in (32, 128, 256) for d in (1, 0.5))])
def test_nothing_is_lost_and_order_is_kept(width, density):
    """Permissions come and go; TLPs that end badly are among the others."""
    rng = random.Random(seed())
    dut = Gated(width)
    sent = some(rng, 200, discard=0.1)
    good = [p for p in sent if not p.discard]
    got, pulses, ended = [], {}, []

    async def allow(ctx):
        while not ended:
            ctx.set(dut.allow, rng.getrandbits(4 * ROWS) | rng.getrandbits(4 * ROWS))
            ctx.set(dut.sure, rng.random() < 0.5)
            await ctx.tick().repeat(rng.randint(1, 60))
        ctx.set(dut.allow, -1)

    async def feed(ctx):
        await drive_packets(dut.queues.i, sent, rng=rng, density=density)(ctx)
        ended.append(1)

    simulate(dut, feed, allow,
             collect_packets(dut.queues.o, len(good), got, rng=rng, density=density, discarded=[]),
             background=[check_stream(dut.queues.o), count_pulses(dut.queues, pulses)])
    check_order(good, got)
    assert pulses["overflow"] == 0 and pulses["parked"] > 20


def test_stamps_wrap(monkeypatch):
    """Each row has seen nearly as many posted TLPs as its numbers count."""
    rng = random.Random(seed())
    before = 9
    start = 2**ClassQueues.STAMP_BITS - before
    monkeypatch.setattr(class_queues, "QueueEnds", mutant(QueueEnds, (
        "Mux(self.clear, 0, read.data + 1)", f"Mux(self.clear, {start}, read.data + 1)")))
    dut = Gated(64)
    sent, got, ended = some(rng, 300, classes=(P, P, NP, CPL), largest=8), [], []
    posted = [0] * ROWS

    async def feed(ctx):
        await drive_packets(dut.queues.i, sent)(ctx)
        ended.append(1)
        while len(got) < len(sent):
            await ctx.tick()
        assert min(posted) > before, "not all have wrapped"

    async def allow(ctx):
        while not ended:
            ctx.set(dut.allow, rng.getrandbits(4 * ROWS))
            await ctx.tick().repeat(rng.randint(1, 60))
        ctx.set(dut.allow, -1)

    async def watch(ctx):
        while True:
            *_, parked, meta = await ctx.tick().sample(dut.queues.stat_parked,
                                                       dut.queues.i.payload.meta)
            posted[meta.row] += parked and meta.cls is P

    simulate(dut, feed, allow, background=[watch, collect_packets(dut.queues.o, 10**6, got)])
    check_order(sent, got)


@pytest.mark.parametrize("blocked, pass_", [(NP, (P, CPL)), (CPL, (P, NP)), (P, ())])
def test_a_class_that_may_not_leave_stops_only_what_may_not_pass_it(blocked, pass_):
    """Others of the row pass, all of other rows do; later the rest comes, in order."""
    rng = random.Random(seed())
    dut = Gated(64, space=ClassSpace(64, p=800, np=400, cpl=800))
    first = Packet(rng.randbytes(16), dict(row=1, cls=blocked))
    rest = [p for cls in (P, NP, CPL) for p in some(rng, 6, rows=[1], classes=[cls], largest=8)]
    rest += some(rng, 40, rows=[0, 2], largest=8)
    rng.shuffle(rest)
    passing = [p for p in rest if p.meta["row"] != 1 or p.meta["cls"] in pass_]
    got = []

    async def block(ctx):
        ctx.set(dut.allow, ~(1 << 4 + blocked.value))
        await drive_packets(dut.queues.i, [first, *rest])(ctx)
        await ctx.tick().repeat(200)
        assert len(got) == len(passing)
        ctx.set(dut.allow, -1)

    simulate(dut, block, collect_packets(dut.queues.o, 1 + len(rest), got))
    check_order([first, *rest], got)


class Slow(Gated):
    """The answer is a cycle old, so that the strobe may come with the question."""

    def __init__(self):
        super().__init__(64)
        self.queues = ClassQueues(64, rows=ROWS, overflow="wait",
                                  space=ClassSpace(64, p=400, np=200, cpl=300))

    def elaborate(self, platform):
        m = super().elaborate(platform)
        queues, before = self.queues, Signal.like(self.allow)
        m.d.sync += before.eq(self.allow)
        m.d.comb += queues.sure.eq(allowed(before, queues.i.payload.meta))
        m.d.sync += queues.ok.eq(allowed(before, queues.checked))
        return m


def woken(dut):
    """Packets wait, one at a time, each for a moment of its own: whether each went then."""
    got, went = [], []

    async def process(ctx):
        for cycle in range(1, 17):
            for cls in (P, NP, CPL):
                ctx.set(dut.allow, 0)
                await ctx.tick().repeat(4)
                await drive_packets(dut.queues.i, [Packet(bytes(16), dict(row=1, cls=cls))])(ctx)
                await ctx.tick().repeat(cycle)
                before = len(got)
                ctx.set(dut.allow, 1 << 4 + cls.value)
                await ctx.tick().repeat(60)
                went.append(len(got) == before + 1)

    simulate(dut, process, background=[collect_packets(dut.queues.o, 10**6, got)])
    return went


def test_a_wake_in_the_cycle_of_the_question_is_not_lost():
    assert all(woken(Slow()))


def test_a_lost_wake_is_found(monkeypatch):
    monkeypatch.setattr(class_queues, "QueueFlags", mutant(QueueFlags, (
        "(asleep[n] | left[row] & refused) & ~woken[row]",
        "asleep[n] & ~woken[row] | left[row] & refused")))
    assert not all(woken(Slow()))


def test_what_may_pass_has_no_latency_and_full_rate():
    rng = random.Random(seed())
    dut = Gated(64)
    sent = some(rng, 30)
    got, cycles = [], [0]

    async def watch(ctx):
        ctx.set(dut.allow, -1)
        async for *_, i, o in ctx.tick().sample(dut.queues.i.valid & dut.queues.i.ready,
                                                dut.queues.o.valid & dut.queues.o.ready):
            assert i == o
            cycles[0] += i

    simulate(dut, drive_packets(dut.queues.i, sent), background=[
        watch, collect_packets(dut.queues.o, 1000, got)])
    check_order(sent, got)
    assert cycles[0] == sum(-(-len(p.data) // 8) for p in sent)


def test_what_is_not_sure_to_pass_passes_a_cycle_later():
    rng = random.Random(seed())
    dut = Gated(64)
    sent = some(rng, 30)
    got, cycles = [], 0

    async def run(ctx):
        ctx.set(dut.allow, -1)
        ctx.set(dut.sure, 0)
        await ctx.tick().repeat(4 * ROWS + 1)   # queues are made empty
        await drive_packets(dut.queues.i, sent)(ctx)

    async def watch(ctx):
        nonlocal cycles
        async for *_, valid in ctx.tick().sample(dut.queues.i.valid):
            cycles += valid

    simulate(dut, run, collect_packets(dut.queues.o, len(sent), got), background=[watch])
    check_order(sent, got)
    assert cycles == sum(1 - (-len(p.data) // 8) for p in sent)


@pytest.mark.parametrize("overflow", ["wait", "drop"])
def test_full_queues_wait_or_drop(overflow):
    """A TLP larger than its queue is always dropped; in drop mode the source never waits."""
    rng = random.Random(seed())
    dut = Gated(64, overflow=overflow, space=ClassSpace(64, p=128, np=64, cpl=128))
    fits = [Packet(rng.randbytes(64), dict(row=0, cls=P)) for _ in range(2)]
    more = [Packet(rng.randbytes(64), dict(row=0, cls=P)) for _ in range(3)]
    giant = Packet(rng.randbytes(400), dict(row=2, cls=P))
    other = Packet(rng.randbytes(64), dict(row=1, cls=P))
    sent = [giant, *fits, *more, other]
    left = [*fits, *([] if overflow == "drop" else more), other]
    got, pulses = [], {}

    async def run(ctx):
        ctx.set(dut.allow, ~(1 | 1 << 8))
        await drive_packets(dut.queues.i, sent)(ctx)
        ctx.set(dut.allow, -1)

    async def open_late(ctx):
        if overflow == "wait":
            await ctx.tick().repeat(400)
            assert not got
            ctx.set(dut.allow, -1)

    simulate(dut, run, open_late, collect_packets(dut.queues.o, len(left), got),
             background=[count_pulses(dut.queues, pulses)])
    check_order(left, got)
    assert pulses["overflow"] == len(sent) - len(left)


def test_tlps_of_the_queues_and_those_that_come_take_turns():
    """Neither stops the other."""
    rng = random.Random(seed())
    dut = Gated(64, space=ClassSpace(64, p=800, np=100, cpl=100))
    waiting = [Packet(rng.randbytes(16), dict(row=n % 2, cls=P)) for n in range(20)]
    coming = [Packet(rng.randbytes(64), dict(row=2, cls=P)) for _ in range(40)]
    got = []

    async def run(ctx):
        ctx.set(dut.allow, 0x100)
        await drive_packets(dut.queues.i, waiting)(ctx)
        ctx.set(dut.allow, -1)
        await drive_packets(dut.queues.i, coming)(ctx)

    simulate(dut, run, collect_packets(dut.queues.o, 60, got))
    rows = [p.meta.row for p in got]
    for n in range(2, 36):
        assert 2 in rows[n:n + 3] and {0, 1} & set(rows[n:n + 3]), rows
    check_order(waiting + coming, got)


def test_rows_that_wait_have_equal_shares_of_beats():
    """Deficit round robin: a row of small TLPs is not behind one of large ones."""
    rng = random.Random(seed())
    dut = Gated(64, space=ClassSpace(64, p=1600, np=100, cpl=100))
    waiting = [Packet(rng.randbytes(size), dict(row=row, cls=P))
               for row, size, count in ((0, 512, 3), (1, 48, 16), (2, 192, 8))
               for _ in range(count)]
    shares = [0, 0, 0]

    async def run(ctx):
        await drive_packets(dut.queues.i, waiting)(ctx)
        ctx.set(dut.allow, -1)
        while sum(shares) < 300:
            *_, fire, meta = await ctx.tick().sample(
                dut.queues.o.valid & dut.queues.o.ready, dut.queues.o.payload.meta)
            shares[meta.row] += fire
            # A turn of 69 beats and what it may overdraw; turns by TLPs would have 174.
            assert max(shares) - min(shares) <= 69 + 64, shares

    simulate(dut, run, background=[collect_packets(dut.queues.o, 1000, [])])


def test_who_waits_is_shown():
    dut = Gated(64)
    sent = [Packet(bytes(16), dict(row=1, cls=c)) for c in (NP, NP, CPL)]
    got = []

    async def run(ctx):
        await drive_packets(dut.queues.i, sent[:2])(ctx)
        await ctx.tick().repeat(5)
        assert ctx.get(dut.queues.np_waits) == 0b010
        assert ctx.get(dut.queues.blocked) == 0
        await drive_packets(dut.queues.i, sent[2:])(ctx)
        await ctx.tick().repeat(5)
        assert ctx.get(dut.queues.blocked) == 0b010
        ctx.set(dut.allow, -1)
        await ctx.tick().repeat(50)
        assert ctx.get(dut.queues.np_waits) == 0
        assert ctx.get(dut.queues.blocked) == 0

    simulate(dut, run, collect_packets(dut.queues.o, 3, got))


def test_arguments_are_checked():
    space = ClassSpace(64, p=400, np=100, cpl=400)
    with pytest.raises(ValueError, match="rows must be 1 to 63, not 64"):
        ClassQueues(64, rows=64, space=space)
    with pytest.raises(ValueError, match="overflow must be 'wait' or 'drop', not 'never'"):
        ClassQueues(64, rows=2, space=space, overflow="never")
