"""Received TLPs between an engine and the sink of the flows; simulation only."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.credit.class_queues import ClassQueues, ClassSpace
from dxpu.fabric.credit.classifier import Classifier
from dxpu.fabric.credit.sizing import LARGEST
from dxpu.queue import PacketQueue
from dxpu.rows import ClassMeta, TlpMeta
from dxpu.stream import PacketLayout, PacketSignature, connect

from .flows import CLASSES

__all__ = ["SURPLUS_UNITS", "Inbox"]

#: Data units granted with each surplus header: writes of 128 bytes.
SURPLUS_UNITS = 8
#: Depth in beats of the queue before the sink, and the level below which a TLP may enter it.
LEAVING, ROOM = 256, 64


class _Queues(ClassQueues):
    """Queues for more TLPs than a proxy's queues, because of the surplus."""

    PACKETS = 128


class Inbox(wiring.Component):
    """Takes all TLPs with credits, and passes on the TLPs of rows and classes that are not closed.

    Counts TLPs without credits. Also counts the cycles in which a closed row and class has used up
    its credits: no header is left, or not enough data for the largest TLP.

    Parameters
    ----------
    width, rows : int
    grants : three pairs of int
        Headers and units of a row, for each class.

    Members
    -------
    i, o : packet streams with :class:`~dxpu.rows.TlpMeta`
    open : ``rows``
        Row n has a life.
    surplus : 8
        Additional headers that each row grants for posted TLPs, 64 at most, with
        :data:`SURPLUS_UNITS` of data each; from the next life on.
    closed : three bits per row
        No TLP of this row and class is passed on.
    empty : ``rows``
    released, released_strobe : :class:`~dxpu.rows.ClassMeta`, 1
    excess : 32
        TLPs without credits, or without room.
    starved : array of 32-bit values
        By class: cycles in which a closed row has used up its credits.
    """

    def __init__(self, width, *, rows, grants):
        self._width, self._rows, self._grants = width, rows, grants
        super().__init__({
            "i": In(PacketSignature(width, TlpMeta)),
            "o": Out(PacketSignature(width, TlpMeta)),
            "open": In(rows),
            "surplus": In(8),
            "closed": In(3 * rows),
            "empty": Out(rows),
            "released": Out(ClassMeta),
            "released_strobe": Out(1),
            "excess": Out(32),
            "starved": Out(data.ArrayLayout(32, len(CLASSES))),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.classifier = classifier = Classifier(self._width)
        m.submodules.queues = queues = _Queues(
            self._width, rows=self._rows, overflow="drop",
            space=ClassSpace(self._width, p=32768, np=4096, cpl=16384))
        m.submodules.leaving = leaving = PacketQueue(self._width, depth=LEAVING, meta=TlpMeta)
        connect(m, wiring.flipped(self.i), classifier.i)
        connect(m, classifier.o, queues.i)
        connect(m, leaving.o, wiring.flipped(self.o))
        gone = queues.o.payload
        m.d.comb += [
            *(leaving.i.payload[k].eq(gone[k]) for k, _ in PacketLayout(self._width)),
            *(leaving.i.payload.meta[k].eq(gone.meta[k]) for k in ("row", "life")),
            leaving.i.valid.eq(queues.o.valid),
            queues.o.ready.eq(leaving.i.ready),
        ]

        room, before, shut = Signal(), Signal(), Signal.like(self.closed)

        def may(meta):
            return room & ~self.closed.bit_select(3 * meta.row + Value.cast(meta.cls), 1)

        opened = shut & ~self.closed
        m.d.sync += [before.eq(room), shut.eq(self.closed), queues.ok.eq(may(queues.checked))]
        m.d.comb += [
            room.eq(leaving.level < ROOM),
            queues.sure.eq(may(queues.i.payload.meta)),
            queues.wake.eq(Cat(opened[3 * n:3 * n + 3].any() for n in range(self._rows))
                           | (room & ~before).replicate(self._rows)),
        ]
        left, extra = Signal(), Signal()
        m.d.comb += left.eq(queues.o.valid & queues.o.ready & queues.o.payload.last)
        given = self._grant_surplus(m, left, extra)
        with m.If(extra):
            m.d.comb += [self.released.eq(given), self.released_strobe.eq(1)]
        with m.Else():
            m.d.comb += [self.released.eq(queues.o.payload.meta), self.released_strobe.eq(left)]
        self._watch(m, queues, left)
        return m

    def _grant_surplus(self, m, left, extra):
        """Grant the surplus at the start of a row's life, by releasing posted TLPs that never
        came."""
        row, before, given = Signal(range(self._rows)), Signal(self._rows), Signal(ClassMeta)
        owed = [Signal(8, name=f"owed{n}") for n in range(self._rows)]
        m.d.sync += before.eq(self.open)
        m.d.comb += [given.row.eq(row), given.units.eq(SURPLUS_UNITS),
                     extra.eq(Cat(o != 0 for o in owed).bit_select(row, 1) & ~left)]
        for n, mine in enumerate(owed):
            with m.If(~self.open[n]):
                m.d.sync += mine.eq(0)
            # Grants begin anew with the rise of `open`, a cycle later.
            with m.Elif(~before[n]):
                m.d.sync += mine.eq(self.surplus)
            with m.Elif(extra & (row == n)):
                m.d.sync += mine.eq(mine - 1)
        with m.If(~extra):
            m.d.sync += row.eq(Mux(row == self._rows - 1, 0, row + 1))
        return given

    def _watch(self, m, queues, left):
        """Compare the TLPs inside with the credits granted."""
        came, gone, i = Signal(), queues.o.payload.meta, queues.i.payload.meta
        m.d.comb += came.eq(queues.i.valid & queues.i.ready & queues.i.payload.last)
        over, empty = Signal(3 * self._rows), []
        starved = [[] for _ in CLASSES]
        for n in range(self._rows):
            none = []
            for cls, (headers, units) in enumerate(self._grants):
                name = f"{n}_{cls}"
                inside = Signal(8, name=f"headers{name}")
                amount = Signal(signed(16), name=f"units{name}")
                enters = came & (i.row == n) & (Value.cast(i.cls) == cls)
                leaves = left & (gone.row == n) & (Value.cast(gone.cls) == cls)
                surplus = self.surplus if cls == 0 else C(0, 8)
                room = Signal(signed(17), name=f"room{name}")
                full = Signal(name=f"full{name}")
                m.d.sync += [
                    inside.eq(inside + enters - leaves),
                    amount.eq(amount + Mux(enters, i.units, 0) - Mux(leaves, gone.units, 0)),
                ]
                m.d.comb += [
                    room.eq(units + SURPLUS_UNITS * surplus - amount),
                    full.eq(inside >= headers + surplus),
                    over[3 * n + cls].eq(enters & (full | (room < i.units))),
                ]
                starved[cls].append(self.closed[3 * n + cls]
                                    & (full | (0 if cls == 1 else room < LARGEST)))
                none.append(inside == 0)
            empty.append(Cat(none).all())
        m.d.comb += self.empty.eq(Cat(empty))
        m.d.sync += self.excess.eq(self.excess + (over.any() | queues.stat_overflow))
        for count, some in zip(self.starved, starved, strict=True):
            m.d.sync += count.eq(count + Cat(some).any())
