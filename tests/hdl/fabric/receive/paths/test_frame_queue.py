"""dxpu.fabric.receive.paths: frames leave whole, once and in order, though they may be begun while
they arrive."""

import random

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.receive.paths.frame_queue import FrameQueue
from dxpu.fabric.receive.paths.frame_selector import FrameSelector
from dxpu.stream import PacketSignature
from tests.support.formal import ProofFailed, prove
from tests.support.mutate import mutant
from tests.support.testbench import (
    Packet, check_stream, collect_packets, count_pulses, drive_packets, seed, simulate,
)


class Paths(wiring.Component):
    """Queues and their selector."""

    def __init__(self, width, *, count, depth):
        super().__init__({
            "i": In(PacketSignature(width)).array(count),
            "o": Out(PacketSignature(width)),
            "hurry": In(1),
            **{f"stat_overflow{n}": Out(1) for n in range(count)},
        })
        self.queues = [FrameQueue(width, depth=depth) for _ in range(count)]
        self.selector = FrameSelector(width, count=count)

    def elaborate(self, platform):
        m = Module()
        m.submodules.selector = selector = self.selector
        m.d.comb += selector.hurry.eq(self.hurry)
        wiring.connect(m, selector.o, wiring.flipped(self.o))
        for n, queue in enumerate(self.queues):
            m.submodules[f"queue{n}"] = queue
            wiring.connect(m, wiring.flipped(self.i[n]), queue.i)
            wiring.connect(m, queue.o, selector.i[n])
            m.d.comb += [queue.whole_only.eq(selector.whole_only[n]),
                         getattr(self, f"stat_overflow{n}").eq(queue.stat_overflow)]
        return m


def frames(rng, path, count, largest, bad=0.0):
    """Packets that begin with their path and number."""
    return [Packet(bytes([path, n >> 8, n & 255, 0]) + rng.randbytes(4 * rng.randrange(largest)),
                   discard=rng.random() < bad) for n in range(count)]


