"""Route of a TLP through a PCIe switch, for :class:`~dxpu_sim.pcie.checkers.TlpChecker`.

The route follows the configuration writes that enter at the upstream port, as the switch does, and
depends on the Type 1 headers alone (PCIe Base 5.0, 2.2.4, 2.2.8, 7.5.1.3). This is a second
implementation of the virtual switch's routing, written from the specification: plain Python, one
TLP at a time, no queues.
"""

from collections.abc import Hashable

from .checkers import CPL, Header, type0

__all__ = ["BridgeHeader", "SwitchRoute"]

#: Writable bits of the routing registers of a Type 1 header.
_WRITABLE = {0x04: 0x0000_0547, 0x18: 0x00ff_ffff, 0x1c: 0x0000_f0f0, 0x20: 0xfff0_fff0,
             0x24: 0xfff0_fff0, 0x28: 0xffff_ffff, 0x2c: 0xffff_ffff, 0x30: 0xffff_ffff}


class BridgeHeader:
    """The routing registers of one Type 1 header, all zero after reset."""

    def __init__(self):
        self.registers = dict.fromkeys(_WRITABLE, 0)

    def write(self, register: int, data: bytes, enables: int) -> None:
        """Apply a configuration write of these four bytes with these byte enables."""
        if register not in _WRITABLE:
            return
        mask = _WRITABLE[register] & sum(0xff << 8 * n for n in range(4) if enables >> n & 1)
        value = int.from_bytes(data, "little")
        self.registers[register] = self.registers[register] & ~mask | value & mask

    @property
    def io_enable(self) -> bool:
        """Whether I/O requests are passed down."""
        return bool(self.registers[0x04] & 1)

    @property
    def memory_enable(self) -> bool:
        """Whether memory requests are passed down."""
        return bool(self.registers[0x04] & 2)

    @property
    def master_enable(self) -> bool:
        """Whether memory and I/O requests are passed up."""
        return bool(self.registers[0x04] & 4)

    @property
    def secondary(self) -> int:
        """Number of the bus below."""
        return self.registers[0x18] >> 8 & 0xff

    def owns_bus(self, bus: int) -> bool:
        """Whether ``bus`` is below this bridge."""
        return bool(self.secondary) and self.secondary <= bus <= self.registers[0x18] >> 16

    def in_memory(self, address: int) -> bool:
        """Whether ``address`` is in one of the two memory windows."""
        r = self.registers
        if (r[0x20] & 0xfff0) << 16 <= address <= (r[0x20] | 0xfffff):
            return True
        return (r[0x28] << 32 | (r[0x24] & 0xfff0) << 16) <= address <= (
            r[0x2c] << 32 | r[0x24] & 0xfff00000 | 0xfffff)

    def in_io(self, address: int) -> bool:
        """Whether ``address`` is in the I/O window."""
        r = self.registers
        return ((r[0x30] & 0xffff) << 16 | (r[0x1c] & 0xf0) << 8) <= address <= (
            r[0x30] & 0xffff0000 | r[0x1c] & 0xf000 | 0xfff)

    def claims(self, h: Header) -> bool:
        """Whether window and enable let a request by address go to the bus below."""
        if h.type == 0x02:
            return self.io_enable and self.in_io(h.address)
        return self.memory_enable and self.in_memory(h.address)


