"""Queues to the PCIe ports of all slots, by class, in shared memory.

Ref: PCIe Base 5.0, 2.4.1 (ordering), docs/explanation/order.md
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.rows import ClassMeta
from dxpu.stage import counted_fill
from dxpu.stream import PacketSignature, connect

from .egress_admit import Admission
from .egress_fetch import RegionReader
from .egress_memory import RegionMemory
from .egress_ports import ClassStreams, EgressPorts
from .egress_regions import Regions
from .egress_store import RegionWriter

__all__ = ["SharedEgress"]


class SharedEgress(wiring.Component):
    """An :class:`~.egress.Egress` for each slot, whose queues are regions of shared block RAM.

    A non-posted request or a completion is offered only after every posted request of its slot
    that came before it was taken whole. Within a slot and class the order is kept. TLPs are stored
    whole before they are offered. A stream that is not taken, even within a TLP, blocks no other.

    A TLP that ends with ``discard`` or is larger than its region is dropped. ``overflow`` says what
    happens to one whose region is full (of beats, or of ``packets`` TLPs): it waits, and all TLPs
    behind it, or it is dropped and counted, so that the input never waits. A sender that sends no
    more than was ``released`` always finds room.

    Latency with empty queues: the first beat is offered six cycles after the last one was taken. A
    TLP that waited for a posted request is offered eight cycles after that was taken, and one later
    for each other such TLP. Throughput one beat per cycle in total, also for a single stream whose
    beats are taken at once; streams take turns by beats. After reset the input waits for up to
    eight cycles per slot.

    Parameters
    ----------
    width : int
        Data bits per beat.
    slots : int
        Slots, 1 to 16.
    space : three int
        Bytes of the regions of a slot for posted requests, non-posted requests and completions;
        powers of two of at least two beats.
    packets : int
        Most TLPs in a region; a power of two.
    overflow : "wait" or "drop"
        What happens to a TLP whose region is full.

    Members
    -------
    i : packet stream with meta :class:`~dxpu.rows.ClassMeta`
        TLPs of all slots; ``row`` is the index of the slot.
    slot : array of :func:`~.egress_ports.ClassStreams`
        TLPs to each slot.
    empty : ``slots``
        Bit n: no TLP of slot n is stored, and the releases of all were given.
    released, released_strobe : :class:`~dxpu.rows.ClassMeta`, 1
        Strobe: a TLP has left its region; ``life`` is 0.
    overflow : ``slots``
        Pulses: a TLP of slot n was dropped that was larger than its region, or found it full.
    """

    def __init__(self, width, *, slots, space=(2048, 1024, 2048), packets=64, overflow="wait"):
        regions = Regions(width, slots=slots, space=space, packets=packets)
        if overflow not in ("wait", "drop"):
            raise ValueError(f"overflow must be 'wait' or 'drop', not {overflow!r}")
        super().__init__({
            "i": In(PacketSignature(width, ClassMeta)),
            "slot": Out(ClassStreams(width)).array(slots),
            "empty": Out(slots),
            "released": Out(ClassMeta),
            "released_strobe": Out(1),
            "overflow": Out(slots),
        })
        self._regions = regions
        self._writer = RegionWriter(width, regions, waits=overflow == "wait")
        self._admission = Admission(regions)
        self._reader = RegionReader(regions)
        self._ports = EgressPorts(width, regions)
        #: Beats of a region, by class; most TLPs in a region.
        self.beats, self.packets = regions.beats, regions.packets
        #: Tables are being cleared.
        self._clearing = Signal(init=1)

        #: How many TLPs are stored (:class:`~dxpu.stage.Fill`).
        self.fill = counted_fill(
            self._writer.stored_strobe, self.released_strobe, regions.queues * regions.packets,
            "TLPs to slots that wait for credits of their GPUs.")

    def elaborate(self, platform):
        m = Module()
        regions = self._regions
        m.submodules.writer = writer = self._writer
        m.submodules.admission = admission = self._admission
        m.submodules.reader = reader = self._reader
        m.submodules.ports = ports = self._ports
        m.submodules.memory = memory = RegionMemory(regions)

        index = Signal(range(regions.queues))
        with m.If(self._clearing):
            m.d.sync += [index.eq(index + 1), self._clearing.eq(index != regions.queues - 1)]
        for agent in (writer, admission, reader):
            m.d.comb += [agent.sweep.strobe.eq(self._clearing), agent.sweep.index.eq(index)]

        connect(m, wiring.flipped(self.i), writer.i)
        wiring.connect(m, writer.head_of, reader.head_of)
        wiring.connect(m, admission.tail_of, writer.tails_of[0])
        wiring.connect(m, reader.tail_of, writer.tails_of[1])
        wiring.connect(m, reader.limit_of, admission.limit_of)
        for n in range(regions.slots):
            for name in ("p", "np", "cpl"):
                connect(m, getattr(ports.slot[n], name),
                        wiring.flipped(getattr(self.slot[n], name)))
        m.d.comb += [
            *(getattr(memory, name).eq(getattr(writer, name))
              for name in ("write_en", "write_queue", "write_position", "write_beat")),
            *(getattr(memory, name).eq(getattr(reader, name))
              for name in ("read_en", "read_queue", "read_position")),
            reader.read_last.eq(Cat(beat.last for beat in memory.read_beats)),
            *(a.eq(b) for a, b in zip(ports.read_beats, memory.read_beats, strict=True)),
            admission.stored_tlp.eq(writer.stored_tlp),
            admission.stored_strobe.eq(writer.stored_strobe),
            reader.stored_tlp.eq(writer.stored_tlp),
            reader.stored_strobe.eq(writer.stored_strobe),
            reader.admitted.eq(admission.admitted),
            ports.arriving.eq(reader.arriving), reader.occupied.eq(ports.occupied),
            reader.taken_beats.eq(ports.taken_beats),
            admission.posted_left.eq(reader.posted_left),
            admission.posted_left_slot.eq(reader.posted_left_slot),
            admission.posted_at_port.eq(ports.posted_at_port),
            admission.posted_taken.eq(ports.posted_taken),
            self.released.eq(reader.released), self.released_strobe.eq(reader.released_strobe),
            self.overflow.eq(writer.overflow),
        ]
        for n in range(regions.slots):
            mine = [n + (cls << regions.slot_bits) for cls in range(3)]
            pending = [n + (number << regions.slot_bits) for number in range(2)]
            m.d.comb += self.empty[n].eq(
                ~Cat(writer.entering[n], reader.busy[n], *(ports.occupied[q] for q in mine),
                     *(admission.pending[w] for w in pending)).any())
        return m
