"""GMII to the pins of an RGMII PHY (Reduced GMII, version 2.0, 4/1/2002, sections 3.1 to 3.4)."""

from collections.abc import Callable
from dataclasses import dataclass

from amaranth import *
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In, Out

from .gmii import GmiiSignature
from .inband import InBandStatus, LinkStatus

__all__ = ["Rgmii", "RgmiiDelays", "RgmiiPins", "ddr_input", "ddr_output"]


@dataclass(frozen=True)
class RgmiiPins:
    """Ports of an RGMII, as requested from a platform with ``dir="-"``; RXC belongs to the
    board."""

    txc: io.PortLike
    txd: io.PortLike
    tx_ctl: io.PortLike
    rxd: io.PortLike
    rx_ctl: io.PortLike

    def __post_init__(self):
        for name, width in (("txc", 1), ("txd", 4), ("tx_ctl", 1), ("rxd", 4), ("rx_ctl", 1)):
            port = getattr(self, name)
            if not isinstance(port, io.PortLike):
                raise TypeError(f"{name} must be a port, not {port!r}")
            if len(port) != width:
                raise ValueError(f"{name} must have {width} pin(s), not {len(port)}")


def ddr_input(port, *, domain):
    """Inputs sampled at both edges, without delay: the default."""
    return io.DDRBuffer("i", port, i_domain=domain)


def ddr_output(port, *, domain):
    """Outputs driven at both edges, without delay: the default."""
    return io.DDRBuffer("o", port, o_domain=domain)


@dataclass(frozen=True)
class RgmiiDelays:
    """Side that delays each clock against its data by a quarter of a period; one object per board.

    The edges of a clock must lie in the middle of the data, 1.0 ns or more from both ends (2.0
    nominal; table 2). For each direction exactly one side must provide the delay. The same object
    goes to :class:`Rgmii` and to :class:`~dxpu.ethernet.phy.PhyBringUp`, which switches the delays
    of the PHY on and off accordingly.

    Parameters
    ----------
    tx : "phy" or "fpga"
        Side that delays TXC. "fpga": TXC has its own clock domain, 90 degrees behind the data
        (``txc_domain`` of :class:`Rgmii`), or a delay element in ``txc_buffer``.
    rx : "phy" or "fpga"
        Side that delays RXC. "fpga": the board derives ``rx_domain`` from RXC by a PLL or delay.
    rx_buffer, txc_buffer : callables, of port and ``domain``
        Make the DDR buffers of RXD and RX_CTL, and of TXC, with the signature of ``io.DDRBuffer``.
        Boards insert vendor-specific delay elements here; ``rx_buffer`` also compensates the delay
        of a clock tree behind RXC.
    """

    tx: str = "phy"
    rx: str = "phy"
    rx_buffer: Callable = ddr_input
    txc_buffer: Callable = ddr_output

    def __post_init__(self):
        for name in ("tx", "rx"):
            if getattr(self, name) not in ("phy", "fpga"):
                raise ValueError(f'{name} must be "phy" or "fpga", not {getattr(self, name)!r}')


