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
    """Headers and data units of each row and class, counted from when the row opens.

    Parameters
    ----------
    rows : int
    shape : struct of ``header``, ``data``
        Of a total; they count modulo.
    start : three pairs of int
        Total of each class when its row opens.
    reads : int

    Members
    -------
    open : ``rows``
    counted, before, strobe : :class:`~dxpu.rows.ClassMeta`, ``shape``, 1
        A header more than ``before``, the total so far, and so many units; nothing if the row is
        not open.
    at<n>, total<n> : :class:`~dxpu.rows.ClassMeta`, ``shape``
        Total of a row and class, in the same cycle.
    """

    def __init__(self, *, rows, shape, start, reads):
        self._rows, self._shape, self._start, self._reads = rows, shape, start, reads
        super().__init__({
            "open": In(rows),
            "counted": In(ClassMeta),
            "before": In(shape),
            "strobe": In(1),
            **{f"at{n}": In(ClassMeta) for n in range(reads)},
            **{f"total{n}": Out(shape) for n in range(reads)},
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = ClassMemory(self._shape, rows=self._rows)
        #: By class: rows of which nothing was counted yet.
        fresh = [Signal(self._rows, init=-1, name=f"fresh{n}") for n in range(CLASSES)]

        start = [self._shape.const({"header": headers, "data": units})
                 for headers, units in self._start]
        for n in range(self._reads):
            at = getattr(self, f"at{n}")
            row, cls = low(at.row, self._rows), Value.cast(at.cls)
            word = words.read(m, f"word{n}", row, cls).as_value()
            m.d.comb += getattr(self, f"total{n}").eq(
                Mux(pick([pick(rows, row) for rows in fresh], cls), pick(start, cls), word))
        row, cls = low(self.counted.row, self._rows), Value.cast(self.counted.cls)
        new, takes = Signal(self._shape), Signal()
        m.d.comb += [
            takes.eq(self.strobe & pick(self.open, row)),
            new.header.eq(self.before.header + 1),
            new.data.eq(self.before.data + self.counted.units),
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
    taken, from the second cycle on whether ``o`` is ready or not. A first beat waits while a
    release of an earlier one does: no longer than TLPs leave in each cycle, one after the other.

    No latency if ``ahead`` named the row and class a cycle before; else one cycle. One more if
    credits of the row were taken or released in that cycle. One beat per cycle.

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
    ahead : :class:`~dxpu.rows.ClassMeta`
        Row and class of the TLP that is expected on ``i`` behind the present beat.
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
            "ahead": In(ClassMeta),
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
        m.submodules.used = used = RowTotals(
            rows=self._rows, shape=total, start=((0, 0),) * CLASSES, reads=1)
        m.submodules.freed = freed = RowTotals(
            rows=self._rows, shape=total, start=self._initial, reads=2)
        row, cls = low(meta.row, self._rows), Value.cast(meta.cls)
        drops, pays, now, decided = Signal(), Signal(), Signal(2), Signal(2)
        inside, begins, may, ends = Signal(), Signal(), Signal(), Signal()
        waits, waiting = Signal(), Signal(ClassMeta)  # a release that is still to be told

        # Totals are read for the TLP that comes next, or again for one that is not decided about.
        # They hold for a TLP unless those of its row changed in the same cycle.
        at, read_row, read_cls = Signal(ClassMeta), Signal.like(row), Signal.like(cls)
        used_total, freed_total = Signal(total), Signal(total)
        hold, changed, known, is_open = Signal(), Signal(), Signal(), Signal()

        def changes(totals):
            return totals.strobe & (low(totals.counted.row, self._rows) == read_row_next)

        read_row_next = low(at.row, self._rows)
        m.d.comb += [
            hold.eq(i.valid & ~may),
            at.row.eq(Mux(hold, meta.row, self.ahead.row)),
            at.cls.eq(Mux(hold, meta.cls, self.ahead.cls)),
            used.open.eq(self.open), freed.open.eq(self.open),
            used.at0.eq(at), freed.at0.eq(at),
            is_open.eq(pick(self.open, row)),
            known.eq((read_row == row) & (read_cls == cls) & ~changed),
        ]
        m.d.sync += [
            read_row.eq(read_row_next), read_cls.eq(at.cls),
            used_total.eq(used.total0), freed_total.eq(freed.total0),
            changed.eq(changes(used) | changes(freed) | ~pick(self.open, read_row_next)),
        ]

        # What is decided about a TLP: it is dropped; it takes credits.
        free, ok, large = Signal(total), Signal(), Signal()
        m.d.comb += [
            free.header.eq(freed_total.header - used_total.header),
            free.data.eq(freed_total.data - used_total.data),
            ok.eq(free.header.any() & (free.data >= meta.units)),
            large.eq(meta.units > self._largest),
            now.eq(Mux(inside, decided, Cat(is_open & (~ok | large), is_open & ok))),
            Cat(drops, pays).eq(now),
            may.eq(inside | ~waits & (known | ~is_open)),
            begins.eq(i.valid & ~inside & may),
            ends.eq(i.valid & i.ready & i.payload.last),
            # Not by what is decided in this cycle: `ready` is needed early.
            i.ready.eq((o.ready | inside & decided[0]) & may),
            o.valid.eq(i.valid & ~drops & may), o.payload.eq(i.payload),
            used.counted.eq(meta), used.before.eq(used_total), used.strobe.eq(begins & pays),
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
            freed.at1.eq(self.released), freed.before.eq(freed.total1),
        ]
        return m
