"""The TLP boundary: what a PCIe implementation of any kind is attached to."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature, connect

from .ingress import CreditLimits

__all__ = ["PciePort", "connect_egress", "connect_grants"]


class PciePort(wiring.Signature):
    """One PCIe port of a proxy, seen from the proxy.

    Raw TLPs as received or to be sent, without framing, sequence number and LCRC.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    rx : In packet stream
        From PCIe, in order. ``discard`` with the last beat drops the TLP.
    rx_p, rx_np, rx_cpl : Out :class:`CreditLimits`
        Credits that the link partner may be granted for ``rx``.
    link_up : In 1
        The link works: TLPs can pass both ways. While it is 0 the PCIe side sends nothing and takes
        whatever is offered on ``tx``, to drop it.
    tx_p, tx_np, tx_cpl : Out packet streams
        To PCIe, one stream per class. A non-posted request or completion is offered only when every
        older posted request was taken. Whoever merges them keeps the order in which it takes TLPs,
        but lets posted requests and completions pass a blocked non-posted request.
    """

    def __init__(self, width):
        super().__init__({
            "rx": In(PacketSignature(width)),
            "rx_p": Out(CreditLimits),
            "rx_np": Out(CreditLimits),
            "rx_cpl": Out(CreditLimits),
            "link_up": In(1),
            "tx_p": Out(PacketSignature(width)),
            "tx_np": Out(PacketSignature(width)),
            "tx_cpl": Out(PacketSignature(width)),
        })
        self._width = width

    def __eq__(self, other):
        return type(self) is type(other) and self._width == other._width


def connect_egress(m, egress, port):
    """Connect the streams ``p``, ``np``, ``cpl`` of ``egress`` to the transmit side of ``port``."""
    for name in ("p", "np", "cpl"):
        connect(m, getattr(egress, name), getattr(port, f"tx_{name}"))


def connect_grants(m, ledger, port):
    """Connect the limits of a :class:`~dxpu.attach.ingress.CreditLedger` to ``port``."""
    for name in ("p", "np", "cpl"):
        m.d.comb += getattr(port, f"rx_{name}").eq(getattr(ledger, f"rx_{name}"))
