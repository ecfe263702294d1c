"""Queues to PCIe: one in-order stream of TLPs becomes one stream per class.

Ref: PCIe Base 5.0, 2.4.1 (ordering), docs/explanation/order.md
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.queue import PacketQueue
from dxpu.stream import PacketSignature, payload_shape
from dxpu.tlp.types import TlpClass

__all__ = ["Egress"]


class Egress(wiring.Component):
    """Splits TLPs by class, so that posted requests and completions can pass a non-posted request
    for which the link has no credits.

    A non-posted request or a completion is offered only after every posted request that came before
    it was taken whole. Within a class the order is kept. A TLP that ends with ``discard`` is
    dropped; so is one larger than ``depth`` beats, which is counted.

    Latency three cycles after the last beat; of one that is not posted one more while a posted
    request waits. A full queue of one class holds back all classes.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats of the queue of each class; a power of two.

    Members
    -------
    i : packet stream with meta :class:`~dxpu.tlp.types.TlpClass`
        TLPs of all classes.
    p, np, cpl : packet streams
        Posted requests, non-posted requests, completions.
    empty : 1
        All queues are empty.
    np_few : 1
        Less than an eighth of the queue of non-posted requests is in use.
    stat_overflow : 1
        Pulse: a TLP larger than its queue was dropped.
    """

    #: Bits of the count of posted requests by which the age of TLPs is compared.
    STAMP_BITS = 26

    def __init__(self, width, *, depth):
        super().__init__({
            "i": In(PacketSignature(width, TlpClass)),
            "p": Out(PacketSignature(width)),
            "np": Out(PacketSignature(width)),
            "cpl": Out(PacketSignature(width)),
            "empty": Out(1),
            "np_few": Out(1),
            "stat_overflow": Out(Counted(
                "TLPs to PCIe that were larger than their queue; dropped.")),
        })
        self._width = width
        self._depth = depth

    def elaborate(self, platform):
        m = Module()
        i = self.i
        # Posted requests that were stored, and that were taken, modulo 2**26. A waiting TLP may be
        # passed by half as many, at most one per cycle. The deadline of a request, 2**24 cycles at
        # most, passes before.
        bits = self.STAMP_BITS
        posted_in, posted_out = Signal(bits), Signal(bits)

        queues = {cls: PacketQueue(self._width, depth=self._depth, meta=bits) for cls in TlpClass}
        plain = [k for k, _ in payload_shape(self.p) if k != "meta"]
        for cls, port in ((TlpClass.P, self.p), (TlpClass.NP, self.np), (TlpClass.CPL, self.cpl)):
            name = cls.name.lower()
            queue = m.submodules[name] = queues[cls]
            selected = i.payload.meta == cls
            m.d.comb += [
                queue.i.valid.eq(i.valid & selected),
                queue.i.payload.meta.eq(posted_in),
                *(queue.i.payload[k].eq(i.payload[k]) for k in plain),
                *(port.payload[k].eq(queue.o.payload[k]) for k in plain),
            ]
            with m.If(selected):
                m.d.comb += i.ready.eq(queue.i.ready)
            allowed = Const(1)
            if cls is not TlpClass.P:
                # Stamps are compared in the cycle before, of the packet that is offered then; one
                # that comes meanwhile is not behind any if all have left. `posted_out` never falls
                # behind again, so an offered packet stays offered.
                allowed, stays = Signal(name=f"{name}_allowed"), Signal(name=f"{name}_stays")
                m.d.comb += stays.eq(queue.o.valid & ~(queue.o.ready & queue.o.payload.last))
                m.d.sync += allowed.eq((posted_in == posted_out) | stays & (
                    allowed | ~(posted_out - queue.o.payload.meta)[bits - 1]))
            m.d.comb += [
                port.valid.eq(queue.o.valid & allowed),
                queue.o.ready.eq(port.ready & allowed),
            ]
        m.d.comb += self.empty.eq(~Cat(q.level.any() | q.o.valid for q in queues.values()).any())
        m.d.comb += self.np_few.eq(queues[TlpClass.NP].level < self._depth // 8)
        m.d.comb += self.stat_overflow.eq(Cat(q.stat_overflow for q in queues.values()).any())

        posted = queues[TlpClass.P]
        stored = (posted.i.valid & posted.i.ready & posted.i.payload.last
                  & ~posted.stat_overflow & ~posted.stat_discarded)
        m.d.sync += [
            posted_in.eq(posted_in + stored),
            posted_out.eq(posted_out + (self.p.valid & self.p.ready & self.p.payload.last)),
        ]
        return m
