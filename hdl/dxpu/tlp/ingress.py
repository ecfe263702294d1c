"""TLPs from PCIe: checked, stored whole, decoded."""

from amaranth import *
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.info_queue import InfoQueue
from dxpu.stream import PacketSignature, connect

from .header import TlpHeader, decode
from .tail_parser import TailParser
from .types import NO_LIMIT, Malformed, TlpClass, TlpInfo

__all__ = ["Ingress"]


class TlpSpace(data.Struct):
    """Space that a TLP takes in the buffer: one header of its class, and data."""

    cls: TlpClass
    dwords: 11  #: of payload


class Ingress(wiring.Component):
    """A :class:`~dxpu.tlp.tail_parser.TailParser` and a store-and-forward queue; only whole,
    well-formed TLPs leave.

    What a TLP is leaves on ``info``, and the TLP on ``beats``, each at its own pace, in order.
    Malformed TLPs, TLPs that came with ``discard`` and TLPs larger than the queue are dropped.

    Latency from the last beat: three cycles to ``info``, four to the first beat. Throughput one
    beat per cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats of the queue; a power of two. It must hold the largest TLP.
    packets : int
        TLPs that can wait for their ``info`` to be taken, besides those in the parser. While so
        many wait, ``i.ready`` is 0, whatever space and credits there are.

    Members
    -------
    i : packet stream
        Raw TLPs.
    max_payload : 3
        That of the parser.
    info : stream of :class:`~dxpu.tlp.types.TlpInfo`
        Decoded headers.
    beats : packet stream
        TLPs; each comes when its ``info`` has been taken.
    stat_malformed, malformed_cause, malformed_header
        Those of the parser.
    released_strobe : 1
        Pulse: the buffer space of a TLP is free. One for each TLP that came without ``discard``,
        when it leaves at ``beats`` or is dropped.
    released_cls, released_dwords : :class:`~dxpu.tlp.types.TlpClass`, 11
        Class and payload dwords of that TLP, as its header says; valid with ``released_strobe``.
    stat_discarded : 1
        Pulse: a TLP was dropped that was malformed or came with ``discard``.
    stat_overflow : 1
        Pulse: a TLP larger than the queue was dropped.
    """

    #: TLPs whose ``info`` may leave before their beats.
    AHEAD = 16

    def __init__(self, width, *, depth, packets=16):
        self._parser = TailParser(width)
        self._queue = InfoQueue(width, depth=depth, info=TlpHeader, packets=packets)
        self._release = _Release()
        super().__init__({
            "i": In(PacketSignature(width)),
            "max_payload": In(3, init=NO_LIMIT),
            "info": Out(stream.Signature(TlpInfo)),
            "beats": Out(PacketSignature(width)),
            "stat_malformed": Out(Counted("TLPs from the host that were malformed; dropped.")),
            "malformed_cause": Out(Malformed),
            "malformed_header": Out(data.ArrayLayout(32, 4)),
            "released_strobe": Out(1),
            "released_cls": Out(TlpClass),
            "released_dwords": Out(11),
            "stat_discarded": Out(Counted(
                "TLPs from the host that were dropped, malformed or discarded by their source.")),
            "stat_overflow": Out(Counted(
                "TLPs from PCIe that were larger than the buffer; dropped.")),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.parser = parser = self._parser
        m.submodules.queue = queue = self._queue
        m.submodules.release = release = self._release
        m.submodules.inside = inside = fifo.SyncFIFO(
            width=Shape.cast(TlpSpace).width, depth=self.AHEAD)
        info, beats = self.info, self.beats
        parsed, left = Signal(TlpInfo), Signal(TlpSpace)
        connect(m, wiring.flipped(self.i), parser.i)
        decode(m, parser.tlp_header, parsed)
        decode(m, queue.info.payload, info.payload)
        able = ~parser.o.p.last | release.able
        m.d.comb += [
            parser.max_payload.eq(self.max_payload),
            queue.i.payload.eq(parser.o.payload),
            queue.i_info.eq(parser.tlp_header),
            queue.i.valid.eq(parser.o.valid & able),
            parser.o.ready.eq(queue.i.ready & able),
            info.valid.eq(queue.info.valid & inside.w_rdy),
            queue.info.ready.eq(info.ready & inside.w_rdy),
            inside.w_data.eq(Cat(info.p.cls, info.p.payload_dwords)),
            inside.w_en.eq(info.valid & info.ready),
            left.eq(inside.r_data),
            inside.r_en.eq(release.leaves),
            beats.payload.eq(queue.beats.payload),
            beats.valid.eq(queue.beats.valid & inside.r_rdy),
            queue.beats.ready.eq(beats.ready & inside.r_rdy),
            release.leaves.eq(beats.valid & beats.ready & beats.p.last),
            release.leaving.eq(left),
            release.drops_malformed.eq(parser.stat_malformed),
            # A malformed TLP ends with `discard` here, so it is not counted twice.
            release.large.eq(queue.stat_overflow & ~parser.o.p.discard),
            release.parsed.eq(Cat(parsed.cls, parsed.payload_dwords)),
            self.released_strobe.eq(release.strobe),
            self.released_cls.eq(release.space.cls),
            self.released_dwords.eq(release.space.dwords),
            self.stat_malformed.eq(parser.stat_malformed),
            self.malformed_cause.eq(parser.malformed_cause),
            self.malformed_header.eq(parser.malformed_header),
            self.stat_discarded.eq(queue.stat_discarded),
            self.stat_overflow.eq(queue.stat_overflow),
        ]
        return m


class _Release(wiring.Component):
    """Gives one release per cycle: of a TLP that leaves, or else of one that was dropped.

    The release of a dropped TLP waits for a cycle in which none leaves. Meanwhile the end of the
    next TLP waits in the parser, whatever it is.

    Members
    -------
    leaves, leaving : 1, :class:`TlpSpace`
        Pulse: a TLP leaves.
    drops_malformed, large, parsed : 1, 1, :class:`TlpSpace`
        Pulses: a TLP is dropped as malformed, as larger than the queue.
    able : 1
        The next TLP may end.
    strobe, space : 1, :class:`TlpSpace`
        Pulse: the space of a TLP is free.
    """

    leaves: In(1)
    leaving: In(TlpSpace)
    drops_malformed: In(1)
    large: In(1)
    parsed: In(TlpSpace)
    able: Out(1)
    strobe: Out(1)
    space: Out(TlpSpace)

    def elaborate(self, platform):
        m = Module()
        pending, dropped = Signal(), Signal(TlpSpace)
        m.d.comb += [
            self.able.eq(~pending),
            self.strobe.eq(self.leaves | pending),
            self.space.eq(Mux(self.leaves, self.leaving, dropped)),
        ]
        with m.If(self.drops_malformed | self.large):
            m.d.sync += [pending.eq(1), dropped.eq(self.parsed)]
        with m.Elif(~self.leaves):
            m.d.sync += pending.eq(0)
        return m
