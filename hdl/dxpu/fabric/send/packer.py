"""Chunks of any number of dwords become frames of full beats without gaps."""

from amaranth import *
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.format import COUNT_MAX, MIN_FRAME_BYTES
from dxpu.stream import PacketLayout, PacketSignature, Register, check_width, connect

from .types import PathMeta

__all__ = ["Chunk", "DwordPacker", "FrameBuffer", "FrameMeta", "FramePadder"]


class FrameMeta(data.Struct):
    """Of a frame: its way, and the beats to be ready before it may start (:class:`FrameBuffer`)."""

    path: 4
    reserve: range(COUNT_MAX + 2)


def Chunk(width, meta=FrameMeta):
    """Layout of a piece of a packet.

    Members
    -------
    data, dwords
        1 to ``width // 32`` dwords; lanes past them are zero.
    last : 1
        End of the packet.
    meta : ``meta``
        Of the packet.
    """
    return data.StructLayout({
        "data": width, "dwords": range(width // 32 + 1), "last": 1, "meta": meta,
    })


class DwordPacker(wiring.Component):
    """Joins the chunks of a packet densely.

    Latency one cycle. A chunk per cycle; a packet whose last chunk makes two beats pauses ``i`` for
    a cycle. ``i.ready`` depends on ``o.ready`` in the same cycle.

    Each chunk is rotated to where the one before it ended, and held; the lanes below that point
    come from what was left over, and the lanes that the output cannot take are left over in turn.

    Parameters
    ----------
    width : int
        Data bits per beat.
    meta : shape-like
        Side information of the packets.

    Members
    -------
    i : stream of :func:`Chunk`
    o : stream of :func:`Chunk`
        Full but for the last one of a packet.
    """

    def __init__(self, width, *, meta=FrameMeta):
        self._width = check_width(width)
        self._chunk = Chunk(width, meta)
        super().__init__({
            "i": In(stream.Signature(self._chunk)),
            "o": Out(stream.Signature(self._chunk)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self._width // 32
        if lanes == 1:
            m.submodules.register = register = Register(self._chunk)
            connect(m, wiring.flipped(self.i), register.i)
            connect(m, register.o, wiring.flipped(self.o))
            return m

        i, o = self.i, self.o
        fill = Signal(range(lanes))
        total = Signal(range(2 * lanes))
        m.d.comb += total.eq(fill + i.payload.dwords)

        # Rotate.
        turned = i.payload.data
        for n in range(len(fill)):
            turned = Mux(fill[n], turned.rotate_left(32 << n), turned)
        valid = Signal()
        chunk = Signal(self._chunk, reset_less=True)
        start = Signal(range(lanes), reset_less=True)  # lane that the chunk starts in
        end = Signal(range(2 * lanes), reset_less=True)
        take = Signal()
        m.d.comb += i.ready.eq(~valid | take)
        with m.If(i.ready):
            m.d.sync += [
                valid.eq(i.valid), chunk.eq(i.payload), chunk.data.eq(turned),
                start.eq(fill), end.eq(total),
            ]
            with m.If(i.valid):
                m.d.sync += fill.eq(Mux(i.payload.last, 0, total))

        # Merge.
        rest = Signal(self._width, reset_less=True)
        merged, over = Signal(self._width), Signal(self._width)
        second = Signal()  # the last chunk's second beat is due
        for n in range(lanes):
            own = chunk.data.word_select(n, 32)
            m.d.comb += [
                merged.word_select(n, 32).eq(Mux(start > n, rest.word_select(n, 32), own)),
                over.word_select(n, 32).eq(Mux(start > n, own, 0)),
            ]
        two, move = chunk.last & (end > lanes), ~o.valid | o.ready
        m.d.comb += [
            o.valid.eq(valid & (chunk.last | (end >= lanes))),
            o.payload.data.eq(Mux(second, over, merged)),
            o.payload.dwords.eq(Mux(second, end - lanes, Mux(end > lanes, lanes, end))),
            o.payload.last.eq(chunk.last & (second | ~two)),
            o.payload.meta.eq(chunk.meta),
            take.eq(move & (~two | second)),
        ]
        with m.If(valid & move):
            m.d.sync += [
                second.eq(two & ~second),
                rest.eq(Mux(end >= lanes, over, merged)),
            ]
        return m


class FramePadder(wiring.Component):
    """Extends frames below 60 bytes with zeros to just that, and marks where frames begin.

    No latency. Beats that it adds come in the cycles right after the frame's last.

    Parameters
    ----------
    width : int
        Data bits per beat.
    zeros : bool
        The data of ``i`` is zero while ``extra``, so there is no need to make it so here.

    Members
    -------
    i : stream of :func:`Chunk`
        Full but for the last one of a frame; lanes past its dwords are zero.
    o : stream of :func:`Chunk`
    first : 1
        ``o`` is the first of its frame.
    extra : 1
        ``o`` is a beat that is added. Does not depend on ``i`` in the same cycle.
    """

    def __init__(self, width, *, zeros=False):
        self._width, self._zeros = check_width(width), zeros
        super().__init__({
            "i": In(stream.Signature(Chunk(width))),
            "o": Out(stream.Signature(Chunk(width))),
            "first": Out(1),
            "extra": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, least = self._width // 32, MIN_FRAME_BYTES // 4
        i, o = self.i, self.o
        before = Signal(range(least + 1))  # full beats' dwords, no further than `least`
        extra = self.extra
        meta = Signal(FrameMeta, reset_less=True)
        need = Signal(range(least + 1))
        short = Signal()
        m.d.comb += [
            need.eq(least - before),
            self.first.eq(before == 0),
            short.eq(i.payload.last & (i.payload.dwords < need)),
            o.payload.eq(i.payload),
            o.valid.eq(i.valid),
            i.ready.eq(o.ready),
        ]
        with m.If(extra):
            m.d.comb += [o.payload.meta.eq(meta), o.valid.eq(1), i.ready.eq(0)]
            if not self._zeros:
                m.d.comb += o.payload.data.eq(0)
        with m.If(extra | short):
            m.d.comb += [
                o.payload.dwords.eq(Mux(need < lanes, need, lanes)),
                o.payload.last.eq(need <= lanes),
            ]
        with m.If(o.valid & o.ready):
            m.d.sync += [
                meta.eq(o.payload.meta),
                extra.eq((extra | short) & ~o.payload.last),
                before.eq(Mux(o.payload.last, 0, Mux(need < lanes, least, before + lanes))),
            ]
        return m


class FrameBuffer(wiring.Component):
    """Holds a frame back until its remaining beats cannot come too late.

    A chunk that does not fill a beat is a cycle without output. A frame starts when as many beats
    are ready as such cycles can follow (``reserve``), or all of it is. From then on its beats are
    offered every cycle. Latency one cycle and that wait. Behind two whole frames it takes no other:
    TLPs that wait before it can share one.

    Parameters
    ----------
    width : int
        Data bits per beat.
    full : bool
        Whether all chunks but the last fill a beat; then there is nothing to wait for.

    Members
    -------
    i : stream of :func:`Chunk`
    first : 1
        ``i`` is the first of its frame.
    o : packet stream with :class:`PathMeta`
    """

    def __init__(self, width, *, full=False):
        self._width = check_width(width)
        self._full = full or width == 32
        super().__init__({
            "i": In(stream.Signature(Chunk(width))),
            "first": In(1),
            "o": Out(PacketSignature(width, PathMeta)),
        })

    def elaborate(self, platform):
        m = Module()
        layout = PacketLayout(self._width, PathMeta)
        beat = Signal(layout)
        i, o = self.i, self.o
        m.d.comb += [
            beat.data.eq(i.payload.data),
            beat.dwords.eq(i.payload.dwords),
            beat.first.eq(self.first),
            beat.last.eq(i.payload.last),
            beat.meta.path.eq(i.payload.meta.path),
        ]
        if self._full:
            m.submodules.register = register = Register(layout)
            m.d.comb += [
                register.i.payload.eq(beat),
                register.i.valid.eq(i.valid),
                i.ready.eq(register.i.ready),
            ]
            connect(m, register.o, wiring.flipped(o))
            return m

        depth = COUNT_MAX + 2
        stored = data.StructLayout({"beat": layout, "reserve": range(COUNT_MAX + 2)})
        m.submodules.words = words = fifo.SyncFIFO(width=stored.size, depth=depth)
        into, head = Signal(stored), data.View(stored, words.r_data)
        ends = Signal(2)  # last beats in the queue
        started, may_start, room = Signal(), Signal(), Signal()
        m.d.comb += [
            into.beat.eq(beat),
            into.reserve.eq(i.payload.meta.reserve),
            words.w_data.eq(into),
            room.eq(~(self.first & ends[1])),
            words.w_en.eq(i.valid & room),
            i.ready.eq(words.w_rdy & room),
            # Without an end in the queue all of it is one frame.
            may_start.eq((ends != 0) | (words.level >= head.reserve)),
            o.payload.eq(head.beat),
            o.valid.eq(words.r_rdy & (started | may_start)),
            words.r_en.eq(o.valid & o.ready),
        ]
        with m.If(words.r_en):
            m.d.sync += started.eq(~o.payload.last)
        entered = words.w_en & words.w_rdy & beat.last
        left = words.r_en & o.payload.last
        m.d.sync += ends.eq(ends + entered - left)
        return m
