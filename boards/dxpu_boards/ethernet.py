"""Ethernet ports of a board: RGMII, receive clock, and PHY management."""

from amaranth import *
from amaranth.lib import data, io, wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from dxpu.ethernet import (
    GmiiSignature, Mdio, MdioSharing, PhyBringUp, PhyState, Rgmii, RgmiiDelays, RgmiiPins,
)

from .board import request_rgmii
from .io_delay import Series7DelayControl

__all__ = ["EthernetPorts", "PortState"]


class PortState(data.Struct):
    """State of a port; in ``sync``."""

    #: The MAC may use the link: 1 Gb/s, full duplex.
    link: 1
    #: The receive clock runs.
    clock: 1
    #: No PHY answers; the PHY is unknown; the PHY does not keep its settings.
    missing: 1
    unknown: 1
    refused: 1
    step: PhyState
    #: MDIO address.
    address: 5
    identifier: 32


class EthernetPorts(wiring.Component):
    """All Ethernet ports of a board, with their pins requested from the platform.

    The board makes the clock domains ``tx`` and ``tx90``. This component makes ``rx0``, ``rx1``,
    ...; its parent must define them (``m.domains += ports.domains()``).

    A PHY without its own MDC is managed over the MDC of the ports before; then each of these PHYs
    has the number of its path as address. If no port has MDC, there is no bring-up, and the link
    state is the in-band status of the PHY.

    Parameters
    ----------
    board : Board
    hz : number
        Frequency of ``sync``, in hertz.

    Members
    -------
    gmii : array of In(GmiiSignature)
        PHY side of the MACs' GMII; in the domains ``rx<n>`` and ``tx``.
    reset : In(1)
        Asynchronous, for the receive domains.
    state : array of Out(PortState)
    restart : In, a bit for each port
        Bring the PHY up again; a pulse is enough.
    """

    def __init__(self, board, *, hz):
        self._board, self._hz = board, hz
        paths = len(board.paths)
        #: The FPGA delays TXC, by a clock domain of its own; the PHY delays RXC.
        self._delays = RgmiiDelays(tx="fpga", rx="phy", rx_buffer=board.rx_buffer)
        super().__init__({
            "gmii": In(GmiiSignature()).array(paths), "reset": In(1),
            "state": Out(PortState).array(paths), "restart": In(paths),
        })

    def domains(self):
        """New domains of the receive clocks."""
        return [ClockDomain(f"rx{n}") for n in range(len(self._board.paths))]

    def elaborate(self, platform):
        m = Module()
        ports = [request_rgmii(platform, self._board, n) for n in range(len(self._board.paths))]
        if self._board.rx_reference:
            m.submodules.delay_control = Series7DelayControl(domain=self._board.rx_reference)
        buses = []  # (MDC and MDIO, paths)
        for n, pins in enumerate(ports):
            rgmii = self._rgmii(m, n, pins)
            if pins.mdc is not None and pins.mdio is not None:
                buses.append((pins, []))
            if buses:
                buses[-1][1].append((n, pins, rgmii))
            else:
                m.d.comb += self.state[n].link.eq(rgmii.link_up)
        for bus, members in buses:
            self._manage(m, bus, members)
        return m

    def _rgmii(self, m, n, pins):
        m.submodules[f"rx{n}_clock"] = clock = io.Buffer("i", pins.rx_clk)
        m.d.comb += ClockSignal(f"rx{n}").eq(clock.i)
        m.submodules[f"rx{n}_reset"] = ResetSynchronizer(self.reset, domain=f"rx{n}")
        m.submodules[f"rgmii{n}"] = rgmii = Rgmii(
            RgmiiPins(pins.tx_clk, pins.tx_data, pins.tx_ctl, pins.rx_data, pins.rx_ctl),
            delays=self._delays, rx_domain=f"rx{n}", tx_domain="tx", txc_domain="tx90")
        wiring.connect(m, wiring.flipped(self.gmii[n]), rgmii.gmii)
        m.d.comb += self.state[n].clock.eq(rgmii.alive)
        return rgmii

    def _manage(self, m, bus, members):
        first = members[0][0]
        m.submodules[f"mdio{first}"] = mdio = Mdio(clock_hz=self._hz)
        m.submodules[f"mdc{first}_pin"] = mdc = io.Buffer("o", bus.mdc)
        m.submodules[f"mdio{first}_pin"] = pin = io.Buffer("io", bus.mdio)
        m.d.comb += [mdc.o.eq(mdio.mdc), pin.o.eq(mdio.mdio_o), pin.oe.eq(mdio.mdio_oe),
                     mdio.mdio_i.eq(pin.i)]
        m.submodules[f"sharing{first}"] = sharing = MdioSharing(len(members))
        wiring.connect(m, sharing.o, mdio.port)
        shared = len(members) > 1
        for (n, pins, rgmii), source in zip(members, sharing.i, strict=True):
            phy = PhyBringUp(clock_hz=self._hz, delays=self._delays, address=n if shared else None,
                             shared_reset=shared)
            m.submodules[f"phy{n}"] = phy
            wiring.connect(m, phy.mdio, source)
            if pins.rst is not None:
                m.submodules[f"phy{n}_reset"] = reset = io.Buffer("o", pins.rst)
                m.d.comb += reset.o.eq(phy.reset)
            m.d.comb += [
                phy.restart.eq(self.restart[n]), phy.in_band_up.eq(rgmii.link_up),
                self.state[n].link.eq(phy.link_up), self.state[n].step.eq(phy.state),
                *(getattr(self.state[n], k).eq(getattr(phy, k))
                  for k in ("missing", "unknown", "refused", "address", "identifier")),
            ]
