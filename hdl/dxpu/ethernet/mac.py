"""Gigabit Ethernet MAC with queues into the core's clock domain (IEEE 802.3, clauses 4 and 35)."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from dxpu import stream
from dxpu.cdc import AsyncPacketQueue, AsyncQueue, EventCrossing
from dxpu.counted import counted
from dxpu.stream import PacketSignature, check_width

from .gmii import GmiiSignature
from .receive import MAX_FRAME, Delivery, OverflowGuard, Receiver, RxWord
from .transmit import Transmitter

__all__ = ["Mac"]


class Mac(wiring.Component):
    """Full-duplex MAC at 1 Gb/s: frames without FCS on the core side, GMII on the other.

    Both directions are cut-through.

    Transmit: a frame starts when its first beat has crossed into the transmit domain. From then on
    the source must offer a beat whenever ``i.ready`` is high, and ``width`` times the core clock
    must be at least 1.25 Gb/s. Frames below 60 bytes are padded. TX_ER ends a frame whose data came
    too late (``stat_tx_underrun``), and a frame that ends with ``discard`` (``stat_tx_aborted``).
    Back to back the gap is exactly 12 byte times.

    Receive: beats appear as they arrive. The last beat of a bad frame has ``discard``. A bad frame
    is counted by its first cause in this order: RX_ER, longer than ``max_frame``, shorter than 64
    bytes with FCS or without a start frame delimiter, wrong FCS, not a whole number of dwords. A
    frame without a byte besides its FCS is counted but yields no beats. A frame that finds the
    receive queue full, because ``o`` is not taken in time, is discarded whole
    (``stat_rx_overflow``).

    Latency with all clocks at 125 MHz and width 64, measured: 14 cycles from the first beat on
    ``i`` to the first byte behind the preamble on GMII; 7 cycles from the last byte of the FCS on
    GMII to the last beat on ``o``. Clocks that differ in phase save up to one cycle in each
    direction.

    Parameters
    ----------
    width : int
        Data bits per beat on the core side.
    max_frame : int
        Largest frame that is received, in bytes without FCS.
    tx_depth, rx_depth : int
        Beats in the two crossings; powers of two. By default ``rx_depth`` is 2 KiB at every width:
        16 us at line rate. By default ``tx_depth`` is 128 bytes, at least 4 beats. A deeper
        transmit crossing would hold frames that can no longer take more TLPs, so it is kept short.
    rx_domain, tx_domain : str
        Clock domains of ``gmii.rx`` and ``gmii.tx``, at 125 MHz.

    Members
    -------
    i : In(PacketSignature(width))
        Frames to be sent, from the destination MAC on, without FCS.
    o : Out(PacketSignature(width))
        Frames received, without FCS.
    gmii : Out(GmiiSignature)
    stat_tx_good, stat_tx_underrun, stat_tx_aborted : Out(1)
        One cycle in ``sync`` for each frame sent, starved, discarded by its source.
    stat_rx_good, stat_rx_error, stat_rx_giant, stat_rx_runt, stat_rx_bad_fcs,
    stat_rx_not_dwords, stat_rx_overflow : Out(1)
        One cycle in ``sync`` for each frame received; exactly one output pulses per frame.
    """

    def __init__(self, width, *, max_frame=MAX_FRAME, tx_depth=None, rx_depth=None,
                 rx_domain="gmii_rx", tx_domain="gmii_tx"):
        check_width(width)
        if tx_depth is None:
            tx_depth = max(4, 128 * 8 // width)
        if rx_depth is None:
            rx_depth = 2048 * 8 // width
        self._domains = {"rx": rx_domain, "tx": tx_domain}
        self._receiver = Receiver(width, max_frame=max_frame)
        self._tx_queue = AsyncPacketQueue(width, depth=tx_depth, i_domain="sync",
                                          o_domain=tx_domain)
        self._rx_queue = AsyncQueue(RxWord(width), depth=rx_depth, i_domain=rx_domain,
                                    o_domain="sync")
        super().__init__({
            "i": In(PacketSignature(width)),
            "o": Out(PacketSignature(width)),
            "gmii": Out(GmiiSignature()),
            **counted({f"stat_{name}": text for name, text in self.STATISTICS.items()}),
        })
        self._width = width

    #: Names of the events, without ``stat_``, and what each counts.
    STATISTICS = {
        "tx_good": "Frames sent{on_path}.",
        "tx_underrun": "Frames{on_path} ended with an error because data came too late.",
        "tx_aborted": "Frames{on_path} that their source gave up.",
        "rx_good": "Good frames received{on_path}.",
        "rx_error": "Frames{on_path} with RX_ER; dropped.",
        "rx_giant": "Frames{on_path} that were too long; dropped.",
        "rx_runt": "Frames{on_path} shorter than 64 bytes; dropped.",
        "rx_bad_fcs": "Frames{on_path} with a wrong FCS; dropped.",
        "rx_not_dwords": "Frames{on_path} that were no whole dwords; dropped.",
        "rx_overflow": "Good frames{on_path} that found the MAC's queue full; dropped.",
    }

    def elaborate(self, platform):
        m = Module()
        in_tx = DomainRenamer(self._domains["tx"])
        in_rx = DomainRenamer(self._domains["rx"])
        transmitter, guard = Transmitter(self._width), OverflowGuard(self._width)
        m.submodules.transmitter = in_tx(transmitter)
        m.submodules.receiver = in_rx(self._receiver)
        m.submodules.guard = in_rx(guard)
        m.submodules.tx_queue = self._tx_queue
        m.submodules.rx_queue = self._rx_queue
        m.submodules.delivery = delivery = Delivery(self._width)

        connect(m, flipped(self.gmii.tx), transmitter.gmii)
        connect(m, flipped(self.gmii.rx), self._receiver.gmii)
        stream.connect(m, self.i, self._tx_queue.i)
        stream.connect(m, self._tx_queue.o, transmitter.i)
        connect(m, self._receiver.o, guard.i)
        stream.connect(m, guard.o, self._rx_queue.i)
        stream.connect(m, self._rx_queue.o, delivery.i)
        stream.connect(m, delivery.o, self.o)

        for name, domain, event in [
            ("tx_good", "tx", transmitter.stat_good),
            ("tx_underrun", "tx", transmitter.stat_underrun),
            ("tx_aborted", "tx", transmitter.stat_aborted),
            ("rx_overflow", "rx", guard.stat_overflow),
        ]:
            m.submodules[f"{name}_event"] = crossing = EventCrossing(
                i_domain=self._domains[domain], o_domain="sync")
            m.d.comb += [crossing.i.eq(event), getattr(self, f"stat_{name}").eq(crossing.o)]
        for name in self.STATISTICS:
            if name.startswith("rx_") and name != "rx_overflow":
                m.d.comb += getattr(self, f"stat_{name}").eq(
                    getattr(delivery, f"stat_{name.removeprefix('rx_')}"))
        return m
