"""Contracts of dxpu.attach.egress and shared_egress: what comes out, in which order, and when."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from dxpu.attach.egress import Egress
from dxpu.attach.shared_egress import SharedEgress
from dxpu.tlp.types import TlpClass
from tests.support.egress_mutants import with_fault
from tests.support.formal import ProofFailed, prove

#: Beats of each queue, and of the longest TLP that fits.
BEATS = 2
#: What a beat carries: which TLP of its slot and class it is of (discarded ones do not count), and
#: where in it the beat is.
TAG = data.StructLayout({"slot": 1, "cls": 2, "number": 4, "index": 3, "last": 1, "again": 1})


class Shared(SharedEgress):
    """Of one slot or two; empty from the start."""

    def __init__(self, slots=1, beats=BEATS):
        super().__init__(32, slots=slots, space=(4 * beats,) * 3, packets=2)
        self.slots, self._clearing = slots, Signal()


class Single(Egress):
    """The one without slots; slot 0 is itself."""

    STAMP_BITS, slots = 4, 1

    def __init__(self):
        super().__init__(32, depth=BEATS)
        self.slot = [self]


class InOrder(wiring.Component):
    """Of each slot and class the TLPs that came, one after the other, whole, and no others; no
    non-posted request or completion is offered while a posted one is inside that came before it.

    TLPs come with any length up to one beat too many, may end with ``discard``, and streams may
    stand still. One of the TLPs, any that is not posted, is watched.
    """

    valid: In(1)
    slot: In(1)
    cls: In(2)
    again: In(1)
    last: In(1)
    discard: In(1)
    ready: In(6)
    watch: In(1)

    def __init__(self, design=Shared, **options):
        super().__init__()
        self.dut = design(**options)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        i = dut.i
        slot, cls = Signal(1), Signal(2)
        meta = i.payload.meta
        if isinstance(dut, Egress):
            m.d.comb += Value.cast(meta).eq(cls)
        else:
            m.d.comb += [meta.row.eq(slot), Value.cast(meta.cls).eq(cls)]
        index, row, kind, again = Signal(3), Signal(1), Signal(2), Signal()
        tag = Signal(TAG)
        taken, ends = Signal(), Signal()
        sent = [Signal(4, name=f"sent{n}") for n in range(8)]
        held, offered = Signal(), Signal(len(i.payload.as_value()))
        m.d.comb += [
            Assume(~ResetSignal()), Assume(self.cls < 3), Assume(self.slot < dut.slots),
            i.valid.eq(self.valid),
            i.payload.first.eq(index == 0), i.payload.dwords.eq(1),
            i.payload.last.eq(self.last), i.payload.discard.eq(self.discard & self.last),
            slot.eq(Mux(index == 0, self.slot, row)), cls.eq(Mux(index == 0, self.cls, kind)),
            tag.slot.eq(slot), tag.cls.eq(cls), tag.index.eq(index), tag.last.eq(self.last),
            tag.number.eq(Array(sent)[Cat(cls, slot[0])]),
            tag.again.eq(Mux(index == 0, self.again, again)),
            i.payload.data.eq(tag),
            taken.eq(i.valid & i.ready), ends.eq(taken & self.last),
            Assume(self.last | (index < BEATS)),
        ]
        m.d.sync += [held.eq(i.valid & ~i.ready), offered.eq(i.payload.as_value())]
        with m.If(held):
            m.d.comb += Assume(i.valid & (offered == i.payload.as_value()))
        good = Signal()
        m.d.comb += good.eq(ends & ~self.discard & (index < BEATS))
        with m.If(taken):
            m.d.sync += [index.eq(Mux(self.last, 0, index + 1)), row.eq(slot), kind.eq(cls),
                         again.eq(tag.again)]
        for n, count in enumerate(sent):
            with m.If(good & (Cat(cls, slot[0]) == n)):
                m.d.sync += count.eq(count + 1)

        # The watched one: posted requests before it, TLPs of its own queue before it.
        watching, seen = Signal(), Signal(TAG)
        older, begun, leaves = Signal(4), Signal(), Signal()
        got = [Signal(4, name=f"got{n}") for n in range(8)]
        posted = Signal(4)
        where = Signal(3)
        m.d.comb += where.eq(Cat(seen.cls, seen.slot))
        gone = Signal(2)
        with m.If(good & self.watch & ~watching & (cls != TlpClass.P.value)):
            m.d.sync += [watching.eq(1), seen.eq(tag), older.eq(posted)]
        with m.Elif(watching):
            m.d.sync += older.eq(older - (gone.bit_select(seen.slot, 1) & (older != 0)))
        m.d.comb += posted.eq(
            Array([sent[4 * n] - got[4 * n] - gone[n] for n in range(2)])[slot[0]])

        for q in range(3 * dut.slots):
            n, c = q // 3, q % 3
            stream = getattr(dut.slot[n], ("p", "np", "cpl")[c])
            place, stalled = Signal(3, name=f"place{q}"), Signal(name=f"stalled{q}")
            mark = Signal(TAG, name=f"mark{q}")
            was = Signal(TAG, name=f"was{q}")
            passes = Signal(name=f"passes{q}")
            count = got[4 * n + c]
            m.d.comb += [stream.ready.eq(self.ready[q]), mark.eq(stream.payload.data[:TAG.size]),
                         passes.eq(stream.valid & stream.ready)]
            m.d.sync += [stalled.eq(stream.valid & ~stream.ready), was.eq(mark)]
            with m.If(stream.valid):
                m.d.comb += [
                    Assert((mark.slot == n) & (mark.cls == c)), Assert(mark.number == count),
                    Assert(mark.index == place), Assert(mark.last == stream.payload.last),
                    Assert(stream.payload.first == (place == 0)),
                ]
            with m.If(stalled):
                m.d.comb += Assert(stream.valid & (was == mark))
            with m.If(passes):
                m.d.sync += place.eq(Mux(stream.payload.last, 0, place + 1))
                with m.If(stream.payload.last):
                    m.d.sync += count.eq(count + 1)
            if c == TlpClass.P.value:
                m.d.comb += gone[n].eq(passes & stream.payload.last)
            mine = watching & (where == 4 * n + c) & stream.valid & (count == seen.number)
            with m.If(mine):
                m.d.comb += [Assert(older == 0), Assert(mark.again == seen.again)]
            with m.If(mine & passes & stream.payload.last):
                m.d.comb += leaves.eq(1)
        m.d.sync += begun.eq(begun | leaves)
        self.more(m, watching & ~begun, where, seen, older, got, leaves)
        return m

    def more(self, m, *_):
        pass


class Passes(wiring.Component):
    """While non-posted requests are not taken, and posted ones and completions are, one of their
    beats leaves, or comes, within :attr:`LIMIT` cycles, as long as there are any.

    Of non-posted requests come no more than their queue has room for, as credits see to.
    """

    LIMIT = 12

    valid: In(1)
    last: In(1)
    cls: In(2)
    ready: In(2)
    flows: In(1)

    def __init__(self, design=Shared):
        super().__init__()
        self.dut = design()

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        i, out = dut.i, dut.slot[0]
        inside, kind, flow, waits = Signal(), Signal(2), Signal(), Signal()
        now, before, free, is_request = Signal(3), Signal(3), Signal(), Signal()
        requests, others = Signal(2), Signal(5)
        comes, leaves = Signal(), Signal()
        ends = [s.valid & s.ready & s.payload.last for s in (out.p, out.cpl)]
        m.d.sync += [flow.eq(free), waits.eq(i.valid & ~i.ready), before.eq(now)]
        m.d.comb += [
            now.eq(Cat(self.last, self.cls)), is_request.eq(self.cls == TlpClass.NP.value),
            free.eq(flow | self.flows),
            i.valid.eq(self.valid), i.payload.first.eq(~inside), i.payload.last.eq(self.last),
            i.payload.dwords.eq(1),
            Value.cast(i.payload.meta if isinstance(dut, Egress)
                       else i.payload.meta.cls).eq(self.cls),
            out.p.ready.eq(self.ready[0] | free), out.cpl.ready.eq(self.ready[1] | free),
            Assume(~ResetSignal()), Assume(self.cls < 3), Assume(~inside | self.last),
            Assume(~inside | (self.cls == kind)),
            Assume(~waits | self.valid & (now == before)),
            Assume(~(self.valid & is_request) | self.last & (requests < 2)),
            comes.eq(i.valid & i.ready),
            leaves.eq((out.p.valid & out.p.ready) | (out.cpl.valid & out.cpl.ready)),
        ]
        with m.If(comes):
            m.d.sync += [inside.eq(~self.last), kind.eq(self.cls)]
        m.d.sync += [requests.eq(requests + (comes & is_request)),
                     others.eq(others + (comes & ~is_request & self.last) - ends[0] - ends[1])]
        age = Signal(range(self.LIMIT + 2))
        with m.If(~free | leaves | comes | ~(i.valid | (others != 0)) | inside & ~i.valid):
            m.d.sync += age.eq(0)
        with m.Elif(age <= self.LIMIT):
            m.d.sync += age.eq(age + 1)
        m.d.comb += Assert(age <= self.LIMIT)
        return m


class Reached(InOrder):
    """The watched one had to wait for a posted one, and left."""

    def more(self, m, waits, where, seen, older, got, leaves):
        waited = Signal()
        m.d.sync += waited.eq(waited | waits & (older != 0))
        m.d.comb += Cover(leaves & waited)


WRITTEN_OVER, NOT_QUIET, NOT_COUNTED, AT_PORT, NEVER_WOKEN, BEAT_LOST, LAST_TURN = (
    with_fault(Shared, fault) for fault in (
        "beats are written over those that have not left",
        "one that is alone in its queue goes at once",
        "one that waits goes when it has its turn",
        "a posted request at its port was taken",
        "one that had to wait is not looked at again",
        "a beat whose port is occupied is lost",
        "a turn that reads nothing is the last one"))


class Confused(Single):
    """Mutant: posted requests are told apart by one bit."""

    STAMP_BITS = 1


class Aligned(Single):
    """Mutant: a completion waits for a non-posted request that is offered."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        with m.If(self.np.valid):
            m.d.comb += [self.cpl.valid.eq(0), m.submodules.cpl.o.ready.eq(0)]
        return m


