"""Limits that peers grant: those that count, of all that come.

Ref: docs/reference/wire-format.md, credit extension; docs/reference/fabric-spec.md, credits and
bindings
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.fabric.credit.credits import CLASSES, Numbered, closed_generation, low
from dxpu.fabric.wire.types import Credit, Limit
from dxpu.priority import pick

__all__ = ["LimitIntake", "LimitWrite", "NewLimits"]


class NewLimits(data.Struct):
    """Credits of a frame that took effect.

    Members
    -------
    row : 6
    ack : 24
        Of the frame; it was not older than the newest one.
    is_reply, crx : 1
        The frame has ``credits``; if not, it has ``credit``.
    credits : array of :class:`~dxpu.fabric.wire.types.Credit`
        Entries of an ACK, by class.
    credit : :class:`~dxpu.fabric.wire.types.Credit`
        Credit extension, of the class that it names.
    """

    row: 6
    ack: 24
    is_reply: 1
    crx: 1
    credits: data.ArrayLayout(Credit, CLASSES)
    credit: Credit


class LimitWrite(data.Struct):
    """A limit that counts, of a row and class."""

    row: 6
    cls: 2
    limit: Limit


class LimitIntake(wiring.Component):
    """Picks the limits that count out of those that come: one in a cycle.

    A limit counts if it has the generation of its row, and comes in a frame that acknowledges the
    event which begins the row's life. Later frames of the life acknowledge it, too. Others change
    nothing and are counted, but for those that say that the peer has not begun yet.

    Parameters
    ----------
    rows : int

    Members
    -------
    i : stream of :class:`NewLimits`
        Taken in the first cycle, or the third one of a reply.
    generations : array of 8-bit values
    numbered, numbered_strobe : :class:`~dxpu.fabric.credit.credits.Numbered`, 1
    ended : ``rows``
        Strobes: the life of row n is over.
    lost : ``rows``
        Strobes: row n has no limits from the next cycle on, as its life is over or the event that
        begins the next one was numbered. In this cycle none of row n counts.
    o, o_strobe : :class:`LimitWrite`, 1
        A limit that counts, in the cycle in which it is on ``i``.
    stat_refused : 1
        Pulse: limits of a frame were refused.
    """

    def __init__(self, *, rows):
        self._rows = rows
        #: By row: the event that begins its life was numbered; a frame has acknowledged it.
        self.numbered_rows, self.confirmed = Signal(rows), Signal(rows)
        #: Numbers of these events.
        self.begins = Memory(shape=24, depth=rows, init=[])
        super().__init__({
            "i": In(stream.Signature(NewLimits)),
            "generations": In(data.ArrayLayout(8, rows)),
            "numbered": In(Numbered),
            "numbered_strobe": In(1),
            "ended": In(rows),
            "lost": Out(rows),
            "o": Out(LimitWrite),
            "o_strobe": Out(1),
            "stat_refused": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.begins = self.begins
        rows, new = self._rows, self.i.payload
        row, numbered = low(new.row, rows), Signal(rows)
        begin, number = self.begins.read_port(domain="comb"), self.begins.write_port()
        m.d.comb += [
            numbered.eq(Mux(self.numbered_strobe, 1 << low(self.numbered.row, rows), 0)),
            number.addr.eq(self.numbered.row), number.data.eq(self.numbered.seq),
            number.en.eq(self.numbered_strobe),
            self.lost.eq(self.ended | numbered),
        ]

        # The entry of this cycle.
        step, entry, present = Signal(range(CLASSES)), Signal(Credit), Signal()
        last = Signal()
        m.d.comb += [
            entry.eq(pick([*new.credits, new.credit], step | (~new.is_reply).replicate(2))),
            self.o.row.eq(new.row), self.o.cls.eq(Mux(new.is_reply, step, new.credit.cls[:2])),
            self.o.limit.header.eq(entry.header_limit), self.o.limit.data.eq(entry.data_limit),
            present.eq(new.is_reply | new.crx & (new.credit.cls[:2] != CLASSES)),
            last.eq(~new.is_reply | (step == CLASSES - 1)),
            self.i.ready.eq(last),
        ]
        with m.If(self.i.valid):
            m.d.sync += step.eq(Mux(last, 0, step + 1))

        generation, known, current = Signal(8), Signal(), Signal()
        refused, refused_before = Signal(), Signal()
        m.d.comb += [
            begin.addr.eq(new.row),
            generation.eq(pick(self.generations, row)),
            known.eq(self.i.valid & present & (new.row < rows)
                     & pick(self.numbered_rows & ~self.lost, row)),
            # Later frames cannot be older: the newest acknowledgement is not.
            current.eq((entry.generation == generation)
                       & (pick(self.confirmed, row) | self._acknowledges(new.ack, begin.data))),
            self.o_strobe.eq(known & current),
            refused.eq(known & ~current & (entry.generation != closed_generation(generation)[:8])),
            self.stat_refused.eq(self.i.valid & last & (refused | refused_before)),
        ]
        m.d.sync += [
            refused_before.eq((refused | refused_before) & ~last),
            self.numbered_rows.eq(self.numbered_rows & ~self.ended | numbered),
            self.confirmed.eq((self.confirmed | Mux(self.o_strobe, 1 << row, 0)) & ~self.lost),
        ]
        return m

    @staticmethod
    def _acknowledges(ack, seq):
        """Whether a frame with this acknowledgement comes from after the event ``seq``."""
        return ~(ack - seq - 1)[23]
