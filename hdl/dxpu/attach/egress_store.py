"""Storing TLPs in the regions of a shared egress."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.rows import ClassMeta
from dxpu.stream import PacketSignature

from .egress_regions import Sweep, Lookup, Table

__all__ = ["RegionWriter"]


class RegionWriter(wiring.Component):
    """Writes TLPs into their regions, and drops those that must not get into one.

    A beat is written one cycle after it was taken; a TLP is stored with its last beat. One that
    ends with ``discard`` is not stored, nor is one that is larger than its region. One whose region
    is full waits, or is dropped. Nothing is taken while tables are cleared.

    Parameters
    ----------
    width : int
        Data bits per beat.
    regions : :class:`~.egress_regions.Regions`
    waits : bool
        A TLP whose region is full waits.

    Members
    -------
    i : packet stream with :class:`~dxpu.rows.ClassMeta`
        TLPs of all slots.
    sweep : :func:`~.egress_regions.Sweep`
    head_of : :func:`~.egress_regions.Lookup`, queue to point
        Beats and TLPs that have left a queue.
    tails_of : array of two of :func:`~.egress_regions.Lookup`, queue to point
        Beats and TLPs that were stored in a queue.
    write_en, write_queue, write_position, write_beat : 1, queue, beats, beat
        To the :class:`~.egress_memory.RegionMemory`.
    stored_tlp, stored_strobe : ``regions.stored``, 1
        Strobe, the cycle after its last beat was written and its tail has risen: a TLP is stored.
    entering : ``slots``
        Bit n: a TLP of slot n has begun, and did not end before the last cycle.
    overflow : ``slots``
        Pulses: a TLP of slot n was dropped.
    """

    def __init__(self, width, regions, *, waits):
        self._regions, self._waits = regions, waits
        slots, position = regions.slots, regions.point["beats"].shape
        super().__init__({
            "i": In(PacketSignature(width, ClassMeta)),
            "sweep": In(Sweep(regions)),
            "head_of": Out(Lookup(range(regions.queues), regions.point)),
            "tails_of": In(Lookup(range(regions.queues), regions.point)).array(2),
            "write_en": Out(1),
            "write_queue": Out(range(regions.queues)),
            "write_position": Out(position),
            "write_beat": Out(regions.beat),
            "stored_tlp": Out(regions.stored),
            "stored_strobe": Out(1),
            "entering": Out(slots),
            "overflow": Out(slots),
        })

    def elaborate(self, platform):
        m = Module()
        regions, point = self._regions, self._regions.point
        m.submodules.tails = tails = Table(regions, point, depth=regions.queues, reads=3)
        wiring.connect(m, wiring.flipped(self.sweep), tails.sweep)
        for outer, inner in zip(self.tails_of, tails.lookups[1:], strict=True):
            m.d.comb += [inner.index.eq(outer.index), outer.value.eq(inner.value)]

        # The beat that is written. Only a full region makes the next one wait.
        beat, valid, done = Signal(self.i.payload.shape(), reset_less=True), Signal(), Signal()
        m.d.comb += self.i.ready.eq(~self.sweep.strobe & (~valid | done))
        with m.If(self.i.ready):
            m.d.sync += [valid.eq(self.i.valid), beat.eq(self.i.payload)]

        slot, cls = beat.meta.row[:regions.slot_bits], Value.cast(beat.meta.cls)
        queue = Signal(range(regions.queues))
        tail, head = tails.lookups[0].value, self.head_of.value
        position, following = Signal.like(tail.beats), Signal.like(tail.beats)
        new = Signal(point)
        m.d.comb += [
            queue.eq(Cat(slot, cls)),
            tails.lookups[0].index.eq(queue), self.head_of.index.eq(queue),
            position.eq(Mux(beat.first, tail.beats, following)),
            new.beats.eq(position + 1), new.packets.eq(tail.packets + 1),
            self.write_queue.eq(queue), self.write_position.eq(position),
            *(self.write_beat[k].eq(beat[k]) for k, _ in regions.beat),
        ]
        # A region is full, too, when a TLP is larger than it.
        full, larger, dropping, stored = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            full.eq(regions.is_full(queue, position, head.beats)
                    | ((tail.packets ^ head.packets) == regions.packets)),
            larger.eq(~beat.first & regions.is_full(queue, position, tail.beats)),
            done.eq(~full | dropping),
            self.write_en.eq(valid & ~full & ~dropping),
            stored.eq(self.write_en & beat.last & ~beat.discard),
            tails.write_en.eq(stored), tails.write_index.eq(queue), tails.write_value.eq(new),
        ]
        if not self._waits:
            # What is dropped waits for nothing: not even for the decision to drop it.
            m.d.comb += done.eq(1)
        drops = valid & (larger if self._waits else full)
        with m.If(dropping | (drops & done)):
            with m.If(valid & beat.last):
                m.d.comb += self.overflow.eq(1 << slot)
            m.d.sync += dropping.eq(~(valid & beat.last))
        with m.Elif(drops):
            m.d.sync += dropping.eq(1)
        with m.If(self.write_en):
            m.d.sync += following.eq(position + 1)

        entry = self.stored_tlp
        m.d.sync += [
            self.stored_strobe.eq(stored),
            entry.queue.eq(queue), entry.waiter.eq(regions.waiter(queue)),
            entry.index.eq(tail.packets[:-1]), entry.beats.eq(new.beats - tail.beats),
            entry.units.eq(beat.meta.units), entry.tail.eq(new),
        ]

        # TLPs follow each other, so at most three are on the way: the one whose beats come, that in
        # the register, and that which was stored last.
        inside, row = Signal(), Signal(regions.slot_bits)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [inside.eq(~self.i.payload.last), row.eq(self.i.payload.meta.row)]
        m.d.comb += self.entering.eq(
            Mux(inside, 1 << row, 0) | Mux(valid, 1 << slot, 0)
            | Mux(self.stored_strobe, 1 << regions.slot(entry.queue), 0))
        return m
