"""TLPs with their information beside each beat, or in a stream of its own."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.queue import Queue
from dxpu.stream import PacketLayout, PacketSignature, check_width

__all__ = ["Joiner", "Splitter"]


class Splitter(wiring.Component):
    """Gives the side information of each packet a stream of its own.

    Latency to ``info`` none, to ``beats`` two cycles. Throughput one beat per cycle as long as
    ``info`` of a packet is taken before the next one comes; up to ``depth`` beats wait in
    ``beats``.

    Parameters
    ----------
    width : int
        Data bits per beat.
    meta : shape-like
    depth : int
        Beats that can wait.

    Members
    -------
    i : packet stream with ``meta``
    info : stream of ``meta``
    beats : packet stream
    """

    def __init__(self, width, meta, *, depth=16):
        self._layout = PacketLayout(check_width(width))
        self._beats = Queue(self._layout, depth=depth)
        super().__init__({
            "i": In(PacketSignature(width, meta)),
            "info": Out(stream.Signature(meta)),
            "beats": Out(PacketSignature(width)),
        })

    def elaborate(self, platform):
        m = Module()
        i, beats = self.i, self._beats
        m.submodules.beats = beats
        # Information that is not taken at once is kept, so that its beats go on.
        kept, meta = Signal(), Signal.like(i.p.meta)
        able = ~i.p.first | ~kept
        m.d.sync += [kept.eq(self.info.valid & ~self.info.ready), meta.eq(self.info.payload)]
        m.d.comb += [
            *(beats.i.payload[k].eq(i.p[k]) for k, _ in self._layout),
            beats.i.valid.eq(i.valid & able),
            i.ready.eq(beats.i.ready & able),
            Value.cast(self.info.payload).eq(Mux(kept, Value.cast(meta), Value.cast(i.p.meta))),
            self.info.valid.eq(kept | i.valid & i.p.first & beats.i.ready),
            self.beats.payload.eq(beats.o.payload),
            self.beats.valid.eq(beats.o.valid),
            beats.o.ready.eq(self.beats.ready),
        ]
        return m


class Joiner(wiring.Component):
    """Puts the information of each packet beside its beats. Latency and throughput of its inputs,
    but a cycle more for each packet.

    Parameters
    ----------
    width : int
        Data bits per beat.
    meta : shape-like

    Members
    -------
    info : stream of ``meta``
    beats : packet stream
    o : packet stream with ``meta``
    """

    def __init__(self, width, meta):
        self._layout = PacketLayout(check_width(width))
        super().__init__({
            "info": In(stream.Signature(meta)),
            "beats": In(PacketSignature(width)),
            "o": Out(PacketSignature(width, meta)),
        })

    def elaborate(self, platform):
        m = Module()
        info, beats, o = self.info, self.beats, self.o
        full, meta = Signal(), Signal.like(info.payload)
        m.d.comb += [
            info.ready.eq(~full),
            *(o.p[k].eq(beats.p[k]) for k, _ in self._layout),
            o.p.meta.eq(meta),
            o.valid.eq(beats.valid & full),
            beats.ready.eq(o.ready & full),
        ]
        with m.If(info.valid & info.ready):
            m.d.sync += [full.eq(1), meta.eq(info.payload)]
        with m.Elif(o.valid & o.ready & o.p.last):
            m.d.sync += full.eq(0)
        return m
