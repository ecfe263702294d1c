"""A host that gets GPUs by commands to the manager of a pool."""

from dxpu_sim.endpoint.driver import GpuDriver
from dxpu_sim.pcie.checkers import CheckFailed
from dxpu_sim.pcie.links import DirectLink, replace_port
from dxpu_sim.pcie.pciehp import enumerate_with_room, find_slots
from dxpu_sim.pcie.ports import RootComplex

from .operate import Operator

__all__ = ["PooledHost"]


class PooledHost(Operator):
    """A host with hot-plug drivers, which knows nothing of a manager.

    Parameters
    ----------
    system : :class:`~dxpu_sim.system.system.SimulatedSystem`
    number : int
        Of the host.
    pool : :class:`~dxpu_sim.system.pool_process.PoolProcess`

    Attributes
    ----------
    name : str
        Name in the pool.
    slots : list of :class:`~dxpu_sim.pcie.pciehp.Slot`
        Drivers of the slots, by downstream port; set by :meth:`boot`.
    """

    def __init__(self, system, number, pool):
        super().__init__(system, host=number)
        self._pool, self.name = pool, pool.host(number)
        if number == 0:
            self.rc = system.rc
        else:
            self.rc = RootComplex()
            replace_port(self.rc.make_port(), "downstream",
                         DirectLink(system.mailboxes[system.host_names[number]]))
        self.slots = []

    async def boot(self):
        """Enumerate the empty switch, and start the drivers of its slots."""
        await enumerate_with_room(self.rc)
        self.slots = find_slots(self.rc)
        for slot in self.slots:
            await slot.start()

    async def attach(self, gpu, port):
        """A command gives a GPU to the host, which brings it up in the slot of ``port``; returns
        its driver."""
        self.route(gpu, port)
        self.fault(gpu)
        # The host finds the card before the manager has seen that.
        self.routes.present.add(port)
        await self._pool.dxpu("attach", self.name, self._pool.gpu(gpu), "--wait", "500")
        self.system.checker.mended(self.system.names[gpu])
        slot = self.slots[port]
        await slot.until(lambda: slot.has_gpu)
        driver = GpuDriver(self.rc, slot.device)
        await driver.open(interrupts="msi")
        if (serial := await driver.serial()) != self.system.gpus[gpu].serial:
            raise CheckFailed(f"the GPU at {driver.pcie_id} says that it is {serial:#x}")
        return driver

    async def detach(self, gpu, port):
        """A command asks the host for a GPU, whose slot is empty then."""
        self.fault(gpu)
        await self._pool.dxpu("detach", self.name, self._pool.gpu(gpu), "--wait", "500")
        slot = self.slots[port]
        if slot.on or slot.device is not None:
            raise CheckFailed(f"the slot of port {port} is not empty: {slot.log}")
        self.routes.present.discard(port)
