"""Golden virtual switch: plain Python from the PCI Express specification.

The list of registers is an argument, as data. The behaviour of registers (:mod:`.switch_function`)
and the routing of TLPs are written from PCIe Base 5.0 (chapters 2, 6.12, 7) and the PCI-to-PCI
bridge architecture specification, independently of the hardware.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from dxpu.switch.config.identity import Identity
from dxpu.tlp.types import CompletionStatus, Fmt, Routing, TlpClass, Type

from .errors import (
    ACS_VIOLATION, INTERNAL, MALFORMED, POISONED, SURPRISE_DOWN, UNEXPECTED, UNSUPPORTED,
    GoldenErrors,
)
from .latency import conglomerate
from .placeholder import GoldenPlaceholders
from .switch_function import GoldenFunction, RegisterMap
from .tlp import Info, Tlp, classify, complete

__all__ = ["UP", "GoldenSwitch", "SwitchMaps"]

#: A member of an enumeration of :mod:`dxpu.tlp.types`; mypy takes such members for integers.
Code = Any

#: Exit of a TLP: upstream. Numbers from 0 on are slots.
UP = -1

#: Largest broadcast message forwarded: 4 prefixes, header, 512 bytes, digest; in dwords.
BROADCAST_LIMIT = 4 + 4 + 128 + 1

#: Local messages without effect: Ignored Messages and Vendor_Defined Type 1 (2.2.8.6, 2.2.8.7).
IGNORED = (0x40, 0x41, 0x43, 0x44, 0x45, 0x47, 0x48, 0x7F)


class _Refused(Exception):
    """No function takes the TLP. ``port`` is the last port reached, and reports ``error``.

    ``who``: identifier of the last function reached, if that is not ``port``. ``aborts``: the
    completion status is Completer Abort.
    """

    def __init__(self, port: int, error: str | None = UNSUPPORTED, who: int | None = None, *,
                 aborts: bool = False):
        self.port = port
        self.error = error
        self.who = who
        status: Code = CompletionStatus.CA if aborts else CompletionStatus.UR
        self.status = status


@dataclass(frozen=True)
class SwitchMaps:
    """The registers of a switch's functions: upstream port, downstream ports, placeholder."""

    up: RegisterMap
    down: RegisterMap
    placeholder: RegisterMap


