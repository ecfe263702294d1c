"""Golden virtual switch: plain Python from the PCI Express specification.

The register tables come from :mod:`dxpu.switch.config_map`, which is data; what registers do and
where TLPs go is written here from PCIe Base 5.0 (chapters 2, 6.12, 7) and the PCI-to-PCI bridge
architecture specification, independently of the hardware.
"""

from dxpu.switch.config_map import DOWNSTREAM, UPSTREAM, Identity, function_map

__all__ = ["GoldenFunction"]


class GoldenFunction:
    """Configuration space of one port, register by register and bit by bit.

    ``port`` is ``None`` for the upstream port. ``live`` holds fields that follow the hardware, by
    (register, field).
    """

    def __init__(self, port: int | None, identity: Identity | None = None):
        self.port = port
        self.map = function_map(UPSTREAM if port is None else DOWNSTREAM, identity)
        self.live: dict[tuple[str, str], int] = {}
        self.fields: dict[tuple[str, str], int] = {}
        self.reset()

    def reset(self) -> None:
        """All fields to their reset values."""
        for r in self.map.registers:
            for f in r.fields:
                self.fields[r.name, f.name] = f.value(self.port or 0) >> f.lsb

    def get(self, register: str, field: str) -> int:
        """Value of a field."""
        return self.live.get((register, field), self.fields[register, field])

    def read(self, dword: int) -> int:
        """A dword of configuration space."""
        value = 0
        for r in self.map.registers:
            if r.offset // 4 == dword:
                for f in r.fields:
                    value |= self.get(r.name, f.name) << f.lsb + 8 * (r.offset % 4)
        return value

    def write(self, dword: int, enables: int, data: int) -> None:
        """Write the enabled bytes of a dword."""
        for r in self.map.registers:
            if r.offset // 4 != dword:
                continue
            for f in r.fields:
                value = old = self.fields[r.name, f.name]
                for bit in range(f.width):
                    place = f.lsb + bit + 8 * (r.offset % 4)
                    if not enables >> place // 8 & 1:
                        continue
                    one = data >> place & 1
                    if f.access == "RW":
                        value = value & ~(1 << bit) | one << bit
                    elif f.access == "RW1C" and one:
                        value &= ~(1 << bit)
                # A state that is not supported is discarded (PCIe Base 5.0, 7.5.2.2).
                if f.name == "Power State" and value in (1, 2):
                    value = old
                self.fields[r.name, f.name] = value

    def set_status(self, register: str, field: str) -> None:
        """Hardware sets a status bit."""
        self.fields[register, field] = 1
