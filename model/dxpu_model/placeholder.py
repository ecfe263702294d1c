"""Golden placeholder endpoints, from PCIe Base 5.0: 2.2.6.2, 2.3.1, 6.6.1, 6.7.3, 7.5.1."""

from typing import Any, Protocol

from dxpu.switch.config.identity import Identity
from dxpu.tlp.types import CompletionStatus

from .switch_function import GoldenFunction, RegisterMap
from .tlp import Info, Tlp, classify, complete

__all__ = ["GoldenPlaceholders"]

#: Slot Control, Power Indicator Control: off.
OFF = 3


class _Switch(Protocol):
    """Part of the switch used by the placeholders; see :class:`~dxpu_model.switch.GoldenSwitch`."""

    identity: Identity
    present: list[bool]
    down: list[GoldenFunction]

    def opens(self, port: int) -> bool:
        """Whether nothing in the port keeps a link down."""


class GoldenPlaceholders:
    """Owner of each slot of a switch: first the placeholder, then nobody, then the GPU.

    Without placeholders the GPU owns all slots. The model has no time: a slot belongs to nobody
    until software has done its part.
    """

    def __init__(self, switch: _Switch, ports: int, fmap: RegisterMap):
        identity = switch.identity
        self.switch = switch
        self.bound = [False] * ports
        self.place = ["placeholder" if identity.placeholder else "gpu"] * ports
        self.functions = [GoldenFunction(n, fmap, identity) for n in range(ports)]
        self.captured = [0] * ports  # identifiers
        self._linked = [False] * ports

    def free(self, port: int) -> bool:
        """Whether the GPU owns the slot."""
        return self.place[port] == "gpu"

    def held(self, port: int) -> bool:
        """Whether the placeholder owns the slot and has a link."""
        return self.place[port] == "placeholder" and self.switch.opens(port)

    def reset(self) -> None:
        """Conventional reset of the switch: unwanted slots go back to the placeholder."""
        if self.switch.identity.placeholder:
            self.place = ["gpu" if self._wanted(n) else "placeholder"
                          for n in range(len(self.place))]
            for port in range(len(self.place)):
                self._renew(port)

    def step(self, port: int) -> None:
        """Update a slot that is wanted now, or whose link is lost; :meth:`software` follows."""
        if self.place[port] == "placeholder" and self._wanted(port):
            self.place[port] = "nobody"
        if self._linked[port] and not self.held(port):
            self._renew(port)  # a hot reset (6.6.1)
        self._linked[port] = self.held(port)

    def software(self, port: int) -> bool:
        """Whether software has just acknowledged that the slot is empty."""
        f = self.switch.down[port]
        known = (self.place[port] == "nobody" and f.get("Slot Control",
                                                        "Power Indicator Control") == OFF
                 and not f.get("Slot Status", "Presence Detect Changed")
                 and not f.get("Slot Status", "Data Link Layer State Changed"))
        if known:
            self.place[port] = "gpu"
        return known

    def takes(self, port: int, raw: bytes) -> bytes | None:
        """Carry out a request, and return its completion; ``None`` for an unsupported request."""
        info, request = classify(raw), Tlp.unpack(raw)
        if not self._supports(info):
            return None
        assert info.target_id is not None and info.register is not None
        function, data = self.functions[port], b""
        if info.is_write:
            self.captured[port] = info.target_id
            function.write(info.register, request.first_be,
                           int.from_bytes(request.payload, "little"))
        else:
            # The placeholder shows the link of the port.
            function.live["Link Status", "Current Link Speed"] = self.switch.down[port].speed
            data = function.read(info.register).to_bytes(4, "little")
        status: Any = CompletionStatus.SC
        return complete(request, status, self.captured[port], data).pack()

    def refuses(self, port: int, info: Info) -> None:
        """Record an unsupported TLP as an error (6.2.3.2.4, 7.5.3.5)."""
        if info.message_code == 0x7F:
            return  # Vendor_Defined Type 1 is no error (2.2.8.6)
        kind = info.cls.name
        names = {"P": ("Non-Fatal Error Detected", "Unsupported Request Detected"),
                 "NP": ("Correctable Error Detected", "Unsupported Request Detected"),
                 "CPL": ("Correctable Error Detected",)}
        for name in names[kind]:
            self.functions[port].set_status("Device Status", name)

    @staticmethod
    def _supports(info: Info) -> bool:
        """Type 0 configuration requests for its one function, if writes are not poisoned."""
        return bool(info.is_config and not info.is_type1 and not (info.target_id or 0) & 0xFF
                    and not (info.is_write and info.ep))

    def _wanted(self, port: int) -> bool:
        return self.bound[port] or self.switch.present[port]

    def _renew(self, port: int) -> None:
        self.functions[port].reset()
        self.captured[port] = 0
