"""A manager at an Ethernet port, and the managed nodes."""

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable
from typing import Protocol

from dxpu.fabric.wire.format import NODE_UNASSIGNED
from dxpu.management.format import Kind, Status
from dxpu_model.management import (
    AGAIN, Answer, Event, Identity, ManagerEnd, Message, Operation, Wrong, intact, is_management,
)

from .errors import ManageError, NoAnswer, NoRegister, Refused, Stale

__all__ = ["Manager", "Node", "Port"]

#: Nodes that are asked at a time, so that their answers, of 400 bytes at most, all fit into a queue
#: of 16 KiB before the manager's port.
AT_ONCE = 40
#: Announcements that are kept of a time, as many as there can be nodes: who forges more finds no
#: room, and nodes announce themselves again.
ANNOUNCED = 4096


class Port(Protocol):
    """Sends and receives whole frames, as :class:`dxpu_host.EthernetPort`."""

    def fileno(self) -> int:
        """Readable when a frame has come."""

    def send(self, frame: bytes) -> None:
        """Send a frame, or lose it."""

    def receive(self) -> bytes | None:
        """The next frame; ``None`` if there is none now."""


class Manager:
    """A manager on the fabric; a context of :mod:`asyncio`.

    Parameters
    ----------
    port : Port
    mac : bytes
        Address of the port.
    number : int
        Manager number, 1 to 4, of no other manager.
    epoch : int
        Nodes refuse writes of a lower epoch than the highest so far.
    slower : float
        All waits are so many times longer.
    """

    def __init__(self, port: Port, mac: bytes, *, number: int = 1, epoch: int = 1,
                 slower: float = 1.0) -> None:
        self.number, self.epoch, self.slower = number, epoch, slower
        self._port, self._mac = port, mac
        self._nodes: dict[bytes, list[Node]] = {}
        #: Nodes that are asked under numbers, by number, the first one first.
        self._numbered: defaultdict[int, list[Node]] = defaultdict(list)
        #: Held while a node is asked.
        self.turns = asyncio.Semaphore(AT_ONCE)
        #: Asked before each frame, which is lost if the answer is no.
        self.may_send: Callable[[], bool] = lambda: True
        #: Announcements of nodes without a number, by address: hints.
        self.announced: dict[bytes, Identity] = {}

    async def __aenter__(self) -> "Manager":
        asyncio.get_running_loop().add_reader(self._port.fileno(), self._receive)
        return self

    async def __aexit__(self, *exception: object) -> None:
        asyncio.get_running_loop().remove_reader(self._port.fileno())

    def _receive(self) -> None:
        while (frame := self._port.receive()) is not None:
            for node in self._nodes.get(frame[6:12], ()):
                node.take(frame)
            try:
                if is_management(frame) and intact(frame):
                    message = Message.parse(frame)
                    if message.kind == Kind.ANNOUNCE:
                        identity = Identity.unpack(message.follows)
                        if len(self.announced) < ANNOUNCED or identity.mac in self.announced:
                            self.announced[identity.mac] = identity
            except (Wrong, ValueError):
                continue  # somebody's, not a node's

    def send(self, frame: bytes) -> None:
        """Send a frame, if the manager may."""
        if self.may_send():
            self._port.send(frame)

    async def discover(self, seconds: float = 1.1) -> list[Identity]:
        """Announcements of nodes without a number within a time, in order of addresses. Nothing is
        proven: read the node under the key."""
        self.announced.clear()
        await asyncio.sleep(seconds * self.slower)
        return [self.announced[mac] for mac in sorted(self.announced)]

    def node(self, mac: bytes, key: bytes, *, number: int = NODE_UNASSIGNED,
             path: int = 0) -> "Node":
        """A node by factory address and key, with a number or without one."""
        def end(number: int) -> ManagerEnd:
            return ManagerEnd(key, self.number, os.urandom, node=number, node_mac=mac,
                              own_mac=self._mac, path=path)

        node = Node(self, end, mac, number)
        self._nodes.setdefault(mac, []).append(node)
        self._numbered[number].append(node)
        return node

    def renumber(self, node: "Node", number: int) -> None:
        """A node is asked under another number from now on."""
        self._numbered[node.number].remove(node)
        self._numbered[number].append(node)
        node.number = number

    def holder(self, number: int) -> "Node | None":
        """The node with a number, as far as the manager reaches nodes under numbers."""
        return next(iter(self._numbered[number]), None)


