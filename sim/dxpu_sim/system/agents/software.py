"""Firmware and operating system of a light host, as far as its proxy shows them.

Ref: docs/howto/hot-plug.md ("Room for GPUs that are not there yet"), docs/reference/mapping.md
("Who owns what"); PCIe Base 5.0, 6.7.1.1 (power indicator)
"""

from dataclasses import dataclass

from dxpu.proxy.detach import INDICATOR_OFF

__all__ = ["Software"]

#: Slot Control: the power indicator is on.
INDICATOR_ON = 1
#: Size of a port's window, first byte of that of port 0, bits below the granularity.
_WINDOWS = {"memory": (32 << 20, 0x8000_0000, 0xF_FFFF),
            "prefetch": (64 << 30, 64 << 40, 0xF_FFFF), "io": (0, 0, 0xFFF)}


@dataclass
class Software:
    """What a host has set in the virtual switch; a reset of the host clears all of it.

    Parameters
    ----------
    powered : bool
        If not, the host's own link is down.
    enumerates : bool
        The switch is enumerated, so each port has a bus.
    leaves_room : bool
        Each port has memory windows, with a card or without.
    indicates : bool
        The power indicator of a port is on while the card there is in use, as with ``pciehp``.
    """

    powered: bool = True
    enumerates: bool = True
    leaves_room: bool = True
    indicates: bool = True

    @property
    def runs(self):
        """Firmware, or an operating system, has found the ports of the switch."""
        return self.powered and self.enumerates

    def bus(self, port):
        """The bus behind a port; 0: none."""
        return 2 + port if self.runs else 0

    def indicator(self, is_linked):
        """Power indicator of a port with a card, or without."""
        is_on = is_linked and self.runs and self.leaves_room and self.indicates
        return INDICATOR_ON if is_on else INDICATOR_OFF

    def windows(self, port, name):
        """Fields of a register of a row that follows from configuration writes."""
        if name == "bus":
            return {"secondary": self.bus(port), "subordinate": self.bus(port), "device": port,
                    "memory_enable": int(self.runs and self.leaves_room)}
        window, _, end = name.partition("_")
        size, first, low = _WINDOWS[window]
        base, limit = 0, 0
        if self.runs and self.leaves_room and size:
            base, limit = first + size * port, first + size * (port + 1) - 1
        elif self.runs:
            base = low + 1  # above the limit, so the window claims nothing
        value = base if end.startswith("base") else limit | low
        return {"value": value >> 32 if end.endswith("_high") else value & 0xFFFF_FFFF}
