"""Probes: the cycle of the last event, readable by the bench at any time."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["EVENTS", "Probe"]

#: Probed events of a proxy, in the order in which a frame passes them, out and in.
EVENTS = ("pcie_in", "frame_out", "gmii_tx", "gmii_rx", "frame_in", "pcie_out")


class Probe(wiring.Component):
    """Holds the cycle of the newest ``event``.

    Parameters
    ----------
    edge : bool
        Use rising edges of ``event``, instead of each cycle in which ``event`` is high.

    Members
    -------
    event : In(1)
    cycle : In(32)
        Cycle counter of the bench.
    newest : Out(32)
    """

    event: In(1)
    cycle: In(32)
    newest: Out(32)

    def __init__(self, *, edge=False):
        super().__init__()
        self._edge = edge

    def elaborate(self, platform):
        m = Module()
        counts = self.event
        if self._edge:
            before = Signal()
            m.d.sync += before.eq(self.event)
            counts &= ~before
        with m.If(counts):
            m.d.sync += self.newest.eq(self.cycle)
        return m