class Rgmii(wiring.Component):
    """Connects a MAC's GMII to RGMII pins at 1 Gb/s, and reports the in-band status of the PHY.

    Low nibbles lie around the rising edge, high nibbles around the falling edge (table 1). TX_CTL
    and RX_CTL carry the valid bit at the rising edge, and the valid bit XOR the error bit at the
    falling edge (3.4). :class:`RgmiiDelays` covers the rest of the timing.

    At 10 and 100 Mb/s ``link_up`` is 0: the MAC finds no frames in the received data, and the PHY
    finds none in the transmitted data. If RXC stands still, nothing is received, ``alive`` and
    ``link_up`` fall, and everything else goes on.

    Latency: 1 cycle from pins to ``gmii.rx``, none from ``gmii.tx`` to pins, besides the latency of
    the DDR buffers, which depends on the vendor (``io.DDRBuffer``: at least one cycle). All buffers
    keep the order of the edges: a byte is a rising edge and the falling edge behind it.

    Parameters
    ----------
    pins : RgmiiPins
    delays : RgmiiDelays
    rx_domain, tx_domain : str
        Clock domains of ``gmii``, at 125 MHz. The board derives ``rx_domain`` from RXC.
    txc_domain : str
        Clock domain of TXC, 90 degrees behind ``tx_domain``; by default ``tx_domain`` itself.
    timeout : int
        Cycles of ``sync`` after which RXC counts as stopped; see :class:`InBandStatus`.

    Members
    -------
    gmii : In(GmiiSignature)
        PHY side of the MAC's GMII.
    status : Out(LinkStatus)
        Last in-band status of the PHY; in ``sync``. Zero for a PHY without in-band status.
    link_up : Out(1)
        ``status`` is a link at 1 Gb/s, full duplex; in ``sync``.
    alive : Out(1)
        RXC runs; in ``sync``.
    """

    def __init__(self, pins, *, delays=None, rx_domain="gmii_rx", tx_domain="gmii_tx",
                 txc_domain=None, timeout=8192):
        delays = delays or RgmiiDelays()
        txc_domain = txc_domain or tx_domain
        delayed = txc_domain != tx_domain or delays.txc_buffer is not ddr_output
        if delayed != (delays.tx == "fpga"):
            raise ValueError(
                "TXC must be delayed by its domain or its buffer if delays.tx is 'fpga', and only "
                f"then; not txc_domain={txc_domain!r} and {delays!r}")
        self._pins, self._delays = pins, delays
        self._rx_domain, self._tx_domain, self._txc_domain = rx_domain, tx_domain, txc_domain
        self._in_band = InBandStatus(rx_domain=rx_domain, timeout=timeout)
        super().__init__({
            "gmii": In(GmiiSignature()),
            "status": Out(LinkStatus), "link_up": Out(1), "alive": Out(1),
        })

    @staticmethod
    def encode(byte, valid, error):
        """Data and control (bit 4) at the rising and at the falling edge."""
        return Cat(byte[:4], valid), Cat(byte[4:], valid ^ error)

    @staticmethod
    def decode(rising, falling):
        """Byte, valid and error from data and control of the two edges: the inverse of
        :meth:`encode`."""
        return Cat(rising[:4], falling[:4]), rising[4], rising[4] ^ falling[4]

    def elaborate(self, platform):
        m = Module()
        pins, gmii = self._pins, self.gmii

        m.submodules.txd = txd = ddr_output(pins.txd + pins.tx_ctl, domain=self._tx_domain)
        rising, falling = self.encode(gmii.tx.txd, gmii.tx.tx_en, gmii.tx.tx_er)
        m.d.comb += [txd.o[0].eq(rising), txd.o[1].eq(falling)]

        m.submodules.txc = txc = self._delays.txc_buffer(pins.txc, domain=self._txc_domain)
        m.d.comb += [txc.o[0].eq(1), txc.o[1].eq(0)]

        m.submodules.rxd = rxd = self._delays.rx_buffer(pins.rxd + pins.rx_ctl,
                                                        domain=self._rx_domain)
        byte, valid, error = self.decode(rxd.i[0], rxd.i[1])
        m.d[self._rx_domain] += [
            gmii.rx.rxd.eq(byte), gmii.rx.rx_dv.eq(valid), gmii.rx.rx_er.eq(error),
        ]

        m.submodules.in_band = in_band = self._in_band
        m.d.comb += [
            in_band.word.eq(gmii.rx.rxd[:4]),
            in_band.gap.eq(~gmii.rx.rx_dv & ~gmii.rx.rx_er),
            self.status.eq(in_band.status),
            self.link_up.eq(in_band.status.usable()),
            self.alive.eq(in_band.alive),
        ]
        return m
