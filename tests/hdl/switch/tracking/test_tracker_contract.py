"""Contract of dxpu.switch.tracking.tracker: each request ends exactly once, at the right time."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from dxpu.switch.tracking.tracker import CompletionTracker
from dxpu.switch.tracking.types import DropCause, TrackedCompletion, TrackedRequest
from dxpu.tlp.types import CompletionStatus
from tests.support.formal import ProofFailed, prove

PORTS = 2


class Name(data.Struct):
    slot: 5
    requester_id: 16
    tag: 10


class Traffic(wiring.Component):
    """A small tracker in which anything may be offered, held as the stream rules demand.

    Slots, tags, generations and bytes are few, so that they meet. ``watched`` is
    any name.
    """

    request: In(TrackedRequest)
    request_valid: In(1)
    completion: In(TrackedCompletion)
    completion_valid: In(1)
    verdict_ready: In(1)
    answer_ready: In(1)
    fence: In(PORTS)
    watched: In(Name)

    def __init__(self, design=CompletionTracker, *, entries=2, ways=1):
        super().__init__()
        self.dut = design(ports=PORTS, entries=entries, ways=ways, granule=8)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        m.d.comb += [
            dut.request.p.eq(self.request), dut.request.valid.eq(self.request_valid),
            dut.completion.p.eq(self.completion), dut.completion.valid.eq(self.completion_valid),
            dut.verdict.ready.eq(self.verdict_ready), dut.answer.ready.eq(self.answer_ready),
            dut.fence.eq(self.fence),
        ]
        for offered in (dut.request, dut.completion):
            payload = Value.cast(offered.payload)
            waiting, before = Signal(), Signal.like(payload)
            m.d.sync += [waiting.eq(offered.valid & ~offered.ready), before.eq(payload)]
            with m.If(waiting):
                m.d.comb += Assume(offered.valid & (payload == before))
        for name in (self.request, self.completion, self.watched):
            m.d.comb += [Assume(name.slot < PORTS), Assume(name.requester_id == 0),
                         Assume(name.tag < 4)]
        for one in (self.request, self.completion):
            m.d.comb += [Assume(one.generation < 2), Assume(one.byte_count < 32),
                         Assume(one.lower_address < 8)]
        m.d.comb += [Assume(self.completion.dwords < 8), Assume(self.request.attr == 0),
                     Assume(self.request.tc < 2)]
        # Requests are what the parser can say of one.
        r = self.request
        m.d.comb += Assume(Mux(
            r.splits, r.returns, (r.lower_address == 0) & Mux(
                r.returns, (r.byte_count == 4) | (r.byte_count == 8) | (r.byte_count == 16),
                r.byte_count == 4)))
        start, known = Signal(init=1), Signal(Name)
        m.d.sync += [start.eq(0), known.eq(self.watched)]
        with m.If(~start):
            m.d.comb += Assume(Value.cast(self.watched) == Value.cast(known))
        self.observe(m)
        return m

    def is_watched(self, x):
        w = self.watched
        return (x.slot == w.slot) & (x.requester_id == w.requester_id) & (x.tag == w.tag)


class EndsOnce(Traffic):
    """A request of the watched name is taken when none is open, and then ends exactly once.

    Every completion of that name passes while it is open, whatever else is in it, and it is the
    last one if nothing can follow it (PCIe Base 5.0, 2.3.1.1); every answer of that name is for an
    open request of a fenced slot, with the fields of the request and the bytes left. ``drained``
    says whether such a request may be open, and exactly so if it was the slot's only one.
    """

    def observe(self, m):
        dut, open = self.dut, Signal()
        first = Signal(TrackedRequest)               # as it was taken
        left, address = Signal(13), Signal(7)        # bytes that are to come, and where
        fences = [Signal(PORTS, name=f"fence{n}") for n in range(3)]
        fence0, fence1, fence2 = fences
        m.d.comb += fence0.eq(self.fence)
        m.d.sync += [fence1.eq(fence0), fence2.eq(fence1)]

        # Taken.
        with m.If(dut.request.valid & dut.request.ready & self.is_watched(self.request)):
            m.d.comb += Assert(~open)
            m.d.sync += [open.eq(1), first.eq(self.request), left.eq(self.request.byte_count),
                         address.eq(self.request.lower_address)]
            with m.If(self.request.byte_count == 0):
                m.d.sync += left.eq(4096)

        # Completed: the verdict comes a cycle after the completion is taken.
        c, cause, judged = self.completion, Signal(DropCause), Signal()
        needed, came, told = Signal(12), Signal(14), Signal(13)
        last, irregular = Signal(), Signal()
        m.d.comb += [
            needed.eq(Mux(first.returns, (address[:2] + left + 3) >> 2, 0)),
            came.eq((c.dwords << 2) - address[:2]),
            told.eq(Mux(c.byte_count == 0, 4096, c.byte_count)),
            last.eq((c.status != CompletionStatus.SC) | ~first.splits | (c.dwords == 0)
                    | (came >= left) | ~c.bcm & (told <= came)),
        ]
        with m.If(c.status != CompletionStatus.SC):
            m.d.comb += irregular.eq(c.dwords != 0)
        with m.Elif(first.splits):
            m.d.comb += irregular.eq((c.dwords == 0) | (c.dwords > needed)
                                     | (c.lower_address != address) | ~c.bcm & (told != left))
        with m.Else():
            m.d.comb += irregular.eq(c.dwords != needed)
        with m.If(fence1.bit_select(c.slot, 1)):
            m.d.comb += cause.eq(DropCause.FENCED)
        with m.Elif(~open | first.dead):
            m.d.comb += cause.eq(DropCause.UNEXPECTED)
        with m.Elif(c.generation != first.generation):
            m.d.comb += cause.eq(DropCause.STALE)
        taken = dut.completion.valid & dut.completion.ready & self.is_watched(c)
        expected = Signal(DropCause)
        m.d.sync += [judged.eq(taken), expected.eq(cause)]
        with m.If(taken):
            m.d.comb += Assert(dut.stat_irregular == (irregular & (cause == DropCause.NONE)))
        with m.If(taken & (cause == DropCause.NONE)):
            with m.If(last):
                m.d.sync += open.eq(0)
            with m.Else():
                m.d.sync += [left.eq(left - came), address.eq(address + came)]
        with m.If(judged):
            m.d.comb += [
                Assert(dut.verdict.valid),
                Assert(dut.verdict.p.cause == expected),
                Assert(dut.verdict.p.accept == (expected == DropCause.NONE)),
            ]

        # Answered: seen a cycle after it happened.
        made, a = Signal(), dut.answer.p
        got = a.completion
        m.d.sync += made.eq(dut.stat_answered)
        name = Signal(Name)
        m.d.comb += [name.slot.eq(a.slot), name.requester_id.eq(got.requester_id),
                     name.tag.eq(got.tag)]
        answered = made & self.is_watched(name)
        with m.If(answered):
            m.d.sync += open.eq(0)
            m.d.comb += [
                Assert(dut.answer.valid),
                Assert(open),
                Assert(fence2.bit_select(a.slot, 1) | first.dead),
                Assert(Cat(got.tc, got.attr, got.locked, got.has_data)
                       == Cat(first.tc, first.attr, first.locked, C(0, 1))),
                Assert(got.status == CompletionStatus.UR),
                Assert(got.byte_count == left[:12]),
                Assert(got.lower_address == address),
            ]
        drained, others = dut.drained.bit_select(self.watched.slot, 1), Signal()
        with m.If(dut.request.valid & dut.request.ready & ~self.is_watched(self.request)
                  & (self.request.slot == self.watched.slot)):
            m.d.sync += others.eq(1)
        with m.If(~open & ~others):
            m.d.comb += Assert(drained)
        with m.If(open & ~answered):
            m.d.comb += Assert(~drained)
        self.cover(m, taken & (cause == DropCause.NONE) & last & (left != first.byte_count),
                   answered & (left != first.byte_count))

    def cover(self, m, *events):
        pass


class Reaches(EndsOnce):
    """A read can be completed in parts, and answered after a part."""

    def cover(self, m, *events):
        for event in events:
            m.d.comb += Cover(event)


class Careless(CompletionTracker):
    """Mutant: begins operations on a set while others on it are under way."""

    def _undisturbed(self, index):
        return C(1, 1)


class Talkative(CompletionTracker):
    """Mutant: what was answered stays open."""

    def _write(self, m):
        super()._write(m)
        with m.If(self._stage[3].sweep):
            m.d.comb += self._update.used.eq(1)


class Timeless(CompletionTracker):
    """Mutant: does not tell generations apart."""

    def _look(self, m):
        super()._look(m)
        m.d.sync += self._stale.eq(0)


class Policing(CompletionTracker):
    """Mutant: believes in no end that the byte count tells."""

    def _act_completion(self, m):
        super()._act_completion(m)
        with m.If(self._stage[3].completion & (self.completion.p.dwords == 1)
                  & (self._entry.end > 4)):
            m.d.comb += self._closed.eq(0)


class Ajar(CompletionTracker):
    """Mutant: completions of fenced slots pass."""

    def _look(self, m):
        super()._look(m)
        with m.If(self._stage[2].completion):
            m.d.sync += self._fenced.eq(0)


#: Depth of the quick proof. All mutants are found, and all covers reached, within it.
DEPTH = 16


@pytest.mark.parametrize("depth", [DEPTH, pytest.param(17, marks=pytest.mark.long)])
def test_ends_once(depth):
    prove(EndsOnce(), depth=depth, claims=depth == DEPTH)


def test_parts_and_answers_are_reached():
    prove(Reaches(), depth=DEPTH, mode="cover")


@pytest.mark.parametrize("mutant", [Careless, Talkative, Timeless, Policing, Ajar])
def test_ends_once_catches(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(EndsOnce(mutant), depth=DEPTH)
