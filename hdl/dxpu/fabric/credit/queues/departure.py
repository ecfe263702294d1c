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
    per cycle, and one to settle.

    Parameters
    ----------
    width, rows, space, packets, stamp
        Of :class:`~dxpu.fabric.credit.class_queues.ClassQueues`.
    beat, note : shape
        Of words of the memories.

    Members
    -------
    row, cls, granted, done, beat_read
        Of :class:`~.queue_turns.QueueTurns`.
    head : :class:`~dxpu.rows.ClassMeta`
        TLP at the head of the queue.
    check, ok : 1
        ``head`` is checked; whether it may leave, in the same cycle.
    claim : 1
        Strobe: ``head`` leaves from the next cycle on, and takes what it was checked for.
    passing : 1
        A TLP that came is going straight through. None begins with ``check``, ``claim`` or
        ``draining``.
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

    def __init__(self, width, *, rows, space, packets, stamp, beat, note):
        self._rows, self._space = rows, space
        super().__init__({
            "row": In(range(rows)),
            "cls": In(2),
            "granted": In(1),
            "done": Out(1),
            "beat_read": Out(1),
            "head": Out(ClassMeta),
            "check": Out(1),
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
        after, since, fits = Signal.like(place), Signal.like(note.older), Signal()
        m.d.comb += [
            # Undriven, the enable of a port is 1.
            self.beats.en.eq(0), self.notes.en.eq(0),
            ends.queue.eq(queue_number(row, cls)), ends.next.eq(place),
            self.notes.addr.eq(Cat(ends.head.packet, ends.queue)),
            self.head.row.eq(row), self.head.cls.eq(cls), self.head.units.eq(note.units),
            self.head.life.eq(note.life),
            # Posted TLPs that have left, less those that came before this TLP.
            since.eq(ends.posted - note.older),
            self.beats.addr.eq(Cat(place, row)),
            *(o.payload[k].eq(self.beats.data[k]) for k, _ in self.beats.data.shape()),
            o.payload.first.eq(first), o.payload.meta.eq(self.head),
            after.eq(following(self._space, place, cls)),
        ]
        m.d.sync += fits.eq(((cls == TlpClass.P.value) | ~since[-1]) & self.ok)
        with m.If(self.beat_read):
            m.d.sync += [place.eq(after), self.amount.eq(self.amount + 1)]
        with m.FSM():
            with m.State("Read"):
                m.d.comb += self.notes.en.eq(self.granted)
                with m.If(self.granted):
                    m.d.sync += [place.eq(ends.head.place), self.amount.eq(0)]
                    m.next = "Check"
            with m.State("Check"):
                m.d.comb += self.check.eq(~self.passing)
                with m.If(self.check):
                    m.next = "Claim"
            with m.State("Claim"):
                m.d.comb += [
                    self.beats.en.eq(1),
                    self.claim.eq(fits), self.beat_read.eq(fits),
                    self.refused.eq(~fits), self.done.eq(~fits),
                ]
                m.d.sync += first.eq(1)
                with m.If(fits):
                    m.next = "Move"
                with m.Else():
                    m.next = "Read"
            with m.State("Move"):
                m.d.comb += [
                    self.draining.eq(1), o.valid.eq(1),
                    self.beats.en.eq(o.ready & ~o.payload.last), self.beat_read.eq(self.beats.en),
                ]
                with m.If(o.ready):
                    m.d.sync += first.eq(0)
                    with m.If(o.payload.last):
                        m.next = "Settle"
            with m.State("Settle"):
                m.d.comb += [
                    self.done.eq(1), ends.strobe.eq(1),
                    self.emptied.eq((ends.head.packet + 1)[:len(ends.head.packet)]
                                    == ends.tail.packet),
                ]
                m.next = "Read"
        return m
