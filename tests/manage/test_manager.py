"""dxpu_manage: a manager before golden models of nodes, over a bad network."""

import asyncio
import random
import socket

import pytest

from dxpu_manage import Event, ManageError, Manager, NoAnswer, NoRegister, Operation, Refused, Stale
from dxpu_model.management import Identity, ManagedNode
from tests.support.management_bench import FENCE_EPOCH, Registers
from tests.support.testbench import seed

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

    def copies(self):
        return 0 if self.rng.random() < self.loss else 1 + (self.rng.random() < self.loss)

    def send(self, frame):
        self.sent += 1
        now = 1e6 * asyncio.get_running_loop().time()
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


def test_registers_of_two_nodes_over_a_bad_network():
    """Each write acts once, in order; what is read is there."""
    made = [node(1), node(2)]

    async def do(manager, network):
        async def one(number, model, mac, key):
            there, done = manager.node(mac, key), []
            for n in range(1, 30):
                try:
                    await there.write(0x100, n)
                except NoAnswer as error:  # it may have been done
                    assert str(error) == (f"node {mac.hex(':')} does not answer; the write may "
                                          "have been done")
                done.append(n)
                for _ in range(3):  # a request without an answer is made again once
                    try:
                        value, = await there.read(0x100)
                        break
                    except NoAnswer:
                        continue
                assert value in (n, *done)
            log = [value for address, value in model.registers.log if address == 0x100]
            assert log == sorted(set(log)) and len(log) > 25
            assert there.identity.serial == number and there.epoch == 1

        await asyncio.gather(*(one(n, *what) for n, what in enumerate(made, 1)))
        assert network.sent > 2 * 2 * 29

    run(do, *(model for model, _, _ in made), loss=0.2)


def test_refusals_are_one_line_each():
    model, mac, key = node(1)

    async def do(manager, network):
        there = manager.node(mac, key)
        name = mac.hex(":")
        with pytest.raises(NoRegister, match=f"^node {name}: no 2 registers from 0x03fc on can be "
                                             "read; nothing was done$"):
            await there.read(0x3FC, 2)
        with pytest.raises(NoRegister, match="no 1 registers from 0x0300 on can be written"):
            await there.request(Operation.write(0x100, 5), Operation.write(0x300, 1))
        with pytest.raises(Refused, match=f"^node {name} refuses the request: an epoch of 0"):
            await there.request(Operation.write(0x100, 5), epoch=0)
        with pytest.raises(ManageError, match=f"^node {name}: a request has 340 bytes at most, not "
                                              "344: make two of it$"):
            await there.request(Operation.write(0x100, *range(80)), Operation(0x100))
        await there.request(Operation.write(0x100, 5), epoch=7)
        with pytest.raises(Stale, match=f"^node {name} has epoch 7, which is higher than ours"):
            await there.write(0x100, 6)
        assert await there.read(0x100) == (5,)
        nobody = manager.node(mac, bytes(16))
        with pytest.raises(NoAnswer, match=f"^node {name} does not answer: is it there"):
            await nobody.read(0)
        assert model.counters == {"knock": 4}

    run(do, model)


def test_a_node_that_was_reset_is_found_again():
    """A read is made again under another association; a write is not."""
    model, mac, key = node(1)

    async def do(manager, network):
        there = manager.node(mac, key)
        await there.write(0x100, 5)
        network.nodes[0] = node(1, start=1)[0]
        assert await there.read(0x104) == (0x104 << 16,)
        network.nodes[0] = node(1, start=2)[0]
        with pytest.raises(NoAnswer, match="the write may have been done"):
            await there.write(0x100, 6)
        await there.write(0x100, 7)
        assert network.nodes[0].registers.log == [(FENCE_EPOCH, 1), (0x100, 7)]

    run(do, model)


def test_discovery_and_events():
    """Nodes without a number are found by what they say; events come once each, in order, though
    frames are lost; what is no announcement is ignored."""
    made = [node(n) for n in (3, 1, 2)]

    async def do(manager, network):
        finding = asyncio.ensure_future(manager.discover(0.05))
        await asyncio.sleep(0)
        for model, _, _ in made:
            network.loss = 0
            network.give(model.announcement())
            network.give(model.announcement()[:-1] + b"\0")
        network.give(bytes(60))
        assert [found.serial for found in await finding] == [1, 2, 3]
        assert list(manager.announced) == [mac for _, mac, _ in made]
        model, mac, key = made[1]
        there = manager.node(mac, key)
        await there.write(0x100, 1)
        network.loss = 0.3
        for n in range(5):
            model.happens(Event(1, n))
        for _ in range(400):
            if not model._events:
                break
            network.send(bytes(60))  # nobody's; nodes say what is due
            await asyncio.sleep(0.005)
        assert [there.events.get_nowait().where for _ in range(5)] == list(range(5))
        assert there.events.empty()

    run(do, *(model for model, _, _ in made))

