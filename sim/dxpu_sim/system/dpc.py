"""A driver of Downstream Port Containment, structured like an operating system's driver.

Written from the PCI Express Base Specification 5.0, 6.2.10 and 7.9.15, and from the documentation
of Linux' dpc driver. The interrupt reads DPC Status and clears Interrupt Status. The handler then
reads the reason, clears the error, waits until the link is inactive, clears Trigger Status and
waits for the link.
"""

import cocotb
from cocotb.triggers import Lock, Timer
from cocotbext.pcie.core.caps import PciCapId

from dxpu_sim.pcie.pciehp import LINK_ACTIVE, LINK_STATUS, PRESENT, SLOT_STATUS, Slot

__all__ = ["Containment"]

# Extended capabilities.
FIRST, AER_ID, DPC_ID = 0x100, 0x0001, 0x001D
UNCORRECTABLE = 0x04
CAPABILITY, CONTROL, STATUS, SOURCE = 0x04, 0x06, 0x08, 0x0A

# DPC Control: trigger on fatal errors; completion status; interrupt.
FATAL, REFUSE, INTERRUPT, SOFTWARE = 1 << 0, 1 << 2, 1 << 3, 1 << 6
# DPC Status.
TRIGGER, INTERRUPTED = 1 << 0, 1 << 3


class Containment:
    """Driver of the containment of one downstream port.

    Parameters
    ----------
    slot : :class:`~dxpu_sim.pcie.pciehp.Slot`
        Hot-plug driver of the same port, started.
    refuse : bool
        Completion status Unsupported Request instead of Completer Abort.

    Attributes
    ----------
    log : list of (reason, extension, Error Source ID, uncorrectable errors)
        One entry for each containment of the port.
    recovered : list of bool
        For each containment, whether the link became active again.
    """

    def __init__(self, slot: Slot, *, refuse: bool = False):
        self.slot, self.port, self.refuse = slot, slot.port, refuse
        self.log: list[tuple[int, int, int, int]] = []
        self.recovered: list[bool] = []
        self._at = 0
        self._aer = 0
        self._handling = Lock()  # an interrupt does not interrupt its own handler

    async def start(self) -> None:
        """Find the registers, and enable containment."""
        at, found = FIRST, {}
        while at:
            header = await self.port.config_read_dword(at)
            found[header & 0xFFFF] = at
            at = header >> 20
        if DPC_ID not in found:
            raise ValueError(f"{self.port.pcie_id} has no Downstream Port Containment")
        self._at, self._aer = found[DPC_ID], found[AER_ID]
        self.port.request_irq(0, self._interrupt)
        await self.port.config_write_word(
            self._at + CONTROL, FATAL | INTERRUPT | (REFUSE if self.refuse else 0))

    async def trigger(self) -> None:
        """Contain the port by software."""
        control = await self.port.config_read_word(self._at + CONTROL)
        await self.port.config_write_word(self._at + CONTROL, control | SOFTWARE)

    async def _interrupt(self):
        """Handle an interrupt; hot-plug shares the vector, so check the status first."""
        async with self._handling:
            status = await self.port.config_read_word(self._at + STATUS)
            if status & INTERRUPTED:
                await self.port.config_write_word(self._at + STATUS, INTERRUPTED)
                if status & TRIGGER:
                    cocotb.start_soon(self._recover())

    async def _link(self) -> bool:
        return bool(await self.port.capability_read_word(PciCapId.EXP, LINK_STATUS) & LINK_ACTIVE)

    async def _recover(self):
        status = await self.port.config_read_word(self._at + STATUS)
        source = await self.port.config_read_word(self._at + SOURCE)
        reason, errors = status >> 1 & 3, 0
        if reason == 0:
            errors = await self.port.config_read_dword(self._aer + UNCORRECTABLE)
            await self.port.config_write_dword(self._aer + UNCORRECTABLE, errors)
        self.log.append((reason, status >> 5 & 3, source, errors))
        waited = 0
        while await self._link():
            if waited > self.slot.times.link:
                raise AssertionError(f"{self.port.pcie_id}: contained, with a link")
            await Timer(500, "ns")
            waited += 500
        await self.port.config_write_word(self._at + STATUS, TRIGGER)
        active, waited = await self._link(), 0
        while not active and waited <= self.slot.times.link:
            if not await self.port.capability_read_word(PciCapId.EXP, SLOT_STATUS) & PRESENT:
                break
            await Timer(500, "ns")
            waited += 500
            active = await self._link()
        self.recovered.append(active)
