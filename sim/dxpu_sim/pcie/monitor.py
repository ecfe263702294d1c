"""Monitor of a packet stream in hardware, so that a long simulation is checked in every cycle."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketLayout

__all__ = ["RULES", "PacketMonitor"]

#: Rule of each bit of :attr:`PacketMonitor.broken`.
RULES = ("valid fell before the beat was taken", "payload changed before the beat was taken",
         "first beat inside a packet, or none at its start", "wrong number of dwords in a beat")


class PacketMonitor(wiring.Component):
    """Checks the rules of streams (:mod:`dxpu.stream`) on a stream between two other components.

    Parameters
    ----------
    layout : :class:`~dxpu.stream.PacketLayout`

    Members
    -------
    Watched stream.
        The stream watched.
    broken : 4
        Sticky: rule n of :data:`RULES` was broken.
    """

    def __init__(self, layout):
        if not isinstance(layout, PacketLayout):
            raise TypeError(f"layout must be a PacketLayout, not {layout!r}")
        super().__init__({"payload": In(layout), "valid": In(1), "ready": In(1),
                          "broken": Out(len(RULES))})
        self._layout = layout

    def elaborate(self, platform):
        m = Module()
        p = self.payload
        waiting, inside = Signal(), Signal()
        held = Signal(self._layout.size)
        meta = Signal(self._layout.meta or 0)
        lanes = self._layout.lanes

        m.d.sync += [waiting.eq(self.valid & ~self.ready), held.eq(Value.cast(p))]
        broken = Signal(len(RULES))
        m.d.comb += [
            broken[0].eq(waiting & ~self.valid),
            broken[1].eq(waiting & self.valid & (Value.cast(p) != held)),
            broken[2].eq(self.valid & (p.first == inside)),
            broken[3].eq(self.valid & Mux(p.last, (p.dwords == 0) | (p.dwords > lanes),
                                          p.dwords != lanes)),
        ]
        m.d.sync += self.broken.eq(self.broken | broken)
        with m.If(self.valid & self.ready):
            m.d.sync += inside.eq(~p.last)
        if self._layout.meta is not None:
            with m.If(self.valid & p.first):
                m.d.sync += meta.eq(p.meta)
            with m.If(self.valid & inside & (Value.cast(p.meta) != Value.cast(meta))):
                m.d.sync += self.broken[1].eq(1)
        return m
