"""Credits that are granted to peers.

Ref: docs/reference/wire-format.md, credit extension; docs/reference/fabric-spec.md, credits and
bindings
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.types import Limit
from dxpu.priority import pick
from dxpu.rows import ClassMeta

from .credits import CLASSES

__all__ = ["CreditGrants"]


class CreditGrants(wiring.Component):
    """Counts what left the queues of each row, and says when the peer is to be told.

    The limits of a row begin with ``initial`` when its life does. A change is told with the next
    frame for the row, and by a frame of its own if none goes for one to two ``period`` (longer if
    frames for other rows wait to be taken); once more within ``again`` of them, as it may have been
    lost; and all limits are told again every ``refresh`` times that. With a strobe a row number is
    that of a row.

    Parameters
    ----------
    rows : int
    initial : three pairs of int
        Headers and units of each class.
    period : int
        Cycles after which a limit is told that no frame has carried; a power of two.
    again, refresh : int
        Powers of two.

    Members
    -------
    open : ``rows``
        Row n has a life; it begins when this rises.
    released, released_strobe : :class:`~dxpu.rows.ClassMeta`, 1
        A TLP has left its queue.
    row : 6
    limits, due : array of :class:`~dxpu.fabric.wire.types.Limit`, 3
        Of ``row`` in the same cycle: the limits, and which of them are to be told.
    told, told_row, told_mask : 1, 6, 3
        Strobe: these limits of a row are in a frame.
    want : stream of row numbers
        Rows that a frame is to be sent for.
    tick : 1
        Strobe: ``again`` periods are over.
    """

    def __init__(self, *, rows, initial, period=256, again=16, refresh=16):
        self._rows, self._initial = rows, initial
        self._period, self._again, self._refresh = period, again, refresh
        super().__init__({
            "open": In(rows),
            "released": In(ClassMeta),
            "released_strobe": In(1),
            "row": In(6),
            "limits": Out(data.ArrayLayout(Limit, CLASSES)),
            "due": Out(CLASSES),
            "told": In(1),
            "told_row": In(6),
            "told_mask": In(CLASSES),
            "want": Out(stream.Signature(6)),
            "tick": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        rows, cls = self._rows, Value.cast(self.released.cls)
        #: By class: rows of which nothing was released in this life; true before it begins.
        self._fresh = [Signal(rows, init=-1, name=f"fresh{n}") for n in range(CLASSES)]
        self._left = left = Signal(rows)  # strobes: a TLP of this row has left
        m.d.comb += left.eq(Mux(self.released_strobe, 1 << self._low(self.released.row), 0))
        self._count(m, cls)
        self._remember(m, cls)
        return m

    def _low(self, row):
        """Of a row number, the bits that tell rows apart."""
        return row[:max(2, (self._rows - 1).bit_length())]

    def _renews(self, m):
        """Rows whose limits are the initial ones from the next cycle on."""
        return ~self.open

    def _count(self, m, cls):
        """The limits, in memories that are read for a frame; and once more, as one class after the
        other changes, in one for the first two classes and one for the last. The initial limits
        stand in the second half of memories: in time it is easier to read there than to choose."""
        gone, row, fresh = self.released, self._low(self.released.row), self._fresh
        half = 1 << len(row)
        initial = [dict(header=headers % 65536, data=units % 65536)
                   for headers, units in self._initial]
        m.submodules.pair = pair = Memory(shape=Limit, depth=2 * half, init=[])
        m.submodules.last = last = Memory(shape=Limit, depth=2 * half, init=[{}] * half + initial)
        old_pair, new_pair = pair.read_port(domain="comb"), pair.write_port()
        old_last, new_last = last.read_port(domain="comb"), last.write_port()
        mine, none, now, new = Signal(), Signal(), Signal(Limit), Signal(Limit)
        m.d.comb += [
            mine.eq(self.released_strobe & pick(self.open, row)),
            none.eq(pick([pick(f, row) for f in fresh], cls)),
            old_pair.addr.eq(Cat(row, cls[0])),
            old_last.addr.eq(Mux(none, cls + half, row)),
            now.eq(Mux(cls[1] | none, old_last.data.as_value(), old_pair.data.as_value())),
            new.header.eq(now.header + 1), new.data.eq(now.data + gone.units),
            new_pair.addr.eq(old_pair.addr), new_pair.en.eq(mine & ~cls[1]),
            new_pair.data.eq(new),
            new_last.addr.eq(row), new_last.en.eq(mine & cls[1]), new_last.data.eq(new),
        ]
        asked = self._low(self.row)
        for n in range(CLASSES):
            m.submodules[f"limit{n}"] = memory = Memory(
                shape=Limit, depth=2 * half, init=[{}] * half + [initial[n]] * half)
            look, write = memory.read_port(domain="comb"), memory.write_port()
            m.d.comb += [
                look.addr.eq(Cat(asked, pick(fresh[n], asked))),
                self.limits[n].eq(look.data),
                write.addr.eq(row), write.en.eq(mine & (cls == n)), write.data.eq(new),
            ]
            m.d.sync += fresh[n].eq(
                (fresh[n] | self._renews(m)) & ~Mux(write.en, self._left, 0))

    def _remember(self, m, cls):
        """When to tell. In each period one row is looked at after the other."""
        rows, left = self._rows, self._left
        clock = Signal(range(self._again * self._period), init=1)
        slow = Signal(range(self._refresh))
        again_tick, slow_tick = Signal(), Signal()
        m.d.sync += [
            clock.eq(clock + 1), slow.eq(slow + again_tick), again_tick.eq(clock == 0),
            slow_tick.eq((clock == 0) & (slow == 0)),
        ]
        m.d.comb += self.tick.eq(again_tick)
        due = [Signal(CLASSES, init=-1, name=f"due{n}") for n in range(rows)]
        some, old, again = Signal(rows), Signal(rows), Signal(rows, init=-1)
        looks, at, seen, told = Signal(), Signal(range(rows)), Signal(rows), Signal(rows)
        m.d.comb += [
            some.eq(Cat(d.any() for d in due) & self.open),
            self.due.eq(pick(due, self._low(self.row))),
            told.eq(Mux(self.told, 1 << self._low(self.told_row), 0)),
            seen.eq(Mux(looks & ~self.want.valid, 1 << at, 0)),
        ]
        for n in range(rows):
            came, all_came = Signal(CLASSES, name=f"came{n}"), Signal(name=f"all_came{n}")
            m.d.comb += [
                came.eq(Mux(left[n], 1 << cls, 0)),
                all_came.eq(~self.open[n] | again_tick & again[n] | slow_tick),
            ]
            m.d.sync += [
                due[n].eq(due[n] & ~Mux(told[n], self.told_mask, 0) | came
                          | all_came.replicate(CLASSES)),
                again[n].eq(again[n] & ~again_tick | left[n] | ~self.open[n]),
            ]
        m.d.sync += old.eq((old | seen) & some)
        with m.If(self.want.valid):
            m.d.sync += self.want.valid.eq(~self.want.ready)
        with m.Elif(looks):
            m.d.sync += [
                self.want.valid.eq(pick(old & some, at)), self.want.payload.eq(at),
                at.eq(Mux(at == rows - 1, 0, at + 1)), looks.eq(at != rows - 1),
            ]
        with m.If(clock[:(self._period - 1).bit_length()] == 0):
            m.d.sync += looks.eq(1)
