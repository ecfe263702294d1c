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
    """Asks whether the head of the chosen queue may leave; reads it if so.

    It may if all posted TLPs of its row that came before it have left, and ``head_ok`` says so. It
    is asked about before TLPs that come are held back, and once more when none of them is going
    straight through.

    Four cycles from ``chosen`` to the first beat, then a beat per cycle, and one to settle.

    Parameters
    ----------
    width, rows, space, packets, stamp
        Of :class:`~dxpu.fabric.credit.class_queues.ClassQueues`.
    beat, note : shape
        Of words of the memories.

    Members
    -------
    row, cls, chosen, done, spent
        Of :class:`~.queue_turns.QueueTurns`.
    head, head_ok : :class:`~dxpu.rows.ClassMeta`, 1
        A TLP that waits; whether it may leave, in the same cycle.
    passing : 1
        A TLP that came is going straight through.
    hold : 1
        No more of them may begin.
    draining : 1
        ``o`` is to be shown.
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
            "chosen": In(1),
            "done": Out(1),
            "spent": Out(1),
            "head": Out(ClassMeta),
            "head_ok": In(1),
            "passing": In(1),
            "hold": Out(1),
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
        after, since, fits, quiet = Signal.like(place), Signal.like(note.older), Signal(), Signal()
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
        m.d.sync += [
            fits.eq(((cls == TlpClass.P.value) | ~since[-1]) & self.head_ok),
            quiet.eq(~self.passing),
        ]
        with m.If(self.spent):
            m.d.sync += [place.eq(after), self.amount.eq(self.amount + 1)]
        with m.FSM():
            with m.State("Look"):
                m.d.comb += self.notes.en.eq(self.chosen)
                with m.If(self.chosen):
                    m.d.sync += [place.eq(ends.head.place), self.amount.eq(0)]
                    m.next = "Ask"
            with m.State("Ask"):
                m.next = "Claim"
            with m.State("Claim"):
                m.d.comb += [self.beats.en.eq(1), self.hold.eq(fits)]
                m.d.sync += first.eq(1)
                with m.If(~fits):
                    m.d.comb += [self.refused.eq(1), self.done.eq(1)]
                    m.next = "Look"
                with m.Elif(quiet):
                    m.d.comb += self.spent.eq(1)
                    m.next = "Move"
            with m.State("Move"):
                m.d.comb += [
                    self.hold.eq(1), self.draining.eq(1), o.valid.eq(1),
                    self.beats.en.eq(o.ready & ~o.payload.last), self.spent.eq(self.beats.en),
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
                m.next = "Look"
        return m
