"""Beats from the regions of a shared egress to the ports of its slots."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.priority import Turns
from dxpu.rows import UNIT_BITS, ClassMeta
from dxpu.tlp.types import TlpClass

from .egress_regions import Sweep, Lookup, Table

__all__ = ["RegionReader"]


class RegionReader(wiring.Component):
    """Reads beats of all queues in turn, and gives the release of each TLP that has left.

    A queue gets a turn while its port is free. Its beat leaves the memory two cycles later. If the
    port is still occupied then, by the beat of the turn before, the beat stays in its region, and
    gets another turn when the port is free: so a port that takes each beat at once gets one in two
    cycles, though it stores one only. A queue that alone has beats for a port that can take them
    gets a turn in each cycle, ahead of what it does with the beats that are on the way.

    Parameters
    ----------
    regions : :class:`~.egress_regions.Regions`

    Members
    -------
    sweep : :func:`~.egress_regions.Sweep`
    admitted : ``queues``
        Strobes: one more TLP of a queue may leave.
    stored_tlp, stored_strobe : ``regions.stored``, 1
        Strobe: a TLP is stored.
    tail_of, limit_of : :func:`~.egress_regions.Lookup`, queue to point, waiter to point
        Beats and TLPs of a queue that were stored; of a waiter that may leave.
    head_of : :func:`~.egress_regions.Lookup`, queue to point
        Beats and TLPs that have left a queue; a TLP one cycle after its last beat.
    read_en, read_queue, read_position : 1, queue, beats
        To the :class:`~.egress_memory.RegionMemory`.
    read_last : 3
        The beat that was read before is the last one of its TLP, by class.
    arriving : ``queues``
        One-hot: queue whose beat leaves the memory in this cycle.
    occupied, taken_beats : ``queues``
        Bit n: the port of queue n has a beat; it is taken in this cycle.
    posted_left, posted_left_slot : 1, slot
        Strobe: the last beat of a posted request went to its port in the cycle before.
    released, released_strobe : :class:`~dxpu.rows.ClassMeta`, 1
        Strobe: a TLP has left its region; ``life`` is 0.
    busy : ``slots``
        Bit n: a beat of slot n may leave, or is on the way, or a release is.
    """

    def __init__(self, regions):
        self._regions = regions
        slots, position = regions.slots, regions.point["beats"].shape
        super().__init__({
            "sweep": In(Sweep(regions)),
            "admitted": In(regions.queues),
            "stored_tlp": In(regions.stored),
            "stored_strobe": In(1),
            "tail_of": Out(Lookup(range(regions.queues), regions.point)),
            "limit_of": Out(Lookup(range(regions.waiters), regions.point)),
            "head_of": In(Lookup(range(regions.queues), regions.point)),
            "read_en": Out(1),
            "read_queue": Out(range(regions.queues)),
            "read_position": Out(position),
            "read_last": In(3),
            "arriving": Out(regions.queues),
            "occupied": In(regions.queues),
            "taken_beats": In(regions.queues),
            "posted_left": Out(1),
            "posted_left_slot": Out(regions.slot_bits),
            "released": Out(ClassMeta),
            "released_strobe": Out(1),
            "busy": Out(slots),
        })

    def elaborate(self, platform):
        m = Module()
        regions, queues = self._regions, self._regions.queues
        point = regions.point
        m.submodules.turns = turns = Turns(count=queues)
        m.submodules.heads = heads = Table(regions, point["beats"].shape, depth=queues, reads=2)
        m.submodules.counts = counts = Table(
            regions, point["packets"].shape, depth=queues, reads=2)
        m.submodules.units = units = Memory(
            shape=UNIT_BITS, depth=queues * regions.packets, init=[])
        wiring.connect(m, wiring.flipped(self.sweep), heads.sweep)
        wiring.connect(m, wiring.flipped(self.sweep), counts.sweep)
        m.d.comb += [
            heads.lookups[1].index.eq(self.head_of.index),
            counts.lookups[1].index.eq(self.head_of.index),
            self.head_of.value.beats.eq(heads.lookups[1].value),
            self.head_of.value.packets.eq(counts.lookups[1].value),
        ]

        # The turn of a queue, and its address.
        ready, queue = Signal(queues), turns.number
        head, following, drained, end = (Signal.like(heads.write_value), Signal.like(
            heads.write_value), Signal(), Signal.like(heads.write_value))
        # While several queues have turns, none reads ahead of what its port does.
        free, several = Signal(queues), Signal()
        m.d.comb += [
            free.eq(~self.occupied | self.taken_beats),
            turns.requests.eq(ready & Mux(several, ~self.occupied & ~turns.chosen, free)),
        ]

        # A beat that arrives now is the one before, of the same queue; so it may have been the
        # last one that can leave.
        arrived, number, next_head, was_drained = (
            Signal(), Signal.like(queue), Signal.like(head), Signal())
        same, follows, idle = Signal(), Signal(), Signal()
        m.d.comb += [
            same.eq(number == queue), follows.eq(arrived & same), idle.eq(follows & was_drained),
            heads.lookups[0].index.eq(queue), self.tail_of.index.eq(queue),
            self.limit_of.index.eq(regions.waiter(queue)),
            head.eq(Mux(follows, next_head, heads.lookups[0].value)), following.eq(head + 1),
            end.eq(Mux(regions.cls(queue) == TlpClass.P.value,
                       self.tail_of.value.beats, self.limit_of.value.beats)),
            drained.eq(following == end),
            self.read_en.eq(turns.valid & ~idle), self.read_queue.eq(queue),
            self.read_position.eq(head),
        ]

        # The beat leaves the memory, if its port is free. If not, the one behind it comes to no
        # port either.
        refused, passes, goes_on = Signal(queues), Signal(), Signal(queues)
        m.d.comb += goes_on.eq(Mux(idle, 0, turns.chosen & ~refused))
        m.d.sync += [arrived.eq(goes_on.any()), self.arriving.eq(goes_on),
                     next_head.eq(following), was_drained.eq(drained)]
        with m.If(turns.valid):
            m.d.sync += [number.eq(queue), several.eq(~same)]
        m.d.comb += [
            refused.eq(self.arriving & ~free),
            passes.eq(arrived & ~refused.any()),
            heads.write_en.eq(passes), heads.write_index.eq(number),
            heads.write_value.eq(next_head),
        ]
        m.d.sync += ready.eq(ready & ~Mux(drained & ~idle, turns.chosen, 0)
                             | self.admitted | refused)

        # It was the last one of a TLP.
        ended, which = Signal(), Signal.like(queue)
        units_write, units_read = units.write_port(), units.read_port()
        slot = regions.slot(which)
        row = Signal(regions.slot_bits)
        m.d.sync += [
            ended.eq(passes & self.read_last.bit_select(regions.cls(number), 1)),
            which.eq(number),
            self.released_strobe.eq(ended), row.eq(slot), self.released.cls.eq(regions.cls(which)),
        ]
        m.d.comb += [
            units_write.en.eq(self.stored_strobe), units_write.data.eq(self.stored_tlp.units),
            units_write.addr.eq(Cat(self.stored_tlp.index, self.stored_tlp.queue)),
            counts.lookups[0].index.eq(which), counts.write_index.eq(which),
            counts.write_value.eq(counts.lookups[0].value + 1), counts.write_en.eq(ended),
            units_read.addr.eq(Cat(counts.lookups[0].value[:-1], which)),
            self.released.row.eq(row), self.released.units.eq(units_read.data),
            self.posted_left.eq(ended & (regions.cls(which) == TlpClass.P.value)),
            self.posted_left_slot.eq(slot),
        ]

        releasing = Signal(regions.slots)
        m.d.comb += releasing.eq(Mux(ended, 1 << slot, 0)
                                 | Mux(self.released_strobe, 1 << row, 0))
        for n in range(regions.slots):
            mine = [n + (cls << regions.slot_bits) for cls in range(3)]
            m.d.comb += self.busy[n].eq(
                releasing[n] | Cat(Cat(ready[q], self.arriving[q]) for q in mine).any())
        return m
