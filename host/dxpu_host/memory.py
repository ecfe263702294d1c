"""Host memory that devices may read and write."""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = ["Memory", "Region", "Space"]


class Space:
    """Allocator of addresses: first fit, aligned.

    Parameters
    ----------
    start, end : int
        First address, and first address behind the space.
    taken : pairs of int
        Starts and ends of occupied parts.
    """

    def __init__(self, start: int, end: int, taken: Iterable[tuple[int, int]] = ()) -> None:
        self.start, self.end = start, end
        self._taken = sorted(taken)

    def take(self, size: int, align: int) -> int | None:
        """The lowest address with ``size`` free bytes; ``None`` if there is none."""
        place = -(-self.start // align) * align
        for start, end in self._taken:
            if place + size <= start:
                break
            place = max(place, -(-end // align) * align)
        if place + size > self.end:
            return None
        self._taken.append((place, place + size))
        self._taken.sort()
        return place

    def give_back(self, start: int) -> None:
        """Free the part taken at ``start``."""
        self._taken = [taken for taken in self._taken if taken[0] != start]


@dataclass(frozen=True)
class Region:
    """Memory, or handlers, at ``size`` bytes from address ``start`` on.

    ``data`` is the memory; its slices must not be kept beyond :meth:`Memory.remove`. Empty for
    handlers.
    """

    start: int
    size: int
    read: Callable[[int, int], bytes]
    write: Callable[[int, bytes], None]
    data: memoryview = memoryview(b"")


def _start(region: Region) -> int:
    return region.start


class Memory:
    """Regions that devices reach by DMA; all other addresses are answered with Unsupported Request.

    Any thread may change the regions while devices use them.

    Parameters
    ----------
    reserved : list of (start, end)
        Addresses other than host memory: windows of BARs, interrupts.
    """

    #: Address range of :meth:`allocate`.
    POOL = (0x0100_0000, 0x8000_0000)

    def __init__(self, reserved: list[tuple[int, int]]) -> None:
        self._reserved = reserved
        self._regions: list[Region] = []  # in order of addresses; never changed, but replaced
        self._lock = threading.RLock()

    def allocate(self, size: int, *, align: int = 4096) -> Region:
        """``size`` new bytes, zero, at any address; ``align`` is a power of two.

        Raises
        ------
        MemoryError
            There is no room below 2 GiB.
        """
        with self._lock:
            start = Space(*self.POOL, self._taken()).take(size, align)
            if start is None:
                raise MemoryError(f"no {size} bytes of host memory are free")
            return self.add(start, bytearray(size))

    def _taken(self) -> list[tuple[int, int]]:
        return [(r.start, r.start + r.size) for r in self._regions] + self._reserved

    def add(self, start: int, buffer: bytearray | memoryview) -> Region:
        """Let devices use ``buffer``, which must be writable, as memory from ``start`` on.

        Raises
        ------
        ValueError
            The addresses are occupied.
        """
        data = memoryview(buffer).cast("B")
        if data.readonly:
            raise ValueError("buffer must be one that can be written")

        def read(address: int, length: int) -> bytes:
            return bytes(data[address - start:address - start + length])

        def write(address: int, new: bytes) -> None:
            data[address - start:address - start + len(new)] = new

        return self.add_region(Region(start, len(data), read, write, data))

    def add_region(self, region: Region) -> Region:
        """Let devices use a region with any handlers; raises the errors of :meth:`add`."""
        start, end = region.start, region.start + region.size
        if region.size < 1 or start < 0 or end > 1 << 64:
            raise ValueError(f"a region must have at least a byte of 64-bit addresses, not "
                             f"{region.size} at {start:#x}")
        with self._lock:
            if any(start < other_end and other < end for other, other_end in self._taken()):
                raise ValueError(f"{region.size:#x} bytes at {start:#x} are not free")
            self._regions = sorted([*self._regions, region], key=_start)
        return region

    def remove(self, region: Region) -> None:
        """End the use of a region by devices."""
        with self._lock:
            regions = list(self._regions)
            regions.remove(region)
            self._regions = regions

    def find(self, address: int, length: int) -> Region | None:
        """The region that contains all these bytes."""
        regions = self._regions
        place = bisect_right(regions, address, key=_start) - 1
        if place < 0:
            return None
        region = regions[place]
        return region if address + length <= region.start + region.size else None
