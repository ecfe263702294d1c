"""Merges the three class streams of a proxy's port into one queue of whole, well-formed TLPs.

Ref: PCIe Base 5.0, 2.2.10 (prefixes), 2.3 (malformed TLPs), 2.4.1 (ordering)
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.queue import PacketQueue, Queue
from dxpu.stream import PacketSignature, connect
from dxpu.tlp.parser import Parser
from dxpu.tlp.types import TlpClass, TlpInfo
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
    max_payload : 3
        Max_Payload_Size, coded as at :class:`~dxpu.tlp.parser.Parser`.
    answered : 1
        Pulse: the non-posted request that came out was answered.
    o : packet stream of 32 bits
    stat_malformed : 1
        Pulse: a malformed TLP was dropped.
    """

    def __init__(self, width, *, depth=512):
        self._width = width
        self._depth = depth
        super().__init__({
            **{cls.name.lower(): In(PacketSignature(width)) for cls in TlpClass},
            "down": In(1),
            "max_payload": In(3),
            "answered": In(1),
            "o": Out(PacketSignature(32)),
            "stat_malformed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        reset = ResetInserter(self.down)
        m.submodules.narrow = reset(narrow := Narrow(self._width))
        m.submodules.parser = reset(parser := Parser(32, completer=True))
        m.submodules.judge = reset(judge := _Judge())
        m.submodules.queue = reset(queue := PacketQueue(32, depth=self._depth))

        cls = self._merge(m, narrow.i, self.answered | judge.lost_np)
        connect(m, narrow.o, parser.i)
        connect(m, parser.o, judge.i)
        connect(m, judge.o, queue.i)
        connect(m, queue.o, wiring.flipped(self.o))
        m.d.comb += [
            parser.max_payload.eq(self.max_payload),
            judge.came.eq(cls),
            judge.begins.eq(narrow.o.valid & narrow.o.ready & narrow.o.payload.first),
            self.stat_malformed.eq(parser.stat_malformed | judge.stat_refused
                                   | queue.stat_overflow),
        ]
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


class _Judge(wiring.Component):
    """Discards TLPs that the parser passes but the endpoint does not accept, and strips the side
    information.

    Members
    -------
    came, begins : :class:`~dxpu.tlp.types.TlpClass`, 1
        Strobe: the parser takes the first dword of a TLP of the stream ``came``.
    i : packet stream with :class:`~dxpu.tlp.types.TlpInfo`
    o : packet stream
    lost_np : 1
        Pulse: a TLP of the non-posted stream is dropped.
    stat_refused : 1
        Pulse: a TLP was marked as discarded here.
    """

    came: In(TlpClass)
    begins: In(1)
    i: In(PacketSignature(32, TlpInfo))
    o: Out(PacketSignature(32))
    lost_np: Out(1)
    stat_refused: Out(1)

    def elaborate(self, platform):
        m = Module()
        # An entry for each TLP in the parser, which holds 17 beats at most.
        m.submodules.classes = classes = Queue(TlpClass, depth=32)
        beat, info = self.i.payload, self.i.payload.meta
        refused, ends = Signal(), Signal()
        m.d.comb += [
            classes.i.payload.eq(self.came),
            classes.i.valid.eq(self.begins),
            classes.o.ready.eq(ends),
            ends.eq(self.i.valid & self.i.ready & beat.last),
            refused.eq(info.prefix_dwords.any() | (info.cls != classes.o.payload)),
            *(self.o.payload[k].eq(beat[k]) for k in ("data", "dwords", "first", "last")),
            self.o.payload.discard.eq(beat.last & (beat.discard | refused)),
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready),
            self.lost_np.eq(ends & self.o.payload.discard & (classes.o.payload == TlpClass.NP)),
            self.stat_refused.eq(ends & refused & ~beat.discard),
        ]
        return m
