"""Which queued TLPs share the next frame."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.format import COUNT_MAX, CREDIT_BYTES, ETHERNET_BYTES, HEADER_BYTES
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.rows import LIFE_BITS

from .tx_queue import TlpDescriptor

__all__ = ["FramePlan", "Planner"]

#: Bytes of Ethernet payload before the records, the credit extension included.
OVERHEAD = HEADER_BYTES - ETHERNET_BYTES + CREDIT_BYTES


class FramePlan(data.Struct):
    """The next ``count`` queued packets: TLPs of one life of ``row``, or one segment of the split
    form.

    Members
    -------
    row, life, count : 6, 8, 5
    dwords : 13
        Of the records, their CRCs and padding included.
    type : 4
        :class:`~dxpu.fabric.wire.format.FrameType`.
    offset : 11
        DATA: dwords of data before this frame's.
    final : 1
        Nothing of the TLP follows in another frame.
    """

    row: 6
    life: LIFE_BITS
    count: 5
    dwords: 13
    type: 4
    offset: 11
    final: 1


class Planner(wiring.Component):
    """Gathers consecutive TLPs of one row, a TLP per cycle, as far as the packing limit allows.

    ``plan`` is not a stream: it may grow until it is taken. ``valid`` is low while it grows, so
    that everything that is queued already is in it, and nothing is waited for. Room for the credit
    extension is kept free always, as the plan is made before it is known whether there is one.

    Parameters
    ----------
    None.

    Members
    -------
    packing_limit : 14
        Bytes of Ethernet payload that a frame of several TLPs may have. May change at any time.
    i : stream of :class:`TlpDescriptor`
    plan, valid : out
    take : in
        Only with ``valid``: the plan is used; the next one begins.
    """

    packing_limit: In(14)
    i: In(stream.Signature(TlpDescriptor))
    plan: Out(FramePlan)
    valid: Out(1)
    take: In(1)

    def elaborate(self, platform):
        m = Module()
        i, plan = self.i, self.plan
        limit = Signal(12)  # dwords for records
        m.d.sync += limit.eq(Mux(self.packing_limit > OVERHEAD,
                                 (self.packing_limit - OVERHEAD) >> 2, 0))

        # Two dwords are what a record that is not alone is padded to. What is left of the limit
        # is kept beside the plan: then the next record has one comparison before it, no sum.
        padded, room = Signal(11), Signal(signed(13))
        fits, some, full, begins = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            padded.eq(i.payload.pairs << 1),
            fits.eq((Cat(plan.row, plan.life) == Cat(i.payload.row, i.payload.life))
                    & ~full & (room >= padded)),
            self.valid.eq(some & ~(i.valid & fits)),
            i.ready.eq(~some | fits | self.take),
            begins.eq(~some | ~fits),
        ]
        with m.If(i.valid & i.ready):
            m.d.sync += [
                plan.row.eq(i.payload.row),
                plan.life.eq(i.payload.life),
                plan.count.eq(Mux(begins, 0, plan.count) + 1),
                plan.dwords.eq(Mux(begins, 0, plan.dwords) + padded),
                plan.type.eq(FrameType.TLP),
                plan.final.eq(1),
                room.eq(Mux(begins, limit, room) - padded),
                full.eq(~begins & (plan.count == COUNT_MAX - 1)),
                some.eq(1),
            ]
        with m.Elif(self.take):
            m.d.sync += some.eq(0)
        return m
