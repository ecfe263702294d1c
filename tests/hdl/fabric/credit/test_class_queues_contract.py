"""Contracts of dxpu.fabric.credit.class_queues: order and content kept, P and Cpl pass a blocked
NP."""

from contextlib import ExitStack
from unittest import mock

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from dxpu.fabric.credit import class_queues
from dxpu.fabric.credit.class_queues import ClassQueues
from dxpu.fabric.credit.queues.departure import Departure
from dxpu.fabric.credit.queues.parking import Parking
from dxpu.fabric.credit.queues.queue_flags import QueueFlags
from dxpu.fabric.credit.queues.queue_turns import QueueTurns
from dxpu.fabric.credit.sizing import beats_for
from dxpu.tlp.types import TlpClass
from tests.support.formal import ProofFailed, prove
from tests.support.mutate import mutant

P, NP, CPL = TlpClass
#: Beats of the longest packet, but for :class:`Long`.
BEATS = 2


class Space:
    """Space of the queues of a row: so many beats each."""

    def __init__(self, beats):
        self.beats, self.total, self.start = (beats,) * 3, 4 * beats, (0, beats, 2 * beats)


class Small(ClassQueues):
    """With few packets, and empty from the start."""

    PACKETS, STAMP_BITS, SWEEPS = 2, 4, False
    LONGEST = BEATS

    def __init__(self, beats=BEATS, rows=1):
        super().__init__(32, rows=rows, space=Space(beats))


class Long(Small):
    """With packets so long that the next one is looked at while they leave."""

    AHEAD_FROM, LONGEST = 1, 3

    def __init__(self):
        super().__init__(4)


def changed(design, *changes):
    """``design`` with parts that are mutants: pairs of a component and changes of its source."""
    class Changed(design):
        def elaborate(self, platform):
            with ExitStack() as stack:
                for part, change in changes:
                    stack.enter_context(mock.patch.object(
                        class_queues, part.__name__, mutant(part, change)))
                return super().elaborate(platform)

    return Changed


