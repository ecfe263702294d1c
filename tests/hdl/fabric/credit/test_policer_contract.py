"""Contracts of dxpu.fabric.credit.policer, and of what stands behind it: a TLP is taken, or
dropped and
counted, within some cycles, whatever the queues hold; what was granted is never dropped."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.attach.shared_egress import SharedEgress
from dxpu.fabric.credit.policer import CreditPolicer
from dxpu.proxy.host_pool import HostPool
from dxpu.rows import ClassMeta
from dxpu.stream import connect
from dxpu.tlp.types import TlpClass
from tests.support.formal import ProofFailed, prove

#: Headers and units that a row grants of each class; units of the largest TLP.
HEADERS, UNITS, LARGEST = 2, 3, 2
INITIAL = ((HEADERS, UNITS),) * 3


class Policer(CreditPolicer):
    def __init__(self, width=32, rows=2):
        super().__init__(width, rows=rows, initial=INITIAL, largest=LARGEST)


class Egress(SharedEgress):
    """Of one slot; empty from the start."""

    def __init__(self, beats, overflow="drop"):
        super().__init__(32, slots=1, space=(4 * beats,) * 3, packets=2, overflow=overflow)
        self._clearing = Signal()
        self.stored = self._writer.stored_strobe


class Offers(wiring.Component):
    """TLPs of any row, class and size into ``dut.i``, that keep to the rules of streams."""

    valid: In(1)
    last: In(1)
    discard: In(1)
    meta: In(ClassMeta)

    #: Rows, and bits of a number of cycles.
    ROWS, AGE_BITS = 2, 5

    def offer(self, m, i, taken):
        """Returns the strobe "a TLP begins to be offered", and its index of a beat."""
        inside, waits = Signal(), Signal()
        now = Cat(self.last, self.discard, self.meta)
        before, meta = Signal.like(now), Signal(ClassMeta)
        m.d.comb += [
            i.valid.eq(self.valid), i.payload.first.eq(~inside), i.payload.last.eq(self.last),
            i.payload.discard.eq(self.discard & self.last), i.payload.dwords.eq(1),
            i.payload.meta.eq(self.meta),
            Assume(~ResetSignal()), Assume(self.meta.row < self.ROWS),
            Assume(Value.cast(self.meta.cls) < 3), Assume(self.meta.units <= LARGEST + 1),
            Assume(~waits | self.valid & (now == before)),
            Assume(~inside | (self.meta == meta)),
        ]
        m.d.sync += [waits.eq(self.valid & ~taken), before.eq(now)]
        with m.If(self.valid & taken):
            m.d.sync += [inside.eq(~self.last), meta.eq(self.meta)]
        return self.valid & ~inside & ~waits

    def within(self, m, waits, limit):
        """Assert that ``waits`` is never high for more than so many cycles in a row."""
        age = Signal(self.AGE_BITS)
        m.d.sync += age.eq(Mux(waits, age + 1, 0))
        m.d.comb += Assert(~waits | (age < limit))
        return age


class Accounts(Offers):
    """What passes never exceeds what was granted, what does not exceed it passes, and all credits
    come back: of a row and class that are watched, while all others do anything."""

    ready: In(1)
    open: In(2)
    ahead: In(ClassMeta)  # anything
    departed: In(ClassMeta)
    leaves: In(1)

    def __init__(self, design=Policer):
        super().__init__()
        self.dut = design()

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        self.offer(m, dut.i, dut.i.ready)
        i, meta, row, cls = dut.i, dut.i.payload.meta, 1, TlpClass.CPL.value
        mine = (meta.row == row) & (Value.cast(meta.cls) == cls)
        out = self.leaves & (self.departed.row == row) & (Value.cast(self.departed.cls) == cls)
        back = dut.released_strobe & (dut.released.row == row) & (
            Value.cast(dut.released.cls) == cls)
        m.d.comb += [
            dut.open.eq(self.open), dut.o.ready.eq(self.ready), dut.ahead.eq(self.ahead),
            dut.departed.eq(self.departed), dut.departed_strobe.eq(self.leaves),
            Assume(self.departed.row < 2), Assume(Value.cast(self.departed.cls) < 3),
        ]
        # Of this life: paid for and not released; passed and not left. A life begins with nothing.
        is_open = self.open[row]
        headers, units = Signal(4), Signal(6)
        inside, inside_units = Signal(4), Signal(6)
        first, begun, counted = Signal(init=1), Signal(), Signal()
        offered = i.valid & first
        taken, ends = i.valid & i.ready, i.valid & i.ready & i.payload.last
        m.d.sync += first.eq(Mux(taken, i.payload.last, first))
        fits = (headers < HEADERS) & (units + meta.units <= UNITS)
        refused = dut.overflow[row]
        m.d.comb += [
            Assert(headers <= HEADERS), Assert(units <= UNITS),
            Assert(inside <= headers), Assert(inside_units <= units),
            Assert(~(offered & mine & is_open & refused & fits)),
            Assert(~refused | (meta.row == row)),
            Assume(~out | (inside != 0) & (self.departed.units <= inside_units)
                   & ((inside != 1) | (self.departed.units == inside_units))),
            Assume(~out | is_open),
        ]
        # One that is offered and not refused pays at once, whenever its first beat is taken.
        pays = offered & mine & is_open & fits & ~begun & (dut.o.valid | dut.stat_large)
        with m.If(~is_open):
            m.d.sync += [headers.eq(0), units.eq(0), inside.eq(0), inside_units.eq(0)]
            # What is under way when a life ends, or begins, is not of it.
            m.d.sync += [begun.eq(0), counted.eq(0)]
            m.d.comb += Assume((meta.row != row) | first & ~i.valid)
        with m.Else():
            m.d.comb += Assert(~(offered & mine & ~fits & ~begun & dut.o.valid))
            m.d.sync += [
                headers.eq(headers + pays - back),
                units.eq(units + Mux(pays, meta.units, 0) - Mux(back, dut.released.units, 0)),
            ]
            with m.If(pays):
                m.d.sync += [begun.eq(1), counted.eq(1)]
            with m.If(ends):
                m.d.sync += [begun.eq(0), counted.eq(0)]
            passed = ends & mine & (pays | counted) & ~i.payload.discard & dut.o.valid
            m.d.sync += [
                inside.eq(inside + passed - out),
                inside_units.eq(inside_units + Mux(passed, meta.units, 0)
                                - Mux(out, self.departed.units, 0)),
            ]
        # With nothing under way or inside all is free again, a cycle after the last has left.
        idle = Signal(2)
        m.d.sync += idle.eq(Mux(is_open & ~i.valid & first & (inside == 0) & ~self.leaves,
                                Mux(idle == 3, 3, idle + 1), 0))
        m.d.comb += Assert((idle != 3) | (headers == 0) & (units == 0))
        self.cover(m, dut, headers, idle)
        return m

    def cover(self, m, *_):
        pass


class Reached(Accounts):
    """All is granted and used; one is refused; a large one passes for nothing; all is free."""

    def cover(self, m, dut, headers, idle):
        full, refused, large = Signal(), Signal(), Signal()
        m.d.sync += [full.eq(full | (headers == HEADERS)), refused.eq(refused | dut.overflow[1]),
                     large.eq(large | dut.stat_large)]
        m.d.comb += Cover(full & refused & (idle == 3))
        m.d.comb += Cover(large & (idle == 3))


class Taken(Offers):
    """Into a policer and the queues of a box, whose streams may stand still for ever: each beat is
    taken within :attr:`LIMIT` cycles, and nothing that was granted finds no room.

    A TLP has a beat, and as many more as its units need at most.
    """

    LIMIT = 8
    ready: In(3)
    ROWS = 1

    def __init__(self, policer=Policer, overflow="drop"):
        super().__init__()
        self.policer, self.egress = policer(rows=1), Egress(8, overflow)

    def elaborate(self, platform):
        m = Module()
        m.submodules.policer, m.submodules.egress = policer, egress = self.policer, self.egress
        connect(m, policer.o, egress.i)
        self.offer(m, policer.i, policer.i.ready)
        index = Signal(4)
        with m.If(policer.i.valid & policer.i.ready):
            m.d.sync += index.eq(Mux(self.last, 0, index + 1))
        out = egress.slot[0]
        m.d.comb += [
            # Two beats for each unit here, so that three units and two headers fit into eight.
            Assume(self.last | (index < 2 * self.meta.units)),
            Assume(index <= 2 * self.meta.units), Assume(self.last | (index < 6)),
            policer.open.eq(1), policer.departed.eq(egress.released),
            policer.departed_strobe.eq(egress.released_strobe),
            *(getattr(out, name).ready.eq(ready)
              for name, ready in zip(("p", "np", "cpl"), self.ready, strict=True)),
            Assert(~egress.overflow.any()),
        ]
        self.within(m, policer.i.valid & ~policer.i.ready, self.LIMIT)
        return m


class NeverWaits(Offers):
    """Into the queues of a box, without anybody who looks at credits: each beat is taken at once,
    whatever they hold, and each TLP is stored, or counted as dropped, or was discarded."""

    ready: In(3)
    ROWS = 1

    def __init__(self, overflow="drop"):
        super().__init__()
        self.dut = Egress(2, overflow)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        self.offer(m, dut.i, dut.i.ready)
        ends = dut.i.valid & dut.i.ready & self.last
        came, bad, inside, dropped = (Signal(4, name=n) for n in ("came", "bad", "in", "dropped"))
        m.d.sync += [
            came.eq(came + ends), bad.eq(bad + (ends & self.discard)),
            inside.eq(inside + dut.stored), dropped.eq(dropped + dut.overflow[0]),
        ]
        quiet = Signal(2)
        m.d.sync += quiet.eq(Mux(ends, 0, Mux(quiet == 3, 3, quiet + 1)))
        m.d.comb += [
            *(getattr(dut.slot[0], name).ready.eq(ready)
              for name, ready in zip(("p", "np", "cpl"), self.ready, strict=True)),
            # One that is dropped may have ended with `discard`, too.
            Assert((quiet != 3) | (came - dropped - inside <= bad) & (dropped + inside <= came)),
            Assert(~dut.i.valid | dut.i.ready),
        ]
        return m


class Space:
    """Space of the queues of a row of a host, in beats."""

    beats, total, start = (2,) * 3, 8, (0, 2, 4)


class Pool(HostPool):
    """Small, and empty from the start."""

    def __init__(self, overflow=True):
        super().__init__(64, rows=1, space=Space(), initial=((2, 32), (2, 4), (2, 32)))
        queues = self._queues
        queues.PACKETS, queues.STAMP_BITS, queues.SWEEPS = 2, 4, False
        queues._drops = overflow


class Waiting(Pool):
    """Mutant: what finds its queue full waits, and nobody looks at credits."""

    def __init__(self):
        super().__init__(overflow=False)


class PoolTakes(wiring.Component):
    """A host takes what boxes send, though its switch has room for nothing, for ever: each beat
    within :attr:`LIMIT` cycles. What the switch has begun to take it takes."""

    LIMIT = 9
    valid: In(1)
    last: In(1)
    data: In(64)
    active: In(1)
    room: In(1)
    np_room: In(1)

    def __init__(self, design=Pool):
        super().__init__()
        self.dut = design()

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        i, inside, waits, age = dut.i, Signal(), Signal(), Signal(5)
        now = Cat(self.last, self.data)
        before = Signal.like(now)
        m.d.comb += [
            i.valid.eq(self.valid), i.payload.first.eq(~inside), i.payload.last.eq(self.last),
            i.payload.dwords.eq(2), i.payload.data.eq(self.data),
            dut.link_active.eq(self.active), dut.room.eq(self.room), dut.np_room.eq(self.np_room),
            dut.o.ready.eq(1), Assume(~ResetSignal()),
            Assume(~waits | self.valid & (now == before)),
            Assume(~inside | self.last), Assume(inside | (self.data[5:8] != 4)),
        ]
        blocked = i.valid & ~i.ready
        m.d.sync += [waits.eq(blocked), before.eq(now), age.eq(Mux(blocked, age + 1, 0))]
        m.d.comb += Assert(~blocked | (age < self.LIMIT))
        with m.If(i.valid & i.ready):
            m.d.sync += inside.eq(~self.last)
        return m


class Generous(Policer):
    """Mutant: all is granted."""

    def elaborate(self, platform):
        self._initial = tuple((3, units) for _, units in self._initial)
        return super().elaborate(platform)


class Forgetful(Policer):
    """Mutant: credits of what was dropped do not come back."""

    def elaborate(self, platform):
        strobe, self.released_strobe = self.released_strobe, Signal()
        m = super().elaborate(platform)
        m.d.comb += strobe.eq(self.departed_strobe)
        return m


def test_credits_are_kept_to():
    prove(Accounts(), depth=11, flat=True)


def test_refusals_and_returns_are_reached():
    prove(Reached(), depth=11, mode="cover", flat=True)


@pytest.mark.parametrize("mutant", [Generous, Forgetful])
def test_credits_catch(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(Accounts(mutant), depth=11, flat=True)


def test_a_box_takes_or_drops_and_what_was_granted_has_room():
    prove(Taken(), depth=14, flat=True)


def test_taking_catches():
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(Taken(Generous), depth=14, flat=True)


def test_queues_of_a_box_never_wait():
    prove(NeverWaits(), depth=10, flat=True)


def test_waiting_is_caught():
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(NeverWaits("wait"), depth=10, flat=True)


def test_a_host_takes_or_drops():
    prove(PoolTakes(), depth=17, flat=True)


def test_a_host_that_waits_is_caught():
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(PoolTakes(Waiting), depth=17, flat=True)
