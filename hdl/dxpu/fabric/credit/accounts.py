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
from dxpu.fabric.wire.types import Limit
from dxpu.priority import pick
from dxpu.rows import LIFE_BITS, ClassMeta

from .credits import CLASSES, ClassMemory, Numbered, low
from .limits.limit_intake import LimitIntake, LimitWrite, NewLimits

__all__ = ["CreditAccounts"]


def _at_most(value, bound):
    """Whether an unsigned value is at most a constant, without a carry chain.

    It is if some bit in which the constant has a 1 is 0, and all bits above are no more.
    """
    result = C(1)
    for n, bit in enumerate(value):
        result = ~bit | result if bound >> n & 1 else ~bit & result
    return result


class Payment(data.Struct):
    """What a row has ``used`` of its credits of a class, with the TLP that was paid for."""

    row: 6
    cls: 2
    used: Limit


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
    incoming, sure : :class:`~dxpu.rows.ClassMeta`, 1
        A TLP that is or will be ``checked``, for which there are credits, in the same cycle; 0:
        that is not known yet. Whether the TLP can leave at all is not looked at.
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
        #: Whether a TLP was paid for in the cycle before; what its account has used with it, which
        #: is written now, as it is known late that a TLP leaves.
        self._paid, self._payment = Signal(), Signal(Payment)
        super().__init__({
            "open": In(rows),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "generations": In(data.ArrayLayout(8, rows)),
            "numbered": In(Numbered),
            "numbered_strobe": In(1),
            "limits": In(stream.Signature(NewLimits)),
            "checked": In(ClassMeta),
            "incoming": In(ClassMeta),
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
        is_first, left, paid, payment = Signal(), Signal(), self._paid, self._payment
        paid_row, paid_cls = low(payment.row, rows), payment.cls
        m.d.sync += waits.eq(Mux(holds, ~pick(intake.lost, granted_row), intake.o_strobe))
        with m.If(~holds):
            m.d.sync += granted.eq(intake.o)
        m.d.comb += [
            is_first.eq(~self._of(self._begun, granted_row, granted_cls)
                        & ~self._pays(granted_row, granted_cls)),
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
        dead = Signal()
        m.d.comb += [
            dead.eq(~pick(self.open, row) | (pick(self.lives, row) != tlp.life)),
            old.eq(Mux(self._pays(row, cls), payment.used.as_value(),
                       Mux(self._of(self._begun, row, cls), word.as_value(), 0))),
            new.header.eq(old.header + 1), new.data.eq(old.data + tlp.units),
        ]
        m.d.sync += [
            paid.eq(self.consumed & ~dead),
            payment.row.eq(row), payment.cls.eq(cls), payment.used.eq(new),
        ]
        used.write(m, paid, paid_row, paid_cls, payment.used)

        # What the account that was checked in the cycle before has more than the TLP takes.
        has, was_dead, known = Signal(), Signal(), Signal()
        headers, units = Signal(16), Signal(16)
        m.d.sync += [
            has.eq(known), was_dead.eq(dead),
            headers.eq(old.header - limit.header), units.eq(limit.data - new.data),
        ]
        # Of each row and class that has a limit: whether what was left by the last payment, or the
        # first limit, is enough for any TLP.
        m.submodules.ample = ample = Memory(shape=1, depth=4 * rows, init=[])
        enough, enters = ample.read_port(domain="comb"), ample.write_port()
        amount, fits, begins = granted.limit, Signal(), grants & is_first
        # Apart from what is looked up of `checked`, which of several TLPs that is is known later.
        new_row, new_cls = low(self.incoming.row, rows), Value.cast(self.incoming.cls)
        m.d.comb += [
            known.eq(self._of(self._known, row, cls)),
            self.ok.eq(was_dead | has & headers[15] & ~units[15]),
            left.eq(has & headers[15] & ~headers.all() & self._suffices(units, paid_cls)),
            enough.addr.eq(Cat(new_cls, new_row)),
            fits.eq(Mux(new_cls[0], *(_at_most(self.incoming.units, most)
                                      for most in reversed(self._most)))),
            self.sure.eq(self._of(self._known, new_row, new_cls) & fits
                         & Mux(self._pays(new_row, new_cls), left, enough.data)),
            # A payment that leaves enough need not be noted.
            enters.addr.eq(Mux(begins, Cat(granted_cls, granted_row), Cat(paid_cls, paid_row))),
            enters.data.eq(Mux(begins, ~amount.header[15] & (amount.header != 0)
                               & self._suffices(amount.data, granted_cls), left)),
            enters.en.eq(begins | paid),
        ]
        for bits, strobe, at, of_class in (
                (self._known, grants, granted_row, granted_cls),
                (self._begun, paid, paid_row, paid_cls)):
            for n, has_any in enumerate(bits):
                m.d.sync += has_any.eq(
                    (has_any | Mux(strobe & (of_class == n), 1 << at, 0)) & ~intake.lost)
        return m

    def _of(self, bits, row, cls):
        """The bit of a row and class."""
        return pick([pick(of_class, row) for of_class in bits], cls)

    def _pays(self, row, cls):
        """Whether a TLP of this row and class was paid for in the cycle before."""
        payment = self._payment
        return self._paid & (low(payment.row, self._rows) == row) & (payment.cls == cls)

    def _suffices(self, units, cls):
        """Whether so many units, a signed number, are enough for any TLP of the class."""
        p, np = (~_at_most(units[:15], most - 1) for most in self._most)
        return ~units[15] & Mux(cls[0], np, p)

    def _place(self, row, cls):
        return row, cls
