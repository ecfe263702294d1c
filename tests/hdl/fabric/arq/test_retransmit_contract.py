"""Contract of dxpu.fabric.arq.retransmit: what is kept, what is sent again, and in which order."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.fabric.arq.retransmit import Act, Retransmitter
from tests.support.formal import ProofFailed, prove

CELLS = 4


class KeptInOrder(wiring.Component):
    """Frames are freed in the order in which they were stored, each once, when it is acknowledged
    and not before; none is offered again that is, and each once after a NAK at most; and they are
    offered in order from the oldest on. What a look-up says is not acknowledged is not.

    All sessions store and acknowledge at any time; NAKs come at any time; sessions are opened at
    any time, by which all of their frames count as acknowledged. One of the frames, any, is
    watched.
    """

    stored: In(1)
    session: In(1)
    cell: In(range(CELLS))
    acked: In(3)
    of: In(1)
    back: In(1)
    request: In(1)
    open: In(1)
    opened: In(1)
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
        many = range(self._sessions)
        self._begun = begun = Signal()  # the cycles after a reset are over
        since = Signal(range(self._sessions + 1))
        m.d.comb += begun.eq(since == self._sessions)
        m.d.sync += since.eq(since + ~begun)
        ack, void = self._acknowledges(m), Signal()
        opens, opened = self._open(m)

        # What may be stored: at most one in four cycles, and in a cell that is not in use.
        m.d.comb += Assume(~ResetSignal())
        live, owner, pause = Signal(CELLS), Signal(CELLS), Signal(range(4))
        settling = Signal(range(6))  # until what was stored last is known
        stores, used = Signal(), Signal(range(CELLS))  # cells are alike: a new one is the next
        m.d.comb += [
            stores.eq(self.stored & begun & ~live.bit_select(self.cell, 1) & (pause == 0)
                      & (self.cell <= used)
                      & (self.session < self._sessions)
                      & ~(void & (ack.session == self.session))),
            dut.wait.eq(0), dut.sending.eq(self.session),
            dut.stored_strobe.eq(stores), dut.stored.session.eq(self.session),
            dut.stored.cell.eq(self.cell), dut.stored.epoch.eq(dut.about.epoch),
            dut.free.ready.eq(self.free),
        ]
        takes, frees = Signal(), dut.free.valid & dut.free.ready
        m.d.comb += [takes.eq(self.take & ~stores & dut.repeat_valid), dut.repeat_take.eq(takes)]
        with m.If(stores & (self.cell == used) & (used != CELLS - 1)):
            m.d.sync += used.eq(used + 1)
        with m.If(stores):
            m.d.sync += [pause.eq(3), settling.eq(5), live.bit_select(self.cell, 1).eq(1),
                         owner.bit_select(self.cell, 1).eq(self.session)]
        with m.Elif(pause != 0):
            m.d.sync += pause.eq(pause - 1)
        with m.If((settling != 0) & ~stores):
            m.d.sync += settling.eq(settling - 1)
        with m.If(frees):
            m.d.comb += Assert(live.bit_select(dut.free.payload, 1))
            m.d.sync += live.bit_select(dut.free.payload, 1).eq(0)
        freed_of = owner.bit_select(dut.free.payload, 1)

        # Frames of each session: not freed, and not acknowledged. An acknowledgement that waits
        # while its session is opened is void.
        held, left = ([Signal(4, name=f"{name}{n}") for n in many] for name in ("held", "left"))
        acks = Signal()
        m.d.comb += acks.eq(dut.acked.valid & dut.acked.ready & ~void)
        with m.If(dut.acked.ready):
            m.d.sync += void.eq(0)
        with m.If(opens & dut.acked.valid & (ack.session == opened)):
            m.d.sync += void.eq(1)
        for n in many:
            m.d.sync += [
                held[n].eq(held[n] + (stores & (self.session == n)) - (frees & (freed_of == n))),
                left[n].eq(Mux(opens & (opened == n), 0,
                               left[n] + (stores & (self.session == n))
                               - Mux(acks & (ack.session == n), ack.count, 0))),
            ]
        with m.If(begun & (settling == 0) & (self.of < self._sessions)):
            m.d.comb += Assert(dut.unacked == Array(left)[self.of])

        # The watched frame: how many of its session are before it, kept and not acknowledged.
        there, cell, session = Signal(), Signal(range(CELLS)), Signal()
        kept, waiting = Signal(4), Signal(4)
        chosen, gone = Signal(), Signal()
        ends = opens & (opened == session)
        progress = acks & (ack.session == session)
        heeds = self._heeds(m, acks & ack.back, ack, opens, opened)
        with m.If(stores & self.watch & ~chosen):
            before, missing = Array(held)[self.session], Array(left)[self.session]
            m.d.sync += [
                chosen.eq(1), there.eq(1), cell.eq(self.cell), session.eq(self.session),
                kept.eq(before - (frees & (freed_of == self.session))),
                waiting.eq(missing - Mux(acks & (ack.session == self.session), ack.count, 0)),
                gone.eq(opens & (opened == self.session)),
            ]
        with m.Elif(there):
            with m.If(progress):
                m.d.sync += [gone.eq(gone | (ack.count > waiting)),
                             waiting.eq(Mux(ack.count > waiting, 0, waiting - ack.count))]
            with m.If(ends):
                m.d.sync += gone.eq(1)
            with m.If(frees & (freed_of == session)):
                with m.If(dut.free.payload == cell):
                    m.d.comb += Assert((kept == 0) & gone)
                    m.d.sync += there.eq(0)
                with m.Else():
                    m.d.comb += Assert(kept != 0)
                    m.d.sync += kept.eq(kept - 1)

        # What follows a frame that was sent again is what was stored after it; after a NAK it is
        # the oldest.
        again = takes & (dut.repeat.session == session)
        this = Signal()
        m.d.comb += this.eq(there & takes & (dut.repeat.cell == cell))
        next_known, next_cell = Signal(), Signal(range(CELLS))
        last, sent, first = Signal(), Signal(), Signal()
        with m.If(this):
            m.d.comb += Assert(~gone & ~sent & (dut.repeat.session == session))
            with m.If(first):
                m.d.comb += Assert(waiting == 0)
        with m.If(again):
            m.d.sync += [last.eq(this), first.eq(0), sent.eq(sent | this)]
            with m.If(last & ~gone):
                m.d.comb += Assert(next_known & (dut.repeat.cell == next_cell))
        with m.If(progress & heeds | ends):
            m.d.sync += [last.eq(0), sent.eq(0), first.eq(~ends)]
        with m.If(stores & there & (self.session == session) & ~next_known):
            m.d.sync += [next_known.eq(1), next_cell.eq(self.cell)]
        self.cover(m, last & next_known & again & (dut.repeat.cell == next_cell),
                   there & frees & (dut.free.payload == cell) & next_known)
        return m

    def _heeds(self, m, nak, ack, opens, opened):
        """The ``nak`` that is taken counts: it is no copy of the last one of its session."""
        heeds = Signal()
        m.d.comb += heeds.eq(nak)
        for n in range(self._sessions):
            known, request, mine = Signal(), Signal(), ack.session == n
            with m.If(mine & known & (request == ack.request)):
                m.d.comb += heeds.eq(0)
            with m.If(mine & nak):
                m.d.sync += [known.eq(1), request.eq(ack.request)]
            with m.If(opens & (opened == n)):
                m.d.sync += known.eq(0)
        return heeds

    def _acknowledges(self, m):
        """Acknowledgements, each until it is taken; returns what is offered."""
        dut, wish = self.dut, self.dut.acked.payload
        waits, kept = Signal(), Signal.like(wish)
        m.d.comb += dut.receiving.eq(self.of)
        with m.If(waits):
            m.d.comb += [wish.eq(kept), dut.acked.valid.eq(1)]
        with m.Elif(self._begun & (self.of < self._sessions)):
            m.d.comb += [
                wish.session.eq(self.of),
                wish.count.eq(Mux(self.acked <= dut.unacked, self.acked, dut.unacked)),
                wish.back.eq(self.back & (wish.count != dut.unacked)),
                wish.request.eq(self.request),
                dut.acked.valid.eq((wish.count != 0) | wish.back),
            ]
        m.d.sync += [waits.eq(dut.acked.valid & ~dut.acked.ready), kept.eq(wish)]
        return wish

    def _open(self, m):
        """Opens a session now and then; returns whether, and which one."""
        dut = self.dut
        waits, kept = Signal(), Signal(range(self._sessions))
        m.d.comb += [
            dut.open.valid.eq(waits | self.open & (self.opened < self._sessions)),
            dut.open.payload.eq(Mux(waits, kept, self.opened)),
        ]
        m.d.sync += [waits.eq(dut.open.valid & ~dut.open.ready), kept.eq(dut.open.payload)]
        return dut.open.valid & dut.open.ready, dut.open.payload

    def cover(self, m, two_in_a_row, freed):
        pass


class Reaches(KeptInOrder):
    """A frame and the one after it can both be sent again."""

    def cover(self, m, two_in_a_row, freed):
        m.d.comb += Cover(two_in_a_row)


class Frees(KeptInOrder):
    """A frame that another follows can be freed."""

    def cover(self, m, two_in_a_row, freed):
        m.d.comb += Cover(freed)


class Impatient(Retransmitter):
    """Mutant: frees one frame too many."""

    def _goes_on(self, m, now, then):
        super()._goes_on(m, now, then)
        more = now.due + self.acked.payload.count + 1
        with m.If(self._progress & (more <= now.held)):
            m.d.comb += self._then.due.eq(more)


class Stubborn(Retransmitter):
    """Mutant: goes on with what it was about to send again, acknowledged or not."""

    def _goes_on(self, m, now, then):
        super()._goes_on(m, now, then)
        with m.If(self._does[Act.FREED]):
            m.d.comb += [self._then.again.eq(now.again), self._then.cursor.eq(now.cursor)]


class Blind(Retransmitter):
    """Mutant: offers what was acknowledged while it was looked up."""

    def _offer(self, m):
        asks = super()._offer(m)
        m.d.sync += self._astray.eq(0)
        return asks


class Hasty(Retransmitter):
    """Mutant: reads which frame is the next before the memory can tell."""

    def _goes_on(self, m, now, then):
        super()._goes_on(m, now, then)
        early, earlier, before = (Signal.like(self._after_cursor.data) for _ in range(3))
        m.d.sync += [early.eq(self._after_cursor.data), earlier.eq(early), before.eq(earlier)]
        with m.If(self._does[Act.REPEATED] & ~self._moved):
            m.d.comb += self._then.cursor.eq(before)


class Credulous(Retransmitter):
    """Mutant: an acknowledgement that waits while its session is opened counts."""

    def _goes_on(self, m, now, then):
        super()._goes_on(m, now, then)
        with m.If(self._does[Act.ACKED]):
            m.d.comb += self._then.due.eq(now.due + self.acked.payload.count)


class Obedient(Retransmitter):
    """Mutant: goes back for each copy of a NAK."""

    def _goes_on(self, m, now, then):
        super()._goes_on(m, now, then)
        with m.If(self._does[Act.ACKED] & self._keeps & self.acked.payload.back & (now.due == 0)):
            m.d.comb += [self._then.again.eq(now.held), self._then.cursor.eq(now.head)]


#: Depth of the quick proof with one session, within which its mutants are found.
DEPTH = 29


@pytest.mark.parametrize("sessions, depth", [
    (1, DEPTH), (2, 21), *(pytest.param(*x, marks=pytest.mark.long) for x in ((1, 30), (2, 27)))])
def test_kept_in_order(sessions, depth):
    prove(KeptInOrder(sessions=sessions), depth=depth, flat=True)


@pytest.mark.parametrize("sessions, depth", [
    (1, DEPTH), pytest.param(2, 30, marks=pytest.mark.long)])
def test_two_in_a_row_are_reached(sessions, depth):
    """With two sessions they come later than the proof looks, which takes ever longer: what the
    second frame adds is proven with one session, what the second session adds with one frame."""
    prove(Reaches(sessions=sessions), depth=depth, mode="cover", flat=True)


@pytest.mark.parametrize("sessions, depth", [(1, 21), (2, 21)])
def test_a_frame_that_another_follows_is_freed(sessions, depth):
    prove(Frees(sessions=sessions), depth=depth, mode="cover", flat=True)


@pytest.mark.parametrize("mutant", [Impatient, Stubborn, Blind, Hasty, Credulous, Obedient])
def test_kept_in_order_catches(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(KeptInOrder(mutant, sessions=1), depth=DEPTH, flat=True)
