"""Transmit side of the MAC: frames to GMII bytes (IEEE 802.3, 4.2.8 and clause 35)."""

from amaranth import *
from amaranth.lib import crc, wiring
from amaranth.lib.crc.catalog import CRC32_ETHERNET
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature

from .gmii import GAP, MINIMUM, PREAMBLE, SFD, GmiiTransmit

__all__ = ["Transmitter"]


class Transmitter(wiring.Component):
    """Sends frames: preamble, delimiter, the frame, padding to the minimum size, FCS, gap.

    Cut-through: a frame starts as soon as its first beat is there, and the preamble gives the rest
    of the frame 8 cycles of head start. From then on the next beat must be there whenever a beat
    has been sent (every ``width // 8`` cycles). If the beat is missing, or if a new frame begins
    before the last beat of this frame, TX_ER ends the frame at once (``stat_underrun``) and the
    rest of the frame is dropped. TX_ER also ends a frame whose last beat has ``discard``
    (``stat_aborted``). Either way no receiver accepts the frame.

    Back to back, exactly 12 byte times lie between two frames (4.4.2, 96 bits). After a reset,
    which may cut a frame off, the gap is at least as long.

    Latency from the first beat (``i.valid``) to the first preamble byte: 2 cycles; the first data
    byte follows 8 cycles later. All outputs are registers.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    i : In(PacketSignature(width))
        Frames from the destination MAC on, without FCS.
    gmii : Out(GmiiTransmit)
    stat_good, stat_underrun, stat_aborted : Out(1)
        One cycle for each frame, at its end.
    """

    def __init__(self, width):
        super().__init__({
            "i": In(PacketSignature(width)),
            "gmii": Out(GmiiTransmit()),
            "stat_good": Out(1),
            "stat_underrun": Out(1),
            "stat_aborted": Out(1),
        })
        self._width = width

    def elaborate(self, platform):
        m = Module()
        m.submodules.crc = fcs = crc.Processor(CRC32_ETHERNET(data_width=8))

        byte, enable, error = Signal(8), Signal(), Signal()
        m.d.sync += [
            self.gmii.txd.eq(byte), self.gmii.tx_en.eq(enable), self.gmii.tx_er.eq(error),
        ]

        # The beat that is being sent, next byte in lane 0; its other bytes; bytes sent so far, up
        # to the minimum; position in preamble, FCS and gap.
        word = Signal(self._width, reset_less=True)
        left = Signal(range(self._width // 8), reset_less=True)
        last, discard = Signal(reset_less=True), Signal(reset_less=True)
        sent = Signal(range(MINIMUM + 1), reset_less=True)
        step = Signal(4)
        # The source sees `ready` a cycle after the beat was taken, which keeps that path short;
        # sending a
        # beat takes at least four cycles.
        take, taken = Signal(), Signal()
        m.d.sync += taken.eq(take)

        m.d.comb += [fcs.data.eq(byte), enable.eq(1), self.i.ready.eq(taken)]

        def count():
            m.d.comb += fcs.valid.eq(1)
            with m.If(sent != MINIMUM):
                m.d.sync += sent.eq(sent + 1)

        m.d.sync += step.eq(step + 1)
        # A reset may have cut a frame off, and a gap must follow that frame as well.
        with m.FSM(init="Gap"):
            with m.State("Idle"):
                m.d.comb += enable.eq(0)
                m.d.sync += step.eq(0)
                with m.If(self.i.valid & ~taken):
                    with m.If(self.i.payload.first):
                        m.next = "Preamble"
                    with m.Else():
                        # Rest of a frame that was cut short.
                        m.d.comb += take.eq(1)
            with m.State("Preamble"):
                m.d.comb += [byte.eq(Mux(step == 7, SFD, PREAMBLE)), fcs.start.eq(1)]
                m.d.sync += sent.eq(0)
                with m.If(step == 7):
                    with m.If(self.i.valid):
                        m.d.comb += take.eq(1)
                        m.next = "Data"
                    with m.Else():
                        # The beat is missing only if the queue was reset.
                        m.d.comb += self.stat_underrun.eq(1)
                        m.next = "Abort"
            with m.State("Data"):
                m.d.comb += byte.eq(word[:8])
                m.d.sync += [word.eq(word >> 8), left.eq(left - 1), step.eq(0)]
                count()
                with m.If(left == 0):
                    with m.If(last):
                        with m.If(discard):
                            m.d.comb += self.stat_aborted.eq(1)
                            m.next = "Abort"
                        with m.Elif(sent < MINIMUM - 1):
                            m.next = "Pad"
                        with m.Else():
                            m.next = "Fcs"
                    with m.Elif(self.i.valid & ~self.i.payload.first):
                        m.d.comb += take.eq(1)
                    with m.Else():
                        m.d.comb += self.stat_underrun.eq(1)
                        m.next = "Abort"
            with m.State("Pad"):
                m.d.comb += byte.eq(0)
                m.d.sync += step.eq(0)
                count()
                with m.If(sent == MINIMUM - 1):
                    m.next = "Fcs"
            with m.State("Fcs"):
                m.d.comb += byte.eq(fcs.crc.word_select(step[:2], 8))
                with m.If(step == 3):
                    m.d.comb += self.stat_good.eq(1)
                    m.d.sync += step.eq(0)
                    m.next = "Gap"
            with m.State("Abort"):
                m.d.comb += error.eq(1)
                m.d.sync += step.eq(0)
                m.next = "Gap"
            with m.State("Gap"):
                m.d.comb += enable.eq(0)
                # Idle is the last byte of the gap.
                with m.If(step == GAP - 2):
                    m.next = "Idle"

        with m.If(take):
            m.d.sync += [
                word.eq(self.i.payload.data),
                left.eq((self.i.payload.dwords << 2) - 1),
                last.eq(self.i.payload.last),
                discard.eq(self.i.payload.discard),
            ]
        return m
