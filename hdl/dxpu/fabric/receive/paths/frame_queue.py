"""Queue of received frames that can be read while they arrive.

Ref: docs/explanation/fabric-engine.md, "A frame is parsed while it arrives"
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.memory import DisjointMemory
from dxpu.stream import PacketLayout, PacketSignature

__all__ = ["FrameBeats", "FrameQueue"]


def FrameBeats(width):
    """Signature of the beats that a :class:`FrameQueue` offers; no stream, as what is offered and
    not taken may be another beat, or none, in the next cycle.

    Members
    -------
    beat : :class:`~dxpu.stream.PacketLayout`
    offered : 1
        There is a beat.
    whole : 1
        The frame of that beat is stored to its end, or the first frame that waits is.
    take : 1 in
        The beat is taken; only with ``offered``.
    """
    return wiring.Signature({
        "beat": Out(PacketLayout(width)), "offered": Out(1), "whole": Out(1), "take": In(1)})


class FrameQueue(wiring.Component):
    """Queue of frames in block RAM, for a source that cannot wait and a sink that can begin a frame
    before it has arrived.

    Frames leave in order. The beats of a frame that is not stored to its end are offered, too, but
    for a frame that is to be ``whole_only``. A frame of which beats were taken is *taken back* when
    it turns out bad (``discard``), does not fit, or is to leave whole: one more beat with ``last``
    and ``discard`` ends it. One that is only to leave whole comes again from its first beat when it
    is stored; nothing comes again of the others. A frame that does not fit is removed whole.

    Latency from the last beat: none if every beat before it was taken and it is taken at once, else
    two cycles. Throughput one beat per cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats; a power of two.

    Members
    -------
    i : packet stream
        Frames. ``ready`` is always 1.
    o : :func:`FrameBeats`
    whole_only : 1
        Only frames that are stored to their end may leave.
    level : ``range(depth + 1)``
        Beats in memory that may not be overwritten.
    stat_overflow : 1
        Pulse: a frame was removed because it did not fit.
    """

    def __init__(self, width, *, depth):
        if not isinstance(depth, int) or depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 2, not {depth!r}")
        super().__init__({
            "i": In(PacketSignature(width)),
            "o": Out(FrameBeats(width)),
            "whole_only": In(1),
            "level": Out(range(depth + 1)),
            "stat_overflow": Out(1),
        })
        self._layout = PacketLayout(width)
        self._depth = depth

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        # Not stored: `first`, which follows from `last`, and `discard`.
        stored = {k: f.shape for k, f in self._layout if k not in ("first", "discard")}
        m.submodules.memory = memory = DisjointMemory(
            shape=data.StructLayout(stored), depth=self._depth, init=[])
        write, read = memory.write_port(), memory.read_port()

        # Pointers carry one bit more than an address, so that full and empty differ: behind the
        # last beat, behind the last whole frame, and the next beat to read.
        bits = exact_log2(self._depth) + 1
        tail, committed, head = Signal(bits), Signal(bits), Signal(bits)
        #: Beats of the frame that is not whole have been read.
        partial = Signal()
        #: A beat was read and not taken; beats of its frame were taken; the frame is taken back.
        have, begun, ending = Signal(), Signal(), Signal()

        # What arrives.
        full, dropping, writes, ends, commits, removes = (
            Signal(name=name) for name in (
                "full", "dropping", "writes", "ends", "commits", "removes"))
        # Told by registers: a beat that has just become free counts a cycle later, but those of
        # a frame that is removed, if any are stored, at once.
        level = self.level
        was_full, was_almost_full, wrote = Signal(), Signal(), Signal()
        stored_beats = Signal()
        with m.If(writes | removes):
            m.d.sync += stored_beats.eq(~(i.p.last | removes))
        m.d.sync += [
            was_full.eq((level == self._depth) & ~(removes & stored_beats)),
            was_almost_full.eq(level == self._depth - 1),
            wrote.eq(writes & ~removes),
        ]
        m.d.comb += [
            i.ready.eq(1),
            # While a frame may be taken back, the beats that were read of it stay.
            level.eq(tail - Mux(partial, committed, head)),
            full.eq(was_full | was_almost_full & wrote),
            writes.eq(i.valid & ~full & ~dropping),
            ends.eq(writes & i.p.last),
            commits.eq(ends & ~i.p.discard),
            removes.eq(ends & i.p.discard | i.valid & full & ~dropping),
            self.stat_overflow.eq(i.valid & i.p.last & (dropping | full)),
            write.addr.eq(tail),
            write.en.eq(writes),
            *(write.data[k].eq(i.p[k]) for k in stored),
        ]
        with m.If(i.valid):
            m.d.sync += dropping.eq((dropping | full) & ~i.p.last)
        with m.If(removes):
            m.d.sync += tail.eq(committed)
        with m.Elif(writes):
            m.d.sync += tail.eq(tail + 1)
        with m.If(commits):
            m.d.sync += committed.eq(tail + 1)

        # What leaves: the end of a frame that is taken back, a beat from the memory, or, if there
        # is none, the beat that arrives.
        passes, empty, early = Signal(), Signal(), Signal()
        m.d.comb += [
            empty.eq(head == tail),
            early.eq(partial | (head == committed)),  # what is read next is of no whole frame
            passes.eq(writes & empty & ~have & ~ending & ~self.whole_only),
            o.offered.eq(ending | have | passes),
            o.whole.eq(~partial & (have | (head != committed))),
            *(o.beat[k].eq(Mux(have | ending, read.data[k], i.p[k])) for k in stored),
            o.beat.first.eq(~begun),
        ]
        with m.If(ending):
            m.d.comb += [o.beat.dwords.eq(1), o.beat.last.eq(1), o.beat.discard.eq(1)]
        with m.Elif(~have):
            m.d.comb += o.beat.discard.eq(i.p.discard)
        begun_next, taken = Signal(), Signal()
        m.d.comb += [
            taken.eq(o.take & ~ending),
            begun_next.eq(Mux(o.take, ~o.beat.last, begun)),
            read.addr.eq(head),
            read.en.eq(~empty & (~have | taken) & ~(early & self.whole_only)),
        ]
        m.d.sync += [begun.eq(begun_next), ending.eq(ending & ~o.take)]
        advances = Signal()
        m.d.comb += advances.eq(read.en | passes & o.take)
        with m.If(advances):
            m.d.sync += [head.eq(head + 1), partial.eq(early)]
        with m.If(read.en):
            m.d.sync += have.eq(1)
        with m.Elif(taken):
            m.d.sync += have.eq(0)
        # The frame that was, or is being, read before its end is whole now, or is taken back.
        with m.If(commits):
            m.d.sync += partial.eq(0)
        with m.Elif((partial | early & advances) & (removes | self.whole_only)):
            m.d.sync += [head.eq(committed), partial.eq(0), have.eq(0), ending.eq(begun_next)]
        return m
