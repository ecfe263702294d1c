"""TLPs that leave the class queues.

Ref: docs/explanation/flow-control.md, "Inside the class queues"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import ReadPort
from amaranth.lib.wiring import In, Out

from dxpu.rows import ClassMeta
from dxpu.stream import PacketSignature
from dxpu.tlp.types import TlpClass

from .queue_ends import EndsSignature, following, queue_number

__all__ = ["Departure"]


class Departure(wiring.Component):
    """Checks whether the head of the granted queue may leave; reads it if so.

    It may if all posted TLPs of its row that came before it have left, and ``ok`` says so. It is
    checked while no TLP is going straight through. If it may leave, none begins until it has left.

    Four cycles from ``granted`` to the first beat if no TLP is going straight through, then a beat
    per cycle, and one to settle. While a TLP leaves, from its beat ``ahead_from`` on, the next one
    of the queue is checked, unless it is non-posted; if it may leave too, its first beat follows
    the last one at once.

    Parameters
    ----------
    width, rows, space, packets, stamp
        Of :class:`~dxpu.fabric.credit.class_queues.ClassQueues`.
    beat, note : shape
        Of words of the memories.
    ahead_from : int
        Beats of a TLP that have been read before the next one is looked at; at least 1.

    Members
    -------
    row, cls, granted, goes_on, done, beat_read
        Of :class:`~.queue_turns.QueueTurns`.
    head : :class:`~dxpu.rows.ClassMeta`
        TLP at the head of the queue, or the one behind it while that is checked.
    checking : 1
        ``head`` is checked, or was in the cycle before.
    ok : 1
        Whether the TLP that was checked in the cycle before may leave.
    claim : 1
        Strobe: ``head`` leaves from the next cycle on, or behind the one that is leaving, and takes
        what it was checked for.
    passing : 1
        A TLP that came goes straight through in the next cycle, too. None begins with ``checking``
        or ``draining``.
    draining : 1
        The TLP is leaving: ``o`` is to be shown.
    ends : :class:`~.queue_ends.EndsSignature`
        ``ends.strobe``: a TLP has left ``ends.queue``.
    beats, notes : read ports
    o : packet stream with :class:`~dxpu.rows.ClassMeta`
    refused : 1
        Strobe: the head of the queue may not leave.
    emptied : 1
        Strobe: the last TLP has left the queue.
    amount : beats
        Of the TLP that left, with ``ends.strobe`` and in the cycle after.
    """

    def __init__(self, width, *, rows, space, packets, stamp, beat, note, ahead_from):
        self._rows, self._space, self._ahead_from = rows, space, ahead_from
        super().__init__({
            "row": In(range(rows)),
            "cls": In(2),
            "granted": In(1),
            "goes_on": In(1),
            "done": Out(1),
            "beat_read": Out(1),
            "head": Out(ClassMeta),
            "checking": Out(1),
            "ok": In(1),
            "claim": Out(1),
            "passing": In(1),
            "draining": Out(1),
            "ends": Out(EndsSignature(rows=rows, total=space.total, packets=packets, stamp=stamp)),
            "beats": In(ReadPort.Signature(
                addr_width=(rows * space.total - 1).bit_length(), shape=beat)),
            "notes": In(ReadPort.Signature(
                addr_width=(4 * rows * packets - 1).bit_length(), shape=note)),
            "o": Out(PacketSignature(width, ClassMeta)),
            "refused": Out(1),
            "emptied": Out(1),
            "amount": Out(range(max(space.beats) + 1)),
        })

    def elaborate(self, platform):
        m = Module()
        o, ends, note, row, cls = self.o, self.ends, self.notes.data, self.row, self.cls
        place, first = Signal.like(ends.next), Signal()
        after, since = Signal.like(place), Signal.like(note.older)
        # All posted TLPs before the head have left, as of the cycle before; it may leave.
        in_order, fits = Signal(), Signal()
        # Of the TLP that leaves; the note may be that of the next one already.
        units, life = Signal.like(note.units, reset_less=True), Signal.like(
            note.life, reset_less=True)
        packet, behind = Signal.like(ends.head.packet), Signal.like(ends.head.packet)
        ahead, free = Signal(), Signal()
        m.d.comb += [
            # Undriven, the enable of a port is 1.
            self.beats.en.eq(0), self.notes.en.eq(0),
            ends.queue.eq(queue_number(row, cls)), ends.next.eq(place),
            behind.eq(ends.head.packet + 1), packet.eq(ends.head.packet),
            self.notes.addr.eq(Cat(packet, ends.queue)),
            self.head.row.eq(row), self.head.cls.eq(cls), self.head.units.eq(note.units),
            self.head.life.eq(note.life),
            # Posted TLPs that have left, less those that came before this TLP.
            since.eq(ends.posted - note.older),
            self.beats.addr.eq(Cat(place, row)),
            *(o.payload[k].eq(self.beats.data[k]) for k, _ in self.beats.data.shape()),
            o.payload.first.eq(first), o.payload.meta.row.eq(row), o.payload.meta.cls.eq(cls),
            o.payload.meta.units.eq(units), o.payload.meta.life.eq(life),
            after.eq(following(self._space, place, cls)),
        ]
        m.d.sync += in_order.eq((cls == TlpClass.P.value) | ~since[-1])
        m.d.comb += [fits.eq(in_order & self.ok), free.eq(~self.passing)]
        # A register: what is looked up of the head is needed early.
        m.d.sync += self.checking.eq(0)
        with m.If(self.beat_read):
            m.d.sync += [place.eq(after), self.amount.eq(self.amount + 1)]
        with m.FSM():
            with m.State("Read"):
                m.d.comb += self.notes.en.eq(self.granted)
                with m.If(self.granted):
                    m.d.sync += [place.eq(ends.head.place), self.amount.eq(0),
                                 self.checking.eq(free)]
                    with m.If(free):
                        m.next = "Check"
                    with m.Else():
                        m.next = "Wait"
            with m.State("Wait"):
                m.d.sync += self.checking.eq(free)
                with m.If(free):
                    m.next = "Check"
            with m.State("Check"):
                m.d.sync += self.checking.eq(1)
                m.next = "Claim"
            with m.State("Claim"):
                m.d.comb += [
                    self.beats.en.eq(1),
                    self.claim.eq(fits), self.beat_read.eq(fits),
                    self.refused.eq(~fits), self.done.eq(~fits),
                ]
                m.d.sync += [first.eq(1), units.eq(note.units), life.eq(note.life)]
                with m.If(fits):
                    m.next = "Move"
                with m.Else():
                    m.next = "Read"
            with m.State("Move"):
                ends_now = o.ready & o.payload.last
                self._look_ahead(m, packet, behind, ends_now, ahead, fits)
                m.d.comb += [
                    self.draining.eq(1), o.valid.eq(1),
                    self.beats.en.eq(o.ready & (~o.payload.last | ahead)),
                    self.beat_read.eq(self.beats.en), ends.strobe.eq(ends_now & ahead),
                ]
                with m.If(o.ready):
                    m.d.sync += first.eq(o.payload.last)
                with m.If(ends_now):
                    m.d.sync += [units.eq(note.units), life.eq(note.life)]
                    with m.If(ahead):
                        m.d.sync += self.amount.eq(1)
                    with m.Else():
                        m.next = "Settle"
            with m.State("Settle"):
                m.d.comb += [
                    self.done.eq(1), ends.strobe.eq(1),
                    self.emptied.eq(behind == ends.tail.packet),
                ]
                m.next = "Read"
        return m

    def _look_ahead(self, m, packet, behind, ends_now, ahead, fits):
        """Reads the note of the next TLP, checks it, and claims; ``ahead``: it follows."""
        read, checks, decides, follows = (Signal(name=f"ahead_{name}") for name in (
            "read", "checks", "decides", "follows"))
        tried = Signal(name="ahead_tried")
        m.d.comb += [
            read.eq(self.goes_on & (self.cls != TlpClass.NP.value) & ~tried
                    & (self.amount >= self._ahead_from) & (behind != self.ends.tail.packet)),
            self.claim.eq(decides & fits),
            ahead.eq(decides & fits | follows),
        ]
        m.d.sync += [self.checking.eq((read | checks) & ~ends_now),
                     checks.eq(read & ~ends_now), decides.eq(checks & ~ends_now),
                     follows.eq(ahead & ~ends_now), tried.eq((tried | read) & ~ends_now)]
        with m.If(read):
            m.d.comb += [packet.eq(behind), self.notes.en.eq(1)]
