"""Ethernet: the MAC and its GMII."""

from .gmii import GmiiReceive, GmiiSignature, GmiiTransmit
from .mac import Mac
from .receive import Receiver, RxStatus
from .transmit import Transmitter

__all__ = ["GmiiReceive", "GmiiSignature", "GmiiTransmit", "Mac", "Receiver", "RxStatus",
           "Transmitter"]
