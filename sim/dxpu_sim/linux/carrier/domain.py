"""The PCI domain of a guest: a VMD, a root port, and what a link has below it."""

from .remote import Access
from .root_port import RootPort
from .vmd import ConfigTarget, MemoryTarget, Vmd

__all__ = ["Domain"]


class Domain:
    """Carries out the guest's accesses to the device that QEMU shows it.

    Parameters
    ----------
    root : :class:`~dxpu_sim.linux.carrier.root_port.RootPort`

    Attributes
    ----------
    accesses : int
        Number of accesses of the guest to the child domain.
    """

    def __init__(self, root: RootPort):
        self.root = root
        self.accesses = 0
        self._vmd = Vmd()

    async def perform(self, access: Access) -> int:
        """Carry out an access; returns the value of a read, or 0."""
        if access.config:
            if access.write:
                self._vmd.config.write(access.address, access.value, access.size)
                return 0
            return self._vmd.config.read(access.address, access.size)
        target = self._vmd.target(access.address)
        self.accesses += 1
        if isinstance(target, ConfigTarget):
            where = (target.bus, target.device, target.function, target.register, access.size)
            if access.write:
                await self.root.config_write(*where, access.value)
                return 0
            return await self.root.config_read(*where)
        if isinstance(target, MemoryTarget):
            if access.write:
                await self.root.memory_write(target.address, access.size, access.value)
                return 0
            return await self.root.memory_read(target.address, access.size)
        return (1 << 8 * access.size) - 1
