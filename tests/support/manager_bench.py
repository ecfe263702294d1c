"""A manager before golden models of nodes, over a network that loses and doubles frames."""

import asyncio
import random
import socket

from dxpu_boards.register_line import RegisterLine
from dxpu_manage import SHAPE_WORDS, Manager, proxy_of
from dxpu_model.management import Identity, ManagedNode

from .management_bench import FENCE_EPOCH, Registers
from .testbench import seed

__all__ = ["OWN", "Network", "SimulatedRegisters", "node", "run", "simulated"]

OWN = bytes.fromhex("02aabbccddee")


class Network:
    """A port whose other end are nodes; frames get lost or come twice."""

    def __init__(self, nodes, *, loss=0.0, rng=None):
        self.nodes, self.loss, self.rng = nodes, loss, rng or random.Random(seed())
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours.setblocking(False)
        self.sent = 0

    def fileno(self):
        return self._ours.fileno()

    def close(self):
        self._ours.close()
        self._theirs.close()

    def now(self):
        """Time of the nodes, in microseconds."""
        return 1e6 * asyncio.get_running_loop().time()

    def copies(self):
        return 0 if self.rng.random() < self.loss else 1 + (self.rng.random() < self.loss)

    def send(self, frame):
        self.sent += 1
        now = self.now()
        for _ in range(self.copies()):
            for node in self.nodes:
                if answer := node.take(frame, now):
                    self.give(answer)
        for node in self.nodes:
            if event := node.tell(now):
                self.give(event)

    def give(self, frame):
        for _ in range(self.copies()):
            self._theirs.send(frame)

    def receive(self):
        try:
            return self._ours.recv(2000)
        except BlockingIOError:
            return None


def node(number, start=0):
    """A node with key and address of its own; after each start it draws other words."""
    key, mac = bytes([number] * 16), b"\x02\x51\0\0\0" + bytes([number])
    rng = random.Random(100 * number + start)
    made = ManagedNode(key, mac, Registers(), FENCE_EPOCH, lambda: rng.getrandbits(32))
    made.identity = Identity(mac, serial=number, role=2, slots=4)
    return made, mac, key


def run(do, *nodes, loss=0.0, **options):
    """``do`` with a manager and the network."""
    async def whole():
        network = Network(list(nodes), loss=loss)
        try:
            async with Manager(network, OWN, **options) as manager:
                return await do(manager, network)
        finally:
            network.close()

    return asyncio.run(whole())


class SimulatedRegisters:
    """Registers of gateware for a golden model of a node.

    Parameters
    ----------
    port : tests.support.proxy_port.RegisterSerial
    """

    def __init__(self, port):
        self._line = RegisterLine(port)
        words = [self._line.read(address) for address in SHAPE_WORDS]
        #: Register map of the gateware.
        self.map = proxy_of(*words).registers
        self._writable = {base + p.address: p.register.writable
                          for base, block in self.map.blocks.values() for p in block.placed}

    def has(self, address, *, write):
        return self._writable.get(address, False) if write else address in self._writable

    def read(self, address):
        return self._line.read(address)

    def write(self, address, value):
        self._line.write(address, value)


class _Numbered(ManagedNode):
    """A node whose number is that of its register."""

    @property
    def number(self):
        return self.registers.read(0x8)

    @number.setter
    def number(self, value):
        assert value == 0xFFF


def simulated(number, port):
    """A node with key and address of its own, whose registers are of gateware."""
    key, mac = bytes([number] * 16), b"\x02\x51\0\0\0" + bytes([number])
    registers, rng = SimulatedRegisters(port), random.Random(100 * number)
    made = _Numbered(key, mac, registers, registers.map.address("table.fence_epoch"),
                     lambda: rng.getrandbits(32))
    return made, mac, key
