"""Merges the three class streams of a proxy's port into one queue of whole, well-formed TLPs.

Ref: PCIe Base 5.0, 2.2.10 (prefixes), 2.3 (malformed TLPs), 2.4.1 (ordering)
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.queue import PacketQueue
from dxpu.stream import PacketSignature, connect
from dxpu.tlp.header import Kind
from dxpu.tlp.tail_parser import TailParser
from dxpu.tlp.types import HeaderCommon, TlpClass
from dxpu.widths import Narrow

__all__ = ["Intake"]


class Intake(wiring.Component):
    """Takes the TLPs of a port, and drops malformed TLPs.

    The classes take turns, a whole TLP at a time, one or two cycles apart. This order is correct
    because the proxy offers a non-posted request or a completion only after older posted requests
    were taken. Posted requests and completions are always taken. A non-posted request is taken only
    after the previous non-posted request was answered, so the completer needs no queue and
    non-posted requests block no other class.

    The endpoint is a completer, so AtomicOps have the size and alignment of an operand. TLPs with
    prefixes count as malformed, as no prefix is supported; so do TLPs whose class is not the class
    of their stream. Throughput is one dword per cycle.

    Parameters
    ----------
    width : int
        Data bits per beat of the port.
    depth : int
        Dwords of the queue; a power of two. The queue must hold the largest TLP.

    Members
    -------
    p, np, cpl : packet streams of ``width`` bits
    down : 1
        The link is down. All beats are taken and dropped, also the rest of TLPs that have begun.
        The logic behind ``o`` must be in reset meanwhile.
    max_payload : 2
        Max_Payload_Size, coded as at :class:`~dxpu.tlp.parser.Parser`.
    answered : 1
        Pulse: the non-posted request that came out was answered.
    o : packet stream of 32 bits
    stat_malformed : 1
        Pulse: a malformed TLP was dropped.
    """

    #: Members of a beat that pass as they are, up to the judgement.
    KEPT = ("data", "dwords", "first", "last", "discard")

    def __init__(self, width, *, depth=512):
        self._width = width
        self._depth = depth
        super().__init__({
            **{cls.name.lower(): In(PacketSignature(width)) for cls in TlpClass},
            "down": In(1),
            "max_payload": In(2),
            "answered": In(1),
            "o": Out(PacketSignature(32)),
            "stat_malformed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        reset = ResetInserter(self.down)
        m.submodules.narrow = reset(narrow := Narrow(self._width))
        m.submodules.parser = reset(parser := TailParser(32, meta=TlpClass, completer=True))
        m.submodules.queue = reset(queue := PacketQueue(32, depth=self._depth))

        lost_np = Signal()
        cls = self._merge(m, narrow.i, self.answered | lost_np)
        # A TLP is judged with its last dword; the queue then takes all of it back, if need be.
        beat, header = parser.o.payload, parser.tlp_header
        kind = Kind.of(m, HeaderCommon(header.words[0]).fmt, HeaderCommon(header.words[0]).type)
        refused, ends = Signal(), Signal()
        m.d.comb += [
            parser.max_payload.eq(self.max_payload),
            *(parser.i.payload[k].eq(narrow.o.payload[k]) for k in self.KEPT),
            parser.i.payload.meta.eq(cls),
            parser.i.valid.eq(narrow.o.valid),
            narrow.o.ready.eq(parser.i.ready),
            refused.eq(header.prefixes.any() | (kind.cls != beat.meta)),
            *(queue.i.payload[k].eq(beat[k]) for k in self.KEPT),
            queue.i.payload.discard.eq(beat.last & (beat.discard | refused)),
            queue.i.valid.eq(parser.o.valid),
            parser.o.ready.eq(queue.i.ready),
            ends.eq(parser.o.valid & parser.o.ready & beat.last),
            lost_np.eq(ends & queue.i.payload.discard & (beat.meta == TlpClass.NP)),
        ]
        m.d.sync += self.stat_malformed.eq(
            parser.stat_malformed | ends & refused & ~beat.discard | queue.stat_overflow)
        connect(m, queue.o, wiring.flipped(self.o))
        return m

    def _merge(self, m, merged, answered):
        """Connect one class to ``merged`` for a whole TLP, then the next; return the present
        class."""
        cls, inside, busy = Signal(TlpClass), Signal(), Signal()
        begins, ends = Signal(), Signal()
        m.d.comb += ends.eq(merged.valid & merged.ready & merged.payload.last)
        streams = {each: getattr(self, each.name.lower()) for each in TlpClass}
        drops = {each: self._drop(m, stream) for each, stream in streams.items()}
        for each, stream in streams.items():
            m.d.comb += stream.ready.eq(self.down | drops[each])
        with m.Switch(cls):
            for n, each in enumerate(TlpClass):
                stream, drop = streams[each], drops[each]
                may = ~drop & ~self.down
                with m.Case(each):
                    # Wait while a non-posted request is inside or not answered.
                    m.d.comb += [
                        begins.eq(stream.valid & may & ~(busy & (each is TlpClass.NP))),
                        merged.payload.eq(stream.payload),
                        merged.valid.eq(stream.valid & may & inside),
                        stream.ready.eq(self.down | drop | merged.ready & inside),
                    ]
                    with m.If(~inside & ~begins | ends):
                        m.d.sync += cls.eq(list(TlpClass)[(n + 1) % len(TlpClass)])
        m.d.sync += inside.eq((inside | begins) & ~ends & ~self.down)
        m.d.sync += busy.eq((busy | inside & (cls == TlpClass.NP)) & ~answered & ~self.down)
        return cls

    def _drop(self, m, stream):
        """Whether to drop the rest of a TLP: a part came while the link was down, or was lost
        then."""
        inside, drop = Signal(), Signal()
        taken = stream.valid & stream.ready
        with m.If(taken):
            m.d.sync += inside.eq(~stream.payload.last)
        with m.If(self.down):
            m.d.sync += drop.eq(Mux(taken, ~stream.payload.last, inside))
        with m.Elif(taken & stream.payload.last):
            m.d.sync += drop.eq(0)
        return drop
