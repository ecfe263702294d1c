"""Frames of a path as AXI4-Streams, for a hard MAC of 10 Gb/s and more outside.

Ref: docs/howto/attach-a-fast-mac.md
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from dxpu.cdc import AsyncQueue, EventCrossing
from dxpu.counted import counted
from dxpu.ethernet.receive import Delivery, OverflowGuard, RxStatus, RxWord
from dxpu.fabric.send.header.frame_scheduler import SPACING
from dxpu.proxy.macs import MacFactory
from dxpu.queue import PacketQueue, Queue
from dxpu.stream import PacketLayout, PacketSignature, Register, check_width, connect

from .stream import AxiReceiver, AxiStream, AxiTransmitter

__all__ = ["AxiFrames", "AxiMac", "FrameReceiver", "FrameSender", "FrameSpacer", "axi_mac"]


class AxiFrames(wiring.Signature):
    """Frames of a path, seen from the proxy; without FCS, from the destination address on.

    Parameters
    ----------
    width : int
        Data bits per transfer.

    Members
    -------
    tx : Out(AxiStream)
        Frames to be sent, of 60 bytes or more. Once a frame has begun, ``tvalid`` stays 1 until its
        last transfer is taken. ``tuser`` aborts the frame.
    rx : In(AxiStream)
        Frames received; no ``tready``. ``tuser`` marks a bad frame, such as one with a wrong FCS.
    """

    def __init__(self, width):
        super().__init__({
            "tx": Out(AxiStream(width, user=True)),
            "rx": In(AxiStream(width, user=True, ready=False)),
        })
        self._width = width

    def __eq__(self, other):
        return type(self) is type(other) and self._width == other._width


class FrameSender(wiring.Component):
    """Sends frames without a gap: stores each frame whole, then offers it to its end.

    No frame begins to be stored while more than ``ahead`` beats are: the line then does not wait
    for a frame of so many beats. What else waits for the line does so where TLPs can still share a
    frame, and not as small frames here.

    A frame that was cut by a reset of its source, or whose status is not GOOD, is not sent
    (``stat_aborted``). Latency two cycles behind the last beat of a frame; a transfer per cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats of memory; a power of two. A larger frame is not sent (``stat_giant``).
    ahead : int

    Members
    -------
    i : In stream of :func:`~dxpu.ethernet.receive.RxWord`
    axis : Out(AxiStream)
    stat_good, stat_aborted, stat_giant : Out(1)
        One cycle for each frame.
    """

    def __init__(self, width, *, depth, ahead):
        super().__init__({
            "i": In(stream.Signature(RxWord(width))),
            "axis": Out(AxiStream(width, user=True)),
            "stat_good": Out(1), "stat_aborted": Out(1), "stat_giant": Out(1),
        })
        self._width, self._depth, self._ahead = width, depth, ahead

    def elaborate(self, platform):
        m = Module()
        m.submodules.delivery = delivery = Delivery(self._width)
        m.submodules.frames = frames = PacketQueue(self._width, depth=self._depth)
        m.submodules.transmitter = transmitter = AxiTransmitter(self._width, user=True)
        connect(m, flipped(self.i), delivery.i)
        inside, may = Signal(), Signal()
        m.d.comb += [
            may.eq(inside | (frames.level <= self._ahead)),
            frames.i.payload.eq(delivery.o.payload),
            frames.i.valid.eq(delivery.o.valid & may), delivery.o.ready.eq(frames.i.ready & may),
        ]
        with m.If(frames.i.valid & frames.i.ready):
            m.d.sync += inside.eq(~frames.i.payload.last)
        connect(m, frames.o, transmitter.i)
        wiring.connect(m, transmitter.axis, flipped(self.axis))
        m.d.comb += [
            self.stat_good.eq(self.axis.tvalid & self.axis.tready & self.axis.tlast),
            self.stat_aborted.eq(frames.stat_discarded),
            self.stat_giant.eq(frames.stat_overflow),
        ]
        return m


class FrameReceiver(wiring.Component):
    """Receives frames of a MAC that cannot wait; a frame that finds no room is dropped whole.

    Latency one cycle. Holds one beat.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    axis : In(AxiStream)
        Without ``tready``.
    o : Out stream of :func:`~dxpu.ethernet.receive.RxWord`
        ERROR stands for ``tuser`` and for missing bytes.
    stat_overflow : Out(1)
        One cycle for each frame that found no room.
    """

    def __init__(self, width):
        super().__init__({
            "axis": In(AxiStream(width, user=True, ready=False)),
            "o": Out(stream.Signature(RxWord(width))),
            "stat_overflow": Out(1),
        })
        self._width = width

    def elaborate(self, platform):
        m = Module()
        m.submodules.receiver = receiver = AxiReceiver(self._width, user=True, ready=False)
        m.submodules.guard = guard = OverflowGuard(self._width)
        wiring.connect(m, flipped(self.axis), receiver.axis)
        connect(m, guard.o, flipped(self.o))
        beat = receiver.o.payload
        status = Signal(RxStatus)
        m.d.comb += [
            status.eq(Mux(~beat.discard, RxStatus.GOOD,
                          Mux(receiver.not_dwords & ~self.axis.tuser, RxStatus.NOT_DWORDS,
                              RxStatus.ERROR))),
            *(guard.i.payload[name].eq(beat[name]) for name in ("data", "dwords", "first", "last")),
            guard.i.payload.status.eq(status),
            guard.i.valid.eq(receiver.o.valid),
            receiver.o.ready.eq(1),
            self.stat_overflow.eq(guard.stat_overflow),
        ]
        return m


class FrameSpacer(wiring.Component):
    """Keeps the beginnings of frames apart.

    A frame that comes sooner waits, and what its source has behind it can share a frame meanwhile.
    Combinational, but for the count of cycles.

    Parameters
    ----------
    width : int
        Data bits per beat.
    cycles : int
        Least distance of the first beats of two frames; 0 or 1: none.

    Members
    -------
    i, o : packet streams
    """

    def __init__(self, width, *, cycles):
        super().__init__({"i": In(PacketSignature(width)), "o": Out(PacketSignature(width))})
        self._cycles = cycles

    def elaborate(self, platform):
        m = Module()
        i, o, left = self.i, self.o, Signal(range(max(2, self._cycles)))
        may = Signal()
        m.d.comb += [
            may.eq((left == 0) | ~i.payload.first),
            o.payload.eq(i.payload), o.valid.eq(i.valid & may), i.ready.eq(o.ready & may),
        ]
        with m.If(left != 0):
            m.d.sync += left.eq(left - 1)
        if self._cycles > 1:
            with m.If(o.valid & o.ready & o.payload.first):
                m.d.sync += left.eq(self._cycles - 1)
        return m


class AxiMac(wiring.Component):
    """Frames between the core and the AXI4-Streams of a MAC, which has the preamble, FCS and gap.

    Transmit: with clocks of its own, a frame is stored whole in the transmit domain before it
    begins, because the core may be slower than the MAC and hard MACs end a frame whose data come
    late. In the clock of the core frames are cut through: the core offers the beats of a frame that
    has begun in every cycle in which the MAC takes them, which is all that a MAC needs. Frames are
    not padded, as those of the core have 60 bytes or more.

    The core takes apart a small frame in some ten cycles, however wide its beats are, and a line of
    more than 8 bytes a cycle could bring small frames faster. So ``spacing`` keeps the beginnings
    of frames apart: TLPs that wait share a frame, and no frame is lost for want of room in a peer
    that is as fast.

    Receive: beats appear as they come. The last beat of a bad frame has ``discard``. A bad frame is
    counted by its first cause in this order: ``tuser`` or missing bytes, not a whole number of
    dwords. A frame that finds the receive queue full is discarded whole (``stat_rx_overflow``).

    Latency, measured with equal clocks: transmit 6 cycles from the last beat of a frame on ``i`` to
    its first transfer, receive 5 cycles from a transfer to its beat. In the clock of the core:
    transmit 1 cycle from a beat to its transfer, receive 3.

    Parameters
    ----------
    width : int
        Data bits per beat.
    rx_domain, tx_domain : str, optional
        Clock domains of ``axis.rx`` and ``axis.tx``: both, or none for ``sync``.
    tx_bytes : int
        Memory for frames to be sent, with clocks of its own. Two of the largest frames that a peer
        takes, so that one can be stored while the other one leaves.
    rx_depth : int
        Beats of the receive queue; a power of two.
    spacing : int, optional
        Least cycles of ``sync`` between the first beats of two frames to be sent. By default
        :attr:`SPACING` above 64 bits, else 0.

    Members
    -------
    i : In packet stream
        Frames to be sent.
    o : Out packet stream
        Frames received.
    axis : Out(AxiFrames)
    stat_tx_good, stat_tx_aborted, stat_tx_giant : Out(1)
        One cycle in ``sync`` for each frame sent, discarded by its source, too large.
    stat_rx_good, stat_rx_error, stat_rx_not_dwords, stat_rx_overflow : Out(1)
        One cycle in ``sync`` for each frame received; exactly one output pulses per frame.
    """

    #: Bytes of frames that are stored before a frame of the packing limit.
    AHEAD = 1536
    #: Cycles in which the core of a peer takes apart any small frame, and more.
    SPACING = SPACING
    #: Names of the events, without ``stat_``, and what each counts.
    STATISTICS = {
        "tx_good": "Frames sent{on_path}.",
        "tx_aborted": "Frames{on_path} that their source gave up.",
        "tx_giant": "Frames{on_path} that were larger than the buffer; not sent.",
        "rx_good": "Good frames received{on_path}.",
        "rx_error": "Frames{on_path} that the MAC marked as bad, or with bytes missing; dropped.",
        "rx_not_dwords": "Frames{on_path} that were no whole dwords; dropped.",
        "rx_overflow": "Frames{on_path} that found the MAC's queue full; dropped.",
    }

    def __init__(self, width, *, rx_domain=None, tx_domain=None, tx_bytes=8192, rx_depth=64,
                 spacing=None):
        if (rx_domain is None) != (tx_domain is None):
            raise ValueError(f"rx_domain and tx_domain must be both given or none, not "
                             f"{rx_domain!r} and {tx_domain!r}")
        self._width = check_width(width)
        self._rx, self._tx = rx_domain, tx_domain
        self._spacing = (self.SPACING if width > 64 else 0) if spacing is None else spacing
        self._tx_depth, self._rx_depth = 8 * tx_bytes // width, rx_depth
        super().__init__({
            "i": In(PacketSignature(width)),
            "o": Out(PacketSignature(width)),
            "axis": Out(AxiFrames(width)),
            **counted({f"stat_{name}": text for name, text in self.STATISTICS.items()}),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.receiver = receiver = DomainRenamer(self._rx or "sync")(
            FrameReceiver(self._width))
        m.submodules.delivery = delivery = Delivery(self._width)
        word = RxWord(self._width)
        m.submodules.rx_queue = queue = (
            Queue(word, depth=self._rx_depth) if self._rx is None else AsyncQueue(
                word, depth=self._rx_depth, i_domain=self._rx, o_domain="sync"))
        wiring.connect(m, flipped(self.axis.rx), receiver.axis)
        connect(m, receiver.o, queue.i)
        connect(m, queue.o, delivery.i)
        connect(m, delivery.o, flipped(self.o))
        m.d.comb += [getattr(self, f"stat_rx_{name}").eq(getattr(delivery, f"stat_{name}"))
                     for name in ("good", "error", "not_dwords")]
        self._count(m, "rx_overflow", self._rx, receiver.stat_overflow)
        m.submodules.spacer = spacer = FrameSpacer(self._width, cycles=self._spacing)
        connect(m, flipped(self.i), spacer.i)
        if self._tx is None:
            self._send(m, spacer.o)
        else:
            self._store_and_send(m, spacer.o)
        return m

    def _send(self, m, frames):
        """Frames to be sent, in the clock of the core."""
        m.submodules.register = register = Register(PacketLayout(self._width))
        m.submodules.transmitter = transmitter = AxiTransmitter(self._width, user=True)
        connect(m, frames, register.i)
        connect(m, register.o, transmitter.i)
        wiring.connect(m, transmitter.axis, flipped(self.axis.tx))
        ends = register.o.valid & register.o.ready & register.o.payload.last
        m.d.comb += [
            self.stat_tx_good.eq(ends & ~register.o.payload.discard),
            self.stat_tx_aborted.eq(ends & register.o.payload.discard),
        ]

    def _store_and_send(self, m, frames):
        """Frames to be sent, in a clock of their own."""
        m.submodules.sender = sender = DomainRenamer(self._tx)(
            FrameSender(self._width, depth=self._tx_depth,
                        ahead=8 * self.AHEAD // self._width))
        m.submodules.tx_queue = crossing = AsyncQueue(
            RxWord(self._width), depth=16, i_domain="sync", o_domain=self._tx)
        beat = frames.payload
        m.d.comb += [
            *(crossing.i.payload[name].eq(beat[name])
              for name in ("data", "dwords", "first", "last")),
            crossing.i.payload.status.eq(Mux(beat.discard, RxStatus.ERROR, RxStatus.GOOD)),
            crossing.i.valid.eq(frames.valid),
            frames.ready.eq(crossing.i.ready),
        ]
        connect(m, crossing.o, sender.i)
        wiring.connect(m, sender.axis, flipped(self.axis.tx))
        for name in ("good", "aborted", "giant"):
            self._count(m, f"tx_{name}", self._tx, getattr(sender, f"stat_{name}"))

    def _count(self, m, name, domain, event):
        """Lead an event of ``domain`` out."""
        if domain is not None:
            m.submodules[f"{name}_event"] = crossing = EventCrossing(
                i_domain=domain, o_domain="sync")
            m.d.comb += crossing.i.eq(event)
            event = crossing.o
        m.d.comb += getattr(self, f"stat_{name}").eq(event)


def axi_mac(width, *, own_clocks=True):
    """:class:`~dxpu.proxy.MacFactory` of :class:`AxiMac`.

    Parameters
    ----------
    width : int
        Data bits per beat of the proxy.
    own_clocks : bool
        Path n is in the clock domains ``eth<n>_rx`` and ``eth<n>_tx``, or else in that of the core.
    """
    def make(width, path):
        domains = {f"{way}_domain": f"eth{path}_{way}" for way in ("rx", "tx")}
        return AxiMac(width, **(domains if own_clocks else {}))

    return MacFactory(port="axis", signature=AxiFrames(width), make=make,
                      counters=AxiMac.STATISTICS, fast=True)
