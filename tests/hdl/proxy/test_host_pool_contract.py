"""Contract of dxpu.proxy.host_pool: credits of a life begin with nothing left of an older one."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.proxy.host_pool import HostPool
from tests.support.formal import ProofFailed, prove

#: Beats of the longest TLP, of each queue, and rows.
BEATS, SPACE, ROWS = 2, 2, 2


class Space:
    """Space of the queues of a row."""

    beats, total, start = (SPACE,) * 3, 4 * SPACE, (0, SPACE, 2 * SPACE)


class Small(HostPool):
    """With few packets, and empty from the start."""

    def __init__(self):
        super().__init__(64, rows=ROWS, space=Space(), initial=((2, 32), (2, 4), (2, 32)))
        queues = self._queues
        queues.PACKETS, queues.STAMP_BITS, queues.SWEEPS = 2, 4, False


class Lives(wiring.Component):
    """TLPs of both rows come at any time, links come and go, and the switch has room or not.

    A TLP that came before its row's credits begin never leaves while they last, so none is given
    back that was never granted.

    One of the TLPs that come outside of credits is watched: bit 63 of its first beat.
    """

    valid: In(1)
    last: In(1)
    row: In(1)
    data: In(64)
    active: In(ROWS)
    room: In(1)
    np_room: In(1)
    ready: In(1)

    def __init__(self, design=Small):
        super().__init__()
        self.dut = design()

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        i, o = dut.i, dut.o
        inside, waits, watched = Signal(), Signal(), Signal()
        now = Cat(self.last, self.row, self.data)
        before, row = Signal.like(now), Signal()
        outside = ~dut.receiving.bit_select(self.row, 1)
        mark = self.data[63] & ~inside
        m.d.comb += [
            i.valid.eq(self.valid), i.payload.first.eq(~inside), i.payload.last.eq(self.last),
            i.payload.dwords.eq(2), i.payload.data.eq(self.data), i.payload.meta.row.eq(self.row),
            dut.link_active.eq(self.active), dut.room.eq(self.room), dut.np_room.eq(self.np_room),
            o.ready.eq(self.ready),
            Assume(~ResetSignal()),
            Assume(~waits | self.valid & (now == before)),
            Assume(~inside | (self.row == row) & self.last),
            # A prefix would be a beat more in the classifier, not in the queues.
            Assume(inside | (self.data[5:8] != 4)),
        ]
        takes = i.valid & i.ready
        m.d.sync += [waits.eq(i.valid & ~i.ready), before.eq(now)]
        with m.If(takes):
            m.d.comb += Assume(~mark | outside & ~watched)
            m.d.sync += [inside.eq(~self.last), row.eq(self.row), watched.eq(watched | mark)]

        first, leaving = Signal(init=1), Signal()
        marked = Mux(first, o.payload.data[63], leaving)
        gives = o.valid & o.ready
        with m.If(gives):
            m.d.sync += [first.eq(o.payload.last), leaving.eq(marked)]
            m.d.comb += Assert(o.payload.first == first)
        own = dut.receiving.bit_select(o.payload.meta.row, 1)
        m.d.comb += Assert(~(gives & o.payload.last & marked & own))

        self.cover(m, gives & o.payload.last & marked)
        return m

    def cover(self, m, left):
        pass


class Reached(Lives):
    """The watched TLP leaves. One of row 0 is dropped, its credits end, and begin again."""

    def cover(self, m, left):
        gone, dropped, ended = Signal(), Signal(), Signal()
        receives = self.dut.receiving[0]
        m.d.sync += [gone.eq(gone | left), dropped.eq(dropped | self.dut.stat_overflow),
                     ended.eq(ended | dropped & ~receives)]
        m.d.comb += [Assume(self.row == 0), Cover(gone), Cover(ended & receives)]


class Hasty(Small):
    """Mutant: only what came completely in the last cycles is known."""

    def _next_stored(self, stored, enters, leaves, dropped):
        return enters


class Forgets(Small):
    """Mutant: what was dropped is thought to be inside."""

    def _next_stored(self, stored, enters, leaves, dropped):
        return stored + enters - leaves


#: Of all proofs, mutants and covers.
DEPTH = 9


def test_credits_begin_with_nothing_left():
    prove(Lives(), depth=DEPTH, flat=True)


def test_lives_are_reached():
    prove(Reached(), depth=DEPTH, mode="cover", flat=True)


def test_lives_catch_one_that_is_left():
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(Lives(Hasty), depth=DEPTH, flat=True)


def test_lives_catch_one_that_is_thought_to_be_left():
    with pytest.raises(ProofFailed, match="nreached"):
        prove(Reached(Forgets), depth=DEPTH, mode="cover", flat=True)
