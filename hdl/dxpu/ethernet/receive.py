"""Receive side of the MAC: GMII bytes to checked frames (IEEE 802.3, 4.2.9 and clause 35)."""

from amaranth import *
from amaranth.lib import crc, data, enum, stream, wiring
from amaranth.lib.crc.catalog import CRC32_ETHERNET
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature, check_width

from .gmii import MINIMUM, PREAMBLE, SFD, GmiiReceive

__all__ = ["MAX_FRAME", "Delivery", "OverflowGuard", "Receiver", "RxStatus", "RxWord"]

#: Largest frame that a receiver accepts unless told otherwise, in bytes without FCS: one with the
#: largest TLP, and some more.
MAX_FRAME = 4400


class RxStatus(enum.Enum, shape=3):
    """Outcome of a frame: the first that applies, from ERROR downwards."""

    #: Delivered.
    GOOD = 0
    #: RX_ER in the preamble or in the frame.
    ERROR = 1
    #: Longer than the largest frame.
    GIANT = 2
    #: Shorter than 64 bytes with FCS, or a carrier without a start frame delimiter.
    RUNT = 3
    #: The FCS does not match.
    BAD_FCS = 4
    #: Good for Ethernet, but not a whole number of dwords.
    NOT_DWORDS = 5
    #: The queue to the core was full.
    OVERFLOW = 6


