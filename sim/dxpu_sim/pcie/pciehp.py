"""A hot-plug driver for the slots of a switch, structured like an operating system's driver.

Written from the PCI Express Base Specification 5.0, 6.7.3 and 7.5.3.10 to 7.5.3.11, and from the
documentation of Linux' pciehp. An interrupt only reads Slot Status and clears the events found. A
separate task handles the events, and looks at the state of the slot at that time.

Delays of seconds in a real system are microseconds here (:class:`Times`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import cocotb
from cocotb.triggers import Event, First, Timer
from cocotb.utils import get_sim_time
from cocotbext.pcie.core.caps import PciCapId

from dxpu_sim.endpoint.driver import find_devices
from dxpu_sim.endpoint.gpu import DEVICE_ID, VENDOR_ID

from .ports import RootComplex

__all__ = ["Slot", "Times", "enumerate_with_room", "find_slots"]

# Offsets in the PCI Express capability.
LINK_STATUS, SLOT_CAPABILITIES, SLOT_CONTROL, SLOT_STATUS = 0x12, 0x14, 0x18, 0x1a

# Slot Capabilities.
HAS_BUTTON, HOT_PLUG = 1 << 0, 1 << 6

# Slot Control: enables; the power indicator is a field of two bits at 8.
BUTTON_ENABLE, PRESENCE_ENABLE, HOT_PLUG_INTERRUPT, LINK_ENABLE = 1 << 0, 1 << 3, 1 << 5, 1 << 12
ON, BLINK, OFF = 1, 2, 3

# Slot Status.
BUTTON, PRESENCE_CHANGED, PRESENT, LINK_CHANGED = 1 << 0, 1 << 3, 1 << 6, 1 << 8
EVENTS = BUTTON | PRESENCE_CHANGED | LINK_CHANGED

# Link Status.
SPEED, WIDTH, TRAINING, LINK_ACTIVE = 0xf, 0x3f << 4, 1 << 11, 1 << 13


@dataclass(frozen=True)
class Times:
    """Scaled times, in ns.

    Members
    -------
    button : float
        Time in which a second press of the button cancels the first (5 s).
    link : float
        Longest time for the link to come up (1 s).
    settle : float
        Time between an active link and the first configuration request (100 ms).
    """

    button: float = 5_000
    link: float = 20_000
    settle: float = 1_000


async def enumerate_with_room(rc: RootComplex, *, memory: int = 1 << 20,
                              prefetchable: int = 256 << 20) -> None:
    """Enumerate, and leave each empty hot-plug slot memory space for a GPU of that size.

    This is the effect of ``pci=hpmmiosize,hpmmioprefsize``. Every port gets a bus number anyway.
    """
    bridge = rc.host_bridge

    def leave_room(bus):
        async def assign():
            port = bus.bridge
            for kind, size in (("mem", memory), ("prefetchable_mem", prefetchable)):
                base = -(-getattr(port, f"{kind}_limit") // size) * size
                setattr(port, f"{kind}_base", base)
                setattr(port, f"{kind}_limit", base + size)
        return assign

    async def probe(**options):
        await bridge.scan(**options)
        for device in find_devices(rc):
            if device.subordinate and device.is_downstream_port() and device.pcie_type() == 6:
                capabilities = await device.capability_read_dword(PciCapId.EXP, SLOT_CAPABILITIES)
                if capabilities & HOT_PLUG and not device.subordinate.devices:
                    device.subordinate.assign_resources = leave_room(device.subordinate)
        await bridge.assign_resources()

    bridge.probe = probe
    await rc.enumerate()


def find_slots(rc: RootComplex, **options) -> "list[Slot]":
    """A driver for each downstream port of a switch, in the order of their device numbers."""
    return [Slot(rc, device, **options) for device in find_devices(rc)
            if device.subordinate and device.is_downstream_port() and device.pcie_type() == 6]


class Slot:
    """Driver of one hot-plug slot.

    Parameters
    ----------
    rc : RootComplex
    port
        The enumerated downstream port.
    times : Times

    Attributes
    ----------
    device
        The PCI function in the slot, or ``None``.
    on : bool
        The slot is in use, its power indicator is on.
    log : list of str
        Events so far.
    added, removed : list of callables
        Called with the device after it was brought up and after it has gone. ``removed`` gets a
        second argument: whether the removal was a surprise.
    """

    def __init__(self, rc, port, *, times: Times | None = None):
        self.rc, self.port = rc, port
        self.times = times or Times()
        self.device = None
        self.on = False
        self.log: list[str] = []
        self.added: list[Callable] = []
        self.removed: list[Callable] = []
        self.interrupts = 0
        self._seen = 0            # events cleared by the interrupt, for the task
        self._work = Event()
        self._changed = Event()
        self._deadline: float | None = None
        self._assign = type(port.subordinate).assign_resources

    async def _status(self) -> int:
        return await self.port.capability_read_word(PciCapId.EXP, SLOT_STATUS)

    async def _control(self, **fields) -> None:
        """Set the power indicator or the enables of Slot Control; other fields stay."""
        value = await self.port.capability_read_word(PciCapId.EXP, SLOT_CONTROL)
        if "enables" in fields:
            value |= fields["enables"]
        if "indicator" in fields:
            value = value & ~(3 << 8) | fields["indicator"] << 8
        await self.port.capability_write_word(PciCapId.EXP, SLOT_CONTROL, value)

    async def start(self) -> None:
        """Clear old events, enable interrupts, look at the slot once."""
        capabilities = await self.port.capability_read_dword(PciCapId.EXP, SLOT_CAPABILITIES)
        if not capabilities & HOT_PLUG:
            raise ValueError(f"{self.port.pcie_id} has no hot-plug slot")
        await self.port.enable_bridge()  # the port's MSIs pass the ports above, too
        if await self.port.enable_msi_range(1, 1) != 1:
            raise RuntimeError(f"{self.port.pcie_id}: no MSI")
        self.port.request_irq(0, self._interrupt)
        cocotb.start_soon(self._run())
        await self.port.capability_write_word(PciCapId.EXP, SLOT_STATUS, EVENTS)
        found = self.port.subordinate.devices  # found by the enumeration
        self.device, self.on = (found[0], True) if found else (None, False)
        await self._control(indicator=ON if self.on else OFF,
                            enables=HOT_PLUG_INTERRUPT | LINK_ENABLE | (
            BUTTON_ENABLE if capabilities & HAS_BUTTON else 0) | PRESENCE_ENABLE)
        if self.on:
            self.log.append("found")
        elif await self._status() & PRESENT:
            self._seen |= PRESENCE_CHANGED
        self._work.set()

    async def _interrupt(self):
        """Read the events and clear them; repeat while there are new events, as MSIs are edges."""
        self.interrupts += 1
        while events := await self._status() & EVENTS:
            await self.port.capability_write_word(PciCapId.EXP, SLOT_STATUS, events)
            self._seen |= events
        self._work.set()

    async def _run(self):
        while True:
            if self._deadline is None:
                await self._work.wait()
            else:
                await First(self._work.wait(), Timer(self.times.button, "ns"))
            self._work.clear()
            events, self._seen = self._seen, 0
            if events & BUTTON:
                await self._pressed()
            elif self._deadline is not None and not events:
                self._deadline = None
                await (self._remove(False) if self.on else self._bring_up())
            if events & (PRESENCE_CHANGED | LINK_CHANGED):
                await self._look(events)
            self._changed.set()

    async def _pressed(self):
        if self._deadline is not None:
            self.log.append("button: taken back")
            self._deadline = None
            await self._control(indicator=ON if self.on else OFF)
        else:
            self.log.append("button")
            self._deadline = 1
            await self._control(indicator=BLINK)

    async def _look(self, events):
        """Handle a change of presence or link: the device that was in the slot has gone in any
        case."""
        if self.on:
            self._deadline = None
            await self._remove(True)
        status = await self._status()
        link = await self.port.capability_read_word(PciCapId.EXP, LINK_STATUS)
        if status & PRESENT or link & LINK_ACTIVE:
            self._deadline = None
            await self._bring_up()

    async def _bring_up(self):
        """Wait for the link, check the link, enumerate."""
        waited = 0
        while not (link := await self.port.capability_read_word(
                PciCapId.EXP, LINK_STATUS)) & LINK_ACTIVE:
            if waited > self.times.link or not await self._status() & PRESENT:
                self.log.append("no link")
                await self._control(indicator=OFF)
                return
            await Timer(500, "ns")
            waited += 500
        if link & TRAINING or not link & SPEED or not link & WIDTH:
            raise AssertionError(f"{self.port.pcie_id}: Link Status {link:#06x} with active link")
        await Timer(self.times.settle, "ns")
        bus, port = self.port.subordinate, self.port
        bus.devices = []
        # The library allocates upwards from the limits.
        saved = {kind: (getattr(port, f"{kind}_base"), getattr(port, f"{kind}_limit"))
                 for kind in ("mem", "prefetchable_mem")}
        for kind, (base, _) in saved.items():
            setattr(port, f"{kind}_limit", base)
        try:
            await bus.scan(timeout=self.rc.timeout_ns)
            if bus.devices:
                await self._assign(bus)
        finally:
            for kind, (_, limit) in saved.items():
                setattr(port, f"{kind}_limit", limit)
        if not bus.devices:
            self.log.append("nobody there")
            return
        self.device, self.on = bus.devices[0], True
        self._seen &= BUTTON  # the device is there; older presence and link events do not matter
        await self._control(indicator=ON)
        self.log.append("added")
        for callback in self.added:
            callback(self.device)

    async def _remove(self, surprise):
        device, self.device, self.on = self.device, None, False
        self.port.subordinate.devices = []
        for callback in self.removed:
            callback(device, surprise)
        if not surprise:
            # The driver releases the device; then the slot may be emptied.
            command = await device.config_read_word(0x04)
            await device.config_write_word(0x04, command & ~0b110)
        await self._control(indicator=OFF)
        self.log.append("gone" if surprise else "removed")

    async def until(self, condition: Callable[[], bool], timeout_ns: int = 2_000_000) -> None:
        """Wait until ``condition()`` holds after an event was handled."""
        end = get_sim_time("ns") + timeout_ns
        while not condition():
            self._changed.clear()
            left = end - get_sim_time("ns")
            if left <= 0:
                raise TimeoutError(f"{self.port.pcie_id}: {self.log[-8:]}, present "
                                   f"{bool(await self._status() & PRESENT)}")
            await First(self._changed.wait(), Timer(left, "ns", round_mode="ceil"))

    @property
    def has_gpu(self) -> bool:
        """Whether a DXPU GPU is in the slot and was brought up."""
        return (self.device is not None
                and (self.device.vendor_id, self.device.device_id) == (VENDOR_ID, DEVICE_ID))
