"""The MAC between whole frames and RGMII pins: the design of the RGMII's bench."""

from amaranth import *
from amaranth.lib import io
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out, connect

from dxpu.ethernet import LinkStatus, Rgmii, RgmiiDelays, RgmiiPins
from dxpu_sim.run.clock import SimClock

from .ddr import WithDdrModels
from .mac_design import MacBench

__all__ = ["RgmiiBench"]


class RgmiiBench(MacBench):
    """A :class:`~dxpu.ethernet.Mac` behind a :class:`~dxpu.ethernet.Rgmii`.

    RXC clocks the receive domain, as on a board. TXC has its own domain, 90 degrees late, or is
    aligned with its data for a PHY with a TXC delay.

    Parameters
    ----------
    width : int
        Data bits per beat.
    tx_delay : "fpga" or "phy"
        Side that delays TXC.

    Members
    -------
    rxc, rx_ctl : In(1)
    rxd : In(4)
    txc, tx_ctl : Out(1)
    txd : Out(4)
    phy_rxc, phy_txc : In(1)
        Clocks of the PHY model; unconnected.
    status : Out(LinkStatus)
    link_up, alive : Out(1)
        Outputs of ``Rgmii``.
    tx_*, rx_*, total_*
        Members of :class:`MacBench`.
    """

    LINE = {
        "rxc": In(1), "rxd": In(4), "rx_ctl": In(1), "txc": Out(1), "txd": Out(4),
        "tx_ctl": Out(1), "phy_rxc": In(1), "phy_txc": In(1),
        "status": Out(LinkStatus), "link_up": Out(1), "alive": Out(1),
    }
    #: The component under test, for mutants.
    RGMII = Rgmii

    def __init__(self, width=64, *, tx_delay="fpga"):
        super().__init__(width)
        self._delays = RgmiiDelays(tx=tx_delay)
        self._ports = {name: io.SimulationPort(direction, len(getattr(self, name)), name=name)
                       for name, direction in [("txc", "o"), ("txd", "o"), ("tx_ctl", "o"),
                                               ("rxd", "i"), ("rx_ctl", "i")]}

    def _line(self, m, gmii):
        m.domains.gmii_rx = rx = ClockDomain()
        m.d.comb += rx.clk.eq(self.rxc)
        m.submodules.rx_reset = ResetSynchronizer(ResetSignal("sync"), domain="gmii_rx")
        m.submodules.tx_clock = SimClock("gmii_tx", phase_ps=5100)
        txc_domain = "gmii_txc" if self._delays.tx == "fpga" else None
        if txc_domain:
            m.submodules.txc_clock = SimClock(txc_domain, phase_ps=7100)

        rgmii = self.RGMII(RgmiiPins(**self._ports), delays=self._delays, txc_domain=txc_domain)
        m.submodules.rgmii = WithDdrModels(rgmii)
        connect(m, gmii, rgmii.gmii)
        for name, port in self._ports.items():
            pin = getattr(self, name)
            m.d.comb += pin.eq(port.o) if name.startswith("tx") else port.i.eq(pin)
        m.d.comb += [self.status.eq(rgmii.status), self.link_up.eq(rgmii.link_up),
                     self.alive.eq(rgmii.alive)]
