"""Bus numbers and windows that a host's software has given to a port.

Ref: docs/reference/mapping.md, "Who owns what" and "Lookup"
"""

from dataclasses import dataclass

from .errors import ManageError
from .proxy import Proxy
from .registers import Fields

__all__ = ["Windows", "buses", "windows"]

#: Registers of a row, in order of addresses.
_NAMES = ("bus", "memory_base", "memory_limit", "prefetch_base_low", "prefetch_base_high",
          "prefetch_limit_low", "prefetch_limit_high")


@dataclass(frozen=True)
class Windows:
    """What firmware or operating system has set up at a downstream port.

    Attributes
    ----------
    buses : range
        Buses behind the port; empty while nobody has enumerated the port.
    memory, prefetchable : range
        Addresses, in bytes; an empty window claims nothing.
    enabled : bool
        Memory Space Enable; without it both windows claim nothing.
    """

    buses: range
    memory: range
    prefetchable: range
    enabled: bool

    @property
    def is_open(self) -> bool:
        """Whether the port passes configuration and memory requests on."""
        return bool(self.buses) and self.enabled and bool(self.memory or self.prefetchable)


def _host(proxy: Proxy) -> Proxy:
    if not proxy.is_host:
        raise ManageError(f"{proxy.name}: a host has windows, a box has none")
    return proxy


def _buses(fields: Fields) -> range:
    first = fields["secondary"]
    return range(first, fields["subordinate"] + 1) if first else range(0)


async def buses(host: Proxy) -> list[range]:
    """Buses behind each port of a host; raises :exc:`ManageError`."""
    found = await _host(host).read_all(*(f"table.row[{n}].bus" for n in range(host.rows)))
    return [_buses(fields) for fields in found]


async def windows(host: Proxy, port: int) -> Windows:
    """Bus numbers and windows of a port, by one request.

    Raises
    ------
    ManageError
        For a proxy that is no host, or a port that is not there.
    """
    if not 0 <= port < _host(host).rows:
        raise ManageError(f"{host.name}: it has ports 0 to {host.rows - 1}, not {port}")
    bus, *words = await host.read_all(*(f"table.row[{port}].{name}" for name in _NAMES))
    base, limit, low, high, end_low, end_high = (word["value"] for word in words)
    return Windows(_buses(bus), range(base, limit + 1),
                   range(high << 32 | low, (end_high << 32 | end_low) + 1),
                   bool(bus["memory_enable"]))