def RxWord(width):
    """Layout of a received beat on its way to the core.

    As :class:`~dxpu.stream.PacketLayout`, but with ``status`` (valid with ``last``) in place of
    ``discard``. A frame without a kept byte is a single beat with ``dwords`` = 0.
    """
    return data.StructLayout({
        "data": check_width(width), "dwords": range(width // 32 + 1), "first": 1, "last": 1,
        "status": RxStatus,
    })


class Receiver(wiring.Component):
    """Finds frames on GMII and yields their bytes without FCS, with a verdict on the last beat.

    A frame begins after the start frame delimiter, either at the very beginning of the carrier or
    after at least one preamble byte (35.2.3.2.2: a PHY may shorten the preamble). Other bytes
    before the frame are skipped, so a frame after garbage is found. A frame ends when RX_DV falls,
    or when it has more than ``max_frame`` bytes. GMII cannot wait, so ``o`` has no ``ready``.

    Latency: 6 cycles from the last byte of a beat on ``gmii`` to ``o``; 1 cycle from the first
    cycle without RX_DV to the last beat.

    Parameters
    ----------
    width : int
        Data bits per beat.
    max_frame : int
        Largest frame in bytes without FCS; at least 60.

    Members
    -------
    gmii : Out(GmiiReceive)
    o : Out(stream of RxWord(width)), always ready
    """

    def __init__(self, width, *, max_frame=MAX_FRAME):
        if not isinstance(max_frame, int) or max_frame < MINIMUM:
            raise ValueError(f"max_frame must be an integer of at least {MINIMUM}, "
                             f"not {max_frame!r}")
        super().__init__({
            "gmii": Out(GmiiReceive()),
            "o": Out(stream.Signature(RxWord(width), always_ready=True)),
        })
        self._width = width
        self._max_frame = max_frame

    def elaborate(self, platform):
        m = Module()
        m.submodules.crc = fcs = crc.Processor(CRC32_ETHERNET(data_width=8))

        byte, carrier, error = Signal(8, reset_less=True), Signal(), Signal()
        m.d.sync += [
            byte.eq(self.gmii.rxd), carrier.eq(self.gmii.rx_dv), error.eq(self.gmii.rx_er),
        ]

        # The last four bytes of a frame are the FCS, so a byte is kept when four more have come. A
        # full
        # beat waits in `word` for one more kept byte, or for the end of the frame, which makes it
        # last.
        lanes = self._width // 8
        delay = Signal(data.ArrayLayout(8, 4), reset_less=True)
        word = Signal(data.ArrayLayout(8, lanes), reset_less=True)
        lane = Signal(lanes, init=1)
        kept = Signal(range(lanes + 1))
        length = Signal(range(self._max_frame + 5))
        # What `length` has reached: more than an FCS, the shortest frame, the largest.
        beyond_fcs, enough, full = Signal(), Signal(), Signal()
        first, failed = Signal(), Signal()
        # The delimiter counts after a preamble byte or as first byte of the carrier.
        armed, seen = Signal(init=1), Signal()

        status = Signal(RxStatus)
        with m.If(failed):
            m.d.comb += status.eq(RxStatus.ERROR)
        with m.Elif(~enough):
            m.d.comb += status.eq(RxStatus.RUNT)
        with m.Elif(~fcs.match_detected):
            m.d.comb += status.eq(RxStatus.BAD_FCS)
        with m.Elif(length[:2] != 0):
            m.d.comb += status.eq(RxStatus.NOT_DWORDS)
        with m.Else():
            m.d.comb += status.eq(RxStatus.GOOD)

        m.d.comb += [
            fcs.data.eq(byte),
            self.o.payload.data.eq(word),
            self.o.payload.dwords.eq((kept + 3) >> 2),
            self.o.payload.first.eq(first),
            self.o.payload.status.eq(status),
        ]
        with m.If(self.o.valid):
            m.d.sync += [first.eq(0), kept.eq(0)]

        def finish(state):
            m.d.comb += [self.o.valid.eq(1), self.o.payload.last.eq(1)]
            m.next = state

        m.d.sync += [armed.eq(~carrier | (byte == PREAMBLE)), seen.eq(0)]
        with m.FSM():
            with m.State("Search"):
                m.d.comb += fcs.start.eq(1)
                m.d.sync += [
                    first.eq(1), kept.eq(0), lane.eq(1), length.eq(0), failed.eq(0),
                    beyond_fcs.eq(0), enough.eq(0), full.eq(0), seen.eq(carrier),
                ]
                with m.If(carrier & error):
                    m.d.comb += self.o.payload.status.eq(RxStatus.ERROR)
                    finish("Skip")
                with m.Elif(carrier & armed & (byte == SFD)):
                    m.next = "Frame"
                with m.Elif(~carrier & seen):
                    m.d.comb += self.o.payload.status.eq(RxStatus.RUNT)
                    finish("Search")
            with m.State("Frame"):
                with m.If(~carrier):
                    finish("Search")
                with m.Elif(full):
                    m.d.comb += self.o.payload.status.eq(RxStatus.GIANT)
                    finish("Skip")
                with m.Else():
                    m.d.comb += fcs.valid.eq(1)
                    m.d.sync += [
                        length.eq(length + 1), failed.eq(failed | error),
                        beyond_fcs.eq(beyond_fcs | (length == 3)),
                        enough.eq(enough | (length == MINIMUM + 3)),
                        full.eq(length == self._max_frame + 3),
                        delay.eq(Cat(byte, delay)),
                    ]
                    with m.If(beyond_fcs):
                        m.d.comb += self.o.valid.eq(kept == lanes)
                        m.d.sync += [
                            lane.eq(lane.rotate_left(1)),
                            kept.eq(Mux(kept == lanes, 1, kept + 1)),
                        ]
                        for n in range(lanes):
                            with m.If(lane[n]):
                                m.d.sync += word[n].eq(delay[3])
            with m.State("Skip"):
                with m.If(~carrier):
                    m.next = "Search"
        return m


class OverflowGuard(wiring.Component):
    """Turns a source that cannot wait into a stream: a frame that meets a full sink is cut.

    A frame with a beat that finds no room is lost as a whole and counted once. If the sink had
    taken a part of the frame, the sink gets a last beat with status ``OVERFLOW`` as soon as there
    is room. Frames that begin before that beat are lost, too.

    Latency one cycle. Holds one beat.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    i : In(stream of RxWord(width)), always ready
    o : Out(stream of RxWord(width))
    stat_overflow : Out(1)
        One cycle per lost frame, at its end.
    """

    def __init__(self, width):
        super().__init__({
            "i": In(stream.Signature(RxWord(width), always_ready=True)),
            "o": Out(stream.Signature(RxWord(width))),
            "stat_overflow": Out(1),
        })
        self._lanes = width // 32

    def elaborate(self, platform):
        m = Module()
        # `opened`: the sink took the first beats of a frame. `lost`: the rest of the frame is lost.
        # `owed`: the sink must still get the last beat.
        opened, lost, owed, room, take = (
            Signal(name=name) for name in ("opened", "lost", "owed", "room", "take"))
        m.d.comb += [
            room.eq(~self.o.valid | self.o.ready),
            take.eq(self.i.valid & room & ~owed & (self.i.payload.first | ~lost)),
            self.stat_overflow.eq(self.i.valid & ~take & self.i.payload.last),
        ]
        with m.If(room):
            m.d.sync += self.o.valid.eq(take | owed)
        with m.If(take):
            m.d.sync += [
                self.o.payload.eq(self.i.payload), opened.eq(~self.i.payload.last), lost.eq(0),
            ]
        with m.Elif(self.i.valid):
            m.d.sync += lost.eq(~self.i.payload.last)
            with m.If(opened):
                m.d.sync += [owed.eq(1), opened.eq(0)]
        with m.If(owed & room):
            m.d.sync += [
                owed.eq(0),
                self.o.payload.first.eq(0), self.o.payload.last.eq(1),
                self.o.payload.dwords.eq(self._lanes),
                self.o.payload.status.eq(RxStatus.OVERFLOW),
            ]
        return m


class Delivery(wiring.Component):
    """Last stage of reception, in the core's domain: verdicts become ``discard`` and counts.

    A frame without a kept byte is only counted. A frame cut in the middle by a reset of the receive
    domain is ended with ``discard``. The rest of a frame cut by a reset of this domain is dropped.
    Combinational. ``stat_*`` pulse when the last beat is taken.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    i : In(stream of RxWord(width))
    o : Out(PacketSignature(width))
        Bad frames end with ``discard``.
    stat_good, stat_error, stat_giant, stat_runt, stat_bad_fcs, stat_not_dwords : Out(1)
        One cycle for each frame with this status.
    """

    def __init__(self, width):
        super().__init__({
            "i": In(stream.Signature(RxWord(width))),
            "o": Out(PacketSignature(width)),
            **{f"stat_{status.name.lower()}": Out(1) for status in RxStatus
               if status is not RxStatus.OVERFLOW},
        })
        self._lanes = width // 32

    def elaborate(self, platform):
        m = Module()
        word, opened, cut = self.i.payload, Signal(), Signal()
        m.d.comb += [
            cut.eq(opened & word.first),
            self.o.payload.data.eq(word.data),
            self.o.payload.dwords.eq(Mux(cut, self._lanes, word.dwords)),
            self.o.payload.first.eq(~opened),
            self.o.payload.last.eq(cut | word.last),
            self.o.payload.discard.eq(cut | (word.status != RxStatus.GOOD)),
        ]
        with m.If(cut):
            m.d.comb += self.o.valid.eq(self.i.valid)
        with m.Elif(~opened & (~word.first | (word.dwords == 0))):
            m.d.comb += self.i.ready.eq(1)
        with m.Else():
            m.d.comb += [self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready)]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += opened.eq(~self.o.payload.last)
        # Beats without `first` outside a frame are the rest of a frame cut by a reset: never
        # counted.
        with m.If(self.i.valid & self.i.ready & word.last & (opened | word.first)):
            for status in RxStatus:
                if status is not RxStatus.OVERFLOW:
                    m.d.comb += getattr(self, f"stat_{status.name.lower()}").eq(
                        word.status == status)
        return m
