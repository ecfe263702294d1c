"""Prints an enumerated PCI tree like ``lspci -tv`` (pciutils)."""

from collections.abc import Callable

__all__ = ["describe", "tree"]

#: Names of simulated devices, by vendor and device ID; other devices are shown by numbers.
NAMES = {(0x1234, 0xd0a0): "DXPU model GPU"}


def describe(device) -> str:
    """Name and IDs of an endpoint."""
    ids = f"[{device.vendor_id:04x}:{device.device_id:04x}]"
    return f"{NAMES.get((device.vendor_id, device.device_id), 'Device')} {ids}"


def tree(bus, name: Callable[[object], str] = describe, domain: int = 0) -> str:
    """Lines of the tree below root ``bus`` (``root_complex.host_bridge.bus``).

    Parameters
    ----------
    bus
        Has ``bus_num``, ``last_bus_num`` (the last bus below) and ``devices``. A device has
        ``device_num``, ``function_num`` and ``subordinate``: ``None``, or the bus behind a bridge.
    name : function
        Text to show for a device other than a bridge.
    """
    return "\n".join(_bus(bus, f"-[{domain:04x}:{bus.bus_num:02x}]-", name))


def _bus(bus, line, name):
    """Lines of ``bus``; the first line begins with ``line``."""
    devices = sorted(bus.devices, key=lambda d: (d.device_num, d.function_num))
    if not devices:
        yield line
    for n, device in enumerate(devices):
        last = n == len(devices) - 1
        joint = "--" if len(devices) == 1 else "\\-" if last else "+-"
        yield from _device(device, line + joint, name)
        # Later lines repeat only the strokes that continue below.
        line = "".join("|" if c in "+|" else " " for c in line)


def _device(device, line, name):
    line += f"{device.device_num:02x}.{device.function_num:x}"
    if device.subordinate is None:
        yield f"{line}  {name(device)}"
        return
    first, last = device.subordinate.bus_num, device.subordinate.last_bus_num
    buses = f"{first:02x}" if first == last else f"{first:02x}-{last:02x}"
    yield from _bus(device.subordinate, f"{line}-[{buses}]--", name)
