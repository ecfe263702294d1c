"""Configuration spaces of the few PCI functions that are outside of the design."""

__all__ = ["ConfigBytes"]


class ConfigBytes:
    """A configuration space as bytes, each with the bits that can be written or cleared.

    Parameters
    ----------
    size : int
        Bytes: 256 or 4096.
    """

    def __init__(self, size: int):
        self._value = bytearray(size)
        self._writable = bytearray(size)
        self._clears = bytearray(size)

    def place(self, offset: int, value: int, size: int, *, writable: int = 0,
              clears: int = 0) -> None:
        """Put a register of ``size`` bytes: its value, the bits that software can write, and those
        that it clears by writing 1 (RW1C)."""
        for store, number in ((self._value, value), (self._writable, writable),
                              (self._clears, clears)):
            store[offset:offset + size] = number.to_bytes(size, "little")

    def read(self, offset: int, size: int) -> int:
        """Value of ``size`` bytes; bytes beyond the end are 0."""
        return int.from_bytes(self._value[offset:offset + size], "little")

    def write(self, offset: int, value: int, size: int) -> None:
        """What a configuration write does."""
        for n, new in enumerate(value.to_bytes(size, "little")):
            at = offset + n
            if at >= len(self._value):
                return
            old, may = self._value[at], self._writable[at]
            self._value[at] = (old & ~may | new & may) & ~(new & self._clears[at])

    def set_bits(self, offset: int, bits: int, size: int) -> None:
        """The function itself sets bits of a register."""
        self._value[offset:offset + size] = (self.read(offset, size) | bits).to_bytes(
            size, "little")

    def assign(self, offset: int, value: int, size: int) -> None:
        """The function itself gives a register a value."""
        self._value[offset:offset + size] = value.to_bytes(size, "little")