class SwitchRoute:
    """Route of a switch with one upstream port and some downstream ports.

    Parameters
    ----------
    host : hashable
        Name of the upstream port.
    slots : dict
        Name of the port behind each downstream port, by device number.
    ports : int, optional
        Number of downstream ports, if some have no port behind them.
    placeholders : bool, optional
        The switch may answer for an endpoint in a slot.

    Attributes
    ----------
    present : set
        Device numbers of the downstream ports whose link is up; changed by the bench. All at first.
    """

    def __init__(self, host: Hashable, slots: dict[int, Hashable], *, ports: int = 0,
                 placeholders: bool = False):
        self.host = host
        self.placeholders = placeholders
        self.slots = dict(slots)
        self.present = set(slots)
        self._ports = sorted({*slots, *range(ports)})
        self.reset()
        self.renumber()

    def reset(self) -> None:
        """A conventional reset of the switch."""
        self.bus = 0
        self._addressed = 0
        self.upstream = BridgeHeader()
        self.downstream = {n: BridgeHeader() for n in self._ports}

    def renumber(self):
        """Update the numbers after a change of ``slots``."""
        self._numbers = {name: n for n, name in self.slots.items()}

    def __call__(self, source: Hashable, h: Header):
        """Port and bytes with which TLP ``h`` from ``source`` must leave."""
        if source == self.host:
            return self._down(h)
        return self._up(self._numbers[source], h)

    def is_own(self, number: int) -> bool:
        """Whether requester or completer ID ``number`` belongs to the switch."""
        bus, device = number >> 8, number >> 3 & 31
        if bus == self.upstream.secondary and bus:
            return device in self.downstream and not number & 7
        # The bus number is captured from writes; a completer may use it from the first read on.
        return number in (self.bus << 8, self._addressed << 8)

    def originates(self, port: Hashable, h: Header) -> bool:
        """Whether the ID in ``h`` allows the switch to be its author."""
        if h.is_message and h.type & 7 == 4 and port != self.host:
            # A slot gets its power limit together with the link, maybe before the bus has this
            # number.
            return not h.requester_id & 7 and self.slots.get(h.requester_id >> 3 & 31) == port
        if self.placeholders and h.cls == CPL and self._is_placeholder(h.other_id):
            return True
        return self.is_own(h.other_id if h.cls == CPL else h.requester_id)

    def _is_placeholder(self, number: int) -> bool:
        """Whether a completer ID belongs to an endpoint in a slot; 0 before the first write."""
        return number == 0 or any(number == bridge.secondary << 8
                                  for n, bridge in self.downstream.items()
                                  if n not in self.present)

    def _to(self, number, h):
        return [(self.slots[number], h.raw)] if number in self.present else []

    def _by_bus(self, bus):
        return next((n for n, bridge in self.downstream.items() if bridge.owns_bus(bus)), None)

    def _by_address(self, h):
        return next((n for n, bridge in self.downstream.items() if bridge.claims(h)), None)

    def _down(self, h):
        if h.is_config:
            return self._config(h)
        if h.cls == CPL:
            return self._to(self._by_bus(h.requester_id >> 8), h)
        if h.is_message:
            kind = h.type & 7
            if kind == 3:
                return [(self.slots[n], h.raw) for n in sorted(self.present)]
            if kind == 2:
                return self._to(self._by_bus(h.other_id >> 8), h)
            return []
        return self._to(self._by_address(h), h) if self.upstream.claims(h) else []

    def _config(self, h):
        bus, device = h.other_id >> 8, h.other_id >> 3 & 31
        write = bool(h.fmt & 2)
        if not h.type & 1:
            self._addressed = bus
            if write and not h.other_id & 0xff:
                self.bus = bus
                self.upstream.write(h.register, h.raw[12:16], h.first_be)
            return []
        if not self.upstream.owns_bus(bus):
            return []
        if bus == self.upstream.secondary:
            if write and device in self.downstream and not h.other_id & 7:
                self.downstream[device].write(h.register, h.raw[12:16], h.first_be)
            return []
        number = self._by_bus(bus)
        if number not in self.present:
            return []
        if bus != self.downstream[number].secondary:
            return self._to(number, h)
        # Without ARI the bus of a slot has only device 0.
        return [(self.slots[number], type0(h.raw))] if device == 0 else []

    def _up(self, number, h):
        port = self.downstream[number]
        if h.cls == CPL:
            bus = h.requester_id >> 8
            if (other := self._by_bus(bus)) is not None:
                return self._to(other, h)
            own = bus == self.bus or (bus and bus == self.upstream.secondary)
            return [] if own else [(self.host, h.raw)]
        if h.is_config:
            return []
        if h.is_message:
            kind = h.type & 7
            if kind == 0:
                return [(self.host, h.raw)]
            if kind == 2:
                other = self._by_bus(h.other_id >> 8)
                return [(self.host, h.raw)] if other is None else self._to(other, h)
            return []
        if not port.master_enable:
            return []
        other = self._by_address(h)
        if other is not None:
            return self._to(other, h) if other != number else []
        if self.upstream.claims(h) or not self.upstream.master_enable:
            return []
        return [(self.host, h.raw)]
