"""Golden error reporting of a switch, from PCIe Base 5.0, 6.2, 7.5.1, 7.5.3, 7.8.4 and 7.9.15."""

from typing import Any

from dxpu.tlp.types import Fmt, Type

from .tlp import Tlp

__all__ = ["ACS_VIOLATION", "ATOMIC_BLOCKED", "INTERNAL", "MALFORMED", "POISONED",
           "PREFIX_BLOCKED", "SURPRISE_DOWN", "UNEXPECTED", "UNSUPPORTED", "GoldenErrors"]

# Field names of the AER registers.
POISONED = "Poisoned TLP Received"
UNEXPECTED = "Unexpected Completion"
MALFORMED = "Malformed TLP"
UNSUPPORTED = "Unsupported Request Error"
ACS_VIOLATION = "ACS Violation"
SURPRISE_DOWN = "Surprise Down Error"
INTERNAL = "Uncorrectable Internal Error"
ATOMIC_BLOCKED = "AtomicOp Egress Blocked"
PREFIX_BLOCKED = "TLP Prefix Blocked"

ERR_COR, ERR_NONFATAL, ERR_FATAL = 0x30, 0x31, 0x33


class GoldenErrors:
    """Errors that the bridges of a switch record, and their error messages.

    ``switch`` is the :class:`~dxpu_model.switch.GoldenSwitch`. ``messages`` collects the error
    messages of the switch's own ports that leave upstream.
    """

    def __init__(self, switch: Any):
        self.switch = switch
        self.messages: list[bytes] = []

    # Status bits set by passing TLPs (7.5.1.1.4 and 7.5.1.3.7).

    def passes(self, raw: bytes, info: Any, entry: Any, exit: Any) -> None:
        """``raw`` comes in at bridge ``entry`` and leaves by bridge ``exit``, unless ``exit`` is
        None.

        From the link of the upstream port a TLP goes down. From a slot a TLP goes up to the
        internal bus, and from there up through the upstream port or down through another downstream
        port.
        """
        up = self.switch.up
        self._receives(entry, entry is up, raw, info)
        if exit is not None:
            self._sends(entry, entry is not up, raw, info)
            self._receives(exit, exit is not up, raw, info)
            self._sends(exit, exit is up, raw, info)

    @staticmethod
    def _note(bridge: Any, primary: bool, name: str) -> None:
        bridge.set_status("Status" if primary else "Secondary Status", name)

    @staticmethod
    def _poisoned(raw: bytes, info: Any) -> bool:
        """EP has a meaning only for TLPs with data (2.7.2.1)."""
        return bool(info.ep and info.payload_dwords)

    @staticmethod
    def _watches_parity(bridge: Any, primary: bool) -> bool:
        if primary:
            return bool(bridge.get("Command", "Parity Error Response"))
        return bool(bridge.get("Bridge Control", "Parity Error Response Enable"))

    def _receives(self, bridge: Any, primary: bool, raw: bytes, info: Any) -> None:
        completion = info.cls.name == "CPL"
        if self._poisoned(raw, info):
            self._note(bridge, primary, "Detected Parity Error")
            if completion and self._watches_parity(bridge, primary):
                self._note(bridge, primary, "Master Data Parity Error")
        # The bits of the secondary side are about requests of the bridge itself; it has none
        # (7.5.1.3.7).
        if completion and primary and info.status == 4:
            self._note(bridge, primary, "Received Target Abort")
        elif completion and primary and info.status not in (0, 2):
            self._note(bridge, primary, "Received Master Abort")

    def _sends(self, bridge: Any, primary: bool, raw: bytes, info: Any) -> None:
        if (info.cls.name != "CPL" and self._poisoned(raw, info)
                and self._watches_parity(bridge, primary)):
            self._note(bridge, primary, "Master Data Parity Error")

    # Error messages that pass a bridge from below (6.2.6; 7.5.1.1.3, 7.5.1.3.12).

    def lets_up(self, bridge: Any, code: int) -> bool:
        """Whether the bridge forwards an error message with this code; sets the bridge's status
        bits."""
        severe = code != ERR_COR
        if severe:
            self._note(bridge, False, "Received System Error")
        if not bridge.get("Bridge Control", "SERR# Enable"):
            return False
        if severe:
            if not self._signals(bridge, code):
                return False
            if bridge.get("Command", "SERR# Enable"):
                self._note(bridge, True, "Signaled System Error")
        return True

    @staticmethod
    def _signals(bridge: Any, code: int) -> bool:
        enable = {ERR_COR: "Correctable", ERR_NONFATAL: "Non-Fatal", ERR_FATAL: "Fatal"}[code]
        serr = code != ERR_COR and bridge.get("Command", "SERR# Enable")
        return bool(serr or bridge.get("Device Control", f"{enable} Error Reporting Enable"))

    # Errors detected by a port itself: the flow chart of 6.2.5.

    def report(self, bridge: Any, error: str, *, advisory: bool, header: bytes = b"",
               prefixes: bytes = b"") -> None:
        """Report an uncorrectable error.

        ``advisory``: one of the cases of 6.2.3.2.4, which apply only to non-fatal severity.
        ``prefixes``: the end-to-end prefixes before ``header``.
        """
        fatal = bridge.get("Uncorrectable Error Severity", error)
        advisory = advisory and not fatal
        unsupported = error == UNSUPPORTED
        if unsupported:
            bridge.set_status("Device Status", "Unsupported Request Detected")
        bridge.set_status("Device Status", "Fatal Error Detected" if fatal else
                          "Correctable Error Detected" if advisory else "Non-Fatal Error Detected")
        if advisory:
            bridge.set_status("Correctable Error Status", "Advisory Non-Fatal Error")
            if bridge.get("Correctable Error Mask", "Advisory Non-Fatal Error"):
                return
        self._log(bridge, error, header, prefixes)
        if bridge.get("Uncorrectable Error Mask", error) and not advisory:
            return
        code = ERR_FATAL if fatal else ERR_COR if advisory else ERR_NONFATAL
        if self.triggers(bridge, code):  # instead of its message (6.2.10)
            if not bridge.in_dpc():
                self.contain(bridge, reason=0)
            return
        serr = code != ERR_COR and bridge.get("Command", "SERR# Enable")
        if unsupported and not serr and not bridge.get("Device Control",
                                                       "Unsupported Request Reporting Enable"):
            return
        if not self._signals(bridge, code):
            return
        if serr:
            bridge.set_status("Status", "Signaled System Error")
        self._send(bridge, code)

    def _send(self, bridge: Any, code: int) -> None:
        """Send a message of a port; the upstream port treats it like a message from below."""
        up = self.switch.up
        if bridge is not up and not self.lets_up(up, code):
            return
        who = self.switch.captured if bridge is up else self.switch.identifier(bridge.port)
        self.messages.append(Tlp(Fmt.HEADER_4, Type.MESSAGE_TO_ROOT, requester_id=who,
                                 message_code=code).pack())

    # Downstream Port Containment (6.2.10).

    @staticmethod
    def triggers(bridge: Any, code: int) -> bool:
        """Whether a detected error or a received message with this code contains the port."""
        if not bridge.has_dpc:
            return False
        enable = bridge.get("DPC Control", "DPC Trigger Enable")
        return bool(enable == 1 and code == ERR_FATAL
                    or enable == 2 and code in (ERR_FATAL, ERR_NONFATAL))

    def contain(self, bridge: Any, *, reason: int, source: int = 0, extension: int = 0) -> None:
        """Put the port into containment."""
        bridge.fields |= {
            ("DPC Status", "DPC Trigger Status"): 1,
            ("DPC Status", "DPC Trigger Reason"): reason,
            ("DPC Status", "DPC Trigger Reason Extension"): extension,
            ("DPC Error Source ID", "DPC Error Source ID"): source,
        }
        # Containment is no error of its own: no bit of Device Status (6.2.10.2).
        if (bridge.get("DPC Control", "DPC ERR_COR Enable")
                and bridge.get("Device Control", "Correctable Error Reporting Enable")):
            self._send(bridge, ERR_COR)
        if bridge.get("DPC Control", "DPC Interrupt Enable"):
            bridge.set_status("DPC Status", "DPC Interrupt Status")

    def received(self, bridge: Any, code: int, requester: int) -> None:
        """Handle a message from a slot to the root; a message that triggers containment ends
        here."""
        if self.triggers(bridge, code):
            self._note(bridge, False, "Received System Error")
            if not bridge.in_dpc():
                self.contain(bridge, reason={ERR_NONFATAL: 1, ERR_FATAL: 2}[code],
                             source=requester)

    def _log(self, bridge: Any, error: str, header: bytes, prefixes: bytes) -> None:
        """Set the status bit; set First Error Pointer and logs unless masked or frozen.

        Pointer and logs are frozen from the first unmasked error on, until software clears the
        status bit of that error (6.2.4.2). A masked error that sets the bit again has no influence.
        A pointer to a bit without an error means that nothing is logged.
        """
        fields = bridge.map.by_name["Uncorrectable Error Status"].fields
        control = "Advanced Error Capabilities and Control"
        bridge.set_status("Uncorrectable Error Status", error)
        if bridge.get("Uncorrectable Error Mask", error):
            return
        if bridge.first_error is not None:
            self.switch.counts["unlogged"] += 1
            return
        bridge.first_error = error
        bridge.fields |= {
            (control, "First Error Pointer"): next(f.lsb for f in fields if f.name == error),
            (control, "TLP Prefix Log Present"): int(bool(prefixes)),
        }
        logs = {f"Header Log {n}": (f"Header bytes {4 * n} to {4 * n + 3}", header)
                for n in range(4)}
        if prefixes:  # else undefined (7.8.4.12)
            logs |= {f"TLP Prefix Log {n}": (f"Prefix {n}", prefixes) for n in range(4)}
        for register, (field, source) in logs.items():
            at = 4 * int(register[-1])
            bridge.fields[register, field] = int.from_bytes(
                source[at:at + 4].ljust(4, b"\0"), "big")
