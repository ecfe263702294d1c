"""Memory for frames that the peer has not acknowledged.

Ref: docs/explanation/retransmission.md
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.memory import DisjointMemory
from dxpu.stream import PacketSignature, check_width

from .frame_note import FrameNote, NoteMemory

__all__ = ["ReplayMemory", "cells_for"]


def cells_for(count, dwords, *, width, cell):
    """Cells that are enough for ``count`` TLPs of ``dwords`` in all: an expression."""
    lanes = width // 32
    beats = (dwords >> exact_log2(lanes)) + (count if lanes > 1 else 0)
    return (beats >> exact_log2(cell)) + 1


class ReplayMemory(wiring.Component):
    """Frames in cells of a block memory that all sessions share; each frame is a chain of cells.

    A frame is written while it leaves for the first time: ``begin``, its TLPs beat by beat,
    ``end``. It keeps its cells until they are given back with ``free``, and can be read meanwhile
    as often as needed. Enough cells for all of the frame (:func:`cells_for`) must have been
    reserved before, out of those that are ``spare``; what it did not need is spare again when it
    ends. A frame that is being written or read must not be freed.

    A frame without TLPs takes one cell. After reset it takes a cycle for each cell until they are
    all spare. Freeing takes two cycles for each cell and one more. The first beat of a frame is
    offered two cycles after ``read``, then one in each cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.
    cells : int
        A power of two.
    cell : int
        Beats of a cell; a power of two, at least 4.
    paths : int
        Paths of the proxy, 1 to 16.

    Members
    -------
    spare : ``range(cells + 1)``
        Cells that are neither used nor reserved.
    reserve, cancel : ``range(cells + 1)``
        So many cells are reserved, and not needed after all, in this cycle.
    next : cell number
        The next frame's first cell.
    begin, end : 1
        Pulses: a frame begins with ``note`` in the cell ``next``; it ends. May coincide.
    note : :class:`FrameNote`
    reserved : ``range(cells + 1)``
        With ``begin``: cells that were reserved for the frame.
    write : 1
        ``data``, ``dwords`` and ``last`` are a beat of the frame that has begun, or begins.
    look : stream of cell numbers
        First cells of frames that are stored.
    seen : stream of :class:`FrameNote`
        Of the frame that was looked at.
    read, read_cell, read_count : 1, cell number, 5
        Pulse, while not ``reading``: offer the TLPs of a frame.
    reading : 1
        There are beats to come.
    o : packet stream
        The TLPs.
    free : stream of cell numbers
        First cells of frames to be freed.
    """

    def __init__(self, width, *, cells, cell, paths=16):
        self._width = check_width(width)
        for name, value, least in (("cells", cells, 2), ("cell", cell, 4)):
            if not isinstance(value, int) or value < least or value & (value - 1):
                raise ValueError(f"{name} must be a power of two of at least {least}, "
                                 f"not {value!r}")
        self._cells, self._cell, self._paths = cells, cell, paths
        number = range(cells)
        super().__init__({
            "spare": Out(range(cells + 1)),
            "reserve": In(range(cells + 1)),
            "cancel": In(range(cells + 1)),
            "reserved": In(range(cells + 1)),
            "next": Out(number),
            "begin": In(1),
            "end": In(1),
            "note": In(FrameNote),
            "write": In(1),
            "data": In(width),
            "dwords": In(range(width // 32 + 1)),
            "last": In(1),
            "look": In(stream.Signature(number)),
            "seen": Out(stream.Signature(FrameNote)),
            "read": In(1),
            "read_cell": In(number),
            "read_count": In(5),
            "reading": Out(1),
            "o": Out(PacketSignature(width)),
            "free": In(stream.Signature(number)),
        })
        self._allocated = Signal()                     #: the cell `next` is taken
        self._give, self._given = Signal(), Signal(number)
        self._unused = Signal(range(cells + 1))        #: of what was reserved, when a frame ends

    def elaborate(self, platform):
        m = Module()
        number = range(self._cells)
        # The cell that follows in a frame, and how many of a frame follow its first.
        m.submodules.links = links = Memory(shape=number, depth=self._cells, init=[])
        m.submodules.sizes = sizes = Memory(shape=number, depth=self._cells, init=[])
        self._spare(m)
        self._write(m, links.write_port(), sizes.write_port())
        self._look(m)
        self._read(m, links.read_port())
        self._free(m, links.read_port(), sizes.read_port())
        return m

    def _spare(self, m):
        """Queue of free cells. ``next`` is its head."""
        m.submodules.numbers = numbers = Memory(
            shape=range(self._cells), depth=self._cells, init=[])
        write, read = numbers.write_port(), numbers.read_port(domain="comb")
        put, get = Signal(range(self._cells)), Signal(range(self._cells))
        self._filling = filling = Signal(init=1)
        fill = Signal(range(self._cells))
        m.d.comb += [
            write.en.eq(filling | self._give),
            write.addr.eq(put),
            write.data.eq(Mux(filling, fill, self._given)),
            read.addr.eq(get),
            self.next.eq(read.data),
        ]
        with m.If(write.en):
            m.d.sync += put.eq(put + 1)
        with m.If(self._allocated):
            m.d.sync += get.eq(get + 1)
        m.d.sync += self.spare.eq(
            self.spare + write.en + self._unused + self.cancel - self.reserve)
        with m.If(filling):
            m.d.sync += [fill.eq(fill + 1), filling.eq(fill != self._cells - 1)]

    def _write(self, m, link, size):
        beat = data.StructLayout(
            {"data": self._width, "dwords": range(self._width // 32 + 1), "last": 1})
        m.submodules.beats = self._beats = beats = DisjointMemory(
            shape=beat, depth=self._cells * self._cell, init=[])
        m.submodules.notes = self._notes = notes = NoteMemory(
            cells=self._cells, paths=self._paths)
        write = beats.write_port()

        first, current, place, more = (
            Signal(range(self._cells)), Signal(range(self._cells)),
            Signal(range(self._cell)), Signal(range(self._cells)))
        crosses = Signal()     # this beat needs another cell
        full = Signal()        # the cell is
        here, started = Signal(range(self._cells)), Signal(range(self._cells))
        following = Signal(range(self._cells))
        budget, left = Signal.like(self.reserved), Signal.like(self.reserved)
        m.d.sync += budget.eq(left)
        m.d.comb += [
            crosses.eq(self.write & full & ~self.begin),
            self._allocated.eq(self.begin | crosses),
            left.eq(Mux(self.begin, self.reserved, budget) - self._allocated),
            self._unused.eq(Mux(self.end, left, 0)),
            started.eq(Mux(self.begin, self.next, first)),
            here.eq(Mux(self._allocated, self.next, current)),
            following.eq(Mux(self.begin, 0, more + crosses)),
            write.en.eq(self.write),
            write.addr.eq(Cat(Mux(self.begin | crosses, 0, place)[:exact_log2(self._cell)], here)),
            write.data.data.eq(self.data),
            write.data.dwords.eq(self.dwords),
            write.data.last.eq(self.last),
            notes.write_en.eq(self.begin),
            notes.write_cell.eq(self.next),
            notes.write_note.eq(self.note),
            link.en.eq(crosses),
            link.addr.eq(current),
            link.data.eq(self.next),
            size.en.eq(self.end),
            size.addr.eq(started),
            size.data.eq(following),
        ]
        m.d.sync += [first.eq(started), current.eq(here), more.eq(following)]
        with m.If(self.write):
            m.d.sync += [
                place.eq(write.addr[:exact_log2(self._cell)] + 1),
                full.eq(write.addr[:exact_log2(self._cell)] == self._cell - 1),
            ]
        with m.Elif(self.begin):
            m.d.sync += [place.eq(0), full.eq(0)]

    def _look(self, m):
        notes = self._notes
        m.d.comb += [
            notes.read_cell.eq(self.look.payload),
            notes.read_en.eq(self.look.valid & self.look.ready),
            self.look.ready.eq(~self.seen.valid),
            self.seen.payload.eq(notes.read_note),
        ]
        with m.If(notes.read_en):
            m.d.sync += self.seen.valid.eq(1)
        with m.Elif(self.seen.ready):
            m.d.sync += self.seen.valid.eq(0)

    def _read(self, m, link):
        read, o = self._beats.read_port(), self.o
        current, place = Signal(range(self._cells)), Signal(range(self._cell))
        left, first = Signal(5), Signal(init=1)
        move, final = ~o.valid | o.ready, Signal()
        m.d.comb += [
            self.reading.eq(left != 0),
            final.eq(o.valid & o.payload.last & (left == 1)),
            read.addr.eq(Cat(place, current)),
            read.en.eq(self.reading & move & ~final),
            link.addr.eq(current),
            o.payload.data.eq(read.data.data),
            o.payload.dwords.eq(read.data.dwords),
            o.payload.last.eq(read.data.last),
            o.payload.first.eq(first),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += [o.valid.eq(0), first.eq(o.payload.last), left.eq(left - o.payload.last)]
        with m.If(read.en):
            m.d.sync += [o.valid.eq(1), place.eq(place + 1)]
            with m.If(place == self._cell - 1):
                m.d.sync += current.eq(link.data)
        with m.If(self.read):
            m.d.sync += [current.eq(self.read_cell), place.eq(0), left.eq(self.read_count)]

    def _free(self, m, link, size):
        current, left, first = Signal(range(self._cells)), Signal(range(self._cells)), Signal()
        rest = Signal(range(self._cells))
        m.d.comb += [
            link.addr.eq(current),
            size.addr.eq(current),
            self._given.eq(current),
            rest.eq(Mux(first, size.data, left)),
        ]
        with m.FSM(name="free"):
            with m.State("Idle"):
                m.d.comb += self.free.ready.eq(~self._filling)
                m.d.sync += [current.eq(self.free.payload), first.eq(1)]
                with m.If(self.free.valid & self.free.ready):
                    m.next = "Look"
            with m.State("Look"):
                m.next = "Give"
            with m.State("Give"):
                m.d.comb += self._give.eq(1)
                m.d.sync += [current.eq(link.data), left.eq(rest - 1), first.eq(0)]
                m.next = "Look"
                with m.If(rest == 0):
                    m.next = "Idle"
