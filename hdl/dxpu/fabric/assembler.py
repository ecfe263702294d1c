"""A frame from its preamble and its TLPs, as chunks of any number of dwords."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..stream import PacketSignature, check_width
from .packer import Chunk, FrameMeta
from .preamble import PreambleBeat

__all__ = ["Assembler"]


class Assembler(wiring.Component):
    """Puts preamble and records of each frame one behind the other, a chunk per cycle.

    Records are bound to their frame here (their CRC is XORed with the binding word) and padded to
    two dwords where there are several. TLPs of a frame without route are dropped, a beat per cycle.
    Once a frame has started there is a chunk every cycle, as all its TLPs are in the queue.

    No latency; throughput a chunk per cycle. At 32 bits the padding is a chunk of its own.

    Parameters
    ----------
    width : int
        Data bits per beat.
    split : bool
        Whether there are frames of the split form.

    Members
    -------
    preamble : stream of :func:`~dxpu.fabric.preamble.PreambleBeat`
    tlps : packet stream
        TLPs with their CRC (:class:`~dxpu.fabric.tx_queue.TxQueue`); lanes past it are zero.
    o : stream of :func:`~dxpu.fabric.packer.Chunk`
    hurry : 1
        The frame that is leaving has less left than it takes to prepare the next.
    stat_frames, stat_tlps : 1
        Pulses: a frame, a TLP was sent.
    stat_unroutable : 1
        Pulse: a TLP or a control frame was dropped.
    """

    #: Cycles from ``hurry`` to the next preamble: plan, link (assumed 6), build.
    PREPARATION = 10

    def __init__(self, width, *, split=False):
        self._width = check_width(width)
        self._split = split
        self._partial = width in ((64, 128, 256) if split else (128, 256))
        super().__init__({
            "preamble": In(stream.Signature(PreambleBeat(width))),
            "tlps": In(PacketSignature(width)),
            "o": Out(stream.Signature(Chunk(width))),
            "hurry": Out(1),
            "stat_frames": Out(1),
            "stat_tlps": Out(1),
            "stat_unroutable": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self._width // 32
        preamble, tlps, o = self.preamble, self.tlps, self.o
        head, chunk = preamble.payload, o.payload

        # What holds for the whole frame; the preamble register is free for the next one meanwhile.
        count = Signal(5)
        several = Signal()
        binding = Signal(32, reset_less=True)
        meta = Signal(FrameMeta, reset_less=True)
        final = Signal()
        left = Signal(13)
        m.d.sync += self.hurry.eq(left <= self.PREPARATION * lanes)

        m.d.comb += chunk.meta.eq(meta)
        partial = (head.extension | self._split) if self._partial else 0
        with m.FSM():
            with m.State("Preamble"):
                # A chunk may lack a beat of output: the last of each record but the frame's last,
                # and the last of a preamble. `reserve` is one more than can follow.
                m.d.comb += [
                    chunk.data.eq(head.data),
                    chunk.dwords.eq(head.dwords),
                    chunk.last.eq(head.last & (head.count == 0)),
                    chunk.meta.path.eq(head.path),
                    chunk.meta.reserve.eq(Mux(head.count == 0, 1, head.count + partial)),
                ]
                m.d.sync += [
                    count.eq(head.count),
                    several.eq(head.count > 1),
                    binding.eq(head.binding),
                    final.eq(head.final),
                    meta.eq(chunk.meta),
                    left.eq(0),
                ]
                with m.If(head.drop):
                    m.d.comb += preamble.ready.eq(1)
                    with m.If(preamble.valid):
                        with m.If(head.count == 0):
                            m.d.comb += self.stat_unroutable.eq(1)
                        with m.Else():
                            m.next = "Drop"
                with m.Else():
                    # Only when the first TLP can follow at once.
                    go = ~head.first | (head.count == 0) | tlps.valid
                    m.d.comb += [o.valid.eq(preamble.valid & go), preamble.ready.eq(o.ready & go)]
                    with m.If(preamble.valid & preamble.ready & head.last):
                        m.d.sync += left.eq(head.total)
                        m.d.comb += self.stat_frames.eq(chunk.last)
                        with m.If(head.count != 0):
                            m.next = "Tlps"
                    with m.Elif(preamble.valid):
                        m.d.sync += left.eq(head.total)
            with m.State("Tlps"):
                m.d.comb += [o.valid.eq(tlps.valid), tlps.ready.eq(o.ready)]
                odd = self._record(m, chunk, several, binding)
                pad = several & ~odd if lanes == 1 else 0
                m.d.comb += chunk.last.eq(tlps.payload.last & (count == 1) & ~pad)
                with m.If(tlps.valid & tlps.ready):
                    m.d.sync += left.eq(left - chunk.dwords)
                    with m.If(tlps.payload.last):
                        m.d.sync += count.eq(count - 1)
                        m.d.comb += self.stat_tlps.eq(final)
                    with m.If(chunk.last):
                        m.d.comb += self.stat_frames.eq(1)
                        m.next = "Preamble"
                    if lanes == 1:
                        with m.Elif(tlps.payload.last & pad):
                            m.next = "Pad"
            if lanes == 1:
                with m.State("Pad"):
                    m.d.comb += [o.valid.eq(1), chunk.dwords.eq(1), chunk.last.eq(count == 0)]
                    with m.If(o.ready):
                        m.d.sync += left.eq(left - 1)
                        m.next = "Tlps"
                    with m.If(o.ready & (count == 0)):
                        m.d.comb += self.stat_frames.eq(1)
                        m.next = "Preamble"
            with m.State("Drop"):
                m.d.comb += tlps.ready.eq(1)
                with m.If(tlps.valid & tlps.payload.last):
                    m.d.comb += self.stat_unroutable.eq(final)
                    m.d.sync += count.eq(count - 1)
                    with m.If(count == 1):
                        m.next = "Preamble"
        return m

    def _record(self, m, chunk, several, binding):
        """Binds and pads the record that passes."""
        lanes, beat = self._width // 32, self.tlps.payload
        bound = [beat.data.word_select(n, 32)
                 ^ Mux(beat.last & (beat.dwords == n + 1), binding, 0) for n in range(lanes)]
        m.d.comb += [chunk.data.eq(Cat(bound)), chunk.dwords.eq(beat.dwords)]
        # At 32 bits: an odd number of dwords of the record came before this beat.
        odd = Signal()
        if lanes == 1:
            with m.If(self.tlps.valid & self.tlps.ready):
                m.d.sync += odd.eq(~odd & ~beat.last)
        else:
            # An odd number in a last beat leaves room in it, and the lane there is zero.
            m.d.comb += chunk.dwords.eq(beat.dwords + (several & beat.last & beat.dwords[0]))
        return odd
