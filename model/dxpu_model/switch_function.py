"""Golden function of a switch: behaviour of its registers, from PCIe Base 5.0, chapters 5 to 7, and
PCI-to-PCI Bridge 1.2.

The list of registers, their offsets and their field names are an argument, as data; this module
does not use the tables of the hardware.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from dxpu.switch.config.identity import Identity

from .errors import ATOMIC_BLOCKED, PREFIX_BLOCKED
from .tlp import Info

__all__ = ["GoldenFunction", "RegisterMap"]


class _Field(Protocol):
    """Bits of a register; see :class:`dxpu.switch.config.fields.Field`."""

    @property
    def name(self) -> str: ...
    @property
    def lsb(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def access(self) -> str: ...
    def value(self, port: int | None) -> int: ...


class _Register(Protocol):
    """A register at a byte offset."""

    @property
    def name(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def fields(self) -> Sequence[_Field]: ...


class RegisterMap(Protocol):
    """Registers of a function; see :class:`dxpu.switch.config.fields.FunctionMap`."""

    @property
    def registers(self) -> Sequence[_Register]: ...
    @property
    def by_name(self) -> Mapping[str, _Register]: ...

    def sticky(self, dword: int) -> bool:
        """Whether the dword survives a reset of the function (7.4)."""


class GoldenFunction:
    """Configuration space of one port, register by register and bit by bit.

    ``port`` is ``None`` for the upstream port. ``fmap`` lists the registers of the function.
    ``live`` holds fields that follow the hardware, by (register, field).
    """

    def __init__(self, port: int | None, fmap: RegisterMap, identity: Identity | None = None):
        self.port = port
        self.identity = identity or Identity()
        self.map = fmap
        self.live: dict[tuple[str, str], int] = {}
        self.speed, self.equalized = 0, False  # link speed code, equalization done
        self.fields: dict[tuple[str, str], int] = {}
        self.reset()

    def reset(self, hot: bool = False) -> None:
        """Reset all fields to their initial values; the link is down, presence stays.

        A ``hot`` reset preserves sticky fields (7.4).
        """
        self.live.pop(("Link Status", "Data Link Layer Link Active"), None)
        self.speed = 0
        if not hot:
            self.first_error: str | None = None  #: error whose header is logged (6.2.4.2)
        for r in self.map.registers:
            if hot and self.map.sticky(r.offset // 4):
                continue
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
                # Unsupported power states are discarded (PCIe Base 5.0, 7.5.2.2).
                if f.name == "Power State" and value in (1, 2):
                    value = old
                self.fields[r.name, f.name] = value
        if self.first_error is not None and not self.get("Uncorrectable Error Status",
                                                         self.first_error):
            self.first_error = None
            control = "Advanced Error Capabilities and Control"
            self.fields |= {(control, "First Error Pointer"): 0,
                            (control, "TLP Prefix Log Present"): 0}

    def set_status(self, register: str, field: str) -> None:
        """Set a status bit by hardware. An enabled event can wake up a port (6.7.3.4)."""
        before = self.fields[register, field]
        self.fields[register, field] = 1
        pm = "Power Management Control/Status"
        enable = f"{field} Interrupt Enable" if field == "Command Completed" else f"{field} Enable"
        if (register == "Slot Status" and not before and self.get("Slot Control", enable)
                and self.get(pm, "Power State") == 3 and self.get(pm, "PME Enable")):
            self.fields[pm, "PME Status"] = 1

    def asks_for_wake_up(self) -> bool:
        """Whether PME Status and PME Enable are set (7.5.2.2)."""
        pm = "Power Management Control/Status"
        return bool(self.get(pm, "PME Enable") and self.get(pm, "PME Status"))

    # Downstream Port Containment (6.2.10, 7.9.15).

    @property
    def has_dpc(self) -> bool:
        """Whether the function has DPC registers."""
        return "DPC Status" in self.map.by_name

    def in_dpc(self) -> bool:
        """Whether the port is contained."""
        return self.has_dpc and self.get("DPC Status", "DPC Trigger Status") == 1

    def wants_dpc_interrupt(self) -> bool:
        """Whether the DPC interrupt is enabled, and its status set (6.2.10.1)."""
        return self.has_dpc and bool(self.get("DPC Control", "DPC Interrupt Enable")
                                     and self.get("DPC Status", "DPC Interrupt Status"))

    # The slot (7.5.3.8 to 7.5.3.11, 6.7.3).

    def set_slot(self, present: bool, active: bool) -> None:
        """Set presence of an adapter and state of the link; changes set status bits."""
        slot = ("Slot Status", "Presence Detect State")
        link = ("Link Status", "Data Link Layer Link Active")
        if self.live.get(slot, 0) != present:
            self.set_status("Slot Status", "Presence Detect Changed")
        if self.live.get(link, 0) != active:
            self.set_status("Slot Status", "Data Link Layer State Changed")
        if not active:
            self.speed, self.equalized = 0, False
        elif not self.speed:
            self._train()
        self.live |= {
            slot: int(present), link: int(active),
            ("Link Status", "Negotiated Link Width"): active * self.identity.link_width,
        }
        self.show_speed(self.speed, self.equalized)
        self.live["Status", "Interrupt Status"] = int(
            self.wants_any_interrupt() and not self.get("MSI Message Control", "MSI Enable"))

    def _train(self) -> None:
        """Train the link: Target Link Speed is the limit (7.5.3.19); links from 8.0 GT/s on
        equalize."""
        target = self.get("Link Control 2", "Target Link Speed")
        self.speed = min(max(target, 1), self.identity.link_speed)
        self.equalized = self.equalized or self.speed >= 3

    def show_speed(self, speed: int, equalized: bool) -> None:
        """Show a speed in the link registers (7.5.3.8, 7.5.3.20)."""
        self.live["Link Status", "Current Link Speed"] = speed
        for name in ("Complete", *(f"Phase {n} Successful" for n in (1, 2, 3))):
            self.live["Link Status 2", f"Equalization 8.0 GT/s {name}"] = int(equalized)

    def retrain(self) -> None:
        """Handle a write of 1 to Retrain Link (7.5.3.7, 7.5.3.8)."""
        if self.live.get(("Link Status", "Data Link Layer Link Active")):
            self._train()
            self.set_status("Link Status", "Link Bandwidth Management Status")

    def wants_bandwidth_interrupt(self) -> bool:
        """Whether Link Bandwidth Management Status is set and its interrupt enabled (7.5.3.7)."""
        return bool(self.port is not None and self.fields[
            "Link Control", "Link Bandwidth Management Interrupt Enable"] and self.fields[
            "Link Status", "Link Bandwidth Management Status"])

    def wants_any_interrupt(self) -> bool:
        """Whether hot-plug, containment or link bandwidth requests an interrupt."""
        return (self.wants_interrupt() or self.wants_dpc_interrupt()
                or self.wants_bandwidth_interrupt())

    def wants_interrupt(self) -> bool:
        """Whether hot-plug interrupts are enabled, and an enabled event is pending (6.7.3.4)."""
        def control(name: str) -> int:
            return self.fields.get(("Slot Control", name), 0)

        return bool(control("Hot-Plug Interrupt Enable") and any(
            control(enable) and self.fields["Slot Status", event] for enable, event in (
                ("Attention Button Pressed Enable", "Attention Button Pressed"),
                ("Presence Detect Changed Enable", "Presence Detect Changed"),
                ("Command Completed Interrupt Enable", "Command Completed"),
                ("Data Link Layer State Changed Enable", "Data Link Layer State Changed"))))

    # Type 1 header as a bridge (PCI-to-PCI Bridge 1.2, chapters 3 and 4).

    def buses(self) -> tuple[int, int]:
        """Secondary and subordinate bus number; an unconfigured bridge has (0, 0)."""
        return (self.get("Secondary Bus Number", "Secondary Bus Number"),
                self.get("Subordinate Bus Number", "Subordinate Bus Number"))

    def has_bus(self, bus: int) -> bool:
        """Whether ``bus`` is below this bridge."""
        secondary, subordinate = self.buses()
        return secondary != 0 and secondary <= bus <= subordinate

    def in_memory_window(self, address: int) -> bool:
        """Whether an enabled memory window of the bridge holds ``address``."""
        if not self.get("Command", "Memory Space Enable"):
            return False
        base = self.get("Memory Base", "Memory Base [31:20]") << 20
        limit = self.get("Memory Limit", "Memory Limit [31:20]") << 20 | 0xFFFFF
        if base <= address <= limit:
            return True
        ends = []
        for end in ("Base", "Limit"):
            high = self.get(f"Prefetchable {end} Upper 32 Bits", f"Prefetchable {end} [63:32]")
            low = self.get(f"Prefetchable Memory {end}", f"Prefetchable {end} [31:20]")
            ends.append(high << 32 | low << 20)
        return ends[0] <= address <= ends[1] + 0xFFFFF

    def in_io_window(self, address: int) -> bool:
        """Whether the enabled I/O window contains ``address``, outside the holes of ISA Enable."""
        if not self.get("Command", "I/O Space Enable"):
            return False
        ends = []
        for end in ("Base", "Limit"):
            high = self.get(f"I/O {end} Upper 16 Bits", f"I/O {end} [31:16]")
            ends.append(high << 16 | self.get(f"I/O {end}", f"I/O {end} [15:12]") << 12)
        if not ends[0] <= address <= ends[1] + 0xFFF:
            return False
        isa = self.get("Bridge Control", "ISA Enable")
        return not (isa and address < 0x10000 and address % 0x400 >= 0x100)

    def in_window(self, info: Info) -> bool:
        """Whether the bridge claims a memory, I/O or AtomicOp request from its primary side."""
        assert info.address is not None
        return (self.in_io_window if info.is_io else self.in_memory_window)(info.address)

    def in_d0(self) -> bool:
        """Whether the bridge is in D0; bridges pass memory and I/O requests only there
        (5.3.1.4)."""
        return self.get("Power Management Control/Status", "Power State") == 0

    def masters(self) -> bool:
        """Whether memory and I/O requests pass from the secondary side (7.5.1.1.3)."""
        return self.in_d0() and self.get("Command", "Bus Master Enable") == 1

    def blocks(self, info: Info) -> str | None:
        """Cause of a block: AtomicOp Egress (6.15.3), End-End TLP Prefix (2.2.10.2); else None."""
        if info.is_atomic and self.get("Device Control 2", "AtomicOp Egress Blocking"):
            return ATOMIC_BLOCKED
        if info.prefix_dwords and self.get("Device Control 2", "End-End TLP Prefix Blocking"):
            return PREFIX_BLOCKED
        return None
