"""Gigabit Ethernet: MAC with GMII, RGMII, MDIO master and PHY bring-up."""

from .gmii import GmiiReceive, GmiiSignature, GmiiTransmit
from .inband import InBandStatus, LinkSpeed, LinkStatus
from .mac import Mac
from .mdio import Mdio, MdioCommand, MdioPort, MdioResult, MdioSharing
from .phy import PhyBringUp, PhyState
from .receive import Receiver, RxStatus
from .rgmii import Rgmii, RgmiiDelays, RgmiiPins
from .transmit import Transmitter

__all__ = ["GmiiReceive", "GmiiSignature", "GmiiTransmit", "InBandStatus", "LinkSpeed",
           "LinkStatus", "Mac", "Mdio", "MdioCommand", "MdioPort", "MdioResult", "MdioSharing",
           "PhyBringUp", "PhyState", "Receiver", "Rgmii", "RgmiiDelays", "RgmiiPins", "RxStatus",
           "Transmitter"]
