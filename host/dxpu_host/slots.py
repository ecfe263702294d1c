"""What a slot's device asks of the host, and what the host asks of it, TLP by TLP.

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

#: Addresses that an MSI is written to: from here to the second.
INTERRUPTS = (0xFEE0_0000, 0xFEF0_0000)


def interrupt_address(identifier: int) -> int:
    """Where the function with this bus, device and function number writes its MSIs."""
    return INTERRUPTS[0] | identifier << 4


class Function(Protocol):
    """A function in a slot, as far as a slot knows it; see :class:`~.device.Device`."""

    @property
    def address(self) -> str:
        """Bus, device and function as ``bb:dd.f``."""

    def interrupted(self, vector: int) -> None:
        """An MSI came."""


class HostSlot:
    """A slot that is or was bound: its device's DMA, interrupts and completions.

    Parameters
    ----------
    box : :class:`~.box.Box`
    number : int
    buses : range
        Bus numbers for what is in the slot.
    memory : :class:`~.memory.Memory`
    interrupts : deque
        Gets a pair of device and vector for each interrupt.
    counters : Counter
        ``dma_read``, ``dma_write``, ``interrupt``, ``message``, and why something was refused or
        dropped: ``malformed``, ``blocked`` (a requester ID that is not of the slot), ``unclaimed``
        (no such memory), ``poisoned``, ``failed`` (a handler raised an exception), ``unexpected``
        (a completion that no request waits for, or that does not fit it).

    Attributes
    ----------
    max_payload : int
        Bytes of payload that the device takes in a TLP.
    devices : dict
        What was found in the slot in this life, by bus, device and function number.
    bus
        The same as a tree, once it was set up.
    error
        Why the slot is not ready; ``None`` if it is.
    lives : int
        How many have begun.
    """

    #: What it consists of.
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
        """A life has begun."""
        self.error, self.max_payload = None, 128
        self.lives += 1

    def down(self, error: HostError) -> None:
        """The life is over, because of ``error``."""
        self.error = error
        self.requests.fail(error)
        self.devices = {}

    def check(self, life: int | None = None) -> None:
        """Raise what :attr:`error` is, or that ``life``, the number of one, is over."""
        if self.error is not None:
            raise self.error
        if life is not None and life != self.lives:
            raise SlotLost(f"slot {self.number} of box {self.box.link.address.peer:#05x} was reset "
                           "since its device was found; enumerate again")

    # What the host asks.

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

    # What the device asks.

    def came(self, event: TlpCame) -> None:
        """A TLP came."""
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
        """What a request gets: data, and the status that it gets if there is none."""
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
        """Send completions; the request counts as dealt with when the last has left."""
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
