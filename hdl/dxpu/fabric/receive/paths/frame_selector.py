"""One stream of frames from the queues of all paths.

Ref: docs/explanation/fabric-engine.md, "A frame is parsed while it arrives"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.priority import round_robin
from dxpu.stream import PacketLayout, PacketSignature, Register, connect

from .frame_queue import FrameBeats

__all__ = ["FrameSelector"]


class FrameSelector(wiring.Component):
    """Merges the beats of :class:`~.frame_queue.FrameQueue` s by frames.

    Frames that are stored to their end go first, in turn (round robin). If there is none, a frame
    that is still arriving leaves beat by beat; it is taken back (it ends with ``discard``) as soon
    as a whole one waits on another path, so that nothing waits for the speed of a line.

    Latency one cycle, throughput one beat per cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.
    count : int
        Queues.

    Members
    -------
    i : array of ``count`` :func:`~.frame_queue.FrameBeats`
    whole_only : ``count``
        To the queues.
    hurry : 1
        No frame is to leave that is still arriving.
    o : packet stream
        Frames. One that ends with ``discard`` was taken back.
    """

    def __init__(self, width, *, count):
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"count must be a positive integer, not {count!r}")
        super().__init__({
            "i": In(FrameBeats(width)).array(count),
            "whole_only": Out(count),
            "hurry": In(1),
            "o": Out(PacketSignature(width)),
        })
        self._layout = PacketLayout(width)
        self._count = count

    def elaborate(self, platform):
        m = Module()
        m.submodules.stage = stage = Register(self._layout)
        whole, offered = Cat(i.whole for i in self.i), Cat(i.offered for i in self.i)
        m.d.sync += self.whole_only.eq(Cat(
            self.hurry | Cat(bit for k, bit in enumerate(whole) if k != n).any()
            for n in range(self._count)))

        locked, current, chosen = Signal(), *(Signal(range(self._count)) for _ in range(2))
        m.d.comb += chosen.eq(Mux(locked, current, Mux(
            whole.any(), round_robin(whole, current), round_robin(offered, current))))
        with m.Switch(chosen):
            for n, i in enumerate(self.i):
                with m.Case(n):
                    m.d.comb += [
                        stage.i.p.eq(i.beat),
                        stage.i.valid.eq(i.offered),
                        i.take.eq(i.offered & stage.i.ready),
                    ]
        with m.If(stage.i.valid & stage.i.ready):
            m.d.sync += [locked.eq(~stage.i.p.last), current.eq(chosen)]
        connect(m, stage.o, wiring.flipped(self.o))
        return m
