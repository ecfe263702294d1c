"""Contract of dxpu.fabric.retransmit: what is kept, what is sent again, and in which order."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.fabric.retransmit import Retransmitter
from dxpu_sim.formal import ProofFailed, prove

CELLS = 4


class KeptInOrder(wiring.Component):
    """Frames are freed in the order in which they were stored, each once, when it is acknowledged
    and not before; none is offered again that is; and they are offered in order from the oldest on.

    All sessions store and acknowledge at any time; NAKs come at any time. One of the frames, any,
    is watched.
    """

    stored: In(1)
    session: In(1)
    cell: In(range(CELLS))
    acked: In(3)
    of: In(1)
    back: In(1)
    take: In(1)
    free: In(1)
    watch: In(1)

    def __init__(self, design=Retransmitter, *, sessions=2):
        super().__init__()
        self._sessions = sessions
        self.dut = design(sessions=sessions, paths=1, cells=CELLS)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        live = Signal(CELLS)  # kept, from the frame on that begins with this cell
        stores = (self.stored & ~live.bit_select(self.cell, 1)
                  & (self.session < self._sessions))
        takes = self.take & ~stores & dut.repeat_valid
        m.d.comb += [
            dut.wait.eq(0),
            dut.stored_strobe.eq(stores), dut.stored.session.eq(self.session),
            dut.stored.cell.eq(self.cell),
            dut.repeat_take.eq(takes), dut.free.ready.eq(self.free),
        ]
        acknowledged = Signal(3)
        for n in range(self._sessions):
            mine = self.of == n
            m.d.comb += [
                dut.acked[n].eq(Mux(mine, acknowledged, 0)),
                dut.back[n].eq(mine & self.back & (acknowledged != dut.unacked[n])),
            ]
            with m.If(mine):
                m.d.comb += acknowledged.eq(
                    Mux(self.acked <= dut.unacked[n], self.acked, dut.unacked[n]))
        frees = dut.free.valid & dut.free.ready
        with m.If(stores):
            m.d.sync += live.bit_select(self.cell, 1).eq(1)
        with m.If(frees):
            m.d.comb += Assert(live.bit_select(dut.free.payload, 1))
            m.d.sync += live.bit_select(dut.free.payload, 1).eq(0)

        # The watched frame: how many of its session are before it, kept and not acknowledged.
        there, cell, session = Signal(), Signal(range(CELLS)), Signal()
        kept, waiting = Signal(4), Signal(4)
        chosen = Signal()
        held = [Signal(4, name=f"held{n}") for n in range(2)]
        owner = Signal(CELLS)
        with m.If(stores):
            m.d.sync += owner.bit_select(self.cell, 1).eq(self.session)
        freed_of = owner.bit_select(dut.free.payload, 1)
        for n in range(2):
            m.d.sync += held[n].eq(held[n] + (stores & (self.session == n))
                                   - (frees & (freed_of == n)))
        with m.If(stores & self.watch & ~chosen):
            m.d.sync += [
                chosen.eq(1), there.eq(1), cell.eq(self.cell), session.eq(self.session),
                kept.eq(Mux(self.session, held[1], held[0])
                        - (frees & (freed_of == self.session))),
                waiting.eq(Mux(self.session, dut.unacked[-1], dut.unacked[0])
                           - Mux(self.of == self.session, acknowledged, 0)),
            ]
        gone = Signal()  # it is acknowledged
        with m.If(there):
            with m.If(self.of == session):
                with m.If(acknowledged > waiting):
                    m.d.sync += gone.eq(1)
                m.d.sync += waiting.eq(Mux(acknowledged > waiting, 0, waiting - acknowledged))
            with m.If(frees & (freed_of == session)):
                with m.If(dut.free.payload == cell):
                    m.d.comb += Assert((kept == 0) & gone)
                    m.d.sync += there.eq(0)
                with m.Else():
                    m.d.comb += Assert(kept != 0)
                    m.d.sync += kept.eq(kept - 1)
            with m.If(takes & (dut.repeat.cell == cell)):
                m.d.comb += Assert(~gone & (dut.repeat.session == session))

        # What follows a frame that was sent again is what was stored after it.
        last, next_known, next_cell = Signal(range(CELLS)), Signal(), Signal(range(CELLS))
        counting = Signal()  # nothing but this frame was sent again since
        with m.If(takes & (dut.repeat.session == session)):
            m.d.sync += [counting.eq(there & (dut.repeat.cell == cell)), last.eq(dut.repeat.cell)]
            with m.If(counting & next_known & ~gone):
                # On from there, or back to the oldest.
                m.d.comb += Assert((dut.repeat.cell == next_cell) | self._oldest(m, session))
        with m.If(stores & there & (self.session == session) & ~next_known):
            m.d.sync += [next_known.eq(1), next_cell.eq(self.cell)]
        self.cover(m, counting & next_known & takes & (dut.repeat.cell == next_cell)
                   & (dut.repeat.session == session))
        return m

    def _oldest(self, m, session):
        dut = self.dut
        return dut.repeat.cell == Mux(session, dut._head[-1], dut._head[0])

    def cover(self, m, event):
        pass


class Reaches(KeptInOrder):
    """A frame and the one after it can both be sent again."""

    def cover(self, m, event):
        m.d.comb += Cover(event)


class Impatient(Retransmitter):
    """Mutant: frees one frame too many."""

    def _account(self, m, n, stored, after_head, after_cursor):
        super()._account(m, n, stored, after_head, after_cursor)
        with m.If((self.acked[n] != 0) & (self.acked[n] != self.unacked[n])):
            m.d.sync += self._due[n].eq(self._due[n] + self.acked[n] + 1 - self._freed[n])


class Stubborn(Retransmitter):
    """Mutant: goes on with what it was about to send again, acknowledged or not."""

    def _account(self, m, n, stored, after_head, after_cursor):
        super()._account(m, n, stored, after_head, after_cursor)
        with m.If(self._freed[n]):
            m.d.sync += [self._again[n].eq(self._again[n]), self._cursor[n].eq(self._cursor[n])]


@pytest.mark.parametrize("sessions, depth", [
    (1, 11), (2, 8), *(pytest.param(*x, marks=pytest.mark.long) for x in ((1, 14), (2, 11)))])
def test_kept_in_order(sessions, depth):
    prove(KeptInOrder(sessions=sessions), depth=depth)


def test_two_in_a_row_are_reached():
    prove(Reaches(), depth=11, mode="cover")


@pytest.mark.parametrize("mutant", [Impatient, Stubborn])
def test_kept_in_order_catches(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(KeptInOrder(mutant), depth=12)