class GoldenSwitch:
    """A PCIe switch: takes TLPs, returns the TLPs that leave, and counts.

    If software has given overlapping windows to ports, the lowest port takes the TLP.
    """

    def __init__(self, ports: int, maps: SwitchMaps, identity: Identity | None = None):
        self.up = GoldenFunction(None, maps.up, identity)
        self.down = [GoldenFunction(n, maps.down, identity) for n in range(ports)]
        self.present = [False] * ports
        self.link_up = [True] * ports
        # State of the interrupt logic: see :meth:`interrupts`.
        self.orderly = [False] * ports  # the GPU leaves by agreement
        self._told_off: set[int] = set()  # slots that got PME_Turn_Off
        self._cleared = [False] * ports
        self._armed = [(False, False, False)] * ports
        self._possible = [False] * ports  # MSIs
        self._awakes = [False] * ports  # PM_PME was sent
        self._wires = [False] * 4
        self._pins = [[False] * 4 for _ in range(ports)]
        self._acks_due: set[int] | None = None  # slots that have not answered PME_Turn_Off
        self.turn_offs = 0  # PME_Turn_Off messages received
        self._latencies: dict[int, tuple[int, int]] = {}  # of slots: snooped, not snooped
        self._told_latency = [0, 0]
        self._messages: list[bytes] = []
        self._msis: list[bytes] = []
        self.captured = 0  # bus and device number, as the upper bits of an ID
        self.counts: Counter[str] = Counter()
        self.errors = GoldenErrors(self)
        self.limits: list[tuple[int, bytes]] = []  # Set_Slot_Power_Limit to slots
        self._linked = [False] * ports
        self.identity = identity or Identity()
        self.places = GoldenPlaceholders(self, ports, maps.placeholder)

    def link_active(self, port: int) -> bool:
        """Whether the slot has a link to a GPU."""
        return bool(self.present[port] and self.link_up[port] and self.places.free(port)
                    and self.opens(port))

    def opens(self, port: int) -> bool:
        """Whether nothing in the port keeps a link down."""
        f = self.down[port]
        return bool(not f.in_dpc() and not f.get("Link Control", "Link Disable")
                and not f.fields.get(("Slot Control", "Power Controller Control"))
                and not f.get("Bridge Control", "Secondary Bus Reset")
                and not self.up.get("Bridge Control", "Secondary Bus Reset"))

    def identifier(self, port: int) -> int:
        """Requester and completer ID of a downstream port."""
        return self.up.buses()[0] << 8 | port << 3

    def set_live(self) -> None:
        """Update presence and link state of all slots."""
        for port in range(len(self.down)):
            if self._linked[port] and not self.link_active(port):
                self._lose(port)
            self.places.step(port)
            self._show(port)
            if self.places.software(port):
                self._show(port)
            if self.link_active(port) and not self._linked[port] and not self.down[port].fields.get(
                    ("Slot Control", "Auto Slot Power Limit Disable")):
                self._limit(port)
            self._linked[port] = self.link_active(port)
            if not self.link_active(port) or not self.down[port].get("Device Control 2",
                                                                     "LTR Mechanism Enable"):
                self._latencies.pop(port, None)  # invalid from now on (6.18)
            if not self.link_active(port):
                self._pins[port] = [False] * 4  # DL_Down (2.2.8.1)
                if self._acks_due:
                    self._acks_due.discard(port)
        self._gather()

    def _show(self, port: int) -> None:
        free, held = self.places.free(port), self.places.place[port] == "placeholder"
        self.down[port].set_slot(held or free and self.present[port],
                                 self.places.held(port) or self.link_active(port))

    def _lose(self, port: int) -> None:
        """A link is lost: Surprise Down, or one of the exceptions (3.2.1)."""
        expected = port in self._told_off or self.orderly[port] or not self.opens(port)
        self._told_off.discard(port)
        if self.identity.slot.dpc and not expected:
            self.errors.report(self.down[port], SURPRISE_DOWN, advisory=False)

    def _limit(self, port: int) -> None:
        """Send Set_Slot_Power_Limit to a slot, when the link comes up or the limit is written
        (6.9)."""
        f = self.down[port]
        data = bytes([f.get("Slot Capabilities", "Slot Power Limit Value"),
                      f.get("Slot Capabilities", "Slot Power Limit Scale"), 0, 0])
        self.limits.append((port, Tlp(
            Fmt.HEADER_4_DATA, Type.MESSAGE_LOCAL, length=1, requester_id=self.identifier(port),
            message_code=0x50, payload=data).pack()))

    # Hot-plug interrupts (6.7.3.4, 6.1.4, 2.2.8.1).

    def press(self, port: int) -> None:
        """Press the attention button of a slot."""
        self.down[port].set_status("Slot Status", "Attention Button Pressed")

    def interrupts(self) -> tuple[list[bytes], list[bytes]]:
        """INTx messages and MSIs that are due; to be called after each single step."""
        self.set_live()
        self._signal()
        out = self._messages + self.errors.messages, self._msis
        self._messages, self._msis, self.errors.messages = [], [], []
        return out

    def malformed(self, header: bytes, port: int = UP) -> None:
        """Report a malformed TLP received by a port; at a slot only if the link is up."""
        if port == UP or self.link_active(port):
            self.errors.report(self._bridge(port), MALFORMED, header=header, advisory=False)

    def max_payload(self, port: int) -> int:
        """Largest payload that a port accepts, in bytes."""
        return 128 << self._bridge(port).get("Device Control", "Max_Payload_Size")

    def internal_error(self, port: int) -> None:
        """A downstream port has an uncorrectable internal error."""
        self.errors.report(self.down[port], INTERNAL, advisory=False)

    def _signal(self) -> None:
        self._signal_wires()
        self._wake_up()
        self._report_latency()
        self._msis += [self._msi(n) for n in range(len(self.down)) for _ in range(self._due(n))]

    def _report_latency(self) -> None:
        """Send the latency tolerance of all slots upstream when it changes (6.18); without
        delay."""
        if not self.up.get("Device Control 2", "LTR Mechanism Enable"):
            self._told_latency = [0, 0]
            return
        now = [conglomerate([pair[kind] for pair in self._latencies.values()],
                            self.identity.latency) for kind in range(2)]
        if now != self._told_latency:
            self._told_latency = now
            raw = bytearray(Tlp(Fmt.HEADER_4, Type.MESSAGE_LOCAL, message_code=0x10,
                                requester_id=self.captured).pack())
            raw[12:16] = now[1].to_bytes(2, "big") + now[0].to_bytes(2, "big")
            self._messages.append(bytes(raw))

    def _wake_up(self) -> None:
        """Send PM_PME when a port begins to request a wake-up; without delay."""
        for port, f in enumerate(self.down):
            if f.asks_for_wake_up() and not self._awakes[port]:
                self._messages.append(Tlp(Fmt.HEADER_4, Type.MESSAGE_TO_ROOT, message_code=0x18,
                                          requester_id=self.identifier(port)).pack())
            self._awakes[port] = f.asks_for_wake_up()

    def _due(self, port: int) -> int:
        """Number of MSIs due.

        An MSI is due when all conditions of hot-plug, of containment or of link bandwidth have
        become true, and when a hot-plug condition remains true after software cleared an event.
        """
        f, before, cleared = self.down[port], self._armed[port], self._cleared[port]
        self._cleared[port] = False
        possible = (f.masters() and self.up.masters()
                    and bool(f.get("MSI Message Control", "MSI Enable")))
        now = (possible and f.wants_interrupt(), possible and f.wants_dpc_interrupt(),
               possible and f.wants_bandwidth_interrupt())
        self._armed[port] = now
        # All causes share one vector: when MSIs become possible, one message covers all causes.
        begins = (now[0] and (cleared or not before[0]), now[1] and not before[1],
                  now[2] and not before[2])
        enabled = possible and not self._possible[port]
        self._possible[port] = possible
        return any(begins) if enabled else sum(begins)

    def _msi(self, port: int) -> bytes:
        f = self.down[port]
        self.counts["interrupt"] += 1
        address = (f.get("MSI Message Upper Address", "Address [63:32]") << 32
                   | f.get("MSI Message Address", "Address [31:2]") << 2)
        return Tlp(Fmt.HEADER_4_DATA if address >> 32 else Fmt.HEADER_3_DATA, Type.MEMORY,
                   length=1, requester_id=self.identifier(port), first_be=0xF, address=address,
                   payload=f.get("MSI Message Data", "Data").to_bytes(4, "little")).pack()

    def _signal_wires(self) -> None:
        """Swizzle the INTx pins of the ports by device number, and combine them.

        Table 2-19: below a bridge with device number d, pin p is pin (p + d) mod 4 above.
        """
        for wire in range(4):
            level = any(pins[p] for d, pins in enumerate(self._pins) for p in range(4)
                        if (p + d) % 4 == wire) or any(f.wants_any_interrupt() and f.in_d0()
                        and not f.get("MSI Message Control", "MSI Enable")
                        and not f.get("Command", "Interrupt Disable")
                        for f in self.down[wire::4])
            if level != self._wires[wire]:
                self._wires[wire] = level
                self.counts["interrupt"] += 1
                self._messages.append(Tlp(
                    Fmt.HEADER_4, Type.MESSAGE_LOCAL, requester_id=self.captured,
                    message_code=(0x20 if level else 0x24) + wire).pack())

    @property
    def wires(self) -> list[bool]:
        """INTx wires of the upstream port, as last signalled upstream."""
        return list(self._wires)

    # Power-down (5.3.3.2.1).

    @property
    def asked_to_turn_off(self) -> bool:
        """Whether a PME_Turn_Off still lacks answers of slots."""
        return self._acks_due is not None

    @property
    def gathering(self) -> list[int]:
        """Slots that have not answered PME_Turn_Off yet."""
        return sorted(self._acks_due or ())

    def _gather(self) -> None:
        """Send one PME_TO_Ack up when all asked slots with a link have answered."""
        if self._acks_due is not None and not self._acks_due:
            self._acks_due = None
            self._messages.append(Tlp(Fmt.HEADER_4, Type.MESSAGE_GATHER, message_code=0x1B,
                                      requester_id=self.captured).pack())

    # Requests to the switch's own ports.

    def _config(self, function: GoldenFunction, request: Tlp, info: Info,
                completer: int) -> list[tuple[int, bytes]]:
        """Carry out a configuration request (7.2, 2.3.1)."""
        assert info.register is not None
        if info.is_write and info.ep:
            # Poisoned: discarded (2.7.2.2).
            raise _Refused(UP if function.port is None else function.port)
        self.counts["config"] += 1
        data = b""
        if info.is_write:
            self._write(function, info.register, request.first_be, request.payload)
        else:
            self.set_live()
            data = function.read(info.register).to_bytes(4, "little")
        status: Code = CompletionStatus.SC
        return [(UP, complete(request, status, completer, data).pack())]

    def _write(self, function: GoldenFunction, dword: int, enables: int, data: bytes) -> None:
        def bus_reset() -> int:
            return self.up.get("Bridge Control", "Secondary Bus Reset")

        self.set_live()
        before = bus_reset()
        if function is not self.up and dword == 0x78 // 4:
            self._cleared[self.down.index(function)] = bool(
                function.read(dword) & int.from_bytes(data, "little") & 0x0119_0000
                & sum(0xFF << 8 * n for n in range(4) if enables >> n & 1))
        function.write(dword, enables, int.from_bytes(data, "little"))
        command = (function is not self.up and dword == 0x78 // 4 and enables & 3
                   and self.identity.slot.command_completed)
        if command:
            function.set_status("Slot Status", "Command Completed")
        port = function.port
        if function.has_dpc and dword == 0x174 // 4 and enables & 4 and data[2] & 0x40:
            # Software Trigger, with the Trigger Enable of the same write (7.9.15.3).
            enabled = function.get("DPC Control", "DPC Trigger Enable") in (1, 2)
            if enabled and not function.in_dpc():
                self.errors.contain(function, reason=3, extension=1)
        if port is not None and dword == 0x74 // 4 and self.link_active(port):
            self._limit(port)
        if port is not None and dword == 0x70 // 4 and enables & 1 and data[0] & 0x20 and (
                not data[0] & 0x10):
            function.retrain()
        self._signal()  # links follow the write a moment later
        # Secondary Bus Reset of the upstream port resets everything below it.
        if (before or bus_reset()) and function is self.up and dword == 0x3C // 4:
            for f in self.down:
                f.reset(hot=True)
        self.set_live()

    def _config_from_upstream(self, raw: bytes, request: Tlp,
                              info: Info) -> list[tuple[int, bytes]]:
        assert info.target_id is not None
        bus, device, function = (info.target_id >> 8, info.target_id >> 3 & 31,
                                 info.target_id & 7)
        if not info.is_type1:
            if function:
                raise _Refused(UP)
            own = self.captured
            if info.is_write and not info.ep:
                own = self.captured = info.target_id  # captured (2.2.6.2)
            return self._config(self.up, request, info, own)
        if not self.up.has_bus(bus):
            raise _Refused(UP)
        if bus == self.up.buses()[0]:
            if device >= len(self.down) or function:
                raise _Refused(UP)
            return self._config(self.down[device], request, info, self.identifier(device))
        for port, bridge in enumerate(self.down):
            if bridge.has_bus(bus):
                if bus != bridge.buses()[0]:
                    return self._to_slot(port, raw, info)
                ari = bridge.get("Device Control 2", "ARI Forwarding Enable")
                if device and not ari:
                    raise _Refused(port)
                at = 4 * info.prefix_dwords
                return self._to_slot(port, raw[:at] + bytes([raw[at] & ~1]) + raw[at + 1:], info)
        raise _Refused(UP)

    def _to_slot(self, port: int, raw: bytes, info: Info) -> list[tuple[int, bytes]]:
        f = self.down[port]
        if not self.link_active(port) and not self.places.held(port):
            # No port reports an error; containment selects the completion status (2.9.1, 2.9.3).
            raise _Refused(port, None, aborts=f.in_dpc() and not f.get(
                "DPC Control", "DPC Completion Control"))
        if (error := f.blocks(info)) is not None:
            raise _Refused(port, error)
        if self.places.held(port):
            answer = self.places.takes(port, raw)
            if answer is None:
                self.places.refuses(port, info)
                raise _Refused(port, None, self.places.captured[port])
            self.counts["config"] += 1
            return [(UP, answer)]
        return [(port, raw)]

    def _bridge(self, port: int) -> GoldenFunction:
        return self.up if port == UP else self.down[port]

    def _refuse(self, raw: bytes, info: Info, refused: _Refused, back: int,
                side: int) -> list[tuple[int, bytes]]:
        """Unsupported Request handling (2.3.1), unexpected completions (2.3.2)."""
        name = {TlpClass.P: "unclaimed", TlpClass.NP: "unsupported", TlpClass.CPL: "unexpected"}
        self.counts[f"{name[info.cls]}{side}"] += 1
        error = refused.error
        if error == UNSUPPORTED and info.cls is TlpClass.CPL:
            error = UNEXPECTED
        if error is not None:
            self._lost(refused.port, error, raw, info)
        return self._answer(raw, info, refused.port, refused.status, back, refused.who)

    def _answer(self, raw: bytes, info: Info, port: int, status: Code, back: int,
                who: int | None = None) -> list[tuple[int, bytes]]:
        """Completion of a non-posted TLP by port ``port``, or by ``who``; nothing for other
        TLPs."""
        if info.cls is not TlpClass.NP:
            return []
        if who is None:
            who = self.captured if port == UP else self.identifier(port)
        return [(back, complete(Tlp.unpack(raw), status, who).pack())]

    def _lost(self, port: int, error: str, raw: bytes, info: Info) -> None:
        """End a TLP with an error, advisory for non-posted requests and unexpected completions
        (6.2.3.2.4).

        The error of a poisoned TLP is not advisory: the port is the ultimate receiver.
        """
        advisory = info.cls is TlpClass.NP or error == UNEXPECTED
        header, prefixes = self._header(raw, info)
        self.errors.report(self._bridge(port), error, header=header, prefixes=prefixes,
                           advisory=advisory and not (info.ep and info.payload_dwords))

    @staticmethod
    def _header(raw: bytes, info: Info) -> tuple[bytes, bytes]:
        """Header and prefixes, as logged (6.2.4.4)."""
        at = 4 * info.prefix_dwords
        return raw[at:at + 4 * info.header_dwords], raw[:at]

    def _arrives(self, port: int, raw: bytes, info: Info, way: int | None, lost: bool) -> None:
        """Record in the bridges that a TLP came in at ``port`` and leaves by ``way``."""
        bridge = self._bridge(port)
        self.errors.passes(raw, info, bridge, None if way is None else self._bridge(way))
        if info.ep and info.payload_dwords and not lost:
            # A port on the way is not the receiver: advisory (6.2.3.2.4.2).
            header, prefixes = self._header(raw, info)
            self.errors.report(bridge, POISONED, header=header, prefixes=prefixes, advisory=True)

    # From the root complex.

    def from_upstream(self, raw: bytes) -> list[tuple[int, bytes]]:
        """TLPs that leave because ``raw`` came in at the upstream port."""
        info = classify(raw)
        try:
            out = self._down(raw, info)
        except _Refused as refused:
            self._arrives(UP, raw, info, None, refused.error is not None)
            return self._refuse(raw, info, refused, UP, 0)
        way = None
        if out and out[0][0] != UP and info.routing is not Routing.BROADCAST:
            way = out[0][0]
        self._arrives(UP, raw, info, way, lost=False)
        return out

    def _down(self, raw: bytes, info: Info) -> list[tuple[int, bytes]]:
        if info.is_config:
            return self._config_from_upstream(raw, Tlp.unpack(raw), info)
        if info.is_memory or info.is_io:
            if self.up.in_d0() and self.up.in_window(info):
                port = self._claimer(info)
                if port is not None:
                    return self._to_slot(port, raw, info)
            raise _Refused(UP)
        if info.routing is Routing.ID:
            assert info.target_id is not None
            bus = info.target_id >> 8
            if self.up.has_bus(bus) and bus != self.up.buses()[0]:
                for port, bridge in enumerate(self.down):
                    if bridge.has_bus(bus):
                        return self._to_slot(port, raw, info)
            if info.message_code == 0x7F and self._is_own(info.target_id):
                return []  # Vendor_Defined Type 1 (2.2.8.6)
            raise _Refused(UP)
        if info.routing is Routing.BROADCAST and info.dwords <= BROADCAST_LIMIT:
            slots = [port for port in range(len(self.down)) if self.link_active(port)]
            if info.message_code == 0x19:
                self._acks_due = set(slots)
                self._told_off.update(slots)
                self.turn_offs += 1
                self._gather()
            return [(port, raw) for port in slots]
        if info.routing is Routing.LOCAL:
            if info.message_code == 0x50 and info.payload_dwords == 1 and not info.ep:
                at = 4 * (info.prefix_dwords + info.header_dwords)
                self.up.live = {
                    ("Device Capabilities", "Captured Slot Power Limit Value"): raw[at],
                    ("Device Capabilities", "Captured Slot Power Limit Scale"): raw[at + 1] & 3}
            elif info.message_code not in IGNORED:
                raise _Refused(UP)
            return []
        raise _Refused(UP)  # messages that travel only upstream, or by address

    def _is_own(self, identifier: int) -> bool:
        """Whether a port of the switch has this identifier, as seen from above."""
        bus, device, function = identifier >> 8, identifier >> 3 & 31, identifier & 7
        if self.up.has_bus(bus) and bus == self.up.buses()[0]:
            return device < len(self.down) and not function
        return identifier == self.captured & 0xFFF8

    def _claimer(self, info: Info) -> int | None:
        """Downstream port that claims a memory or I/O request.

        The enable bit opens a window. ISA hole and power state are checked only in the first port
        whose window contains the address.
        """
        for port, bridge in enumerate(self.down):
            isa = bridge.fields["Bridge Control", "ISA Enable"]
            bridge.fields["Bridge Control", "ISA Enable"] = 0
            has = bridge.in_window(info)
            bridge.fields["Bridge Control", "ISA Enable"] = isa
            if has:
                return port if bridge.in_window(info) and bridge.in_d0() else None
        return None

    # From the slots.

    def from_slot(self, port: int, raw: bytes) -> list[tuple[int, bytes]]:
        """TLPs that leave because ``raw`` came in from a slot."""
        info = classify(raw)
        if not self.link_active(port):
            self.counts["fenced"] += 1
            return []
        bridge = self.down[port]

        def acs(name: str) -> bool:
            return bool(bridge.get("ACS Control", f"ACS {name} Enable"))

        # A blocked TLP counts only as an ACS violation (6.12.1.1). The requester ID blocks nothing
        # else:
        # requests are routed by address or by their route field (2.2.4, 2.2.8).
        if info.cls is not TlpClass.CPL:
            assert info.requester_id is not None
            foreign = not bridge.has_bus(info.requester_id >> 8)
            violation = (foreign and acs("Source Validation")
                         or bool(info.is_memory and info.at) and acs("Translation Blocking"))
            if violation or foreign and self.identity.slot.strict_source:
                self.counts["blocked"] += 1
                self._arrives(port, raw, info, None, lost=True)
                self._lost(port, ACS_VIOLATION if violation else UNSUPPORTED, raw, info)
                if violation and info.cls is TlpClass.NP:
                    bridge.set_status("Secondary Status", "Signaled Target Abort")
                status: Code = CompletionStatus.CA if violation else CompletionStatus.UR
                return self._answer(raw, info, port, status, port)
        try:
            out = self._upward(port, raw, info)
        except _Refused as refused:
            self._arrives(port, raw, info, None, refused.error is not None)
            return self._refuse(raw, info, refused, port, 1)
        self._arrives(port, raw, info, out[0][0] if out else None, lost=False)
        if info.routing is Routing.TO_ROOT:
            assert info.message_code is not None and info.requester_id is not None
            self.errors.received(bridge, info.message_code, info.requester_id)
        return out

    def _upward(self, port: int, raw: bytes, info: Info) -> list[tuple[int, bytes]]:
        bridge = self.down[port]

        def acs(name: str) -> bool:
            return bool(bridge.get("ACS Control", f"ACS {name} Enable"))

        if info.is_config:
            raise _Refused(port)
        if info.is_memory or info.is_io:
            if not bridge.masters():
                raise _Refused(port)
            target = self._claimer(info)
            inside = self.up.in_window(info)
            redirected = acs("P2P Request Redirect") and not (
                info.is_memory and info.at == 2 and acs("Direct Translated P2P"))
        elif info.routing is Routing.ID:
            assert info.target_id is not None
            bus = info.target_id >> 8
            target = next((n for n, b in enumerate(self.down) if b.has_bus(bus)), None)
            # The switch makes no requests: completions for its upstream port end there (2.3.2).
            inside = self.up.has_bus(bus) or (
                info.target_id == self.captured and self.captured >> 8 != 0)
            redirected = acs("P2P Request Redirect")
            if info.cls is TlpClass.CPL:
                redirected = acs("P2P Completion Redirect") and not info.attr & 2
        elif info.routing is Routing.TO_ROOT:
            assert info.message_code is not None
            if self.errors.triggers(bridge, info.message_code):
                return []  # discarded (6.2.10)
            if info.message_code in (0x30, 0x31, 0x33) and not all(
                    self.errors.lets_up(b, info.message_code) for b in (bridge, self.up)):
                return []
            return self._out(raw, info)
        elif info.routing is Routing.GATHER and info.message_code == 0x1B:
            if self._acks_due is not None:
                self._acks_due.discard(port)
                self._gather()
            return []
        elif info.routing is Routing.LOCAL:
            assert info.message_code is not None
            if (info.message_code == 0x10 and not info.payload_dwords
                    and bridge.get("Device Control 2", "LTR Mechanism Enable")):
                at = 4 * info.prefix_dwords + 12
                self._latencies[port] = (int.from_bytes(raw[at + 2:at + 4], "big"),
                                         int.from_bytes(raw[at:at + 2], "big"))
                return []
            if 0x20 <= info.message_code < 0x28:
                self._pins[port][info.message_code & 3] = info.message_code < 0x24
                return []
            if info.message_code not in IGNORED:
                raise _Refused(port)
            return []
        else:
            raise _Refused(port)
        return self._choose(port, raw, info, target, inside, redirected)

    def _choose(self, port: int, raw: bytes, info: Info, target: int | None, inside: bool,
                redirected: bool) -> list[tuple[int, bytes]]:
        """Peer, upstream or nowhere (6.12.1 to 6.12.3)."""
        if target == port:
            # Back to the port of origin: legal only with Upstream Forwarding.
            if self.down[port].get("ACS Control", "ACS Upstream Forwarding Enable"):
                return self._out(raw, info)
            raise _Refused(port)
        if target is not None:
            if redirected:
                return self._out(raw, info)
            out = self._to_slot(target, raw, info)
            self.counts["peer"] += 1
            return out
        if inside:
            raise _Refused(port)
        return self._out(raw, info)

    def _out(self, raw: bytes, info: Info) -> list[tuple[int, bytes]]:
        """Through the upstream port."""
        if (info.is_memory or info.is_io) and not self.up.masters():
            raise _Refused(UP)
        if (error := self.up.blocks(info)) is not None:
            raise _Refused(UP, error)
        return [(UP, raw)]
