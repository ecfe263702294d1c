"""Virtual PCIe switch of the host proxy."""

from dxpu.switch.config_map import Identity
from dxpu.switch.placeholder_map import PlaceholderOptions
from dxpu.switch.switch import VirtualSwitch
from dxpu.switch.tracking import SlotTracking
from dxpu.switch.types import SlotInfo, SlotMeta

__all__ = ["Identity", "PlaceholderOptions", "SlotInfo", "SlotMeta", "SlotTracking",
           "VirtualSwitch"]
