"""Configuration spaces of the few PCI functions outside the design."""

__all__ = ["ConfigBytes"]


class ConfigBytes:
    """A configuration space as bytes, with masks of writable and RW1C bits.

    Parameters
    ----------
    size : int
        Size in bytes: 256 or 4096.
    """

    def __init__(self, size: int):
        self._value = bytearray(size)
        self._writable = bytearray(size)
        self._clears = bytearray(size)

    def place(self, offset: int, value: int, size: int, *, writable: int = 0,
              clears: int = 0) -> None:
        """Add a register of ``size`` bytes: value, bits writable by software, RW1C bits."""
        for store, number in ((self._value, value), (self._writable, writable),
                              (self._clears, clears)):
            store[offset:offset + size] = number.to_bytes(size, "little")

    def read(self, offset: int, size: int) -> int:
        """Value of ``size`` bytes; bytes beyond the end are 0."""
        return int.from_bytes(self._value[offset:offset + size], "little")

    def write(self, offset: int, value: int, size: int) -> None:
        """Carry out a configuration write."""
        for n, new in enumerate(value.to_bytes(size, "little")):
            at = offset + n
            if at >= len(self._value):
                return
            old, may = self._value[at], self._writable[at]
            self._value[at] = (old & ~may | new & may) & ~(new & self._clears[at])

    def set_bits(self, offset: int, bits: int, size: int) -> None:
        """Set bits of a register, as hardware."""
        self._value[offset:offset + size] = (self.read(offset, size) | bits).to_bytes(
            size, "little")

    def assign(self, offset: int, value: int, size: int) -> None:
        """Set a register, as hardware."""
        self._value[offset:offset + size] = value.to_bytes(size, "little")