class Node:
    """A node of a :class:`Manager`. Requests wait for each other.

    Attributes
    ----------
    number : int
        Under which the node is asked; FFFh: its factory address.
    identity : Identity or None
        The node's description since the last association.
    epoch : int
        The node's, by the last answer.
    events : asyncio.Queue
        Events of the node, each once and in order. After a reset the node counts anew.
    """

    def __init__(self, manager: Manager, end: Callable[[int], ManagerEnd], mac: bytes,
                 number: int) -> None:
        self.manager, self.number = manager, number
        self._make_end, self._end = end, end(number)
        self.name, self.mac = mac.hex(":"), mac
        self.epoch = 0
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self._lock, self._came = asyncio.Lock(), asyncio.Event()
        self._answer: Answer | None = None

    @property
    def identity(self) -> Identity | None:
        """The node's description."""
        return self._end.identity

    def take(self, frame: bytes) -> None:
        """A frame has come, perhaps of the node."""
        got = self._end.take(frame)
        if isinstance(got, Answer):
            self._answer = got
        elif got is not None:
            event, fresh, acknowledges = got
            self.manager.send(acknowledges)
            if fresh:
                self.events.put_nowait(event)
        self._came.set()

    async def _until(self, frame: bytes, done: Callable[[], bool]) -> bool:
        """Send a frame again and again, until an answer has come."""
        async with self.manager.turns:
            for wait in AGAIN:
                self.manager.send(frame)
                end = asyncio.get_running_loop().time() + wait * self.manager.slower / 1e6
                while (left := end - asyncio.get_running_loop().time()) > 0:
                    self._came.clear()
                    try:
                        await asyncio.wait_for(self._came.wait(), left)
                    except TimeoutError:
                        break
                    if done():
                        return True
        return False

    async def open(self) -> None:
        """Ask for an association, instead of the old one.

        Raises
        ------
        NoAnswer
        """
        if not await self._until(self._end.ask(), lambda: self._end.open):
            raise NoAnswer(f"node {self.name} does not answer: is it there, with this key, and not "
                           "asked by another manager of this number?")

    async def ask_under(self, number: int) -> None:
        """Ask the node under a number, or under FFFh, from now on: by another association."""
        async with self._lock:
            self.manager.renumber(self, number)
            self._end = self._make_end(number)

    async def request(self, *operations: Operation, epoch: int | None = None,
                      repeat: bool = False) -> tuple[int, ...]:
        """Do operations, all or none; returns the words from reads.

        A request without an answer ends the association. Reads are made again in the next one;
        writes are not, as the first attempt may have been done, unless ``repeat`` says: to do
        everything twice does no harm.

        Raises
        ------
        NoAnswer, Refused, ManageError
            The latter for a request of too many bytes.
        """
        repeat = repeat or all(operation.words is None for operation in operations)
        async with self._lock:
            for last in (False, True):
                if not self._end.open or last:
                    await self.open()
                self._answer = None
                try:
                    frame = self._end.request(
                        self.manager.epoch if epoch is None else epoch, operations)
                except ValueError as error:
                    raise ManageError(f"node {self.name}: {error}") from None
                if await self._until(frame, lambda: self._answer is not None):
                    break
                self._end.close()
                if not repeat:
                    raise NoAnswer(f"node {self.name} does not answer; the write may have been "
                                   "done")
            else:
                raise NoAnswer(f"node {self.name} does not answer")
            answer = self._answer
        assert answer is not None
        return self._checked(answer, operations)

    def _checked(self, answer: Answer, operations: tuple[Operation, ...]) -> tuple[int, ...]:
        self.epoch = answer.epoch
        if answer.status == Status.STALE:
            raise Stale(f"node {self.name} has epoch {answer.epoch}, which is higher than ours: "
                        "another manager has taken over")
        if answer.status == Status.ADDRESS:
            wrong = operations[answer.number]
            does = "read" if wrong.words is None else "written"
            raise NoRegister(f"node {self.name}: no {wrong.count} registers from "
                             f"{wrong.address:#06x} on can be {does}; nothing was done")
        if answer.status == Status.REFUSED:
            raise Refused(f"node {self.name} refuses the request: an epoch of 0 with a write, or "
                          "more to read than an answer can hold")
        return answer.words

    async def read(self, address: int, count: int = 1) -> tuple[int, ...]:
        """Values of registers from a byte address on."""
        return await self.request(Operation(address, count))

    async def write(self, address: int, *words: int) -> None:
        """Write registers from a byte address on."""
        await self.request(Operation.write(address, *words))
