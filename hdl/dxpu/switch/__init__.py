"""Virtual PCIe switch of the host proxy."""

from dxpu.switch.config.identity import Identity, PlaceholderOptions
from dxpu.switch.tracking.slot_tracking import SlotTracking

from .switch import VirtualSwitch
from .types import SlotInfo, SlotMeta

__all__ = ["Identity", "PlaceholderOptions", "SlotInfo", "SlotMeta", "SlotTracking",
           "VirtualSwitch"]