@pytest.mark.parametrize("width", [32, 64, 512])
@pytest.mark.parametrize("density, o", [(1, 1), (0.12, 1), (0.12, 0.6), (0.5, 0.9)])
def test_good_frames_leave_whole_and_in_order(width, density, o):
    """Those of each path; whatever is taken back comes again or was bad. As many overflow as are
    missing."""
    rng = random.Random(seed())
    sent = [frames(rng, path, 120, width // 4, bad=0.2) for path in range(2)]
    dut, got, back, stat = Paths(width, count=2, depth=64), [], [], {}
    hurries = rng.random() < 0.5

    async def feed(ctx):
        for _ in range(6_000):
            ctx.set(dut.hurry, hurries and rng.random() < 0.02)
            await ctx.tick()

    simulate(dut, feed, background=[
        *(drive_packets(dut.i[n], sent[n], rng=rng, density=density) for n in range(2)),
        collect_packets(dut.o, 1 << 60, got, rng=rng, density=o, discarded=back),
        check_stream(dut.o), count_pulses(dut, stat)])
    for path in range(2):
        good = [p.data for p in sent[path] if not p.discard]
        here = [p.data for p in got if p.data[0] == path]
        lost = [data for data in good if data not in here]
        assert [data for data in good if data in here] == here
        assert len(lost) <= stat[f"overflow{path}"]
    # Beats of a slow frame have left before its end was known.
    assert back or density == 1


def begin(dut, ctx, path, beats, last=False):
    """Offer the beats of a frame, a beat a cycle."""
    async def process():
        for n in range(beats):
            ctx.set(dut.i[path].payload, dict(
                data=path << 8 | n, dwords=1, first=n == 0, last=last and n == beats - 1))
            ctx.set(dut.i[path].valid, 1)
            await ctx.tick()
        ctx.set(dut.i[path].valid, 0)
    return process()


def test_a_beat_of_an_idle_path_passes_in_one_cycle():
    dut = Paths(32, count=2, depth=16)

    async def process(ctx):
        ctx.set(dut.o.ready, 1)
        for n in range(5):
            await begin(dut, ctx, 0, 1, last=n == 4)
            assert ctx.get(dut.o.valid) and ctx.get(dut.o.p.data) == 0
            assert (ctx.get(dut.o.p.last), ctx.get(dut.o.p.discard)) == (n == 4, 0)
            await ctx.tick()
            assert not ctx.get(dut.o.valid)

    simulate(dut, process)


def test_a_whole_frame_goes_before_one_that_arrives():
    """The latter is taken back, and leaves from its beginning when the other has left."""
    dut, got, back = Paths(32, count=2, depth=16), [], []

    async def process(ctx):
        await begin(dut, ctx, 0, 3)
        await ctx.tick().repeat(5)
        await begin(dut, ctx, 1, 2, last=True)
        await ctx.tick().repeat(10)
        assert [(p.data[1], len(p.data)) for p in (*back, *got)] == [(0, 16), (1, 8)]
        ctx.set(dut.i[0].payload, dict(data=9, dwords=1, last=1))
        ctx.set(dut.i[0].valid, 1)
        await ctx.tick()
        ctx.set(dut.i[0].valid, 0)
        await ctx.tick().repeat(10)
        assert [p.data[::4] for p in got[1:]] == [bytes([0, 1, 2, 9])] and len(back) == 1

    simulate(dut, process, background=[collect_packets(dut.o, 1 << 60, got, discarded=back)])


@pytest.mark.parametrize("beats, discard", [(15, 0), (16, 0), (16, 1), (15, 1), (17, 0), (18, 0)])
def test_what_follows_a_frame_that_fills_the_queue(beats, discard):
    """Without a gap: it is kept once the other one was removed."""
    dut, got, back, stat = Paths(32, count=1, depth=16), [], [], {}
    large, small = Packet(bytes(4 * beats), discard=discard), Packet(b"next")

    async def process(ctx):
        await drive_packets(dut.i[0], [large, *[small] * (discard or beats > 16)])(ctx)
        await ctx.tick().repeat(5)
        ctx.set(dut.o.ready, 1)
        await collect_packets(dut.o, 1, got, discarded=back)(ctx)
        await ctx.tick().repeat(30)

    simulate(dut, process, background=[check_stream(dut.o), count_pulses(dut, stat)])
    assert [p.data for p in got] == [(small if discard or beats > 16 else large).data]
    assert stat.get("overflow0", 0) == (beats > 16)


def test_a_frame_that_does_not_fit_is_taken_back():
    dut, got, back, stat = Paths(32, count=1, depth=4), [], [], {}

    async def process(ctx):
        await begin(dut, ctx, 0, 9, last=True)
        await begin(dut, ctx, 0, 4, last=True)
        await ctx.tick().repeat(10)

    simulate(dut, process, background=[collect_packets(dut.o, 1 << 60, got, discarded=back),
                                       count_pulses(dut, stat)])
    assert [len(p.data) for p in (*back, *got)] == [20, 16]
    assert stat["overflow0"] == 1


class Once(wiring.Component):
    """Every frame that was stored to its end leaves whole, once and in order; what else leaves is
    taken back.

    Each beat holds how many frames were stored before its own, how many came (modulo 4), and its
    place. The frame after as many has to be that of them which was stored.
    """

    valid: In(1)
    last: In(1)
    discard: In(1)
    whole_only: In(1)
    takes: In(1)

    def __init__(self, design=FrameQueue, *, covers=False):
        super().__init__()
        self.dut, self._covers = design(32, depth=4), covers

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        i, o = dut.i, dut.o
        stored, came, place = Signal(4), Signal(2), Signal(4)
        known = Array(Signal(6, name=f"known{n}") for n in range(16))
        dropped = Signal()
        full = self.valid & dut.stat_overflow
        m.d.comb += [
            Assume(~ResetSignal()),
            i.valid.eq(self.valid), i.p.data.eq(Cat(stored, came, place)), i.p.dwords.eq(1),
            i.p.first.eq(place == 0), i.p.last.eq(self.last),
            i.p.discard.eq(self.last & self.discard),
            dut.whole_only.eq(self.whole_only), o.take.eq(self.takes & o.offered),
            Assume(place != 15), Assert(i.ready),
        ]
        with m.If(self.valid):
            m.d.sync += place.eq(Mux(self.last, 0, place + 1))
            with m.If(self.last):
                m.d.sync += came.eq(came + 1)
                with m.If(~self.discard & ~full):
                    m.d.sync += [known[stored].eq(Cat(came, place)), stored.eq(stored + 1)]
        left, at, now = Signal(4), Signal(4), Signal(6)
        beat = Cat(stored, came, place)
        view = Signal.like(beat)
        m.d.comb += view.eq(o.beat.data)
        taken_back, passed = Signal(), Signal()
        passed_at_once = (left == stored) & ~(self.valid & self.last)
        with m.If(o.take):
            m.d.sync += at.eq(Mux(o.beat.last, 0, at + 1))
            m.d.comb += Assert(o.beat.first == (at == 0))
            with m.If(o.beat.last & o.beat.discard):
                m.d.comb += Assert((at != 0) | i.p.discard)
                m.d.sync += taken_back.eq(1)
            with m.Else():
                m.d.comb += Assert((view[:4] == left) & (view[6:] == at))
                with m.If(at != 0):
                    m.d.comb += Assert(view[4:6] == now[:2])
                m.d.sync += now.eq(view[4:6])
                with m.If(o.beat.last):
                    m.d.comb += [
                        Assert(~passed_at_once),
                        Assert((left == stored) | (known[left] == Cat(view[4:6], at))),
                    ]
                    m.d.sync += [left.eq(left + 1), passed.eq(taken_back)]
        m.d.comb += dropped.eq(full)
        if self._covers:
            m.d.comb += [Cover(passed & (left == 2)), Cover(dropped & taken_back)]
        return m


#: Depth of the proof, within which its mutants are found.
DEPTH = 10


@pytest.mark.parametrize("depth", [DEPTH, pytest.param(12, marks=pytest.mark.long)])
def test_every_stored_frame_leaves_once(depth):
    prove(Once(), depth=depth, flat=True)


def test_a_frame_comes_again_and_one_is_dropped():
    prove(Once(covers=True), depth=DEPTH, mode="cover", flat=True)


def test_a_frame_queue_never_reads_what_it_writes():
    prove(FrameQueue(32, depth=4), depth=14, claims=True)


@pytest.mark.parametrize("change", [
    ("head.eq(committed), partial.eq(0), have.eq(0),", "head.eq(committed), partial.eq(0),"),
    ("ending.eq(begun_next)]", "ending.eq(begun)]"),
    ("(partial | early & advances) & (removes", "partial & (removes"),
    ("tail - Mux(partial, committed, head)", "tail - head"),
    ("commits.eq(ends & ~i.p.discard)", "commits.eq(ends)"),
    ("with m.If(commits):\n            m.d.sync += partial.eq(0)",
     "with m.If(0):\n            m.d.sync += partial.eq(0)"),
    ("passes.eq(writes & empty & ~have & ~ending", "passes.eq(writes & empty & ~ending"),
])
def test_mistakes_of_a_frame_queue_are_found(change):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(Once(mutant(FrameQueue, change)), depth=DEPTH, flat=True)