#: Depths of the quick proofs. All mutants are found, and all covers reached, within them.
IN_ORDER, PASSING = 12, 22


@pytest.mark.parametrize("design, options, depth", [
    (Single, {}, 8), (Shared, {}, IN_ORDER),
    pytest.param(Shared, {"slots": 2}, 9, marks=pytest.mark.long)])
def test_order(design, options, depth):
    prove(InOrder(design, **options), depth=depth, flat=True, claims=True)


@pytest.mark.parametrize("design", [Single, Shared])
def test_what_waits_can_leave(design):
    prove(Reached(design), depth=IN_ORDER, mode="cover", flat=True)


@pytest.mark.parametrize("mutant, depth", [
    (WRITTEN_OVER, IN_ORDER), (NOT_COUNTED, IN_ORDER), (AT_PORT, IN_ORDER), (BEAT_LOST, IN_ORDER),
    (Confused, 8), pytest.param(NOT_QUIET, IN_ORDER, marks=pytest.mark.long)])
def test_order_catches(mutant, depth):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(InOrder(mutant), depth=depth, flat=True)


@pytest.mark.parametrize("design", [Single, Shared])
def test_posted_requests_and_completions_pass(design):
    prove(Passes(design), depth=PASSING, flat=True)


@pytest.mark.parametrize("mutant", [NEVER_WOKEN, Aligned, LAST_TURN])
def test_passing_catches(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(Passes(mutant), depth=PASSING, flat=True)
