"""A manager of simulated proxies that has nothing but an Ethernet port."""

from dataclasses import dataclass, field
from typing import Any

import cocotb
from cocotb.triggers import Event, First, Lock, Timer

from dxpu.fabric.wire.format import NODE_UNASSIGNED
from dxpu.management.format import Kind, Status
from dxpu_model.management import Answer, ManagerEnd, Message, Operation, is_management

from .nodes import factory_of
from .setup import Proxy, RegisterError

__all__ = ["MANAGER_MAC", "ManagedProxy", "Manager"]

#: Address of the manager's port.
MANAGER_MAC = bytes.fromhex("02aabbccddee")


class Manager:
    """Sends frames of management, and gives those that come to who waits for them. Events go to
    ``listeners``, and what one of them returns is sent.

    Parameters
    ----------
    mailbox : dxpu_sim.pcie.ports.Mailbox
        Of the Ethernet port.
    rng : random.Random
    """

    #: Microseconds after which a frame is sent again, and how often; and behind an acknowledgement.
    AGAIN, TIMES, PAUSE = 200, 5, 3

    def __init__(self, mailbox, rng):
        self.mailbox, self.rng = mailbox, rng
        self.frames, self._came, self.listeners, self._sends = [], Event(), [], Lock()
        mailbox.received.append(self._receive)

    def _receive(self, frame):
        if is_management(frame.raw) and Message.parse(frame.raw).kind == Kind.EVENT:
            for listener in self.listeners:
                if (answer := listener(frame.raw)) is not None:
                    cocotb.start_soon(self._acknowledge(answer))
            return
        self.frames.append(frame.raw)
        self._came.set()

    async def _acknowledge(self, frame):
        """All nodes hear all frames, and each has room for two: the one that is worked on, and
        another one."""
        async with self._sends:
            await self.mailbox.send(frame)
            await Timer(self.PAUSE, "us")

    async def exchange(self, frame, take):
        """Send a frame until ``take`` finds something in one that comes.

        Raises
        ------
        RegisterError
            If there is no answer.
        """
        async with self._sends:
            return await self._exchange(frame, take)

    async def _exchange(self, frame, take):
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
    events : list of :class:`dxpu_model.management.Event`
        What the node has told, each once.
    """

    manager: Manager | None = None
    number: int = 1
    address: int = NODE_UNASSIGNED
    events: list = field(default_factory=list)
    _end: Any = field(default=None)

    def _hear(self, frame):
        """An event, perhaps of this node; returns what is sent."""
        if (got := self._end.take(frame)) is None:
            return None
        event, fresh, acknowledges = got
        if fresh:
            self.events.append(event)
        return acknowledges

    async def open(self):
        """Ask for an association."""
        key, mac, _ = factory_of(self.node)
        self._end = ManagerEnd(key, self.number, self.manager.rng.randbytes, node=self.address,
                               node_mac=mac, own_mac=MANAGER_MAC)

        def opened(frame):
            self._end.take(frame)
            return self._end.open or None

        await self.manager.exchange(self._end.ask(), opened)
        if self._hear not in self.manager.listeners:
            self.manager.listeners.append(self._hear)

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
