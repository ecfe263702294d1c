"""Requests of a slot's device to the host, and of the host to the device, TLP by TLP.

No sockets and no clocks. Ref: PCI Express Base Specification 5.0, 2.2 and 2.3
"""

import logging
from collections import Counter, deque
from typing import Any, Protocol

from dxpu.tlp.types import Malformed, TlpClass, Type
from dxpu_model.tlp import Tlp, classify, malformed

from .box import Box, TlpCame
from .errors import HostError, SlotLost
from .memory import Memory
from .requests import Request, Requests
from .tlp import Status, completions, enabled_runs, requested_bytes

__all__ = ["INTERRUPTS", "Function", "HostSlot", "interrupt_address"]

log = logging.getLogger("dxpu.host")

#: Address range of MSIs: first address, and first address behind.
INTERRUPTS = (0xFEE0_0000, 0xFEF0_0000)


def interrupt_address(identifier: int) -> int:
    """Address to which the function with this bus, device and function number writes its MSIs."""
    return INTERRUPTS[0] | identifier << 4


class Function(Protocol):
    """Part of a function used by a slot; see :class:`~.device.Device`."""

    @property
    def address(self) -> str:
        """Bus, device and function as ``bb:dd.f``."""

    def interrupted(self, vector: int) -> None:
        """Handle an MSI."""


class HostSlot:
    """A slot with a present or former binding: DMA, interrupts and completions of its device.

    Parameters
    ----------
    box : :class:`~.box.Box`
    number : int
    buses : range
        Bus numbers for the devices in the slot.
    memory : :class:`~.memory.Memory`
    interrupts : deque
        Gets a pair of device and vector for each interrupt.
    counters : Counter
        ``dma_read``, ``dma_write``, ``interrupt``, ``message``, and causes of refused or dropped
        TLPs: ``malformed``, ``blocked`` (requester ID of another slot), ``unclaimed`` (no such
        memory), ``poisoned``, ``failed`` (a handler raised an exception), ``unexpected`` (a
        completion that fits no open request).

    Attributes
    ----------
    max_payload : int
        Largest payload that the device accepts in a TLP, in bytes.
    devices : dict
        Devices found in the slot in this life, by bus, device and function number.
    bus
        The devices as a tree; set by the set-up.
    error
        Reason why the slot is not ready; ``None`` if it is ready.
    lives : int
        Number of lives begun so far.
    """

    #: Classes of the parts, for tests.
    REQUESTS = Requests

    def __init__(self, box: Box, number: int, buses: range, memory: Memory,
                 interrupts: deque[tuple[Function, int]], counters: Counter[str]) -> None:
        self.box, self.number, self.buses = box, number, buses
        self._memory, self._interrupts, self.counters = memory, interrupts, counters
        self.requests = self.REQUESTS()
        self.max_payload = 128
        self.devices: dict[int, Function] = {}
        self.error: HostError | None = SlotLost(f"slot {number} is not bound")
        self.lives = 0

    def ready(self) -> None:
        """Begin a life."""
        self.error, self.max_payload = None, 128
        self.lives += 1

    def down(self, error: HostError) -> None:
        """End the life, because of ``error``."""
        self.error = error
        self.requests.fail(error)
        self.devices = {}

    def check(self, life: int | None = None) -> None:
        """Raise :attr:`error`, if any, or :exc:`SlotLost` if the life with number ``life`` is
        over."""
        if self.error is not None:
            raise self.error
        if life is not None and life != self.lives:
            raise SlotLost(f"slot {self.number} of box {self.box.link.address.peer:#05x} was reset "
                           "since its device was found; enumerate again")

    # Requests of the host.

    def request(self, tlp: Tlp, deadline: float) -> Request:
        """Send a non-posted request; a tag must be free."""
        self.check()
        request = self.requests.add(tlp, deadline)
        self.box.send(self.number, tlp.pack())
        return request

    def post(self, tlp: Tlp) -> None:
        """Send a posted request."""
        self.check()
        self.box.send(self.number, tlp.pack())

    # Requests of the device.

    def came(self, event: TlpCame) -> None:
        """Handle a TLP of the device."""
        if malformed(event.tlp, completer=True) is not Malformed.NONE:
            self.counters["malformed"] += 1
            event.done()
            return
        tlp, cls = Tlp.unpack(event.tlp), classify(event.tlp).cls
        if cls is TlpClass.CPL:
            if not self.requests.complete(tlp):
                self.counters["unexpected"] += 1
            event.done()
            return
        stranger = tlp.requester_id >> 8 not in self.buses
        if stranger:
            self.counters["blocked"] += 1
        if cls is TlpClass.NP:
            self._answer(tlp, *((None, Status.UR) if stranger else self._read(tlp)), event)
            return
        if tlp.type != Type.MEMORY:
            self.counters["message"] += 1
        elif not stranger:
            self._write(tlp)
        event.done()

    def _read(self, tlp: Tlp) -> tuple[bytes | None, Any]:
        """Answer to a request: data, or the status to be sent without data."""
        region = None
        if tlp.type == Type.MEMORY:
            address, length = requested_bytes(tlp)
            region = self._memory.find(address, length)
        if region is None:
            self.counters["unclaimed"] += 1
            return None, Status.UR
        self.counters["dma_read"] += 1
        if not tlp.first_be:
            return bytes(length), Status.SC  # a read of zero length
        try:
            data = bytes(region.read(address, length))
        except Exception:
            log.exception("read of %d bytes at %#x", length, address)
            self.counters["failed"] += 1
            return None, Status.CA
        if len(data) != length:
            log.error("a handler gave %d bytes of %d at %#x", len(data), length, address)
            self.counters["failed"] += 1
            return None, Status.CA
        return data, Status.SC

    def _answer(self, tlp: Tlp, data: bytes | None, status: Any, event: TlpCame) -> None:
        """Send completions; the request counts as handled when the last completion has left."""
        parts = list(completions(tlp, data, self.max_payload, status=status))
        for part in parts:
            self.box.send(self.number, part, event.done if part is parts[-1] else None)

    def _write(self, tlp: Tlp) -> None:
        if tlp.ep:
            self.counters["poisoned"] += 1
            return
        for address, data in enabled_runs(tlp):
            if INTERRUPTS[0] <= address < INTERRUPTS[1]:
                self._interrupt(address, data)
                continue
            region = self._memory.find(address, len(data))
            if region is None:
                self.counters["unclaimed"] += 1
                continue
            self.counters["dma_write"] += 1
            try:
                region.write(address, data)
            except Exception:
                log.exception("write of %d bytes at %#x", len(data), address)
                self.counters["failed"] += 1

    def _interrupt(self, address: int, data: bytes) -> None:
        device = self.devices.get(address - INTERRUPTS[0] >> 4)
        if device is None or address & 15:
            self.counters["unclaimed"] += 1
            return
        self.counters["interrupt"] += 1
        self._interrupts.append((device, int.from_bytes(data, "little")))
