"""TLP boundary: the interface to a PCIe implementation of any kind."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature, connect

from .ingress import CreditLimits

__all__ = ["PciePort", "connect_egress", "connect_grants"]


class PciePort(wiring.Signature):
    """PCIe port of a proxy, seen from the proxy.

    Raw TLPs, without framing, sequence number and LCRC.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    rx : In packet stream
        TLPs from PCIe, in order. ``discard`` on the last beat drops the TLP.
    rx_p, rx_np, rx_cpl : Out :class:`CreditLimits`
        Credit limits for ``rx`` that may be advertised to the link partner, by class.
    link_up : In(1)
        The link is up: TLPs can pass in both directions. While it is 0 the PCIe side sends nothing,
        and takes and drops all that is offered on ``tx``.
    tx_p, tx_np, tx_cpl : Out packet streams
        TLPs to PCIe, by class. A non-posted request or a completion is offered only after every
        older posted request was taken. The PCIe side sends TLPs in the order in which it takes
        them, and takes posted requests and completions while a non-posted request is blocked.
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
    """Connect the streams ``p``, ``np`` and ``cpl`` of ``egress`` to ``tx`` of ``port``."""
    for name in ("p", "np", "cpl"):
        connect(m, getattr(egress, name), getattr(port, f"tx_{name}"))


def connect_grants(m, ledger, port):
    """Connect the limits of a :class:`~dxpu.attach.ingress.CreditLedger` to ``port``, or those of a
    slot of a :class:`~dxpu.attach.shared_ledger.SharedLedger`."""
    for name in ("p", "np", "cpl"):
        m.d.comb += getattr(port, f"rx_{name}").eq(getattr(ledger, f"rx_{name}"))
