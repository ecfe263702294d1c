"""TLPs from the regions of a shared ingress, one slot after the other."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.priority import round_robin
from dxpu.stream import PacketSignature

from .egress_regions import Lookup

__all__ = ["IngressReader"]


class IngressReader(wiring.Component):
    """Reads whole TLPs of the slots in turn, a beat per cycle.

    A slot goes on until it has sent as many beats as a turn has, so that its TLPs can share frames.
    The slot whose turn is next is chosen while a TLP leaves. While nothing is stored, the reader
    stays at the slot that the writer is at, so that its TLP can be read in the cycle after it was
    stored.

    Parameters
    ----------
    width : int
        Data bits per beat.
    slots : int
    depth : int
        Beats of a region; a power of two.
    turn : int
        Beats after which the next slot has its turn; 1: after each TLP.

    Members
    -------
    clear : 1
        The head of one slot after the other becomes 0; as many cycles after reset as there are
        slots.
    can_start : ``slots``
        Bit n: a TLP of slot n may begin to leave.
    stored : ``slots``
        Strobes: a TLP of slot n is stored.
    writer_slot, writer_head : slot, beats
        Slot of which the writer takes a beat; beats that have left its region.
    end_of : :func:`~.egress_regions.Lookup`, slot to beats
        Beats of whole TLPs that were stored in a region.
    read_en, read_slot, read_position : 1, slot, beats
        To the memory, which gives the beat in the next cycle and until the next read.
    read_beat : beat
    o : packet stream
    source : slot
        Slot of the beat on ``o``.
    busy : ``slots``
        Bit n: a TLP of slot n is stored or leaves.
    """

    def __init__(self, width, beat, *, slots, depth, turn):
        self._slots, self._depth, self._turn = slots, depth, turn
        slot, position = range(max(2, slots)), range(2 * depth)
        super().__init__({
            "clear": In(1),
            "can_start": In(slots),
            "stored": In(slots),
            "writer_slot": In(slot),
            "writer_head": Out(position),
            "end_of": Out(Lookup(slot, position)),
            "read_en": Out(1),
            "read_slot": Out(slot),
            "read_position": Out(position),
            "read_beat": In(beat),
            "o": Out(PacketSignature(width)),
            "source": Out(slot),
            "busy": Out(slots),
        })

    def elaborate(self, platform):
        m = Module()
        slots, o, position = self._slots, self.o, range(2 * self._depth)
        m.submodules.heads = heads = Memory(shape=position, depth=slots, init=[])
        write, of_writer, of_next = (
            heads.write_port(), heads.read_port(domain="comb"), heads.read_port(domain="comb"))

        # The slot whose TLP leaves, or left last: the head of its region, and whether it has more.
        # `whole` has the same of the other slots; of this one it is a cycle late.
        slot, head = Signal(range(max(2, slots))), Signal(position, init=2 * self._depth - 1)
        mine, whole, more = Signal(slots), Signal(slots), Signal()
        m.d.comb += [
            mine.eq((1 << slot)[:slots]),
            self.end_of.index.eq(slot), more.eq(~self.clear & (self.end_of.value != head)),
        ]
        m.d.sync += whole.eq(whole & ~mine | Mux(more, mine, 0) | self.stored)

        # The next slot in turn. A slot that was chosen keeps its TLP until its turn has come.
        following, ready, follows = Signal.like(slot), Signal(), Signal()
        next_slot, next_head, next_valid = Signal.like(slot), Signal.like(head), Signal()
        requests = Signal(slots)
        m.d.comb += [
            requests.eq(whole & self.can_start & ~mine),
            following.eq(round_robin(requests, slot)),
            of_next.addr.eq(following), of_writer.addr.eq(self.writer_slot),
            self.writer_head.eq(of_writer.data),
            ready.eq(next_valid & self.can_start.bit_select(next_slot, 1)),
        ]
        m.d.sync += [next_slot.eq(following), next_head.eq(of_next.data)]

        # A beat of the TLP that leaves, or the first one of another.
        within, starts, turns, stays = Signal(), Signal(), Signal(), Signal()
        left = Signal(range(self._turn))  # beats that the slot may still send in its turn
        place, after = Signal.like(head), Signal.like(head)
        m.d.comb += [
            within.eq(o.valid & ~self.read_beat.last),
            stays.eq(more & self.can_start.bit_select(slot, 1)),
            turns.eq(~within & ready & ~(stays & (left != 0))),
            starts.eq(ready | stays),
            self.read_en.eq((within | starts) & (~o.valid | o.ready)),
            self.read_slot.eq(Mux(turns, next_slot, slot)),
            place.eq(Mux(turns, next_head, head)), after.eq(place + 1),
            self.read_position.eq(place),
            write.en.eq(self.read_en | self.clear),
            write.addr.eq(self.read_slot), write.data.eq(after),
            follows.eq(~o.valid & ~whole.any() & ~more),
            *(o.payload[k].eq(self.read_beat[k]) for k in ("data", "dwords", "last")),
        ]
        # The next slot must not be the one whose turn it is by now.
        m.d.sync += next_valid.eq(requests.any() & ~(self.read_en & turns))
        with m.If(self.clear):
            # `after` is 0.
            m.d.sync += slot.eq(slot + 1)
            with m.If(slot == slots - 1):
                m.d.sync += [slot.eq(0), head.eq(after)]
        with m.Elif(self.read_en):
            m.d.sync += [slot.eq(self.read_slot), head.eq(after), o.valid.eq(1),
                         o.payload.first.eq(~within), self.source.eq(self.read_slot),
                         left.eq(Mux(turns, self._turn - 1, left - (left != 0)))]
        with m.Else():
            with m.If(o.ready):
                m.d.sync += o.valid.eq(0)
            with m.If(follows):
                m.d.sync += [slot.eq(self.writer_slot), head.eq(of_writer.data),
                             left.eq(self._turn - 1)]
        m.d.comb += self.busy.eq(
            whole | Mux(more, mine, 0) | Mux(o.valid, (1 << self.source)[:slots], 0))
        return m
