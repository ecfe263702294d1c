"""Beats of a shared egress at the ports of its slots."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature

__all__ = ["ClassStreams", "EgressPorts"]


def ClassStreams(width):
    """Packet streams ``p``, ``np``, ``cpl``: posted and non-posted requests, completions."""
    return wiring.Signature(dict.fromkeys(("p", "np", "cpl"), Out(PacketSignature(width))))


class EgressPorts(wiring.Component):
    """One beat for each stream of each slot.

    Parameters
    ----------
    width : int
        Data bits per beat.
    regions : :class:`~.egress_regions.Regions`

    Members
    -------
    read_beats : array of three beats
        From the memory, by class.
    arriving : ``queues``
        One-hot: stream to which the beat of its class goes. If it offers a beat that is not taken,
        nothing changes.
    occupied, taken_beats : ``queues``
        Bit n: the stream of queue n offers a beat; it is taken in this cycle.
    posted_at_port : ``slots``
        Bit n: slot n is offered the last beat of a posted request.
    posted_taken : ``slots``
        Strobes: slot n takes it.
    slot : array of :func:`ClassStreams`
    """

    def __init__(self, width, regions):
        self._regions, slots = regions, regions.slots
        super().__init__({
            "read_beats": In(regions.beat).array(3),
            "arriving": In(regions.queues),
            "occupied": Out(regions.queues),
            "taken_beats": Out(regions.queues),
            "posted_at_port": Out(slots),
            "posted_taken": Out(slots),
            "slot": Out(ClassStreams(width)).array(slots),
        })

    def elaborate(self, platform):
        m = Module()
        regions = self._regions
        for n, streams in enumerate(self.slot):
            for cls, name in enumerate(("p", "np", "cpl")):
                out, q = getattr(streams, name), n + (cls << regions.slot_bits)
                beat = Signal(regions.beat, name=f"beat_{name}{n}", reset_less=True)
                valid, first = Signal(name=f"valid_{name}{n}"), Signal(
                    name=f"first_{name}{n}", init=1)
                m.d.comb += [
                    out.valid.eq(valid), self.occupied[q].eq(valid),
                    self.taken_beats[q].eq(valid & out.ready), out.payload.first.eq(first),
                    *(out.payload[k].eq(beat[k]) for k, _ in regions.beat),
                ]
                with m.If(valid & out.ready):
                    m.d.sync += first.eq(beat.last)
                with m.If(~valid | out.ready):
                    m.d.sync += valid.eq(self.arriving[q])
                    with m.If(self.arriving[q]):
                        m.d.sync += beat.eq(self.read_beats[cls])
            at_port = streams.p.valid & streams.p.payload.last
            m.d.comb += [self.posted_at_port[n].eq(at_port),
                         self.posted_taken[n].eq(at_port & streams.p.ready)]
        return m
