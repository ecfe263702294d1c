"""Credits across the fabric: what the peer granted and we used, what we granted.

Ref: docs/reference/wire-format.md, credit extension; docs/reference/fabric-spec.md, credits and
bindings

Limits are absolute, counted from the beginning of a life of the row. So one that is lost, doubled
or late does no harm that the next one does not heal. The difference between a limit and what was
used is signed: an old limit may be less than that.
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.fabric.wire.format import ACK_ENTRIES
from dxpu.fabric.wire.types import Credit, Limit
from dxpu.rows import LIFE_BITS, ClassMeta

__all__ = ["CreditAccounts", "CreditGrants", "NewLimits", "Numbered", "closed_generation",
           "grants_for"]

CLASSES = ACK_ENTRIES
#: Bytes that a TLP has beside its data: four prefixes, four dwords of header, a digest, and a
#: dword to spare.
OVERHEAD_BYTES = 40


def grants_for(width, beats, *, headers, units=None):
    """Headers and data units that fit into ``beats`` of a queue, however they are mixed.

    ``units`` is what one TLP of the class may have at most, if that is little.

    Raises
    ------
    ValueError
        If there is not enough space for the headers and as much data as the largest payload.
    """
    size = width // 8
    if units is not None:
        each = -(-(OVERHEAD_BYTES + 16 * units) // size)
        return min(headers, beats // each), units * min(headers, beats // each)
    # A TLP with data wastes less than a beat.
    each = -(-(OVERHEAD_BYTES + size - 4) // size) if size > 4 else OVERHEAD_BYTES // 4
    left = (beats - headers * each) * size // 16
    if left < 1:
        raise ValueError(f"{beats} beats are not enough for {headers} headers")
    return headers, left


def closed_generation(generation):
    """What stands in place of the generation of a row in which nothing is granted yet."""
    return ~generation


def pick(values, index):
    """Value number ``index``, by a tree of multiplexers, one level for each bit: that is less than
    what becomes of a case for each number. Of a number too large, any value."""
    values = [Value.cast(value) for value in values]
    for bit in Value.cast(index):
        values = [Mux(bit, high, low) for low, high in zip(
            values[::2], values[1::2], strict=False)] + (
            values[-1:] if len(values) % 2 else [])
    return values[0]


class NewLimits(data.Struct):
    """Credits of a frame that took effect.

    Members
    -------
    row : 6
    ack : 24
        Of the frame; it was not older than the newest one.
    mask : 3
        Entries that there are.
    entries : array of :class:`~dxpu.fabric.wire.types.Credit`
        By class.
    """

    row: 6
    ack: 24
    mask: CLASSES
    entries: data.ArrayLayout(Credit, CLASSES)


class Numbered(data.Struct):
    """The event that begins a life of ``row`` has the number ``seq``."""

    row: 6
    seq: 24


class ClassMemory(wiring.Component):
    """A word for each row and class: one memory has the first two classes, one the last.

    That is less than a memory for each class, and what is read goes through one LUT for each bit.

    Parameters
    ----------
    shape : shape of a word
    rows : int

    Members
    -------
    pair, last : :class:`~amaranth.lib.memory.Memory`
        Addresses are those of :meth:`place`, and rows.
    """

    def __init__(self, shape, *, rows):
        super().__init__({})
        self._shape = shape
        self.pair = Memory(shape=shape, depth=2 * rows, init=[])
        self.last = Memory(shape=shape, depth=rows, init=[])

    @staticmethod
    def place(row, cls):
        return Cat(Value.cast(cls)[0], row)

    def read(self, m, name, row, cls):
        """The word of a row and class, in the same cycle."""
        pair, last = self.pair.read_port(domain="comb"), self.last.read_port(domain="comb")
        word = Signal(self._shape, name=name)
        m.d.comb += [
            pair.addr.eq(self.place(row, cls)), last.addr.eq(row),
            word.eq(Mux(Value.cast(cls)[1], last.data.as_value(), pair.data.as_value())),
        ]
        return word

    def elaborate(self, platform):
        m = Module()
        m.submodules.pair, m.submodules.last = self.pair, self.last
        return m


class CreditAccounts(wiring.Component):
    """Which TLPs may be sent: credits that peers granted, less those that were used.

    With the beginning of a life, or the event that asks the peer for one, all credits of the row
    are gone. New ones count only in a frame that acknowledges this event, so none of an earlier
    life does; and only with the row's generation. Others change nothing and are counted, but for
    those that say that the peer has not begun yet.

    A TLP that can never leave (its life is over, or its row closed) may pass: whoever would send it
    drops it.

    Parameters
    ----------
    rows : int

    Members
    -------
    open : ``rows``
    lives : array of numbers
        That of the next life of a row is one more.
    generations : array of 8-bit values
    numbered, numbered_strobe : :class:`Numbered`, 1
    limits, limits_strobe : :class:`NewLimits`, 1
        Not in two cycles one after the other; the link takes three for a frame. Those of a frame
        are used one or two cycles later, the first ones of a life three, or more as long as TLPs
        take credits: in a cycle with ``spent_strobe`` they get no further. What comes for any row
        meanwhile is ignored; the next frame heals that.
    i, i_ok : :class:`~dxpu.rows.ClassMeta`, 1
    head, head_ok : :class:`~dxpu.rows.ClassMeta`, 1
        Whether there are credits for a TLP, in the same cycle. ``row`` is one of the rows.
    spent, spent_strobe : :class:`~dxpu.rows.ClassMeta`, 1
        A TLP takes its credits; asked about from the next cycle on, it may be another's turn. It is
        the TLP that ``i`` shows in this cycle, or else the one that ``head`` shows.
    wake : ``rows``
        Strobes: there may be more credits from the next cycle on, all that a frame brought.
    stat_refused : 1
        Pulse: credits of a frame were refused.
    """

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "open": In(rows),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "generations": In(data.ArrayLayout(8, rows)),
            "numbered": In(Numbered),
            "numbered_strobe": In(1),
            "limits": In(NewLimits),
            "limits_strobe": In(1),
            "i": In(ClassMeta),
            "i_ok": Out(1),
            "head": In(ClassMeta),
            "head_ok": Out(1),
            "spent": In(ClassMeta),
            "spent_strobe": In(1),
            "wake": Out(rows),
            "stat_refused": Out(Counted(
                "Credits refused: of another generation, or before the life they are for began.")),
        })
        #: By row: the event that begins its life was numbered; there are limits.
        self._begun, self._heard = Signal(rows, name="begun"), Signal(rows, name="heard")
        #: Lives may be counted on by more than one at a time.
        self._before = Signal.like(self.lives)
        #: What is used is made 0: for this row, and of the first two classes this one.
        self._clears, self._row, self._half = Signal(), Signal(range(rows)), Signal()

    def elaborate(self, platform):
        m = Module()
        rows = self._rows
        m.submodules.limits = self._limits = ClassMemory(Limit, rows=rows)
        m.submodules.used = self._used = ClassMemory(Limit, rows=rows)
        #: Numbers of the events that begin lives.
        m.submodules.begins = self._begins = Memory(shape=24, depth=rows, init=[])
        ended, lost = self._live(m)
        self._learn(m, ended, lost)
        self._spend(m, self._look(m, "i"), self._look(m, "head"))
        return m

    def _low(self, row):
        """Of the number of a row, the bits that tell rows apart."""
        return row[:max(1, (self._rows - 1).bit_length())]

    def _live(self, m):
        """Lives begin and end. Returns rows whose life ended, or whose credits are gone."""
        rows = self._rows
        ended, lost, numbered = Signal(rows), Signal(rows), Signal(rows)
        begins = self._begins.write_port()
        m.d.sync += [self._before.eq(self.lives), self._begun.eq(self._begun & ~ended | numbered)]
        m.d.comb += [
            ended.eq(Cat(now != before for now, before in zip(
                self.lives, self._before, strict=True)) | ~self.open),
            lost.eq(ended | numbered),
            numbered.eq(Mux(self.numbered_strobe, 1 << self._low(self.numbered.row), 0)),
            begins.addr.eq(self.numbered.row), begins.data.eq(self.numbered.seq),
            begins.en.eq(self.numbered_strobe),
        ]
        return ended, lost

    def _learn(self, m, ended, lost):
        """Limits are written: those of the first and the last class, and a cycle later those of
        the second. The first frame of a life writes all three; then what is used is made 0, in
        cycles in which nothing is spent. There are some: TLPs take more room in frames than here.
        """
        rows, new = self._rows, self.limits
        row = self._low(new.row)
        begin = self._begins.read_port(domain="comb")
        here, first, generation, news = Signal(), Signal(), Signal(8), Signal(CLASSES)
        second, second_limit = Signal(), Signal(Limit)
        takes, writes, done, written = Signal(), Signal(), Signal(), Signal(rows)
        m.d.comb += [
            begin.addr.eq(new.row),
            generation.eq(pick(self.generations, row)),
            here.eq(self.limits_strobe & (new.row < rows) & ~self._clears
                    & pick(self._begun & ~lost, row)),
            # Later frames cannot be older: the newest acknowledgement is not.
            first.eq(~pick(self._heard, row)),
            news.eq((here & (~first | self._acknowledges(new.ack, begin.data))).replicate(CLASSES)
                    & Cat(new.mask[n] & (new.entries[n].generation == generation)
                          for n in range(CLASSES))),
            takes.eq(news.any()),
            self.stat_refused.eq(here & Cat(
                new.mask[n] & (new.entries[n].generation != closed_generation(generation)[:8])
                & ~news[n] for n in range(CLASSES)).any()),
            done.eq(Mux(self._clears, self._half & ~self.spent_strobe, second)),
            written.eq(Mux(done, 1 << self._row, 0)),
            self.wake.eq(written | ended),
        ]
        m.d.sync += [
            second.eq(takes), writes.eq(news[1] | takes & first),
            second_limit.eq(self._limit(new.entries[1], news[1])),
            self._heard.eq((self._heard | written) & ~lost),
        ]
        with m.If(self._clears):
            m.d.sync += [self._clears.eq(~done & ~self._cancels(lost)),
                         self._half.eq(self._half | ~self.spent_strobe)]
        with m.Else():
            m.d.sync += [self._clears.eq(takes & first), self._half.eq(0), self._row.eq(row)]
        pair, last = self._limits.pair.write_port(), self._limits.last.write_port()
        m.d.comb += [
            pair.addr.eq(ClassMemory.place(Mux(second, self._row, row), second)),
            pair.en.eq(Mux(second, writes, news[0] | takes & first)),
            pair.data.eq(Mux(second, second_limit, self._limit(new.entries[0], news[0]))),
            last.addr.eq(row), last.en.eq(news[2] | takes & first),
            last.data.eq(self._limit(new.entries[2], news[2])),
        ]

    def _cancels(self, lost):
        """Whether the life whose first limits are written is over."""
        return pick(lost, self._row)

    @staticmethod
    def _limit(entry, known):
        """The limit to write, or one less than 0, so that nothing may be sent."""
        header = entry.header_limit
        return Cat(header[:14], header[14:] | (~known).replicate(2), entry.data_limit)

    def _look(self, m, name):
        """Whether there are credits for a TLP; what is used with it, if it is not dead."""
        meta = getattr(self, name)
        limit = self._limits.read(m, f"{name}_limit", *self._place(meta))
        used = self._used.read(m, f"{name}_used", self._low(meta.row), meta.cls)
        row, dead, total = (
            self._low(meta.row), Signal(name=f"{name}_dead"), Signal(16, name=f"{name}_total"))
        m.d.comb += [
            total.eq(used.data + meta.units),
            dead.eq(~pick(self.open, row) | (pick(self.lives, row) != meta.life)),
            getattr(self, f"{name}_ok").eq(
                dead | pick(self._heard, row) & self._suffices(limit, used, total)),
        ]
        return Cat(used.header, total, dead)

    def _place(self, meta):
        return self._low(meta.row), meta.cls

    @staticmethod
    def _suffices(limit, used, total):
        """Whether one more header is granted, and ``total`` units: signed differences."""
        return (used.header - limit.header)[15] & ~(limit.data - total)[15]

    def _spend(self, m, i, head):
        spent, pays = self.spent, self.spent_strobe
        header, units, dead, new = Signal(16), Signal(16), Signal(), Signal(Limit)
        m.d.comb += [
            Cat(header, units, dead).eq(Mux(Value.cast(spent) == Value.cast(self.i), i, head)),
            new.header.eq(Mux(pays, header, 0) + pays), new.data.eq(Mux(pays, units, 0)),
        ]
        row, cls = self._low(spent.row), Value.cast(spent.cls)
        pair, last = self._used.pair.write_port(), self._used.last.write_port()
        m.d.comb += [
            pair.addr.eq(Mux(pays, ClassMemory.place(row, cls),
                             ClassMemory.place(self._row, self._half))),
            last.addr.eq(Mux(pays, row, self._row)),
            pair.en.eq(Mux(pays, ~dead & ~cls[1], self._clears)),
            last.en.eq(Mux(pays, ~dead & cls[1], self._clears)),
            pair.data.eq(new), last.data.eq(new),
        ]

    @staticmethod
    def _acknowledges(ack, seq):
        """Whether a frame with this acknowledgement comes from after the event ``seq``."""
        return ~(ack - seq - 1)[23]


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
