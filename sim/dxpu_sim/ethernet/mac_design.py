"""The MAC between whole frames and GMII pins: the design of the MAC's bench."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from dxpu import stream
from dxpu.ethernet import GmiiSignature, Mac
from dxpu.ethernet.receive import MAX_FRAME
from dxpu_sim.run.clock import SimClock

from .frame_port import FrameSink, FrameSource

__all__ = ["MacBench"]


class MacBench(wiring.Component):
    """A :class:`~dxpu.ethernet.Mac` at 125 MHz; the bench drives ``clk`` of the core side.

    Parameters
    ----------
    width : int
        Data bits per beat.
    rx_period_ps : int
        Clock period of GMII reception; transmission has 8 ns.
    max_frame : int
        Largest frame that the MAC receives, in bytes without FCS.
    rx_bytes : int
        Size of the MAC's receive queue; small, so that the queue overflows at any width.

    Members
    -------
    gmii : Out(GmiiSignature)
    rx_clock, tx_clock : Out(1)
        Inverted clocks for the models: sampling and driving at the edge of a clock generated in HDL
        would race.
    tx_length, tx_discard, tx_send, tx_done
        Ports of :class:`FrameSource`.
    rx_stall, rx_length, rx_discard, rx_toggle, rx_violations
        Ports of :class:`FrameSink`.
    total_* : Out(16)
        Number of pulses of each ``stat_`` output of the MAC.
    """

    #: Members on the line side.
    LINE = {"gmii": Out(GmiiSignature()), "rx_clock": Out(1), "tx_clock": Out(1)}

    def __init__(self, width, *, rx_period_ps=8000, max_frame=MAX_FRAME, rx_bytes=1024):
        self._mac = Mac(width, max_frame=max_frame, rx_depth=max(8 * rx_bytes // width, 16))
        self._source = FrameSource(width, max_bytes=8192)
        self._sink = FrameSink(width, max_bytes=8192)
        self._rx_period_ps = rx_period_ps
        super().__init__({
            **self.LINE,
            "tx_length": In(16), "tx_discard": In(1),
            "tx_send": In(1), "tx_done": Out(1),
            "rx_stall": In(1), "rx_length": Out(16),
            "rx_discard": Out(1), "rx_toggle": Out(1), "rx_violations": Out(8),
            **{f"total_{name}": Out(16) for name in Mac.STATISTICS},
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.mac = mac = self._mac
        self._line(m, mac.gmii)
        m.submodules.source = source = self._source
        m.submodules.sink = sink = self._sink

        stream.connect(m, source.o, mac.i)
        stream.connect(m, mac.o, sink.i)
        m.d.comb += [getattr(source, name).eq(getattr(self, f"tx_{name}"))
                     for name in ("length", "discard", "send")]
        m.d.comb += [self.tx_done.eq(source.done), sink.stall.eq(self.rx_stall)]
        m.d.comb += [getattr(self, f"rx_{name}").eq(getattr(sink, name))
                     for name in ("length", "discard", "toggle", "violations")]
        for name in Mac.STATISTICS:
            total = getattr(self, f"total_{name}")
            m.d.sync += total.eq(total + getattr(mac, f"stat_{name}"))
        return m

    def _line(self, m, gmii):
        """Make the clocks, and connect the MAC's ``gmii`` to the models."""
        m.submodules.rx_clock = SimClock("gmii_rx", period_ps=self._rx_period_ps, phase_ps=2300)
        m.submodules.tx_clock = SimClock("gmii_tx", phase_ps=5100)
        connect(m, flipped(self.gmii), gmii)
        m.d.comb += [self.rx_clock.eq(~ClockSignal("gmii_rx")),
                     self.tx_clock.eq(~ClockSignal("gmii_tx"))]
