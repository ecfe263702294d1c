"""An Intel Volume Management Device, behind which Linux creates a separate PCI domain.

Linux' driver ``vmd`` uses BAR 0 as the configuration spaces of a child domain (ECAM: 1 MiB per bus,
4 KiB per function, PCI Base 5.0, 7.2.2) and BARs 2 and 4 as memory windows. Offsets 40h to 77h of
this model are 0: no shadow of the windows, no offset of bus numbers, interrupts of child devices
not remapped.
"""

from dataclasses import dataclass

from .config_bytes import ConfigBytes

__all__ = ["BUSES", "ConfigTarget", "MemoryTarget", "Vmd"]

#: Buses of the child domain.
BUSES = 16
#: Size of each of the two memory windows.
WINDOW = 256 << 20

_BARS = {0x10: BUSES << 20, 0x18: WINDOW, 0x20: WINDOW}


@dataclass(frozen=True)
class ConfigTarget:
    """A register of a function of the child domain."""

    bus: int
    device: int
    function: int
    register: int


@dataclass(frozen=True)
class MemoryTarget:
    """An address in the child domain, equal to the guest's address."""

    address: int


class Vmd:
    """The device: its configuration space, and the targets of accesses to its BARs."""

    def __init__(self):
        self.config = config = ConfigBytes(256)
        config.place(0x00, 0x28c0_8086, 4)
        config.place(0x04, 0, 2, writable=0x0547)
        config.place(0x08, 0x0104_0000, 4)
        for offset, size in _BARS.items():
            config.place(offset, 0, 4, writable=(1 << 32) - size)

    def target(self, address: int) -> ConfigTarget | MemoryTarget | None:
        """Target of the guest's physical address ``address``; ``None`` without a target."""
        for offset, size in _BARS.items():
            base = self.config.read(offset, 4)
            if base <= address < base + size:
                if offset != 0x10:
                    return MemoryTarget(address)
                offset = address - base
                return ConfigTarget(offset >> 20, offset >> 15 & 31, offset >> 12 & 7,
                                    offset & 0xfff)
        return None
