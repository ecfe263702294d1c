"""A PCI function in a slot of a box, as an interface for its driver.

Ref: PCI Local Bus 3.0, 6.2.5 (BARs), 6.8 (MSI); PCI Express Base Specification 5.0, 7.5
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from dxpu_model.tlp import Tlp

from .errors import HostError
from .slots import HostSlot, interrupt_address
from .tlp import config_request, memory_reads, memory_writes

__all__ = ["Access", "Bar", "Bus", "Device"]

_COMMAND, _CAPABILITIES = 0x04, 0x34
_MSI = 0x05


class Access(Protocol):
    """Part of the host used by devices; see :class:`~.host.Host`."""

    @property
    def max_read(self) -> int: ...

    @property
    def max_payload(self) -> int: ...

    def transact(self, slot: HostSlot, tlps: Iterable[Tlp], life: int) -> list[bytes]: ...

    def configure(self, slot: HostSlot, tlp: Tlp, life: int) -> bytes: ...

    def post(self, slot: HostSlot, tlps: Iterable[Tlp], life: int) -> None: ...

    def wait_until(self, done: Callable[[], bool], what: str,
                   timeout: float | None = None) -> None: ...

    def found(self, device: "Device") -> None: ...


@dataclass
class Bar:
    """A memory BAR with an address.

    Attributes
    ----------
    index : int
        Number of the (first) register, 0 to 5.
    address, size : int
        In bytes.
    wide, prefetchable : bool
        The BAR has 64 bits; reads have no side effects.
    """

    device: "Device"
    index: int
    address: int
    size: int
    wide: bool
    prefetchable: bool

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset`` on, by requests of up to the host's ``max_read`` bytes.

        Raises
        ------
        ValueError
            Some bytes are outside the BAR.
        Unsupported, Aborted, Timeout, SlotLost, SessionLost
        """
        self._check(offset, length)
        device = self.device
        return b"".join(device.host.transact(device.slot, memory_reads(
            self.address + offset, length, device.host.max_read), device.life))

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data`` from ``offset`` on; returns when all writes are on their way to the
        device.

        Writes are posted, so their result is unknown. Raises the exceptions of :meth:`read` except
        ``Unsupported`` and ``Aborted``; ``Timeout`` if the device takes nothing.
        """
        self._check(offset, len(data))
        device = self.device
        device.host.post(device.slot, memory_writes(
            self.address + offset, bytes(data), device.slot.max_payload), device.life)

    def _check(self, offset: int, length: int) -> None:
        if offset < 0 or length < 0 or offset + length > self.size:
            raise ValueError(f"{length} bytes at {offset:#x} are not in the {self.size:#x} bytes "
                             f"of BAR {self.index}")


class Device:
    """A function, in one life of its slot.

    Returned by :meth:`Host.bind` and :meth:`Host.enumerate`. After a reset or removal of the slot's
    device all uses raise :exc:`SlotLost`; enumerate again.

    Attributes
    ----------
    identifier : int
        Bus, device and function number: 8, 5 and 3 bits.
    vendor_id, device_id, class_code : int
    header_type : int
        0 for an endpoint, 1 for a bridge.
    bar : dict of int to :class:`Bar`
        Memory BARs; filled by an enumeration.
    interrupts : Counter
        Number of interrupts of each vector.
    subordinate
        The bus behind a bridge; ``None`` for an endpoint.
    """

    def __init__(self, host: Access, slot: HostSlot, identifier: int) -> None:
        self.host, self.slot, self.identifier = host, slot, identifier
        self.life = slot.lives
        self.vendor_id = self.config_read(0, 2)
        self.device_id = self.config_read(2, 2)
        self.class_code = self.config_read(8) >> 8
        header = self.config_read(0x0E, 1)
        self.header_type, self.multifunction = header & 0x7F, bool(header & 0x80)
        self.bar: dict[int, Bar] = {}
        self.interrupts: Counter[int] = Counter()
        self.subordinate: Bus | None = None
        self._handler: Callable[[int], None] | None = None
        host.found(self)

    def __repr__(self) -> str:
        return (f"<Device {self.address} {self.vendor_id:04x}:{self.device_id:04x}, "
                f"box {self.box:#05x} slot {self.slot.number}>")

    @property
    def address(self) -> str:
        """Bus, device and function as ``bb:dd.f``."""
        return f"{self.identifier >> 8:02x}:{self.device_num:02x}.{self.function_num:x}"

    @property
    def box(self) -> int:
        """Node number of the box."""
        return self.slot.box.link.address.peer

    @property
    def device_num(self) -> int:
        """Device number."""
        return self.identifier >> 3 & 31

    @property
    def function_num(self) -> int:
        """Function number."""
        return self.identifier & 7

    @property
    def present(self) -> bool:
        """Whether the slot is still in the life in which the device was found."""
        return self.slot.error is None and self.slot.lives == self.life

    # Configuration space.

    def config_read(self, offset: int, size: int = 4) -> int:
        """A register of 1, 2 or 4 bytes; raises the exceptions of :meth:`Bar.read`."""
        data = self.host.configure(self.slot, config_request(
            self.identifier, offset, None, size=size, forward=self._forward), self.life)
        return int.from_bytes(data[offset & 3:(offset & 3) + size], "little")

    def config_write(self, offset: int, value: int, size: int = 4) -> None:
        """Write a register of 1, 2 or 4 bytes, and wait for the completion."""
        self.host.configure(self.slot, config_request(
            self.identifier, offset, value, size=size, forward=self._forward), self.life)

    @property
    def _forward(self) -> bool:
        return self.identifier >> 8 != self.slot.buses.start

    def capabilities(self) -> Iterator[tuple[int, int]]:
        """ID and offset of each capability."""
        offset, left = self.config_read(_CAPABILITIES, 1) & 0xFC, 48
        while offset and left:
            header = self.config_read(offset, 2)
            yield header & 0xFF, offset
            offset, left = header >> 8 & 0xFC, left - 1

    def find_capability(self, number: int) -> int | None:
        """Offset of the first capability with this ID."""
        return next((offset for found, offset in self.capabilities() if found == number), None)

    def enable(self, *, memory: bool = True, master: bool = True) -> None:
        """Enable the BARs, and DMA with interrupts."""
        command = self.config_read(_COMMAND, 2) & ~6
        self.config_write(_COMMAND, command | memory << 1 | master << 2, 2)

    # Interrupts.

    def enable_msi(self, vectors: int = 1) -> int:
        """Enable MSI, with at most ``vectors`` vectors; returns their number.

        Raises
        ------
        HostError
            The device has no MSI.
        """
        offset = self.find_capability(_MSI)
        if offset is None:
            raise HostError(f"{self.address} has no MSI")
        control = self.config_read(offset + 2, 2)
        log2 = min(control >> 1 & 7, max(vectors, 1).bit_length() - 1)
        self.config_write(offset + 4, interrupt_address(self.identifier))
        wide = bool(control & 0x80)
        if wide:
            self.config_write(offset + 8, 0)
        self.config_write(offset + (12 if wide else 8), 0, 2)
        self.config_write(offset + 2, control & ~0x70 | log2 << 4 | 1, 2)
        return 1 << log2

    def on_interrupt(self, handler: Callable[[int], None] | None) -> None:
        """Call ``handler(vector)`` for each interrupt; the handler may use the host."""
        self._handler = handler

    def interrupted(self, vector: int) -> None:
        """Count an interrupt and call the handler; called by the host."""
        self.interrupts[vector] += 1
        if self._handler is not None:
            self._handler(vector)

    def wait_interrupt(self, vector: int = 0, *, after: int, timeout: float | None = None) -> None:
        """Wait until ``vector`` was raised more than ``after`` times in all.

        Raises
        ------
        Timeout
            Not within ``timeout`` seconds, by default the host's completion timeout.
        SlotLost, SessionLost
        """
        self.host.wait_until(lambda: self.interrupts[vector] > after or not self.present,
                             f"{self.address}: no interrupt {vector}", timeout)
        self.check()

    def check(self) -> None:
        """Raise the exception that has ended the device's life, if any."""
        self.slot.check(self.life)


@dataclass
class Bus:
    """A bus, with the devices found on it."""

    bus_num: int
    last_bus_num: int
    devices: list[Device] = field(default_factory=list)

    def walk(self) -> Iterator[Device]:
        """All devices, including devices behind bridges."""
        for device in self.devices:
            yield device
            if device.subordinate is not None:
                yield from device.subordinate.walk()
