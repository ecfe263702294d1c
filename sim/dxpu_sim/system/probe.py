"""Probes: the cycle in which something last happened, readable by the bench at any time."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Probe"]


class Probe(wiring.Component):
    """Holds the cycle of the newest ``event``.

    Parameters
    ----------
    edge : bool
        Take rising edges of ``event``, not each cycle in which it is high.

    Members
    -------
    event : In(1)
    cycle : In(32)
        The bench's cycle counter.
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
