"""Probes: cycle and note of the last event, readable by the bench at any time."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stage import NOTE_BITS

__all__ = ["EVENTS", "Newest", "Probe"]

#: Probed events of a proxy, in the order in which a frame passes them, out and in.
EVENTS = ("pcie_in", "frame_out", "gmii_tx", "gmii_rx", "frame_in", "pcie_out")


class Newest(data.Struct):
    """An event: its cycle, and the note of its :class:`~dxpu.stage.Stage`."""

    cycle: 32
    note: NOTE_BITS


class Probe(wiring.Component):
    """Holds cycle and note of the newest ``event``.

    Parameters
    ----------
    edge : bool
        Use rising edges of ``event``, instead of each cycle in which ``event`` is high.

    Members
    -------
    event : 1
    note : 8
        Of the event.
    cycle : 32
        Cycle counter of the bench.
    newest : :class:`Newest`
    """

    event: In(1)
    note: In(NOTE_BITS)
    cycle: In(32)
    newest: Out(Newest)

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
            m.d.sync += [self.newest.cycle.eq(self.cycle), self.newest.note.eq(self.note)]
        return m
