"""TLPs that came are checked against the credits that were granted for them.

Ref: docs/reference/wire-format.md, credit extension; docs/explanation/flow-control.md
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.priority import pick
from dxpu.rows import ClassMeta
from dxpu.stream import PacketSignature, check_width

from .credits import CLASSES, ClassMemory, low

__all__ = ["CreditPolicer"]


class RowTotals(wiring.Component):
    """Headers and data units of each row and class, counted from 0 when the row opens.

    Parameters
    ----------
    rows : int
    shape : struct of ``header``, ``data``
        Of a total; they count modulo.
    reads : int

    Members
    -------
    open : ``rows``
    counted, strobe : :class:`~dxpu.rows.ClassMeta`, 1
        A header more, and so many units; nothing if the row is not open.
    at<n>, total<n> : :class:`~dxpu.rows.ClassMeta`, ``shape``
        Total of a row and class, in the same cycle.
    """

    def __init__(self, *, rows, shape, reads):
        self._rows, self._shape, self._reads = rows, shape, reads
        super().__init__({
            "open": In(rows),
            "counted": In(ClassMeta),
            "strobe": In(1),
            **{f"at{n}": In(ClassMeta) for n in range(reads)},
            **{f"total{n}": Out(shape) for n in range(reads)},
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = ClassMemory(self._shape, rows=self._rows)
        #: By class: rows of which nothing was counted yet.
        fresh = [Signal(self._rows, init=-1, name=f"fresh{n}") for n in range(CLASSES)]

        def total(name, at):
            row, cls = low(at.row, self._rows), Value.cast(at.cls)
            word = words.read(m, name, row, cls).as_value()
            return Mux(pick([pick(rows, row) for rows in fresh], cls), 0, word)

        for n in range(self._reads):
            m.d.comb += getattr(self, f"total{n}").eq(total(f"word{n}", getattr(self, f"at{n}")))
        row, cls = low(self.counted.row, self._rows), Value.cast(self.counted.cls)
        old, new, takes = Signal(self._shape), Signal(self._shape), Signal()
        m.d.comb += [
            takes.eq(self.strobe & pick(self.open, row)),
            old.eq(total("old", self.counted)),
            new.header.eq(old.header + 1), new.data.eq(old.data + self.counted.units),
        ]
        words.write(m, takes, row, cls, new)
        for n, rows in enumerate(fresh):
            m.d.sync += rows.eq((rows | ~self.open) & ~Mux(takes & (cls == n), 1 << row, 0))
        return m


class CreditPolicer(wiring.Component):
    """Lets TLPs pass that credits were granted for; drops others whole.

    A row that is open has as many credits of each class as it grants at first, less those of TLPs
    that passed, and again those of TLPs that have left since. A TLP that takes more than there are
    is dropped; its row is named in ``overflow`` with its first beat. One with more than ``largest``
    units of data is dropped, too, and one that ends with ``discard`` is dropped by whoever takes
    it; both had credits, which are released. What comes for a row that is not open passes, and
    counts for nothing.

    A TLP is decided about with its first beat, before it is taken: it passes, or its beats are
    taken at once. A first beat waits while a release of an earlier one does: no longer than TLPs
    leave in each cycle, one after the other.

    No latency, one beat per cycle.

    Ref: PCIe Base 5.0, 2.6.1.2 (receiver overflow)

    Parameters
    ----------
    width : int
        Data bits per beat.
    rows : int
    initial : three pairs of int
        Headers and data units that a row grants at first, by class.
    largest : int
        Data units of the largest TLP that passes.

    Members
    -------
    i, o : packet stream with :class:`~dxpu.rows.ClassMeta`
    open : ``rows``
        Credits of row n are granted, from nought when this rises. Then nothing of the row is behind
        this block, and it stays so for as long as what came before needs to be told in
        ``departed``.
    departed, departed_strobe : :class:`~dxpu.rows.ClassMeta`, 1
        A TLP has left the queues behind.
    released, released_strobe : :class:`~dxpu.rows.ClassMeta`, 1
        Credits are free again: of a TLP that has left, or was dropped here though it had some.
    overflow : ``rows``
        Strobes: a TLP of row n came that no credits had been granted for.
    dropped, dropped_row : 1, 6
        Strobe: all of a TLP of a row that was dropped is gone.
    stat_overflow, stat_large : 1
        Pulses: a TLP was dropped: without credits; with too much data.
    """

    def __init__(self, width, *, rows, initial, largest):
        if any(units < largest for units in (initial[0][1], initial[2][1])):
            raise ValueError(f"initial must be enough for the largest TLP, not {initial!r}")
        self._width, self._rows = check_width(width), rows
        self._initial, self._largest = initial, largest
        super().__init__({
            "i": In(PacketSignature(width, ClassMeta)),
            "o": Out(PacketSignature(width, ClassMeta)),
            "open": In(rows),
            "departed": In(ClassMeta),
            "departed_strobe": In(1),
            "released": Out(ClassMeta),
            "released_strobe": Out(1),
            "overflow": Out(rows),
            "dropped": Out(1),
            "dropped_row": Out(6),
            "stat_overflow": Out(Counted(
                "TLPs from the fabric that no credits had been granted for; dropped, and their "
                "slot is fenced.")),
            "stat_large": Out(Counted(
                f"TLPs from the fabric with more than {16 * largest} bytes of data; dropped.")),
        })

    def elaborate(self, platform):
        m = Module()
        i, o, meta = self.i, self.o, self.i.payload.meta
        total = data.StructLayout({
            "header": max(headers for headers, _ in self._initial).bit_length(),
            "data": max(units for _, units in self._initial).bit_length()})
        m.submodules.used = used = RowTotals(rows=self._rows, shape=total, reads=1)
        m.submodules.freed = freed = RowTotals(rows=self._rows, shape=total, reads=1)
        row, cls = low(meta.row, self._rows), Value.cast(meta.cls)
        headers, units = (Array(pair[n] for pair in self._initial)[cls] for n in range(2))
        free = Signal(total)
        m.d.comb += [
            used.open.eq(self.open), freed.open.eq(self.open),
            used.at0.eq(meta), freed.at0.eq(meta),
            free.header.eq(headers + freed.total0.header - used.total0.header),
            free.data.eq(units + freed.total0.data - used.total0.data),
        ]

        # What is decided about a TLP: it is dropped; it takes credits.
        drops, pays, now, decided = Signal(), Signal(), Signal(2), Signal(2)
        inside, begins, may, ends = Signal(), Signal(), Signal(), Signal()
        waits, waiting = Signal(), Signal(ClassMeta)  # a release that is still to be told
        ok, large, is_open = Signal(), Signal(), Signal()
        m.d.comb += [
            ok.eq(free.header.any() & (free.data >= meta.units)),
            large.eq(meta.units > self._largest),
            is_open.eq(pick(self.open, row)),
            now.eq(Mux(inside, decided, Cat(is_open & (~ok | large), is_open & ok))),
            Cat(drops, pays).eq(now),
            may.eq(inside | ~waits),
            begins.eq(i.valid & ~inside & ~waits),
            ends.eq(i.valid & i.ready & i.payload.last),
            i.ready.eq((o.ready | drops) & may),
            o.valid.eq(i.valid & ~drops & may), o.payload.eq(i.payload),
            used.counted.eq(meta), used.strobe.eq(begins & pays),
            self.stat_overflow.eq(begins & drops & ~pays),
            self.stat_large.eq(begins & drops & pays),
            self.overflow.eq(Mux(self.stat_overflow, 1 << row, 0)),
            self.dropped.eq(ends & drops), self.dropped_row.eq(meta.row),
        ]
        with m.If(begins):
            m.d.sync += [inside.eq(1), decided.eq(now)]
        with m.If(ends):
            m.d.sync += inside.eq(0)

        # One that has left goes first: it cannot wait.
        with m.If(~self.departed_strobe | ~pick(self.open, low(waiting.row, self._rows))):
            m.d.sync += waits.eq(0)
        with m.If(ends & pays & (drops | i.payload.discard)):
            m.d.sync += [waits.eq(1), waiting.eq(meta)]
        m.d.comb += [
            self.released.eq(Mux(self.departed_strobe, self.departed, waiting)),
            self.released_strobe.eq(self.departed_strobe | waits),
            freed.counted.eq(self.released), freed.strobe.eq(self.released_strobe),
        ]
        return m
