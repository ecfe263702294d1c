"""The two proxies, from TLP streams to frame streams, and the MACs below."""

from .box import BoxCore, BoxProxy
from .host import HostCore, HostProxy
from .macs import GMII, FramePort, MacFactory
from .registers import address_map

__all__ = ["GMII", "BoxCore", "BoxProxy", "FramePort", "HostCore", "HostProxy", "MacFactory",
           "address_map"]
