"""A host whose GPUs come and go: its hot-plug driver, its manager and people at boxes."""

import cocotb
from cocotb.triggers import Event
from cocotb.utils import get_sim_time
from cocotbext.pcie.core.tlp import CplStatus, TlpType

from dxpu_sim.endpoint.driver import GpuDriver
from dxpu_sim.pcie.pciehp import enumerate_with_room, find_slots

from .operate import Operator
from .setup import wait_for_slot

__all__ = ["Copier", "HotPlugHost", "Reader"]


class HotPlugHost(Operator):
    """A simulated system whose host boots with empty slots, and an operator who fills them.

    Attributes
    ----------
    slots : list of :class:`~dxpu_sim.pcie.pciehp.Slot`
        Drivers of the slots, by downstream port; set by :meth:`boot`.
    visited : set of int
        Ports that have had a GPU.
    """

    def __init__(self, system, *, paths=0b01):
        super().__init__(system, paths=paths)
        self.rng = system.rng
        self.slots = []
        self.visited = set()

    async def boot(self, **options):
        """Start fabric, enumeration, hot-plug drivers, without a binding.

        ``options`` go to :meth:`~dxpu_sim.system.system.SimulatedSystem.prepare`.
        """
        await self.system.prepare(**options)
        await self.start()

    async def start(self):
        """Start enumeration and hot-plug drivers, with any GPUs in the slots."""
        system = self.system
        if system.routes.placeholders:
            await system.rc.enumerate()
        else:
            await enumerate_with_room(system.rc)
        self.slots = find_slots(system.rc)
        assert len(self.slots) == system.ports
        for slot in self.slots:
            await slot.start()
            if system.routes.placeholders:
                await slot.until(lambda slot=slot: slot.on)

    async def bind(self, gpu, port=None):
        """Bind GPU ``gpu``, wait until the host has found it, and open its driver."""
        port = gpu if port is None else port
        await self.arrive(gpu, port)
        return await self.open(gpu, port)

    async def open(self, gpu, port):
        """A driver for the GPU in the slot of ``port``, which must be ``gpu``."""
        driver = GpuDriver(self.system.rc, self.slots[port].device)
        await driver.open(interrupts=self.rng.choice(["msi", "msix"]))
        assert await driver.serial() == self.system.gpus[gpu].serial
        return driver

    async def arrive(self, gpu, port):
        """Bind a GPU to a port and wait until the driver of the slot has brought it up."""
        await self.commit(gpu, port)
        await self.up(gpu, port)

    async def up(self, gpu, port):
        """Wait until the link of a GPU is active and the driver of the slot has brought it up."""
        system = self.system
        await wait_for_slot(system.host, port, link=1)
        system.checker.mended(system.names[gpu])
        system.routes.present.add(port)
        slot = self.slots[port]
        await slot.until(lambda: slot.has_gpu)
        if system.routes.placeholders and port not in self.visited:
            assert slot.log == ["found", "gone", "added"]
            del slot.log[:2]  # entries of the placeholder
        self.visited.add(port)

    async def gone(self, port):
        """Wait until the host has seen that the slot is empty."""
        slot = self.slots[port]
        await slot.until(lambda: not slot.on and slot.device is None)
        state = await wait_for_slot(self.system.host, port, link=0, drained=1)
        self.system.routes.present.discard(port)
        return state


class Copier:
    """A driver that copies there and back until stopped, or until its GPU goes."""

    def __init__(self, bench, driver, *, size=1500):
        self.driver, self.bench, self.size = driver, bench, size
        self.rounds = 0
        self.lost = False
        self._stop = False
        self.begun = Event()
        self.task = cocotb.start_soon(self._run())

    async def _run(self):
        while not self._stop:
            data = self.bench.rng.randbytes(self.bench.rng.randint(1, self.size))
            self.begun.set()
            vram = self.bench.rng.randrange(1 << 16)
            try:
                back = await self.driver.copy_there_and_back(data, vram)
            except Exception:  # any error of a driver for an unanswered read
                if not self.lost:
                    raise
            if self.lost:
                return
            assert back == data, "copied bytes differ"
            self.rounds += 1

    async def stop(self):
        """Finish the copy under way."""
        self._stop = True
        await self.task


class Reader:
    """Reads a register of a GPU for ever and keeps the statuses."""

    def __init__(self, bench, driver):
        self.rc, self.driver = bench.system.rc, driver
        self.statuses = []
        self.first_ur_ns = None
        self._stop = False
        self._address = driver.dev.bar_addr[0]
        self.task = cocotb.start_soon(self._run())

    async def _run(self):
        while not self._stop:
            completion, = await self.rc.request(TlpType.MEM_READ, self._address)
            self.statuses.append(completion.status)
            if completion.status == CplStatus.UR and self.first_ur_ns is None:
                self.first_ur_ns = get_sim_time("ns")

    async def stop(self, order=(CplStatus.SC, CplStatus.UR)):
        """Stop, and check that the statuses came in this order, each any number of times."""
        self._stop = True
        await self.task
        assert set(self.statuses) <= set(order)
        ranks = [order.index(status) for status in self.statuses]
        assert ranks == sorted(ranks), "a dead slot came to life"
