"""Storing TLPs from the PCIe ports of all slots."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.priority import one_hot_mux, round_robin
from dxpu.stream import PacketLayout, PacketSignature

from .egress_regions import Lookup

__all__ = ["IngressWriter"]


class IngressWriter(wiring.Component):
    """Writes TLPs into the regions of their slots, a beat of one slot in each cycle.

    The slot of the next cycle is chosen in this one: the next slot in turn that offers a beat, or
    the same slot again. So a slot that was not chosen waits for a cycle before its first beat.

    A region is a queue that works as a :class:`~dxpu.queue.PacketQueue` with ``overflow="cut"``.

    Parameters
    ----------
    width : int
        Data bits per beat.
    slots : int
    depth : int
        Beats of a region; a power of two.

    Members
    -------
    i : array of packet streams
    clear : 1
        Pointers of the slot ``slot`` become 0. All slots follow each other while this is 1, and
        nothing is taken.
    slot : slot
        Whose beat may be taken in this cycle.
    head : beats
        Beats that have left the region of ``slot``, modulo twice its depth.
    end_of : :func:`~.egress_regions.Lookup`, slot to beats
        Beats of whole TLPs that were stored in a region.
    write_en, write_slot, write_position, write_beat : 1, slot, beats, beat
        To the memory.
    stored : ``slots``
        Strobes: a TLP of slot n is stored; ``end_of`` has it from the next cycle on.
    entering : ``slots``
        Bit n: a TLP of slot n has begun and has not ended.
    stat_discarded, stat_overflow : ``slots``
        Pulses, as of the queue.
    """

    def __init__(self, width, *, slots, depth):
        self._slots, self._depth = slots, depth
        self._stored = data.StructLayout(
            {k: PacketLayout(width)[k].shape for k in ("data", "dwords", "last")})
        slot, position = range(max(2, slots)), range(2 * depth)
        super().__init__({
            "i": In(PacketSignature(width)).array(slots),
            "clear": In(1),
            "slot": Out(slot),
            "head": In(position),
            "end_of": In(Lookup(slot, position)),
            "write_en": Out(1),
            "write_slot": Out(slot),
            "write_position": Out(position),
            "write_beat": Out(self._stored),
            "stored": Out(slots),
            "entering": Out(slots),
            "stat_discarded": Out(slots),
            "stat_overflow": Out(slots),
        })

    def elaborate(self, platform):
        m = Module()
        slots, depth = self._slots, self._depth
        # Behind the last beat of a slot that was stored, and whether the rest of its TLP is to be
        # dropped; behind its last whole TLP.
        tail_shape = data.StructLayout({"position": range(2 * depth), "dropping": 1})
        m.submodules.tails = tails = Memory(shape=tail_shape, depth=slots, init=[])
        m.submodules.ends = ends = Memory(shape=range(2 * depth), depth=slots, init=[])
        write_tail, write_end = tails.write_port(), ends.write_port()
        read_tail, read_end, lookup = (
            tails.read_port(domain="comb"), ends.read_port(domain="comb"),
            ends.read_port(domain="comb"))

        # The slot in turn.
        chosen, others = Signal(slots, init=1), Signal(slots)
        following = Signal(range(max(2, slots)))
        m.d.comb += [
            others.eq(Cat(s.valid for s in self.i) & ~chosen),
            following.eq(round_robin(others, self.slot)),
        ]
        with m.If(self.clear):
            m.d.sync += [self.slot.eq(Mux(self.slot == slots - 1, 0, self.slot + 1)),
                         chosen.eq(chosen.rotate_left(1))]
        with m.Elif(others.any()):
            m.d.sync += [self.slot.eq(following), chosen.eq((1 << following)[:slots])]

        beat = Signal(self.i[0].payload.shape())
        valid, ready = Signal(), Signal()
        m.d.comb += [
            beat.eq(one_hot_mux(chosen, [s.payload for s in self.i])),
            valid.eq((chosen & Cat(s.valid for s in self.i)).any()),
            *(s.ready.eq(chosen[n] & ready) for n, s in enumerate(self.i)),
        ]

        tail, end = read_tail.data, read_end.data
        beats = (tail.position ^ self.head)[:depth.bit_length()]
        full, almost, alone = Signal(), Signal(), Signal()
        after = Signal(range(2 * depth))
        m.d.comb += [
            *(port.addr.eq(self.slot) for port in (read_tail, read_end, write_tail, write_end)),
            lookup.addr.eq(self.end_of.index), self.end_of.value.eq(lookup.data),
            full.eq(beats == depth),
            # With this beat, if it is stored.
            almost.eq((after ^ self.head)[:depth.bit_length()] == depth),
            # Only the TLP that is not whole is in the region, so no space would become free.
            alone.eq(self.head == end),
            ready.eq(~self.clear & (tail.dropping | ~full)),
        ]
        taken, cuts, commits, removes = (
            Signal(name=name) for name in ("taken", "cuts", "commits", "removes"))
        m.d.comb += [
            taken.eq(valid & ready),
            # The last free beat becomes the end of a TLP that is alone and not complete.
            cuts.eq(taken & ~tail.dropping & ~beat.last & alone & almost),
            commits.eq(taken & beat.last & ~beat.discard),
            removes.eq(taken & beat.last & beat.discard),
            self.write_en.eq(taken & ~tail.dropping),
            self.write_slot.eq(self.slot), self.write_position.eq(tail.position),
            self.write_beat.data.eq(beat.data), self.write_beat.dwords.eq(beat.dwords),
            self.write_beat.last.eq(beat.last | cuts),
            after.eq(tail.position + ~tail.dropping),
            write_tail.en.eq(taken | self.clear),
            write_tail.data.position.eq(Mux(self.clear, 0, Mux(removes, end, after))),
            write_tail.data.dropping.eq(~self.clear & (tail.dropping | cuts) & ~beat.last),
            write_end.en.eq(commits | self.clear),
            write_end.data.eq(Mux(self.clear, 0, after)),
            self.stored.eq(Mux(commits, chosen, 0)),
            self.stat_discarded.eq(Mux(removes, chosen, 0)),
            self.stat_overflow.eq(Mux(commits & tail.dropping, chosen, 0)),
        ]
        with m.If(taken):
            m.d.sync += self.entering.eq(
                Mux(beat.last, self.entering & ~chosen, self.entering | chosen))
        return m
