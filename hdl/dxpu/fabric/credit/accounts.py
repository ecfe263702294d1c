"""Credits that peers granted, less those that were consumed.

Ref: docs/reference/wire-format.md, credit extension; docs/reference/fabric-spec.md, credits and
bindings

Limits are absolute, counted from the beginning of a life of the row. So one that is lost, doubled
or late does no harm that the next one does not heal. The difference between a limit and what was
consumed is signed: an old limit may be less than that.
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.fabric.wire.types import Credit, Limit
from dxpu.priority import pick
from dxpu.rows import LIFE_BITS, ClassMeta

from .credits import CLASSES, ClassMemory, Numbered, closed_generation, low

__all__ = ["CreditAccounts", "LimitIntake", "LimitWrite", "NewLimits"]


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
    numbered, numbered_strobe : :class:`~.credits.Numbered`, 1
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


class CreditAccounts(wiring.Component):
    """Which TLPs may be sent: credits that peers granted, less those that were consumed.

    With the beginning of a life, or the event that asks the peer for one, all credits of the row
    are gone. New ones count only in a frame that acknowledges this event, so none of an earlier
    life does; and only with the row's generation. Others change nothing and are counted, but for
    those that say that the peer has not begun yet.

    A TLP that can never leave (its life is over, or its row closed) may pass, and takes nothing:
    whoever would send it drops it.

    What is left of an account is a difference of two words in memories, so the answer comes in the
    next cycle. At once is known whether the account had enough for any TLP when it was paid last,
    or when its first limit came. A later limit that is lower takes nothing of that.

    Parameters
    ----------
    rows : int
    most : pair of ints
        Data units that are enough for any TLP: a posted one or a completion, a non-posted one.

    Members
    -------
    open : ``rows``
    lives : array of numbers
        That of the next life of a row is one more; it begins in another cycle than the one after
        it.
    generations : array of 8-bit values
    numbered, numbered_strobe : :class:`~.credits.Numbered`, 1
    limits : stream of :class:`NewLimits`
        A limit may be used from the second cycle after the one in which it is read, which is one of
        one to three cycles; or a cycle later, if it is a first one.
    checked : :class:`~dxpu.rows.ClassMeta`
        A TLP. ``row`` is one of the rows.
    sure : 1
        There are credits for the TLP, in the same cycle; 0: that is not known yet. Whether the TLP
        can leave at all is not looked at.
    ok : 1
        Whether there were credits for the TLP that was ``checked`` in the cycle before.
    consumed : 1
        Strobe: the TLP ``checked`` takes its credits.
    wake : ``rows``
        Strobes: there may be more credits from the next cycle on.
    stat_refused : 1
        Pulse: credits of a frame were refused.
    """

    def __init__(self, *, rows, most):
        self._rows, self._most = rows, most
        self._intake = LimitIntake(rows=rows)
        # Of each row and class: the credits that were granted, and consumed, since its life began.
        self._limits, self._used = (ClassMemory(Limit, rows=rows) for _ in range(2))
        #: By class: rows that have a limit; rows that have consumed credits.
        self._known, self._begun = ([Signal(rows, name=f"{name}{n}") for n in range(CLASSES)]
                                    for name in ("known", "begun"))
        super().__init__({
            "open": In(rows),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "generations": In(data.ArrayLayout(8, rows)),
            "numbered": In(Numbered),
            "numbered_strobe": In(1),
            "limits": In(stream.Signature(NewLimits)),
            "checked": In(ClassMeta),
            "sure": Out(1),
            "ok": Out(1),
            "consumed": In(1),
            "wake": Out(rows),
            "stat_refused": Out(Counted(
                "Credits refused: of another generation, or before the life they are for began.")),
        })

    def elaborate(self, platform):
        m = Module()
        rows, tlp = self._rows, self.checked
        m.submodules.intake = intake = self._intake
        m.submodules.limits, m.submodules.used = limits, used = self._limits, self._used
        # One bit of a life changes with each.
        lives = Signal(rows)
        m.d.sync += lives.eq(Cat(life[0] for life in self.lives))
        # A limit is written a cycle after it is read: that it counts is known late. With a first
        # one of a row and class `ample` is written, too, unless a payment has to write there.
        granted, waits, holds, grants = Signal(LimitWrite), Signal(), Signal(), Signal()
        granted_row, granted_cls = low(granted.row, rows), granted.cls
        is_first, paid, left = Signal(), Signal(), Signal()
        m.d.sync += waits.eq(Mux(holds, ~pick(intake.lost, granted_row), intake.o_strobe))
        with m.If(~holds):
            m.d.sync += granted.eq(intake.o)
        m.d.comb += [
            is_first.eq(~self._of(self._begun, granted_row, granted_cls)),
            holds.eq(waits & is_first & paid & ~left), grants.eq(waits & ~holds),
            intake.i.payload.eq(self.limits.payload),
            intake.i.valid.eq(self.limits.valid & ~holds),
            self.limits.ready.eq(intake.i.ready & ~holds),
            intake.generations.eq(self.generations),
            intake.numbered.eq(self.numbered), intake.numbered_strobe.eq(self.numbered_strobe),
            intake.ended.eq((Cat(life[0] for life in self.lives) ^ lives) | ~self.open),
            self.stat_refused.eq(intake.stat_refused),
            self.wake.eq(Mux(grants, 1 << granted_row, 0) | intake.ended),
        ]
        limits.write(m, grants, granted_row, granted_cls, granted.limit)

        row, cls = low(tlp.row, rows), Value.cast(tlp.cls)
        limit = limits.read(m, "limit", *self._place(row, cls))
        word, old, new = used.read(m, "used", row, cls), Signal(Limit), Signal(Limit)
        dead, pays = Signal(), Signal()
        m.d.comb += [
            dead.eq(~pick(self.open, row) | (pick(self.lives, row) != tlp.life)),
            old.eq(Mux(self._of(self._begun, row, cls), word.as_value(), 0)),
            new.header.eq(old.header + 1), new.data.eq(old.data + tlp.units),
            pays.eq(self.consumed & ~dead),
        ]
        used.write(m, pays, row, cls, new)

        # What the account that was checked in the cycle before has more than the TLP takes, and
        # whether that was paid.
        has, was_dead, known = Signal(), Signal(), Signal()
        headers, units = Signal(16), Signal(16)
        paid_row, paid_cls = Signal.like(row), Signal(2)
        m.d.sync += [
            has.eq(known), was_dead.eq(dead), paid.eq(pays),
            headers.eq(old.header - limit.header), units.eq(limit.data - new.data),
            paid_row.eq(row), paid_cls.eq(cls),
        ]
        # Of each row and class that has a limit: whether what was left by the last payment, or the
        # first limit, is enough for any TLP.
        m.submodules.ample = ample = Memory(shape=1, depth=4 * rows, init=[])
        enough, enters = ample.read_port(domain="comb"), ample.write_port()
        amount, fits, begins = granted.limit, Signal(), grants & is_first
        m.d.comb += [
            known.eq(self._of(self._known, row, cls)),
            self.ok.eq(was_dead | has & headers[15] & ~units[15]),
            left.eq(has & headers[15] & ~headers.all() & self._suffices(units, paid_cls)),
            enough.addr.eq(Cat(cls, row)),
            fits.eq(Mux(cls[0], tlp.units <= self._most[1], tlp.units <= self._most[0])),
            self.sure.eq(known & fits & Mux(
                paid & (paid_row == row) & (paid_cls == cls), left, enough.data)),
            # A payment that leaves enough need not be noted.
            enters.addr.eq(Mux(begins, Cat(granted_cls, granted_row), Cat(paid_cls, paid_row))),
            enters.data.eq(Mux(begins, ~amount.header[15] & (amount.header != 0)
                               & self._suffices(amount.data, granted_cls), left)),
            enters.en.eq(begins | paid),
        ]
        for bits, strobe, at, of_class in (
                (self._known, grants, granted_row, granted_cls), (self._begun, pays, row, cls)):
            for n, has_any in enumerate(bits):
                m.d.sync += has_any.eq(
                    (has_any | Mux(strobe & (of_class == n), 1 << at, 0)) & ~intake.lost)
        return m

    def _of(self, bits, row, cls):
        """The bit of a row and class."""
        return pick([pick(of_class, row) for of_class in bits], cls)

    def _suffices(self, units, cls):
        """Whether so many units, a signed number, are enough for any TLP of the class."""
        p, np = (units[:15] >= most for most in self._most)
        return ~units[15] & Mux(cls[0], np, p)

    def _place(self, row, cls):
        return row, cls
