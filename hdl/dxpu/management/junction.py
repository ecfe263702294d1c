"""Lets frames of management in between those of the fabric, on one path."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature

__all__ = ["ManagementJunction"]


class ManagementJunction(wiring.Component):
    """Passes the frames of the fabric on, without latency, and those of management in between.

    A frame of management waits for one of the fabric at most. Behind it the next one waits for
    three times as long as it took, so no more than a quarter of the path's time is management's.

    Parameters
    ----------
    width : int

    Members
    -------
    fabric, management : packet streams
    o : packet stream
    """

    #: Times for the fabric, of those that a frame of management has taken.
    SHARE = 3

    def __init__(self, width):
        super().__init__({
            "fabric": In(PacketSignature(width)),
            "management": In(PacketSignature(width)),
            "o": Out(PacketSignature(width)),
        })

    def elaborate(self, platform):
        m = Module()
        ours, within, owed = Signal(), Signal(), Signal(16)
        o, fabric, management = self.o, self.fabric, self.management
        with m.If(ours):
            m.d.comb += [o.payload.eq(management.payload), o.valid.eq(management.valid),
                         management.ready.eq(o.ready)]
            m.d.sync += owed.eq(Mux(owed[-1], owed, owed + self.SHARE))
        with m.Else():
            m.d.comb += [o.payload.eq(fabric.payload), o.valid.eq(fabric.valid),
                         fabric.ready.eq(o.ready)]
            with m.If(owed != 0):
                m.d.sync += owed.eq(owed - 1)
        ends = o.valid & o.ready & o.payload.last
        with m.If(o.valid & o.ready):
            m.d.sync += within.eq(~o.payload.last)
        # What is offered must not be withdrawn.
        with m.If(ours):
            with m.If(ends):
                m.d.sync += ours.eq(0)
        with m.Elif(ends | ~within & ~fabric.valid):
            m.d.sync += ours.eq(management.valid & (owed == 0))
        return m
