"""Credits across the fabric: what the peer granted and we used, what we granted.

Ref: docs/wire-format.md, credit extension; docs/fabric-spec.md, credits and bindings

Limits are absolute, counted from the beginning of a life of the row. So one that is lost, doubled
or late does no harm that the next one does not heal. The difference between a limit and what was
used is signed: an old limit may be less than that.
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..priority import round_robin
from .format import ACK_ENTRIES
from .types import LIFE_BITS, ClassMeta, Credit, Limit

__all__ = ["CreditAccounts", "CreditGrants", "NewLimits", "Numbered", "closed_generation",
           "grants_for"]

CLASSES = ACK_ENTRIES
#: Bytes that a TLP has beside its data: five prefixes, four dwords of header, a digest.
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


class NewLimits(data.Struct):
    """Credits of a frame that took effect.

    Members
    -------
    row : 6
    ack : 24
        Of the frame; it was not older than the newest one.
    mask : 3
        Entries that there are.
    entries : array of :class:`~.types.Credit`
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
    generations : array of 8-bit values
    numbered, numbered_strobe : :class:`Numbered`, 1
    limits, limits_strobe : :class:`NewLimits`, 1
    i, i_ok : :class:`~.types.ClassMeta`, 1
    head, head_ok : :class:`~.types.ClassMeta`, 1
        Whether there are credits for a TLP, in the same cycle.
    spent, spent_strobe : :class:`~.types.ClassMeta`, 1
        A TLP takes its credits; asked about from the next cycle on, it may be another's turn.
    wake : ``rows``
        Strobes: there may be more credits.
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
            "stat_refused": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        rows = self._rows
        # By row: a begin was numbered; by row and class: there is a limit; nothing was used yet.
        begun = Signal(rows)
        known, unused = Signal(4 * rows), Signal(4 * rows)
        m.submodules.marks = marks = Memory(shape=24, depth=rows, init=[])
        limits, used = [], []
        for n in range(CLASSES):
            for kind, memories in (("limit", limits), ("used", used)):
                memory = Memory(shape=Limit, depth=rows, init=[])
                m.submodules[f"{kind}{n}"] = memory
                memories.append(memory)
        self._known, self._unused, self._begun, self._marks = known, unused, begun, marks

        # Lives begin and end.
        ended, numbered = Signal(rows), Signal(rows)
        self._before = before = Signal.like(self.lives)
        mark = marks.write_port()
        m.d.sync += before.eq(self.lives)
        m.d.comb += [
            ended.eq(Cat(self.lives[n] != before[n] for n in range(rows)) | ~self.open),
            numbered.eq(Mux(self.numbered_strobe, 1 << self.numbered.row, 0)),
            mark.addr.eq(self.numbered.row), mark.data.eq(self.numbered.seq + 1),
            mark.en.eq(self.numbered_strobe),
        ]
        m.d.sync += begun.eq(begun & ~ended | numbered)

        # Limits.
        new = self.limits
        read_mark = marks.read_port(domain="comb")
        here, current, generation = Signal(), Signal(), Signal(8)
        news = Signal(CLASSES)
        m.d.comb += [
            read_mark.addr.eq(new.row),
            generation.eq(Array(self.generations)[new.row]),
            here.eq(self.limits_strobe & (new.row < rows)
                    & (self.open & begun).bit_select(new.row, 1)),
            # Later ones cannot be older: the newest acknowledgement is not.
            current.eq(known.word_select(new.row, 4).any()
                       | self._acknowledges(new.ack, read_mark.data)),
            news.eq(Cat(here & current & new.mask[n] & (new.entries[n].generation == generation)
                        for n in range(CLASSES))),
            self.stat_refused.eq(here & Cat(
                new.mask[n] & (new.entries[n].generation != closed_generation(generation)[:8])
                & ~news[n] for n in range(CLASSES)).any()),
            self.wake.eq(Mux(news.any(), 1 << new.row, 0) | ended),
        ]
        for n in range(CLASSES):
            write = limits[n].write_port()
            m.d.comb += [
                write.addr.eq(new.row), write.en.eq(news[n]),
                write.data.header.eq(new.entries[n].header_limit),
                write.data.data.eq(new.entries[n].data_limit),
            ]
        granted = Signal.like(known)
        m.d.comb += granted.eq(Mux(self.limits_strobe, Cat(news, C(0, 1)) << (4 * new.row), 0))
        lost = Cat(x.replicate(4) for x in ended | numbered)
        m.d.sync += known.eq((known | granted) & ~lost)

        # What is used.
        spent, paid = self.spent, Signal.like(known)
        counts = Signal()
        sums = self._balance(m, "spent", spent, limits, used)[1]
        m.d.comb += [
            counts.eq(self.spent_strobe & ~self._dead(spent)),
            paid.eq(Mux(counts, 1 << Cat(Value.cast(spent.cls), spent.row), 0)),
        ]
        m.d.sync += unused.eq(unused & ~paid | granted & ~known)
        for n in range(CLASSES):
            write = used[n].write_port()
            m.d.comb += [
                write.addr.eq(spent.row), write.en.eq(counts & (Value.cast(spent.cls) == n)),
                write.data.header.eq(sums.header + 1), write.data.data.eq(sums.data + spent.units),
            ]

        for name in ("i", "head"):
            meta = getattr(self, name)
            limit, sums = self._balance(m, name, meta, limits, used)
            headers, units = Signal(signed(16), name=f"{name}_headers"), Signal(
                signed(17), name=f"{name}_units")
            m.d.comb += [
                headers.eq(limit.header - sums.header),
                units.eq((limit.data - sums.data)[:16].as_signed() - meta.units),
                getattr(self, f"{name}_ok").eq(
                    self._dead(meta) | known.bit_select(self._place(meta), 1)
                    & (headers > 0) & (units >= 0)),
            ]
        return m

    @staticmethod
    def _acknowledges(ack, mark):
        """Whether a frame has an acknowledgement of at least ``mark``."""
        return ~(ack - mark)[23]

    @staticmethod
    def _place(meta):
        return Cat(Value.cast(meta.cls), meta.row)

    def _dead(self, meta):
        return ~self.open.bit_select(meta.row, 1) | (Array(self.lives)[meta.row] != meta.life)

    def _balance(self, m, name, meta, limits, used):
        """Limit, and what was used, of a TLP's row and class."""
        found = []
        for kind, memories in (("limit", limits), ("used", used)):
            ports = [memory.read_port(domain="comb") for memory in memories]
            value = Signal(Limit, name=f"{name}_{kind}")
            for port in ports:
                m.d.comb += port.addr.eq(meta.row)
            m.d.comb += value.eq(Array([p.data.as_value() for p in ports])[Value.cast(meta.cls)])
            found.append(value)
        none = Signal(name=f"{name}_none")
        m.d.comb += none.eq(self._unused.bit_select(self._place(meta), 1))
        sums = Signal(Limit, name=f"{name}_sums")
        m.d.comb += sums.eq(Mux(none, 0, found[1].as_value()))
        return found[0], sums


