"""Memory of a shared egress."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.memory import DisjointMemory

__all__ = ["RegionMemory"]


class RegionMemory(wiring.Component):
    """Beats of all regions: a memory for each class, from which the ports of that class take.

    So no multiplexer between classes stands in front of ports. Regions of a class follow each other
    by slots.

    A beat leaves one cycle after its read, and stays until the next one of its class.

    Parameters
    ----------
    regions : :class:`~.egress_regions.Regions`

    Members
    -------
    write_en, write_queue, write_position, write_beat : 1, queue, beats, beat
        A beat, which so many beats of its queue precede.
    read_en, read_queue, read_position : 1, queue, beats
        Beat to be read. It is never one that is written in the same cycle.
    read_beats : array of three beats
        The last beat that was read, by class.
    """

    def __init__(self, regions):
        self._regions = regions
        position = regions.point["beats"].shape
        super().__init__({
            "write_en": In(1),
            "write_queue": In(range(regions.queues)),
            "write_position": In(position),
            "write_beat": In(regions.beat),
            "read_en": In(1),
            "read_queue": In(range(regions.queues)),
            "read_position": In(position),
            "read_beats": Out(regions.beat).array(3),
        })

    def elaborate(self, platform):
        m = Module()
        regions, beat = self._regions, self.write_beat
        # `dwords` is stored as 0 for a beat that is not the last, and therefore full.
        word = Cat(beat.data, Mux(beat.last, beat.dwords, 0))
        for cls, (beats, out) in enumerate(zip(regions.beats, self.read_beats, strict=True)):
            m.submodules[f"class{cls}"] = memory = DisjointMemory(
                shape=len(word), depth=regions.slots * beats, init=[])
            write, read = memory.write_port(), memory.read_port()
            bits = beats.bit_length() - 1
            m.d.comb += [
                write.en.eq(self.write_en & (regions.cls(self.write_queue) == cls)),
                write.addr.eq(Cat(self.write_position[:bits], regions.slot(self.write_queue))),
                write.data.eq(word),
                read.en.eq(self.read_en & (regions.cls(self.read_queue) == cls)),
                read.addr.eq(Cat(self.read_position[:bits], regions.slot(self.read_queue))),
            ]
            dwords = read.data[len(beat.data):]
            m.d.comb += [
                out.data.eq(read.data), out.last.eq(dwords.any()),
                out.dwords.eq(Mux(out.last, dwords, len(beat.data) // 32)),
            ]
        return m
