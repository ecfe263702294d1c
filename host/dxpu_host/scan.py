"""Enumerates a slot, and assigns bus numbers and addresses.

A slot is like the link below a root port: device 0, its functions, and everything behind its
bridges. I/O BARs and expansion ROMs get no address.

Ref: PCI Local Bus 3.0, 6.2.5; PCI-to-PCI Bridge Architecture 1.2, 3.2.5; PCIe Base 5.0, 7.5
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .device import Access, Bar, Bus, Device
from .errors import HostError, Unsupported
from .memory import Space
from .slots import HostSlot

__all__ = ["Windows", "scan"]

_COMMAND, _BARS, _BUSES, _EXPRESS = 0x04, 0x10, 0x18, 0x10
#: Bridge registers of the memory window and the prefetchable window.
_WINDOW, _WIDE_WINDOW = 0x20, 0x24
_MEBIBYTE = 1 << 20
#: Device/Port Types of ports with more than one device behind them.
_UPSTREAM_PORT, _TO_PCI = 5, 7


class Windows:
    """Addresses for BARs: below 4 GiB, and above 4 GiB for prefetchable 64-bit BARs.

    The addresses of a slot are freed together.
    """

    NARROW, WIDE = (0x8000_0000, 0xE000_0000), (0x80_0000_0000, 0x100_0000_0000)

    def __init__(self) -> None:
        self._spaces = {False: Space(*self.NARROW), True: Space(*self.WIDE)}
        self._taken: dict[HostSlot, list[tuple[bool, int]]] = {}

    def take(self, slot: HostSlot, wide: bool, size: int, align: int) -> int:
        """Room for all BARs of one kind in a slot.

        Raises
        ------
        HostError
            There is no room.
        """
        start = self._spaces[wide].take(size, align)
        if start is None:
            raise HostError(f"no {size:#x} bytes of address space are free for slot {slot.number}")
        self._taken.setdefault(slot, []).append((wide, start))
        return start

    def give_back(self, slot: HostSlot) -> None:
        """Free all addresses of a slot."""
        for wide, start in self._taken.pop(slot, ()):
            self._spaces[wide].give_back(start)


def scan(host: Access, slot: HostSlot, windows: Windows) -> Bus:
    """Find and set up all functions of a slot.

    Payload and read request sizes are the largest supported by all functions and the host. BARs are
    enabled, bus mastering is disabled.
    """
    windows.give_back(slot)
    bus = Bus(slot.buses.start, slot.buses.start)
    _find(host, slot, bus, range(1))
    for wide in (False, True):
        items = _needs(bus, wide)
        size, align = _layout(items, None)
        if size:
            _layout(items, windows.take(slot, wide, size, align))
    devices = list(bus.walk())
    _set_sizes(host, slot, devices)
    for device in devices:
        device.enable(master=device.header_type == 1)
    return bus


def _find(host: Access, slot: HostSlot, bus: Bus, numbers: range) -> None:
    for number in numbers:
        for function in range(8):
            identifier = bus.bus_num << 8 | number << 3 | function
            known = slot.devices.get(identifier)
            device = known if isinstance(known, Device) else None
            if device is None:
                try:
                    device = Device(host, slot, identifier)
                except Unsupported:
                    device = None
            if device is None or device.vendor_id == 0xFFFF:
                if function == 0:
                    break
                continue
            _set_up(host, slot, bus, device)
            if function == 0 and not device.multifunction:
                break


def _set_up(host: Access, slot: HostSlot, bus: Bus, device: Device) -> None:
    """Size the BARs of a function; for a bridge, go on behind it."""
    device.config_write(_COMMAND, 0, 2)
    bus.devices.append(device)
    device.bar = dict(_bars(device, 2 if device.header_type else 6))
    if device.header_type != 1:
        return
    secondary = bus.last_bus_num + 1
    if secondary not in slot.buses:
        raise HostError(f"slot {slot.number} has more than {len(slot.buses)} buses")
    behind = device.subordinate = Bus(secondary, secondary)
    device.config_write(_BUSES, bus.bus_num | secondary << 8 | slot.buses[-1] << 16)
    express = device.find_capability(_EXPRESS)
    kind = device.config_read(express + 2, 2) >> 4 & 15 if express is not None else _TO_PCI
    _find(host, slot, behind, range(32 if kind in (_UPSTREAM_PORT, _TO_PCI) else 1))
    device.config_write(_BUSES, bus.bus_num | secondary << 8 | behind.last_bus_num << 16)
    bus.last_bus_num = behind.last_bus_num


def _bars(device: Device, count: int) -> Iterator[tuple[int, Bar]]:
    """Memory BARs of a function, without addresses yet."""
    index = 0
    while index < count:
        offset = _BARS + 4 * index
        device.config_write(offset, 0xFFFF_FFFF)
        value = device.config_read(offset)
        wide = value & 7 == 4
        mask = value & ~15
        if wide:
            device.config_write(offset + 4, 0xFFFF_FFFF)
            mask |= device.config_read(offset + 4) << 32
            device.config_write(offset + 4, 0)
        device.config_write(offset, 0)
        if mask and not value & 1:
            yield index, Bar(device, index, 0, mask & -mask, wide, bool(value & 8))
        index += 1 + wide


@dataclass
class _Need:
    """A need of ``size`` bytes at a multiple of ``align``; ``place`` assigns the address."""

    size: int
    align: int
    place: Callable[[int], None]


def _needs(bus: Bus, wide: bool) -> list[_Need]:
    """Needs of a bus for addresses above 4 GiB (``wide``), or below."""
    needs = []
    for device in bus.devices:
        for bar in device.bar.values():
            if (bar.wide and bar.prefetchable) == wide:
                needs.append(_Need(bar.size, bar.size, _bar_placer(bar)))
        if device.subordinate is not None:
            inner = _needs(device.subordinate, wide)
            size, align = _layout(inner, None)
            size = -(-size // _MEBIBYTE) * _MEBIBYTE
            _set_window(device, wide, 1, 0)  # closed
            if size:
                needs.append(_Need(size, max(align, _MEBIBYTE),
                                   _bridge_placer(device, wide, size, inner)))
    return needs


def _layout(needs: list[_Need], start: int | None) -> tuple[int, int]:
    """Size and alignment of all needs together; with ``start`` addresses are assigned."""
    position, align = 0, 1
    for need in sorted(needs, key=lambda need: -need.align):
        align = max(align, need.align)
        position = -(-position // need.align) * need.align
        if start is not None:
            need.place(start + position)
        position += need.size
    return position, align


def _bar_placer(bar: Bar) -> Callable[[int], None]:
    def place(address: int) -> None:
        bar.address = address
        offset = _BARS + 4 * bar.index
        bar.device.config_write(offset, address & 0xFFFF_FFFF)
        if bar.wide:
            bar.device.config_write(offset + 4, address >> 32)
    return place


def _bridge_placer(bridge: Device, wide: bool, size: int,
                   inner: list[_Need]) -> Callable[[int], None]:
    def place(address: int) -> None:
        _set_window(bridge, wide, address, address + size - 1)
        _layout(inner, address)
    return place


def _set_window(bridge: Device, wide: bool, first: int, last: int) -> None:
    """Set a window of a bridge; ``first`` above ``last`` closes the window."""
    closed = first > last
    low, high = (0xFFF0, 0) if closed else (first >> 16 & 0xFFF0, last >> 16 & 0xFFF0)
    bridge.config_write(_WIDE_WINDOW if wide else _WINDOW, high << 16 | low)
    if wide:
        bridge.config_write(0x28, 0 if closed else first >> 32)
        bridge.config_write(0x2C, 0 if closed else last >> 32)


def _set_sizes(host: Access, slot: HostSlot, devices: list[Device]) -> None:
    """Set the same Max_Payload_Size in all devices, and Max_Read_Request_Size."""
    express = {device: offset for device in devices
               if (offset := device.find_capability(_EXPRESS)) is not None}
    supported = [128 << (device.config_read(offset + 4) & 7)
                 for device, offset in express.items()]
    payload = min([host.max_payload, *supported])
    for device, offset in express.items():
        control = device.config_read(offset + 8, 2) & ~0x70E0
        device.config_write(offset + 8, control | (payload.bit_length() - 8) << 5
                            | (host.max_read.bit_length() - 8) << 12, 2)
    slot.max_payload = payload if express else 128
