"""Admission of TLPs that may not pass posted requests, in a shared egress.

Ref: PCIe Base 5.0, 2.4.1 (ordering)
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.priority import Turns
from dxpu.tlp.types import TlpClass

from .egress_regions import Sweep, Lookup, Table

__all__ = ["Admission"]


class PostedCounts(wiring.Component):
    """Counts posted requests of each slot: those that were stored, and those that were taken.

    What has left its region was taken, but for one whose last beat still stands at its port.

    Parameters
    ----------
    regions : :class:`~.egress_regions.Regions`

    Members
    -------
    sweep : :func:`~.egress_regions.Sweep`
    posted_stored, posted_stored_slot : 1, slot
        Strobe: a posted request is stored.
    posted_left, posted_left_slot : 1, slot
        Strobe: the last beat of a posted request went to its port in the cycle before.
    posted_at_port : ``slots``
        Bit n: the last beat of a posted request of slot n stands at its port.
    stamp_slot, stamp, none : slot, ``stamp_bits``, 1
        Posted requests of a slot that were stored; all of them were taken.
    older_slot, older, taken : slot, ``stamp_bits``, 1
        ``taken``: the first ``older`` posted requests of a slot were taken.
    """

    def __init__(self, regions):
        self._regions = regions
        slots, slot, stamp = regions.slots, regions.slot_bits, regions.stamp_bits
        super().__init__({
            "sweep": In(Sweep(regions)),
            "posted_stored": In(1), "posted_stored_slot": In(slot),
            "posted_left": In(1), "posted_left_slot": In(regions.slot_bits),
            "posted_at_port": In(slots),
            "stamp_slot": In(slot), "stamp": Out(stamp), "none": Out(1),
            "older_slot": In(slot), "older": In(stamp), "taken": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        regions = self._regions
        bits, depth = regions.stamp_bits, 1 << regions.slot_bits
        m.submodules.stored = stored = Table(regions, bits, depth=depth, reads=2)
        m.submodules.left = left = Table(regions, bits, depth=depth, reads=3)
        wiring.connect(m, wiring.flipped(self.sweep), stored.sweep)
        wiring.connect(m, wiring.flipped(self.sweep), left.sweep)
        at_port = Signal(regions.slots)
        difference = Signal(1 + bits)
        m.d.comb += [
            stored.lookups[0].index.eq(self.posted_stored_slot),
            stored.write_index.eq(self.posted_stored_slot), stored.write_en.eq(self.posted_stored),
            stored.write_value.eq(stored.lookups[0].value + 1),
            left.lookups[0].index.eq(self.posted_left_slot),
            left.write_index.eq(self.posted_left_slot), left.write_en.eq(self.posted_left),
            left.write_value.eq(left.lookups[0].value + 1),
            # One that has just left its region is not counted yet.
            at_port.eq(self.posted_at_port & ~Mux(self.posted_left, 1 << self.posted_left_slot, 0)),

            stored.lookups[1].index.eq(self.stamp_slot), left.lookups[1].index.eq(self.stamp_slot),
            self.stamp.eq(stored.lookups[1].value),
            self.none.eq((stored.lookups[1].value == left.lookups[1].value)
                         & ~self.posted_at_port.bit_select(self.stamp_slot, 1)),

            left.lookups[2].index.eq(self.older_slot),
            # Less one if one is at the port, by the carry into the lowest bit.
            difference.eq(Cat(C(1, 1), left.lookups[2].value)
                          + Cat(~at_port.bit_select(self.older_slot, 1), ~self.older)),
            self.taken.eq(~difference[-1]),
        ]
        return m


class Admission(wiring.Component):
    """Says which TLPs that are stored may leave.

    A posted request may leave at once, as may another TLP that has no older posted request inside
    and is alone in its queue. Others are pending: each has a note of its size and of the posted
    requests before it. The oldest note of each waiter is looked at in turn. One that must wait
    sleeps until a posted request of its slot is taken.

    Parameters
    ----------
    regions : :class:`~.egress_regions.Regions`

    Members
    -------
    sweep : :func:`~.egress_regions.Sweep`
    stored_tlp, stored_strobe : ``regions.stored``, 1
        Strobe: a TLP is stored.
    tail_of : :func:`~.egress_regions.Lookup`, queue to point
        Beats and TLPs that were stored in a queue.
    limit_of : :func:`~.egress_regions.Lookup`, waiter to point
        Beats and TLPs of a waiter that may leave.
    posted_left, posted_left_slot : 1, slot
        Strobe: the last beat of a posted request went to its port in the cycle before.
    posted_at_port : ``slots``
        Bit n: the last beat of a posted request of slot n stands at its port.
    posted_taken : ``slots``
        Strobes: a posted request of slot n is taken whole.
    admitted : ``queues``
        Strobes: one more TLP of a queue may leave. Its limit has risen in the next cycle.
    pending : ``waiters``
        Bit n: TLPs of waiter n may not leave yet.
    """

    def __init__(self, regions):
        self._regions, self._counts = regions, PostedCounts(regions)
        slots = regions.slots
        super().__init__({
            "sweep": In(Sweep(regions)),
            "stored_tlp": In(regions.stored),
            "stored_strobe": In(1),
            "tail_of": Out(Lookup(range(regions.queues), regions.point)),
            "limit_of": In(Lookup(range(regions.waiters), regions.point)),
            "posted_left": In(1),
            "posted_left_slot": In(regions.slot_bits),
            "posted_at_port": In(slots),
            "posted_taken": In(slots),
            "admitted": Out(regions.queues),
            "pending": Out(regions.waiters),
        })

    def elaborate(self, platform):
        m = Module()
        regions, stored = self._regions, self.stored_tlp
        slots, waiters = 1 << regions.slot_bits, regions.waiters
        m.submodules.limits = limits = Table(regions, regions.point, depth=waiters, reads=3)
        m.submodules.posted = counts = self._counts
        m.submodules.turns = turns = Turns(count=waiters)
        m.submodules.notes = notes = Memory(
            shape=data.StructLayout({"beats": stored.beats.shape(), "older": regions.stamp_bits}),
            depth=waiters * regions.packets, init=[])
        note_write, note_read = notes.write_port(), notes.read_port()
        wiring.connect(m, wiring.flipped(self.sweep), limits.sweep)
        wiring.connect(m, wiring.flipped(self.sweep), counts.sweep)
        m.d.comb += [limits.lookups[2].index.eq(self.limit_of.index),
                     self.limit_of.value.eq(limits.lookups[2].value)]

        # A check of a waiter's oldest note: its address; the note, in two cycles for the sake of
        # the block RAM's delay; the decision.
        asleep, busy = Signal(waiters), Signal(waiters)
        address_valid, address_of = turns.valid, turns.number
        read_valid, read_of = Signal(), Signal.like(turns.number)
        checking, waiter, note = Signal(), Signal.like(turns.number), Signal.like(note_read.data)
        m.d.comb += [
            turns.requests.eq(self.pending & ~asleep & ~busy),
            limits.lookups[0].index.eq(address_of),
            note_read.addr.eq(Cat(limits.lookups[0].value.packets[:-1], address_of)),
        ]
        m.d.sync += [read_valid.eq(address_valid), read_of.eq(address_of),
                     checking.eq(read_valid), waiter.eq(read_of), note.eq(note_read.data)]

        allowed, next_limit, mine = Signal(), Signal(regions.point), Signal(waiters)
        last, becomes_pending, becomes_ready = Signal(), Signal(waiters), Signal(regions.queues)
        m.d.comb += [
            limits.lookups[1].index.eq(waiter), self.tail_of.index.eq(waiter + slots),
            counts.older_slot.eq(regions.slot(waiter)), counts.older.eq(note.older),
            allowed.eq(checking & counts.taken),
            next_limit.beats.eq(limits.lookups[1].value.beats + note.beats),
            next_limit.packets.eq(limits.lookups[1].value.packets + 1),
            mine.eq(Mux(checking, 1 << waiter, 0)),
            last.eq(allowed & (next_limit.packets == self.tail_of.value.packets)),
        ]
        m.d.sync += [
            busy.eq((busy | turns.now) & ~mine),
            self.pending.eq(self.pending & ~Mux(last, mine, 0) | becomes_pending),
            # A posted request that is taken meanwhile may be the one that it waits for.
            asleep.eq((asleep | Mux(allowed, 0, mine))
                      & ~(self.posted_taken | C(0, slots)).replicate(2)),
        ]

        # A TLP that was stored.
        is_posted, immediate = regions.cls(stored.queue) == TlpClass.P.value, Signal()
        slot = regions.slot(stored.queue)
        m.d.comb += [
            counts.posted_stored.eq(self.stored_strobe & is_posted),
            counts.posted_stored_slot.eq(slot),
            counts.posted_left.eq(self.posted_left),
            counts.posted_left_slot.eq(self.posted_left_slot),
            counts.posted_at_port.eq(self.posted_at_port),
            counts.stamp_slot.eq(slot),
            immediate.eq(counts.none & ~self.pending.bit_select(stored.waiter, 1) & ~checking),
            note_write.en.eq(self.stored_strobe & ~is_posted),
            note_write.addr.eq(Cat(stored.index, stored.waiter)),
            note_write.data.beats.eq(stored.beats), note_write.data.older.eq(counts.stamp),
            becomes_ready.eq(
                Mux(self.stored_strobe & (is_posted | immediate), 1 << stored.queue, 0)),
            becomes_pending.eq(
                Mux(self.stored_strobe & ~is_posted & ~immediate, 1 << stored.waiter, 0)),
            self.admitted.eq(becomes_ready | Cat(C(0, slots), Mux(allowed, mine, 0))),
            # Only one of the two raises a limit.
            limits.write_en.eq(allowed | (self.stored_strobe & ~is_posted & immediate)),
            limits.write_index.eq(Mux(checking, waiter, stored.waiter)),
            limits.write_value.eq(Mux(checking, next_limit, stored.tail)),
        ]
        return m
