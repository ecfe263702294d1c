"""Frames that took effect: to the link, then their limits to the accounts."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.receive.types import Committed
from dxpu.fabric.wire.format import ACK_ENTRIES
from dxpu.fabric.wire.frame_fields import any_of
from dxpu.fabric.wire.frame_types import LIMITED
from dxpu.fabric.wire.types import Credit

from .limit_intake import NewLimits

__all__ = ["CommitFork"]


class CommitFork(wiring.Component):
    """Offers each frame to the link, and its limits to the accounts if the link calls it fresh.

    Limits are offered from the cycle in which the link takes the frame. The frame stays on ``i``
    until both have been taken. No latency.

    Members
    -------
    i, o : streams of :class:`~dxpu.fabric.receive.types.Committed`
        Frames; ``o`` goes to the link.
    credits : array of :class:`~dxpu.fabric.wire.types.Credit`
        Entries of an ACK on ``i``.
    fresh : 1
        The frame on ``o`` has an acknowledgement that is not older than the newest one; valid when
        it is taken.
    limits : stream of :class:`~.limit_intake.NewLimits`
    """

    i: In(stream.Signature(Committed))
    o: Out(stream.Signature(Committed))
    credits: In(data.ArrayLayout(Credit, ACK_ENTRIES))
    fresh: In(1)
    limits: Out(stream.Signature(NewLimits))

    def elaborate(self, platform):
        m = Module()
        i, o, limits = self.i, self.o, self.limits
        header, booked = i.payload.header, Signal()  # the link has taken the frame
        books = o.valid & o.ready
        m.d.comb += [
            o.payload.eq(i.payload), o.valid.eq(i.valid & ~booked),
            limits.valid.eq(books & self.fresh | booked),
            limits.payload.row.eq(i.payload.row), limits.payload.ack.eq(header.ack),
            limits.payload.is_reply.eq(any_of(header.type, LIMITED)),
            limits.payload.crx.eq(header.crx),
            limits.payload.credits.eq(self.credits), limits.payload.credit.eq(header.credit),
            i.ready.eq((booked | books) & (limits.ready | ~limits.valid)),
        ]
        with m.If(limits.valid):
            m.d.sync += booked.eq(~limits.ready)
        return m
