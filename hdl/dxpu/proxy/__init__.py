"""The two proxies, from TLP streams to GMII."""

from .box import BoxProxy
from .host import HostProxy
from .registers import address_map

__all__ = ["BoxProxy", "HostProxy", "address_map"]