class Ordered(wiring.Component):
    """TLPs of any rows and classes come at any time, and may or may not pass at any time. One of
    them, any, is watched: it leaves once, as it came; before it no younger one of its row and class
    leaves, and none at all of its row if it is posted.

    Data tells which packet is the watched one, and which are younger: bits 7 and 6.
    """

    valid: In(1)
    last: In(1)
    row: In(1)
    cls: In(2)
    byte: In(6)
    watch: In(1)
    sure: In(1)
    ok: In(1)
    wake: In(2)
    ready: In(1)

    def __init__(self, design=Small):
        super().__init__()
        self.dut = design()

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        i, o = dut.i, dut.o
        came, value = Signal(), Signal(6)  # the watched one
        kind = Signal(data.StructLayout({"cls": 2, "row": 1}))
        inside, place = Signal(), Signal(range(dut.LONGEST))
        mine, now_mine, kept = Signal(), Signal(), Signal(6)
        younger = came & ~now_mine & (self.row == kind.row)
        m.d.comb += [
            now_mine.eq(Mux(inside, mine, self.watch & ~came)),
            i.valid.eq(self.valid), i.payload.first.eq(~inside), i.payload.last.eq(self.last),
            i.payload.dwords.eq(1),
            i.payload.data.eq(Cat(self.byte, younger, now_mine)),
            Value.cast(i.payload.meta.cls).eq(self.cls), i.payload.meta.row.eq(self.row),
            i.payload.meta.units.eq(Mux(inside, kept, self.byte)),
            dut.sure.eq(self.sure), dut.ok.eq(self.ok), dut.wake.eq(self.wake),
            o.ready.eq(self.ready), Assume(self.row < len(dut.wake)),
            Assume(self.cls < 3), Assume((place != dut.LONGEST - 1) | self.last),
        ]
        m.d.comb += Assume(~ResetSignal())  # it begins as after one
        waiting, now = Signal(), Cat(self.last, self.row, self.cls, self.byte, self.watch)
        before = Signal.like(now)
        m.d.sync += [waiting.eq(i.valid & ~i.ready), before.eq(now)]
        with m.If(waiting):
            m.d.comb += Assume(self.valid & (before == now))
        packet = Signal.like(kind)
        with m.If(inside):
            m.d.comb += Assume((self.cls == packet.cls) & (self.row == packet.row))
        with m.If(i.valid & i.ready):
            m.d.sync += [inside.eq(~self.last), place.eq(Mux(self.last, 0, place + 1)),
                         packet.cls.eq(self.cls), packet.row.eq(self.row), mine.eq(now_mine),
                         kept.eq(i.payload.meta.units)]
            with m.If(now_mine):
                m.d.sync += [came.eq(1), kind.cls.eq(self.cls), kind.row.eq(self.row)]
                with m.If(~inside):
                    m.d.sync += value.eq(self.byte)

        left, first = Signal(), Signal(init=1)
        out, out_class = o.payload.data[:8], Value.cast(o.payload.meta.cls)
        known_value, known_kind, known_row = Signal(6), Signal(2), Signal()
        m.d.comb += [  # it may leave in the cycle in which it comes
            known_value.eq(Mux(came, value, self.byte)),
            known_kind.eq(Mux(came, kind.cls, self.cls)),
            known_row.eq(Mux(came, kind.row, self.row)),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += first.eq(o.payload.last)
            m.d.comb += Assert(o.payload.first == first)
            with m.If(first & out[7]):
                m.d.comb += [Assert(~left), Assert(out[:6] == known_value),
                             Assert(o.payload.meta.units == known_value),
                             Assert(out_class == known_kind),
                             Assert(o.payload.meta.row == known_row)]
                m.d.sync += left.eq(1)
            with m.If(first & out[6] & ~left):
                m.d.comb += Assert((out_class != known_kind) & (known_kind != P.value))
        m.d.comb += Assert(~dut.stat_overflow)
        self.cover(m, left, came)
        return m

    def cover(self, m, left, came):
        pass


class Reached(Ordered):
    """The watched TLP waits, is passed by a younger one, and leaves."""

    def cover(self, m, left, came):
        o, passed = self.dut.o, Signal()
        with m.If(o.valid & o.ready & o.payload.data[6] & came & ~left):
            m.d.sync += passed.eq(1)
        m.d.comb += Cover(left & passed)


class Rows(Small):
    """Of two rows."""

    def __init__(self):
        super().__init__(rows=2)


class Roomy(Small):
    """With room for more beats than packets."""

    def __init__(self):
        super().__init__(2 * BEATS)


#: Mutants: what comes passes posted TLPs that wait; what waits leaves before older posted TLPs, or
#: while another TLP is leaving; more beats, or packets, than fit.
MUTANTS = {
    "passes-posted": changed(Small, (Parking, ("mine | holds[TlpClass.P.value]", "mine"))),
    "leaves-before-posted": changed(Small, (Departure, ("~since[-1]", "C(1)"))),
    "interleaves": changed(Small, (Departure, ("free.eq(~self.passing)", "free.eq(1)"))),
    "overfull": changed(Small, (Parking, ("& (mine | some)", "& 0"))),
    "too-many": changed(Roomy, (Parking, (
        "(ends.tail.packet == ends.head.packet) & mine", "C(0)"))),
}
#: Mutants of two rows: they write to the same places; of each row is known what the other one has.
ROW_MUTANTS = {
    "one-memory": changed(Rows, *((part, ("beats.addr.eq(Cat(place, row))",
                                          "beats.addr.eq(Cat(place, C(0, 1)))"))
                                  for part in (Parking, Departure))),
    "other-row": changed(Rows, (Parking, ("bit_select(row, 1)", "bit_select(~row, 1)"))),
}


class Passes(wiring.Component):
    """While no non-posted TLP may leave, others pass: from when they may, one of their beats leaves
    or one more comes within :attr:`LIMIT` cycles, as long as there are any. They are woken when
    they may, and any number of times beside.

    Of non-posted TLPs come no more than their queue has room for, as those who send them see to.
    """

    LIMIT = 18

    valid: In(1)
    last: In(1)
    cls: In(2)
    sure: In(1)
    ok: In(1)
    flows: In(1)
    wakes: In(1)

    def __init__(self, design=Small):
        super().__init__()
        self.dut = design()

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        i, o = dut.i, dut.o
        inside, kind, flow, waits = Signal(), Signal(2), Signal(), Signal()
        before = Signal.like(Cat(self.last, self.cls))
        free, may = Signal(), Signal()
        m.d.sync += [flow.eq(free), dut.ok.eq(may), waits.eq(i.valid & ~i.ready),
                     before.eq(Cat(self.last, self.cls))]
        m.d.comb += [
            free.eq(flow | self.flows),
            i.valid.eq(self.valid), i.payload.first.eq(~inside), i.payload.last.eq(self.last),
            i.payload.dwords.eq(1), Value.cast(i.payload.meta.cls).eq(self.cls),
            # A wake may come a cycle before what it tells of.
            may.eq((self.ok | flow) & (dut.checked.cls != NP)),
            dut.sure.eq((self.ok | flow) & self.sure & (i.payload.meta.cls != NP)),
            dut.wake.eq(self.wakes | free & ~flow), o.ready.eq(1),
            Assume(~ResetSignal()), Assume(self.cls < 3), Assume(~inside | self.last),
            Assume(~inside | (self.cls == kind)),
            Assume(~waits | self.valid & (before == Cat(self.last, self.cls))),
        ]
        comes, leaves = Signal(), Signal()
        requests, others = Signal(2), Signal(4)
        is_request = self.cls == NP.value
        m.d.comb += [
            comes.eq(i.valid & i.ready), leaves.eq(o.valid & o.ready),
            Assume(~(self.valid & is_request) | self.last & (requests < 2)),
        ]
        with m.If(comes):
            m.d.sync += [inside.eq(~self.last), kind.eq(self.cls)]
        m.d.sync += [requests.eq(requests + (comes & is_request)),
                     others.eq(others + (comes & ~is_request & self.last)
                               - (leaves & o.payload.last))]
        m.d.comb += Assert(~leaves | (o.payload.meta.cls != NP))
        age = Signal(range(self.LIMIT + 2))
        with m.If(~flow | leaves | comes | ~(i.valid | (others != 0)) | inside & ~i.valid):
            m.d.sync += age.eq(0)
        with m.Elif(age <= self.LIMIT):
            m.d.sync += age.eq(age + 1)
        m.d.comb += Assert(age <= self.LIMIT)
        return m


#: Mutants: the same class is asked about again; what may not leave waits where it comes in; one
#: that was woken while it was asked about sleeps on.
PASSING_MUTANTS = {
    "unfair": changed(Small, (QueueTurns, (
        "round_robin(mine, cls)", "Mux(mine[0], 0, Mux(mine[1], 1, 2))"))),
    "aligned": changed(Small, (Parking, ("i.ready.eq(~full)", "i.ready.eq(0)"))),
    "sleeps-on": changed(Small, (QueueFlags, (
        "(asleep[n] | left[row] & refused) & ~woken[row]",
        "asleep[n] & ~woken[row] | left[row] & refused"))),
}


#: What is granted of each class in the next contract, and bytes of a beat there.
HEADERS, UNITS, BYTES = 2, 8, 64


class Pool(ClassQueues):
    """Queues that drop what finds no room, as large as what is granted takes; empty at first."""

    PACKETS, STAMP_BITS, WIDE_STAMP_BITS, SWEEPS = HEADERS, 4, 4, False
    BEATS = beats_for(8 * BYTES, HEADERS, UNITS)

    def __init__(self):
        super().__init__(8 * BYTES, rows=1, space=Space(self.BEATS), overflow="drop")


class HasRoom(wiring.Component):
    """Nothing is dropped, and nothing waits for room, if what came and has not left is never more
    than was granted.

    TLPs have as many beats as their data may take, with all prefixes and a digest, or fewer; they
    come, pass, wait and leave at any time.
    """

    valid: In(1)
    last: In(1)
    cls: In(2)
    units: In(range(UNITS + 1))
    sure: In(1)
    ok: In(1)
    wake: In(1)
    ready: In(1)

    def __init__(self, design=Pool):
        super().__init__()
        self.dut = design()

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        i, o = dut.i, dut.o
        inside, place, waits = Signal(), Signal(4), Signal()
        now = Signal(len(Cat(self.cls, self.units)))
        before, most = Signal.like(now), Signal(4)
        ended = Signal()
        m.d.comb += [
            now.eq(Cat(self.cls, self.units)),
            most.eq((40 + 16 * self.units + BYTES - 1) // BYTES),
            i.valid.eq(self.valid), i.payload.first.eq(~inside), i.payload.last.eq(self.last),
            i.payload.dwords.eq(BYTES // 4), Value.cast(i.payload.meta.cls).eq(self.cls),
            i.payload.meta.units.eq(self.units),
            dut.sure.eq(self.sure), dut.ok.eq(self.ok), dut.wake.eq(self.wake),
            o.ready.eq(self.ready),
            Assume(~ResetSignal()), Assume(self.cls < 3), Assume(self.units <= UNITS),
            Assume(~(inside | waits) | (now == before)),
            Assume(~waits | self.valid & (self.last == ended)),
            Assume(~self.valid | self.last | (place + 1 < most)),
        ]
        m.d.sync += [waits.eq(i.valid & ~i.ready), ended.eq(self.last)]
        with m.If(~inside | i.valid):
            m.d.sync += before.eq(now)
        with m.If(i.valid & i.ready):
            m.d.sync += [inside.eq(~self.last), place.eq(Mux(self.last, 0, place + 1))]
        for n in range(3):
            headers, units = Signal(3, name=f"headers{n}"), Signal(5, name=f"units{n}")
            takes = i.valid & ~inside & ~waits & (self.cls == n)
            gives = (o.valid & o.ready & o.payload.last & (Value.cast(o.payload.meta.cls) == n))
            # A TLP that goes straight through may leave in the cycle in which it comes.
            m.d.comb += Assume(~takes | (headers < HEADERS) & (units + self.units <= UNITS))
            m.d.sync += [
                headers.eq(headers + takes - gives),
                units.eq(units + Mux(takes, self.units, 0)
                         - Mux(gives, o.payload.meta.units, 0)),
            ]
        m.d.comb += Assert(~dut.stat_overflow)
        parked, full = Signal(), Signal(2)
        m.d.comb += parked.eq(dut.stat_parked)
        m.d.sync += full.eq(full + parked)
        self.cover(m, parked & (full == 3))
        return m

    def cover(self, m, event):
        pass


class Fills(HasRoom):
    """Four TLPs can wait."""

    def cover(self, m, event):
        m.d.comb += Cover(event)


class Cramped(Pool):
    """Mutant: a queue with less than it takes for what is granted."""

    BEATS = Pool.BEATS - 2


#: Mutant: a queue that can note fewer TLPs than are granted.
Few = changed(Pool, (Parking, ("(ends.tail.packet == ends.head.packet) & mine", "mine")))


class OneAtATime(wiring.Component):
    """Each TLP that leaves was named once as one that takes credits, with the last beat at the
    latest, in the order in which they leave, while there was room for it; nothing else is.

    TLPs come at any time; room comes at any time, and goes in the cycle after that in which it was
    taken.
    """

    valid: In(1)
    last: In(1)
    cls: In(2)
    units: In(1)
    more: In(1)
    sure: In(1)
    wake: In(1)
    ready: In(1)

    def __init__(self, design=Small):
        super().__init__()
        self.dut = design()

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        i, o = dut.i, dut.o
        inside, waits, room, place = Signal(), Signal(), Signal(2), Signal(range(dut.LONGEST))
        now = Cat(self.last, self.cls, self.units)
        kind = Signal.like(now[1:])
        before = Signal.like(now)
        m.d.sync += [
            waits.eq(i.valid & ~i.ready), before.eq(now), dut.ok.eq(room != 0),
            room.eq(room + (self.more & ~room.all()) - dut.consumed),
        ]
        m.d.comb += [
            i.valid.eq(self.valid), i.payload.first.eq(~inside), i.payload.last.eq(self.last),
            i.payload.dwords.eq(1), Value.cast(i.payload.meta.cls).eq(self.cls),
            i.payload.meta.units.eq(self.units),
            dut.sure.eq(self.sure & (room != 0)), dut.wake.eq(self.wake),
            o.ready.eq(self.ready),
            Assume(~ResetSignal()), Assume(self.cls < 3),
            Assume((place != dut.LONGEST - 1) | self.last),
            Assume(~inside | (now[1:] == kind)),
            Assume(~waits | self.valid & (before == now)),
        ]
        with m.If(i.valid & i.ready):
            m.d.sync += [inside.eq(~self.last), kind.eq(now[1:]),
                         place.eq(Mux(self.last, 0, place + 1))]

        # TLPs that have paid and not left, oldest first.
        paid, payers, ends = Signal(2), [
            Signal(len(dut.checked.as_value()), name=f"payer{n}") for n in range(2)], Signal()
        m.d.comb += [
            ends.eq(o.valid & o.ready & o.payload.last),
            Assert(~dut.consumed | (room != 0)),
            Assert(~dut.consumed | (paid < 2)),
            Assert(~ends | ((paid != 0) | dut.consumed)
                   & (o.payload.meta.as_value() == Mux(paid != 0, payers[0], dut.checked))),
        ]
        left = paid - (ends & (paid != 0))
        m.d.sync += paid.eq(left + (dut.consumed & ~(ends & (paid == 0))))
        with m.If(ends):
            m.d.sync += payers[0].eq(payers[1])
        with m.If(dut.consumed):
            with m.If(left == 0):
                m.d.sync += payers[0].eq(dut.checked)
            with m.Else():
                m.d.sync += payers[1].eq(dut.checked)
        self.cover(m, paid == 2)
        return m

    def cover(self, m, event):
        pass


class Ahead(OneAtATime):
    """One has paid while another leaves."""

    def cover(self, m, event):
        m.d.comb += Cover(event & self.dut.o.valid)


#: Mutants: room is asked for before a TLP that goes straight through has ended, or others may begin
#: while one from a queue leaves; a TLP that may not leave pays; one follows that may not; one has
#: the size of the next.
ROOM_MUTANTS = {
    "early": changed(Small, (Departure, ("free.eq(~self.passing)",
                                         "free.eq(~self.passing | o.ready)"))),
    "open": changed(Small, (Parking, ("self.sure & ~self.hold", "self.sure"))),
    "pays-early": changed(Small, (Departure, ("self.claim.eq(fits)", "self.claim.eq(1)"))),
    "follows-unasked": changed(Long, (Departure, ("decides & fits | follows",
                                                  "decides | follows"))),
    "pays-for-nothing": changed(Long, (Departure, ("decides.eq(checks & ~ends_now)",
                                                   "decides.eq(checks)"))),
    "size-of-the-next": changed(Long, (Departure, ("o.payload.meta.units.eq(units)",
                                                   "o.payload.meta.units.eq(note.units)"))),
}


#: Depth of the quick proofs of order and room, and of their long ones. Their mutants are found, and
#: their covers reached, within it, but for one that asks about two TLPs before the fault.
DEPTH, LONG_DEPTH = 11, 15
#: Depth of those in which a TLP follows another at once.
AHEAD_DEPTH = 17


@pytest.mark.parametrize("depth", [DEPTH, pytest.param(LONG_DEPTH, marks=pytest.mark.long)])
def test_order_and_content_are_kept(depth):
    prove(Ordered(), depth=depth, flat=True, claims=depth == DEPTH)


@pytest.mark.long
def test_order_and_content_are_kept_where_one_follows_another():
    prove(Ordered(Long), depth=AHEAD_DEPTH, flat=True)


@pytest.mark.parametrize("depth", [DEPTH, pytest.param(12, marks=pytest.mark.long)])
def test_order_and_content_are_kept_in_each_row(depth):
    prove(Ordered(Rows), depth=depth, flat=True)


def test_a_tlp_is_passed_and_leaves():
    prove(Reached(), depth=DEPTH, mode="cover", flat=True)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.long] * (name == "too-many")) for name in MUTANTS])
