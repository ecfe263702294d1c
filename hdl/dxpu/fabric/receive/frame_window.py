"""The dwords of a frame under the eyes of :class:`~.frame_walker.FrameWalker`."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature, check_width

__all__ = ["FrameWindow"]


class FrameWindow(wiring.Component):
    """Shows the next ``width // 32`` dwords of a frame, and moves on by any even number of them.

    Holds up to two beats of one frame; the next frame comes in when this one is cleared. A beat is
    visible in the cycle after it was taken. If ``width // 32`` dwords are consumed per cycle, one
    beat is taken per cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    i : packet stream
    data : ``width``
        The next dwords, the first one in the least significant lane; zero behind the last dword.
    have : ``range(2 * (width // 32) + 1)``
        Dwords in the window, those past ``data`` included.
    ended, discard : 1
        The frame's last dword is in the window; how it ended.
    enough : 1
        ``data`` is full, or holds all that is left of the frame; 0 with ``clear``.
    take : ``range(width // 32 + 1)``
        Dwords to move on by, at most ``have`` but in the cycle before ``clear``; even if ``width``
        is above 32.
    clear : 1
        Done with this frame (only with ``ended``), whatever is taken.
    """

    def __init__(self, width):
        self._lanes = lanes = check_width(width) // 32
        super().__init__({
            "i": In(PacketSignature(width)),
            "data": Out(width),
            "have": Out(range(2 * lanes + 1)),
            "ended": Out(1),
            "discard": Out(1),
            "enough": Out(1),
            "take": In(range(lanes + 1)),
            "clear": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, i = self._lanes, self.i
        unit = min(lanes, 2)                    # all positions are multiples of this
        steps = range((lanes // unit).bit_length())

        buffer = Signal(64 * lanes)
        after = Signal.like(self.have)
        kept, fresh = buffer, Cat(
            Mux(i.payload.dwords > n, i.payload.data.word_select(n, 32), 0) for n in range(lanes))
        move = self.take // unit
        for n in steps:
            kept = Mux(move[n], kept >> (32 * unit << n), kept)
        m.d.comb += after.eq(self.have - self.take)
        where = after // unit
        for n in steps:
            fresh = Mux(where[n], fresh << (32 * unit << n), fresh)

        with m.If(self.ended):
            m.d.comb += i.ready.eq(self.clear)
        with m.Elif(Const(lanes > 2)):
            m.d.comb += i.ready.eq(after <= lanes)
        with m.Else():                          # moves by whole beats only
            m.d.comb += i.ready.eq(self.have <= lanes)

        count = Signal.like(self.have)
        with m.If(self.clear):
            m.d.sync += [self.ended.eq(0), buffer.eq(0)]
            with m.If(i.valid):
                m.d.sync += [buffer.eq(Cat(
                    Mux(i.payload.dwords > n, i.payload.data.word_select(n, 32), 0)
                    for n in range(lanes))), count.eq(i.payload.dwords)]
            with m.Else():
                m.d.sync += count.eq(0)
        with m.Elif(i.valid & i.ready):
            m.d.sync += [buffer.eq(kept | fresh), count.eq(after + i.payload.dwords)]
        with m.Else():
            m.d.sync += [buffer.eq(kept), count.eq(after)]
        with m.If(i.valid & i.ready):
            m.d.sync += [self.ended.eq(i.payload.last), self.discard.eq(i.payload.discard)]

        m.d.comb += [
            self.have.eq(count),
            self.data.eq(buffer),
            self.enough.eq((self.ended | (count >= lanes)) & ~self.clear),
        ]
        return m
