"""The GMII (IEEE 802.3, clause 35): eight bits each way per clock at 1 Gb/s."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["GAP", "MINIMUM", "PREAMBLE", "SFD", "GmiiReceive", "GmiiSignature", "GmiiTransmit"]

#: Preamble byte and start frame delimiter (4.2.5, 4.2.6; the first bit sent is the least
#: significant).
PREAMBLE, SFD = 0x55, 0xD5
#: Bytes between two frames (4.4.2, interPacketGap 96 bits), and shortest frame without its FCS.
GAP, MINIMUM = 12, 60


class GmiiTransmit(wiring.Signature):
    """TXD, TX_EN and TX_ER, seen from the MAC (35.2.2.3 to 35.2.2.5)."""

    def __init__(self):
        super().__init__({"txd": Out(8), "tx_en": Out(1), "tx_er": Out(1)})


class GmiiReceive(wiring.Signature):
    """RXD, RX_DV and RX_ER, seen from the MAC (35.2.2.7 to 35.2.2.9)."""

    def __init__(self):
        super().__init__({"rxd": In(8), "rx_dv": In(1), "rx_er": In(1)})


class GmiiSignature(wiring.Signature):
    """Both directions, seen from the MAC; full duplex only, so neither CRS nor COL.

    Members
    -------
    tx : Out(GmiiTransmit), in the transmit clock's domain
    rx : Out(GmiiReceive), in the receive clock's domain
    """

    def __init__(self):
        super().__init__({"tx": Out(GmiiTransmit()), "rx": Out(GmiiReceive())})
