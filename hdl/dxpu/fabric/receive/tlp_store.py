"""Holds the TLPs of received frames until their frame is judged."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.memory import DisjointMemory
from dxpu.queue import Queue
from dxpu.rows import TlpMeta
from dxpu.stream import PacketLayout, PacketSignature, check_width

from .types import Piece

__all__ = ["TlpStore"]


class TlpStore(wiring.Component):
    """Block-RAM queue whose packets become visible, or vanish, a frame at a time.

    The pieces of a frame are written as they come. When the frame is judged, its packets are
    offered on ``o`` together, or passed over. Latency: the first beat is offered two cycles after
    ``judge`` if nothing is before it. Throughput one beat per cycle; one idle cycle between frames.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats; a power of two, at least 4. A frame of up to ``depth - 2`` beats always fits.
    meta : shape-like
        What is said about the packets of a frame.

    Members
    -------
    piece : :class:`~.types.Piece`
    room : 1
        There is space for one more piece after ``piece``.
    hopeless : 1
        Nothing but the unfinished frame is in memory.
    judge : stream of {keep, meta}
        Once per frame, after its ``eof`` and before the next one's.
    drained : 1
        Every packet of the frames that were judged has left.
    o : packet stream with ``meta``
        TLPs; of HDR and DATA frames their part of one. Beats may be short, also before the last.
    """

    def __init__(self, width, *, depth, meta=TlpMeta):
        if not isinstance(depth, int) or depth < 4 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 4, not {depth!r}")
        self._lanes = check_width(width) // 32
        self._width = width
        self._depth = depth
        self._meta = meta
        super().__init__({
            "piece": In(Piece(width)),
            "room": Out(1, init=1),
            "hopeless": Out(1),
            "judge": In(stream.Signature(data.StructLayout({"keep": 1, "meta": meta}))),
            "drained": Out(1),
            "o": Out(PacketSignature(width, meta)),
        })

    def elaborate(self, platform):
        m = Module()
        piece, o = self.piece, self.o
        stored = {k: PacketLayout(self._width)[k].shape for k in ("data", "dwords", "last")}
        m.submodules.memory = memory = DisjointMemory(
            shape=data.StructLayout(stored), depth=self._depth, init=[])
        write, read = memory.write_port(), memory.read_port()

        # Pointers carry one bit more than an address, so that full and empty differ.
        bits = exact_log2(self._depth) + 1
        tail, start, done, head = (Signal(bits, name=n) for n in ("tail", "start", "done", "head"))
        level = Signal(bits)
        # Registered: what leaves meanwhile only makes more room, and a frame that ends is no longer
        # unfinished.
        m.d.sync += [
            self.room.eq(Mux(piece.write, level <= self._depth - 3, level <= self._depth - 2)),
            self.hopeless.eq((head == start) & ~piece.eof),
        ]
        m.d.comb += [
            level.eq(tail - head),
            write.addr.eq(tail),
            write.en.eq(piece.write),
            write.data.data.eq(piece.data),
            write.data.dwords.eq(piece.dwords - piece.end),
            write.data.last.eq(piece.last),
        ]
        if self._lanes > 1:
            with m.If(piece.resume & piece.first):  # what is before the data
                m.d.comb += [
                    write.data.data.eq(piece.data >> 32),
                    write.data.dwords.eq(piece.dwords - piece.end - 1),
                ]
        m.d.sync += tail.eq(tail + piece.write)
        with m.If(piece.eof):
            m.d.sync += start.eq(tail + piece.write)

        # Judged frames, as the pointer behind their last beat. Frames without TLPs leave no entry;
        # while the reader has nothing to do it is told at once, else by way of the queue.
        entry = data.StructLayout({"end": bits, "keep": 1, "meta": self._meta})
        m.submodules.frames = frames = Queue(entry, depth=8)
        end, meta = Signal(bits), Signal(self._meta)
        empty, idle = done == start, head == end
        queued = Signal(range(16))
        direct = idle & (queued == 0)
        next = Signal(entry)
        m.d.comb += [
            next.end.eq(start),
            next.keep.eq(self.judge.payload.keep),
            next.meta.eq(self.judge.payload.meta),
            frames.i.payload.eq(next),
            frames.i.valid.eq(self.judge.valid & ~empty & ~direct),
            frames.o.ready.eq(idle),
            self.judge.ready.eq(frames.i.ready | empty | direct),
            self.drained.eq((head == done) & ~o.valid),
        ]
        with m.If(self.judge.valid & self.judge.ready):
            m.d.sync += done.eq(start)
        m.d.sync += queued.eq(queued + (frames.i.valid & frames.i.ready)
                              - (frames.o.valid & frames.o.ready))

        load = Signal(entry)
        m.d.comb += load.eq(Mux(direct, next.as_value(), frames.o.payload.as_value()))
        with m.If(Mux(direct, self.judge.valid & ~empty, frames.o.valid & frames.o.ready)):
            m.d.sync += [end.eq(load.end), meta.eq(load.meta)]
            with m.If(~load.keep):
                m.d.sync += head.eq(load.end)

        first = Signal(init=1)
        m.d.comb += [
            read.addr.eq(head),
            read.en.eq((head != end) & (~o.valid | o.ready)),
            *(o.payload[k].eq(read.data[k]) for k in stored),
            o.payload.first.eq(first),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += [first.eq(o.payload.last), o.valid.eq(0)]
        with m.If(read.en):
            m.d.sync += [head.eq(head + 1), o.valid.eq(1), o.payload.meta.eq(meta)]
        return m
