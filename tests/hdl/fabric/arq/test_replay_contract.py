"""Contracts of dxpu.fabric.arq.replay and retransmit: what is not acknowledged is kept,
unchanged."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.fabric.arq.replay import ReplayMemory
from tests.support.formal import ProofFailed, prove

CELLS, CELL, BEATS = 4, 4, 5


class Kept(wiring.Component):
    """A beat of a frame reads as it was written, however often, until the frame is freed.

    Frames of up to :data:`BEATS` beats are written, read and freed at any time, as the docstring of
    :class:`ReplayMemory` allows; one of them, any, is watched, and any beat of it. No cell ever
    belongs to two frames, or to a frame and the spare ones; at last none is missing.
    """

    reserve: In(1)
    cancel: In(1)
    begin: In(1)
    write: In(1)
    last: In(1)
    end: In(1)
    byte: In(8)
    read: In(1)
    read_cell: In(range(CELLS))
    take: In(1)
    free: In(1)
    free_cell: In(range(CELLS))
    watch: In(1)
    place: In(range(BEATS))

    def __init__(self, design=ReplayMemory):
        super().__init__()
        self.dut = design(32, cells=CELLS, cell=CELL)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        need = -(-BEATS // CELL)
        cells = range(CELLS)
        # Who writes: one frame at a time, reserved before it begins.
        promised, writing, beats = Signal(), Signal(), Signal(range(BEATS + 1))
        begins, writes = self.begin & ~writing & promised, Signal()
        ends = Signal()
        m.d.comb += [
            dut.reserve.eq(Mux(self.reserve & ~promised & (dut.spare >= need), need, 0)),
            dut.cancel.eq(Mux(self.cancel & promised & ~begins, need, 0)),
            dut.begin.eq(begins), dut.reserved.eq(need),
            writes.eq(self.write & (writing | begins) & (Mux(begins, 0, beats) < BEATS)),
            ends.eq(self.end & (writing | begins)),
            dut.write.eq(writes), dut.data.eq(self.byte), dut.dwords.eq(1), dut.end.eq(ends),
            # A frame with beats ends with the last beat of a TLP, and only there one ends.
            dut.last.eq(ends),
        ]
        m.d.comb += Assume(~ends | writes | (Mux(begins, 0, beats) == 0))
        with m.If(dut.reserve != 0):
            m.d.sync += promised.eq(1)
        with m.If(begins | (dut.cancel != 0)):
            m.d.sync += promised.eq(0)
        m.d.sync += [beats.eq(Mux(begins, 0, beats) + writes),
                     writing.eq((writing | begins) & ~ends)]

        # What is there: complete frames by their first cell, and how many beats they have.
        live, first = Signal(CELLS), Signal(cells)
        sizes = Signal(CELLS)  # whether there are beats
        now = Signal(cells)
        m.d.comb += now.eq(Mux(begins, dut.next, first))
        m.d.sync += first.eq(now)
        reads = (self.read & ~dut.reading & live.bit_select(self.read_cell, 1)
                 & sizes.bit_select(self.read_cell, 1))
        busy, read_cell = Signal(), Signal(cells)
        frees = (self.free & live.bit_select(self.free_cell, 1)
                 & ~((reads | dut.reading) & (Mux(reads, self.read_cell, read_cell)
                                              == self.free_cell)))
        m.d.comb += [
            dut.read.eq(reads), dut.read_cell.eq(self.read_cell), dut.read_count.eq(1),
            dut.o.ready.eq(self.take),
            dut.free.valid.eq(frees), dut.free.payload.eq(self.free_cell),
        ]
        freed = frees & dut.free.ready
        with m.If(ends):
            m.d.sync += [live.bit_select(now, 1).eq(1),
                         sizes.bit_select(now, 1).eq((Mux(begins, 0, beats) + writes) != 0)]
        with m.If(freed):
            m.d.sync += live.bit_select(self.free_cell, 1).eq(0)
        with m.If(reads):
            m.d.sync += [read_cell.eq(self.read_cell), busy.eq(1)]

        # Cells.
        used = Signal(CELLS)
        with m.If(dut._allocated):
            m.d.comb += Assert(~used.bit_select(dut.next, 1))
            m.d.sync += used.bit_select(dut.next, 1).eq(1)
        with m.If(dut._give):
            m.d.comb += Assert(used.bit_select(dut._given, 1))
            m.d.sync += used.bit_select(dut._given, 1).eq(0)

        # The watched frame and beat.
        mine, mine_cell, value, size = Signal(), Signal(cells), Signal(8), Signal(range(BEATS + 1))
        chosen, has = Signal(), Signal()
        place = Signal(range(BEATS))
        m.d.sync += place.eq(self.place)
        start = Signal(init=1)
        m.d.sync += start.eq(0)
        with m.If(~start):
            m.d.comb += Assume(self.place == place)
        with m.If(begins & self.watch & ~chosen):
            m.d.sync += [chosen.eq(1), mine.eq(1), mine_cell.eq(dut.next), has.eq(0)]
        with m.If(mine & freed & (self.free_cell == mine_cell)):
            m.d.sync += mine.eq(0)
        here = (mine & (first == mine_cell) & writing | begins & self.watch & ~chosen)
        with m.If(writes & here & (Mux(begins, 0, beats) == self.place)):
            m.d.sync += [value.eq(self.byte), has.eq(1)]
        with m.If(ends & here):
            m.d.sync += size.eq(Mux(begins, 0, beats) + writes)
        number = Signal(range(BEATS + 2))
        of_mine = Signal()
        with m.If(reads):
            m.d.sync += [number.eq(0), of_mine.eq(mine & (self.read_cell == mine_cell))]
        with m.If(dut.o.valid & dut.o.ready):
            m.d.sync += number.eq(number + 1)
            with m.If(of_mine):
                m.d.comb += Assert(dut.o.payload.last == (number + 1 == size))
                with m.If((number == self.place) & has):
                    m.d.comb += Assert(dut.o.payload.data[:8] == value)
        self.cover(m, of_mine & dut.o.valid & dut.o.ready & (number == BEATS - 1)
                   & (mine_cell != 0))
        return m

    def cover(self, m, event):
        pass


class LongFrame(Kept):
    """A frame of several cells can be written and read."""

    def cover(self, m, event):
        m.d.comb += Cover(event)


class Forgetful(ReplayMemory):
    """Mutant: what a frame took of its reservation counts as spare."""

    def _write(self, m, link, size):
        super()._write(m, link, size)
        with m.If(self.end):
            m.d.comb += self._unused.eq(self.reserved)


class Wasteful(ReplayMemory):
    """Mutant: takes the head of the spare cells twice."""

    def _spare(self, m):
        super()._spare(m)
        again = Signal()
        m.d.sync += again.eq(self._allocated)
        with m.If(again):
            m.d.comb += self.next.eq(0)


class Looping(ReplayMemory):
    """Mutant: a frame's second cell follows itself."""

    def _write(self, m, link, size):
        super()._write(m, link, size)
        m.d.comb += link.data.eq(link.addr)


#: Depth of the quick proof, within which its mutants are found.
DEPTH = 13


@pytest.mark.parametrize("depth", [DEPTH, pytest.param(18, marks=pytest.mark.long)])
def test_kept(depth):
    prove(Kept(), depth=depth, claims=depth == DEPTH)


@pytest.mark.long
def test_frames_of_several_cells_are_reached():
    """Within the depth of the long proof; what goes wrong with second cells is found before."""
    prove(LongFrame(), depth=18, mode="cover")


@pytest.mark.parametrize("mutant", [Forgetful, Wasteful, Looping])
def test_kept_catches(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(Kept(mutant), depth=DEPTH)
