"""A manager of simulated proxies that has nothing but an Ethernet port."""

from dataclasses import dataclass, field
from typing import Any

from cocotb.triggers import Event, First, Timer

from dxpu.fabric.wire.format import NODE_UNASSIGNED
from dxpu.management.format import Status
from dxpu_model.management import Answer, ManagerEnd, Operation

from .design import factory_of
from .setup import Proxy, RegisterError

__all__ = ["MANAGER_MAC", "ManagedProxy", "Manager"]

#: Address of the manager's port.
MANAGER_MAC = bytes.fromhex("02aabbccddee")


class Manager:
    """Sends frames of management, and gives those that come to who waits for them.

    Parameters
    ----------
    mailbox : dxpu_sim.pcie.ports.Mailbox
        Of the Ethernet port.
    rng : random.Random
    """

    #: Microseconds after which a frame is sent again, and how often.
    AGAIN, TIMES = 200, 5

    def __init__(self, mailbox, rng):
        self.mailbox, self.rng = mailbox, rng
        self.frames, self._came = [], Event()
        mailbox.received.append(self._receive)

    def _receive(self, frame):
        self.frames.append(frame.raw)
        self._came.set()

    async def exchange(self, frame, take):
        """Send a frame until ``take`` finds something in one that comes.

        Raises
        ------
        RegisterError
            If there is no answer.
        """
        for _ in range(self.TIMES):
            await self.mailbox.send(frame)
            end = Timer(self.AGAIN, "us")
            while True:
                while self.frames:
                    if (found := take(self.frames.pop(0))) is not None:
                        return found
                self._came.clear()
                if await First(self._came.wait(), end) is not self._came and not self.frames:
                    break
        raise RegisterError("a node does not answer")


@dataclass
class ManagedProxy(Proxy):
    """Register access to a proxy by frames of management.

    Parameters
    ----------
    manager : Manager
    number : int
        Manager number.
    address : int
        Number under which the node is asked: FFFh, its factory address.
    """

    manager: Manager | None = None
    number: int = 1
    address: int = NODE_UNASSIGNED
    _end: Any = field(default=None)

    async def open(self):
        """Ask for an association."""
        key, mac, _ = factory_of(self.node)
        self._end = ManagerEnd(key, self.number, self.manager.rng.randbytes, node=self.address,
                               node_mac=mac, own_mac=MANAGER_MAC)

        def opened(frame):
            self._end.take(frame)
            return self._end.open or None

        await self.manager.exchange(self._end.ask(), opened)

    async def request(self, operations, *, epoch=None):
        """The answer to a request."""
        if self._end is None:
            await self.open()
        frame = self._end.request(self.epoch if epoch is None else epoch, operations)
        return await self.manager.exchange(
            frame, lambda got: answer if isinstance(answer := self._end.take(got), Answer) else (
                None))

    async def _access_alone(self, address, write, data, path):
        operation = Operation.write(address, data) if write else Operation(address)
        answer = await self.request([operation])
        if answer.status != Status.DONE:
            raise RegisterError(f"{self.name}: {path} at {address:#06x}: {answer.status.name}")
        return 0 if write else answer.words[0]