def test_order_catches(name):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(Ordered(MUTANTS[name]), flat=True,
              depth=LONG_DEPTH if name == "leaves-before-posted" else DEPTH)


@pytest.mark.parametrize("name", ROW_MUTANTS)
def test_order_in_each_row_catches(name):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(Ordered(ROW_MUTANTS[name]), depth=DEPTH, flat=True)


@pytest.mark.parametrize("depth", [27, pytest.param(32, marks=pytest.mark.long)])
def test_posted_tlps_and_completions_pass(depth):
    prove(Passes(), depth=depth, flat=True)


@pytest.mark.parametrize("name", PASSING_MUTANTS)
def test_passing_catches(name):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(Passes(PASSING_MUTANTS[name]), depth=27, flat=True)


@pytest.mark.parametrize("design, depth", [(Small, DEPTH), (Long, AHEAD_DEPTH)])
def test_a_tlp_begins_only_with_room(design, depth):
    prove(OneAtATime(design), depth=depth, flat=True)


def test_one_pays_while_another_leaves():
    prove(Ahead(Long), depth=AHEAD_DEPTH, mode="cover", flat=True)


@pytest.mark.parametrize("name", ROOM_MUTANTS)
def test_beginning_with_room_catches(name):
    mutant = ROOM_MUTANTS[name]
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(OneAtATime(mutant), depth=AHEAD_DEPTH if issubclass(mutant, Long) else DEPTH,
              flat=True)


@pytest.mark.parametrize("depth", [DEPTH, pytest.param(12, marks=pytest.mark.long)])
def test_what_was_granted_has_room(depth):
    prove(HasRoom(), depth=depth, flat=True)


def test_the_pool_can_fill():
    prove(Fills(), depth=DEPTH, mode="cover", flat=True)


@pytest.mark.parametrize("design", [Cramped, pytest.param(Few, marks=pytest.mark.long)])
def test_room_catches(design):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(HasRoom(design), depth=DEPTH, flat=True)
