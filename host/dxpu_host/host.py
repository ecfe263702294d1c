"""A host in software: sessions with boxes, slots, devices, memory.

Ref: docs/reference/host.md
"""

import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING

from dxpu.fabric.wire.format import NODE_UNASSIGNED, CreditClass
from dxpu_model.tlp import Tlp

from .box import Box
from .device import Bus, Device
from .errors import HostError, PortError, SessionLost, SlotLost, Timeout
from .link import Address
from .loop import Loop
from .memory import Memory, Region
from .port import Port
from .requests import Request, Retry
from .scan import Windows, scan
from .session import TagSource
from .slots import INTERRUPTS, HostSlot
from .timers import Timers

if TYPE_CHECKING:
    from dxpu_model.opening import Keys

__all__ = ["Host"]

#: Bytes of a key.
KEY_BYTES = 16

log = logging.getLogger("dxpu.host")


class Host(Loop):
    """Uses devices in slots of boxes over a port.

    A context manager: at the end all slots are unbound and the port is closed. During all waiting
    calls (bind, registers, memory) everything else goes on: DMA is served, interrupts are
    delivered. Between such calls the program must call :meth:`poll` from time to time, or
    :meth:`start` a thread once.

    Parameters
    ----------
    port : :class:`~.port.Port`
    node : int
        Node number of this host.
    path : int
        Path number in the frames.
    timers : :class:`~.timers.Timers`
    max_payload, max_read : int
        Largest payload of a TLP, and largest read request, in bytes: powers of two, from 128 to 512
        and to 4096.
    packing : int
        Largest Ethernet payload, in bytes, up to which TLPs share a frame.
    boot : int
        Boot counter, by which boxes may recognise a restarted host; default random.
    now : function
        Returns seconds.
    rng : random.Random
        Source of tags and nonces; default the system's.
    key : bytes
        Of 16 bytes: the key of this host and its boxes. Without it sessions are opened in clear:
        whoever reaches the fabric may take them over.

    Attributes
    ----------
    memory : :class:`~.memory.Memory`
    in_flight : int
        Requests of one access under way at a time, 32 at first: as soon as the oldest one is
        answered the next one is sent.
    counters : Counter
        See :class:`~.loop.Loop`.
    """

    #: Classes of the parts, for tests.
    BOX, SLOT = Box, HostSlot
    #: Number of bus numbers for each slot; the first slot begins with 1.
    BUSES = 8
    #: Writes of one access that are given to the link at a time.
    POSTED = 32

    def __init__(self, port: Port, *, node: int = 1, path: int = 0, timers: Timers | None = None,
                 max_payload: int = 256, max_read: int = 512, packing: int = 1500,
                 boot: int | None = None, now: Callable[[], float] = time.monotonic,
                 rng: random.Random | None = None, key: bytes | None = None) -> None:
        if node not in range(1, NODE_UNASSIGNED):
            raise ValueError(f"node must be from 1 to {NODE_UNASSIGNED - 1:#x}, not {node!r}")
        for name, value, most in (("max_payload", max_payload, 512), ("max_read", max_read, 4096)):
            if not 128 <= value <= most or value & value - 1:
                raise ValueError(f"{name} must be a power of two from 128 to {most}, not {value!r}")
        super().__init__(port, node=node, timers=timers or Timers(), now=now)
        self.max_payload, self.max_read = max_payload, max_read
        self.in_flight = 32
        if key is not None and len(key) != KEY_BYTES:
            raise ValueError(f"key must have {KEY_BYTES} bytes, not {len(key)}")
        self._path, self._packing, self._key = path, packing, key
        rng = rng or random.SystemRandom()
        self._tags, self._boot = TagSource(rng), boot or rng.randrange(1, 1 << 16)
        self.memory = Memory([Windows.NARROW, Windows.WIDE, INTERRUPTS])
        #: Bus tree of each slot, with the life in which it was found.
        self._found: dict[HostSlot, tuple[int, Bus]] = {}

    def __enter__(self) -> "Host":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Unbind all slots, and close the port; errors are ignored."""
        bound = [slot for slot in list(self._slots.values()) if slot.box.bound(slot.number)]
        try:
            # Send UNBIND to all boxes, even if one box is slow to acknowledge.
            for step in (self._give_up, self._wait_unbound):
                for slot in bound:
                    try:
                        step(slot)
                    except PortError:
                        raise
                    except HostError as error:
                        log.info("while closing: %s", error)
        except PortError as error:
            log.info("while closing: %s", error)
        finally:
            self.end()

    # Slots.

    def connect(self, box: int, stream: int = 0) -> None:
        """Open the session with a box, if it is not open.

        Raises
        ------
        Timeout
            The box does not answer HELLO.
        """
        opened = self._box(box, stream)
        self.wait_until(lambda: opened.open, f"box {box:#05x} does not answer HELLO",
                        self.timers.attach + self.timers.quiet)

    def link_counters(self, box: int, stream: int = 0) -> Counter[str]:
        """Counters of the link with a box.

        Frames ``sent``, ``repeated``, ``taken``, refused by cause; TLPs ``dropped`` because their
        slot has no life, or without credits; limits of another generation, ``stray_limit``.
        """
        found = self._boxes[box, stream]
        return found.link.counters + Counter(dropped=found.dropped, stray_limit=sum(
            slot.accounts.refused for slot in list(found.slots.values())))

    def _box(self, node: int, stream: int) -> Box:
        with self._lock:
            key = node, stream
            if key not in self._boxes:
                self._boxes[key] = self.BOX(
                    Address(self.node, node, stream, self._path), timers=self.timers,
                    tags=self._tags, boot=self._boot, now=self._now(), packing=self._packing,
                    keys=self._keys())
            return self._boxes[key]

    def _keys(self) -> "Keys | None":
        if self._key is None:
            return None
        from dxpu_model.opening import Keys
        return Keys(self._key)

    def bind(self, box: int, slot: int, *, generation: int = 1, stream: int = 0) -> Device:
        """Bind a slot of a box, which resets its device; returns function 0 of the device.

        Parameters
        ----------
        box : int
            Node number.
        slot : int
            Number from 1.
        generation, stream : int
            Values in the box's row for the slot; the row also names this host's node.

        Raises
        ------
        Timeout
            The box does not answer HELLO, or the slot does not answer BIND: the box has no such
            row, or no device.
        """
        self.connect(box, stream)
        owner = self._box(box, stream)
        with self._lock:
            handle = self._slots.get((owner, slot))
            if handle is None:
                first = 1 + self.BUSES * len(self._slots)
                if first + self.BUSES > 256:
                    raise HostError("no bus numbers are left")
                handle = self._slots[owner, slot] = self.SLOT(
                    owner, slot, range(first, first + self.BUSES), self.memory, self._interrupts,
                    self.counters)
            self._windows.give_back(handle)
            handle.down(SlotLost(f"slot {slot} of box {box:#05x} waits for its device"))
            waiting = handle.error
            owner.bind(slot, generation)
        try:
            self.wait_until(lambda: handle.error is not waiting, f"slot {slot} of box {box:#05x} "
                            f"does not answer BIND of generation {generation}", self.timers.attach)
        except Timeout:
            with self._lock:
                if handle.error is waiting:
                    owner.unbind(slot)
            raise
        handle.check()
        return Device(self, handle, handle.buses.start << 8)

    def unbind(self, slot: Device | HostSlot) -> None:
        """Release a slot; returns when the box has acknowledged."""
        slot = slot.slot if isinstance(slot, Device) else slot
        self._give_up(slot)
        self._wait_unbound(slot)

    def _give_up(self, slot: HostSlot) -> None:
        with self._lock:
            slot.box.unbind(slot.number)
            self._windows.give_back(slot)
            slot.down(SlotLost(f"slot {slot.number} is not bound"))

    def _wait_unbound(self, slot: HostSlot) -> None:
        self.wait_until(lambda: slot.box.settled() or not slot.box.open,
                        f"slot {slot.number}: the box does not acknowledge UNBIND")

    def reset(self, device: Device) -> Device:
        """Reset the device in the slot of ``device``; returns function 0 in the new life."""
        slot = device.slot
        with self._lock:
            slot.check(device.life)
            slot.box.reset(slot.number)
            self._windows.give_back(slot)
            slot.down(SlotLost(f"slot {slot.number} waits for its device"))
        return self.wait_ready(device)

    def wait_ready(self, device: Device) -> Device:
        """Wait until the bound slot of ``device`` has a device again; returns its function 0."""
        slot = device.slot
        self.wait_until(lambda: slot.error is None or isinstance(slot.error, SessionLost),
                        f"slot {slot.number} has no device", self.timers.attach)
        slot.check()
        return Device(self, slot, slot.buses.start << 8)

    def enumerate(self) -> list[Device]:
        """All functions in all ready slots, in the order of their bus numbers.

        Slots not yet set up in this life get bus numbers and addresses (:func:`~.scan.scan`).
        """
        return [device for bus in self.buses() for device in bus.walk()]

    def buses(self) -> list[Bus]:
        """Result of :meth:`enumerate` as a tree: the bus of each slot."""
        return [self._bus(slot) for slot in list(self._slots.values()) if slot.error is None]

    def bus(self, device: Device) -> Bus:
        """The bus of the slot of ``device``, set up like those of :meth:`buses`."""
        return self._bus(device.slot)

    def _bus(self, slot: HostSlot) -> Bus:
        life = slot.lives
        known = self._found.get(slot)
        if known is not None and known[0] == life and slot.error is None:
            return known[1]
        bus = scan(self, slot, self._windows)
        with self._lock:
            slot.check(life)  # the result of another life is void
            self._found[slot] = life, bus
        return bus

    def found(self, device: Device) -> None:
        """Record a function with its slot; raises :exc:`SlotLost` if its life is over by now."""
        with self._lock:
            device.check()
            device.slot.devices[device.identifier] = device

    def on_dma(self, start: int, size: int, *, read: Callable[[int, int], bytes],
               write: Callable[[int, bytes], None]) -> Region:
        """Let ``read(address, length)`` and ``write(address, data)`` serve the DMA of devices at
        these addresses.

        The functions must not wait for the host. An exception answers a read with Completer Abort,
        and loses a write.
        """
        with self._lock:
            return self.memory.add_region(Region(start, size, read, write))

    # Accesses of devices; see :class:`~.device.Device`.

    def transact(self, slot: HostSlot, tlps: Iterable[Tlp], life: int) -> list[bytes]:
        """Send non-posted requests, :attr:`in_flight` at a time; returns the data of each."""
        results: list[bytes] = []
        waiting: deque[Request] = deque()
        for tlp in tlps:
            if len(waiting) >= self.in_flight:
                results.append(self._result(waiting.popleft()))
            waiting.append(self._request(slot, tlp, life))
        return results + [self._result(request) for request in waiting]

    def _result(self, request: Request) -> bytes:
        self.wait_until(lambda: request.done, "no completion", 2 * self.timers.completion)
        return request.result()

    def _request(self, slot: HostSlot, tlp: Tlp, life: int) -> Request:
        while True:
            self.wait_until(lambda: slot.requests.free or slot.error is not None,
                            f"slot {slot.number}: no tag is free")
            with self._lock:
                slot.check(life)
                if slot.requests.free:  # another thread may have taken the tag
                    return slot.request(tlp, self._now() + self.timers.completion)

    def configure(self, slot: HostSlot, tlp: Tlp, life: int) -> bytes:
        """Send a configuration request, again as long as the device answers Retry."""
        deadline = self._now() + self.timers.attach
        while True:
            try:
                return self.transact(slot, [tlp], life)[0]
            except Retry as error:
                if self._now() >= deadline:
                    raise Timeout(str(error)) from None
                self.poll(self.timers.retry)

    def post(self, slot: HostSlot, tlps: Iterable[Tlp], life: int) -> None:
        """Send posted requests; returns when they have left for the box."""
        source = iter(tlps)
        while part := list(islice(source, self.POSTED)):
            with self._lock:
                slot.check(life)
                for tlp in part:
                    slot.post(tlp)
            queues = slot.box.slots[slot.number].queues
            self.wait_until(lambda queues=queues: not queues.waits(  # type: ignore[misc]
                CreditClass.P), f"slot {slot.number} takes no writes")
            with self._lock:
                slot.check(life)