class CreditGrants(wiring.Component):
    """Counts what left the queues of each row, and says when the peer is to be told.

    The limits of a row begin with ``initial`` when its life does. A change is told with the next
    frame for the row, and by a frame of its own if none goes for one to two ``period``; once more
    within ``again`` of them, as it may have been lost; and all limits are told again every
    ``refresh`` times that.

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
    released, released_strobe : :class:`~.types.ClassMeta`, 1
        A TLP has left its queue.
    row : 6
    limits, due : array of :class:`~.types.Limit`, 3
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
        rows = self._rows
        begins, before = Signal(rows), Signal(rows)
        m.d.sync += before.eq(self.open)
        m.d.comb += begins.eq(self.open & ~before)
        self._before = before

        gone, row = self.released, self.released.row
        fresh = [Signal(rows, name=f"fresh{n}") for n in range(CLASSES)]  # nothing released yet
        for n in range(CLASSES):
            m.submodules[f"freed{n}"] = freed = Memory(shape=Limit, depth=rows, init=[])
            read, write, look = freed.read_port(domain="comb"), freed.write_port(), (
                freed.read_port(domain="comb"))
            mine, none = Signal(name=f"mine{n}"), Signal(rows, name=f"none{n}")
            sums, seen = Signal(Limit, name=f"sums{n}"), Signal(Limit, name=f"seen{n}")
            m.d.comb += [
                mine.eq(self.released_strobe & (Value.cast(gone.cls) == n)
                        & self.open.bit_select(row, 1)),
                read.addr.eq(row), write.addr.eq(row), write.en.eq(mine),
                none.eq(self._is_new(fresh[n], begins)),
                sums.eq(Mux(none.bit_select(row, 1), 0, read.data.as_value())),
                write.data.header.eq(sums.header + 1),
                write.data.data.eq(sums.data + gone.units),
                look.addr.eq(self.row),
                seen.eq(Mux(none.bit_select(self.row, 1), 0, look.data.as_value())),
                self.limits[n].header.eq(seen.header + self._initial[n][0]),
                self.limits[n].data.eq(seen.data + self._initial[n][1]),
            ]
            m.d.sync += fresh[n].eq((fresh[n] | begins) & ~Mux(mine, 1 << row, 0))

        # When to tell.
        clock, slow = Signal(range(self._again * self._period)), Signal(
            range(self._refresh))
        tick, again_tick, slow_tick = Signal(), Signal(), Signal()
        m.d.sync += [clock.eq(clock + 1), slow.eq(slow + again_tick)]
        m.d.comb += [
            tick.eq(clock[:(self._period - 1).bit_length()] == 0), again_tick.eq(clock == 0),
            slow_tick.eq(again_tick & (slow == 0)),
        ]
        due = [Signal(CLASSES, name=f"due{n}") for n in range(rows)]
        some, old, again = Signal(rows), Signal(rows), Signal(rows)
        m.d.comb += [some.eq(Cat(d.any() for d in due) & self.open),
                     self.due.eq(Array(due)[self.row])]
        for n in range(rows):
            came = Signal(CLASSES, name=f"came{n}")
            left = self.released_strobe & (row == n)
            m.d.comb += came.eq(Mux(left, 1 << Value.cast(gone.cls), 0)
                                | (begins[n] | again_tick & again[n]
                                   | slow_tick).replicate(CLASSES))
            told = self.told & (self.told_row == n)
            m.d.sync += due[n].eq(due[n] & ~Mux(told, self.told_mask, 0) | came)
            m.d.sync += again[n].eq(again[n] & ~again_tick | left | begins[n])
            with m.If(tick):
                m.d.sync += old[n].eq(some[n])
            with m.Elif(~some[n]):
                m.d.sync += old[n].eq(0)
        late, chosen = Signal(rows), Signal(range(rows))
        m.d.comb += late.eq(Mux(tick, old & some, 0))
        waiting = Signal(rows)
        pick = Signal(range(rows))
        m.d.comb += pick.eq(round_robin(waiting, chosen))
        with m.If(self.want.valid):
            with m.If(self.want.ready):
                m.d.sync += self.want.valid.eq(0)
        with m.Elif(waiting.any()):
            m.d.sync += [self.want.valid.eq(1), self.want.payload.eq(pick), chosen.eq(pick)]
        taken = Mux(~self.want.valid & waiting.any(), 1 << pick, 0)
        m.d.sync += waiting.eq((waiting & ~taken | late) & some)
        return m

    @staticmethod
    def _is_new(fresh, begins):
        """Rows of which nothing was released in this life; true from its first cycle on."""
        return fresh | begins
