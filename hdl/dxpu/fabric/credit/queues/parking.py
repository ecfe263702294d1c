"""TLPs that come to the class queues: straight through, or into the queue of their row and class.

Ref: docs/explanation/flow-control.md, "Inside the class queues"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import WritePort
from amaranth.lib.wiring import In, Out

from dxpu.rows import ClassMeta
from dxpu.stream import PacketSignature
from dxpu.tlp.types import TlpClass

from .queue_ends import EndsSignature, following, low_bits, queue_number

__all__ = ["Parking"]


class Parking(wiring.Component):
    """Decides about each TLP with its first beat; writes those that have to wait.

    A TLP goes straight through if it may leave (``sure``, or ``ok`` a cycle later) and neither a
    posted TLP of its row nor one of its class is in the queues; any other is parked. What is parked
    counts with its last beat, so one that ends with ``discard`` leaves no trace. A TLP without room
    waits, or is dropped if ``drops``; one larger than its queue is always dropped.

    No latency for a TLP that goes straight through, or a cycle if it is not ``sure``. A parked one
    takes a cycle more than it has beats, for the look-up of the ends of its queue; and another one
    if it is parked because it is not ``ok``.

    Parameters
    ----------
    width, rows, space, packets, stamp
        Of :class:`~dxpu.fabric.credit.class_queues.ClassQueues`.
    beat, note : shape
        Of words of the memories.
    drops : bool

    Members
    -------
    i, o : packet streams with :class:`~dxpu.rows.ClassMeta`
        ``o`` has those that go straight through.
    sure, ok : 1
        The TLP on ``i`` may leave; 0: not known yet. Whether it may, in the next cycle.
    filled : ``4 * rows``
        Queues that hold TLPs.
    hold : 1
        No TLP begins to go straight through.
    stop : 1
        No TLP begins at all: ``sure`` says nothing about ``i``, nor ``ok`` in the next cycle.
    passing : 1
        A TLP is going straight through that does not end in this cycle.
    ends : :class:`~.queue_ends.EndsSignature`
        ``ends.strobe``: a TLP was parked in ``ends.queue``.
    beats, notes : write ports
    parks : ``rows``
        Bit n: a TLP of row n is on its way into its queue, or waits for room.
    requests : 1
        ... which is a non-posted one.
    amount : beats
        Of the TLP that was parked, with ``ends.strobe``.
    stat_overflow : 1
    """

    def __init__(self, width, *, rows, space, packets, stamp, beat, note, drops):
        self._rows, self._space, self._drops = rows, space, drops
        super().__init__({
            "i": In(PacketSignature(width, ClassMeta)),
            "o": Out(PacketSignature(width, ClassMeta)),
            "sure": In(1),
            "ok": In(1),
            "filled": In(4 * rows),
            "hold": In(1),
            "stop": In(1),
            "passing": Out(1),
            "ends": Out(EndsSignature(rows=rows, total=space.total, packets=packets, stamp=stamp)),
            "beats": In(WritePort.Signature(
                addr_width=(rows * space.total - 1).bit_length(), shape=beat)),
            "notes": In(WritePort.Signature(
                addr_width=(4 * rows * packets - 1).bit_length(), shape=note)),
            "parks": Out(rows),
            "requests": Out(1),
            "amount": Out(range(max(space.beats) + 1)),
            "stat_overflow": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        i, o, meta, ends = self.i, self.o, self.i.payload.meta, self.ends
        row, cls = low_bits(meta.row, self._rows), Value.cast(meta.cls)
        # Queues of the row that hold TLPs.
        holds, mine, behind = Signal(3), Signal(), Signal()
        m.d.comb += [
            holds.eq(Cat(Cat(self.filled[n::4]).bit_select(row, 1) for n in range(3))),
            mine.eq(Mux(cls[1], holds[2], Mux(cls[0], holds[1], holds[0]))),
            behind.eq(mine | holds[TlpClass.P.value]),
            ends.queue.eq(queue_number(row, cls)),
        ]
        place, some, full, parking = Signal.like(ends.next), Signal(), Signal(), Signal()
        amount = Signal.like(self.amount)
        m.d.comb += [
            full.eq((place == ends.head.place) & (mine | some)
                    | (ends.tail.packet == ends.head.packet) & mine),
            o.payload.eq(i.payload),
            self.beats.addr.eq(Cat(place, row)),
            *(self.beats.data[k].eq(i.payload[k]) for k, _ in self.beats.data.shape()),
            ends.next.eq(following(self._space, place, cls)),
            self.notes.addr.eq(Cat(ends.tail.packet, ends.queue)),
            self.notes.data.units.eq(meta.units), self.notes.data.life.eq(meta.life),
            self.notes.data.older.eq(ends.posted),
            self.notes.en.eq(ends.strobe),
            self.parks.eq(Cat(parking & (row == n) for n in range(self._rows))),
            self.requests.eq(cls == TlpClass.NP.value),
            self.amount.eq(amount + 1),
        ]
        ends_now = o.ready & i.payload.last
        with m.FSM():
            with m.State("Begin"):
                m.d.comb += parking.eq(i.valid & behind & ~self.stop)
                m.d.sync += [place.eq(ends.tail.place), some.eq(0), amount.eq(0)]
                with m.If(parking):
                    m.next = "Park"
                with m.Elif(self.sure & ~self.hold & ~self.stop):
                    m.d.comb += [o.valid.eq(i.valid), i.ready.eq(o.ready),
                                 self.passing.eq(i.valid & ~ends_now)]
                    with m.If(self.passing):
                        m.next = "Pass"
                with m.Elif(i.valid & ~self.sure & ~self.stop):
                    m.next = "Decide"
            with m.State("Decide"):
                # It was checked in the cycle before, and nothing has entered a queue since.
                m.d.comb += parking.eq(~self.ok)
                with m.If(parking):
                    m.next = "Park"
                with m.Elif(~self.hold & ~self.stop):
                    m.d.comb += [o.valid.eq(1), i.ready.eq(o.ready), self.passing.eq(~ends_now)]
                    with m.If(ends_now):
                        m.next = "Begin"
                    with m.Else():
                        m.next = "Pass"
                with m.Else():
                    m.next = "Begin"
            with m.State("Pass"):
                m.d.comb += [o.valid.eq(i.valid), i.ready.eq(o.ready),
                             self.passing.eq(~(i.valid & ends_now))]
                with m.If(~self.passing):
                    m.next = "Begin"
            with m.State("Park"):
                m.d.comb += [parking.eq(i.valid), i.ready.eq(~full),
                             self.beats.en.eq(i.valid & ~full)]
                with m.If(self.beats.en):
                    m.d.sync += [place.eq(ends.next), some.eq(1), amount.eq(self.amount)]
                    with m.If(i.payload.last):
                        m.d.comb += ends.strobe.eq(~i.payload.discard)
                        m.next = "Begin"
                with m.Elif(i.valid & (~mine | (1 if self._drops else 0))):
                    m.next = "Drop"
            with m.State("Drop"):
                m.d.comb += [i.ready.eq(1), self.stat_overflow.eq(i.valid & i.payload.last)]
                with m.If(i.valid & i.payload.last):
                    m.next = "Begin"
        return m
