"""dxpu_manage: five hundred nodes that start in the same instant, in simulated time."""

import asyncio
import random

import pytest

from dxpu_manage import Manager, Proxy
from dxpu_model.management import Identity, ManagedNode, is_management
from tests.support.manager_bench import OWN
from tests.support.simulated_time import LearningSwitch, SwitchPort, run
from tests.support.testbench import seed

NODES = 500
#: Seconds that a node takes for a frame, by docs/reference/management.md ("The unit"), and frames
#: that find room meanwhile.
ASKED, REQUESTED, BANKS = 388 * 8e-9, 1448 * 8e-9, 2
IDENTITY, SHAPE, SECURITY, NUMBER, FENCE = 0x0, 0x4, 0x7F8, 0x8, 0x4004


class _Words:
    """What a manager looks at of a box of one slot: who it is, and its number."""

    def __init__(self):
        self.values = {IDENTITY: 0x44585055, SHAPE: 0x0804_0102, SECURITY: 0x8000_0001,
                       NUMBER: 0xFFF, FENCE: 0}

    def has(self, address, *, write):
        return address in self.values and (not write or address in (NUMBER, FENCE))

    def read(self, address):
        return self.values[address]

    def write(self, address, value):
        self.values[address] = value


class _Node(ManagedNode):
    @property
    def number(self):
        return self.registers.values[NUMBER]

    @number.setter
    def number(self, value):
        assert value == 0xFFF


class End:
    """A node at a port: takes frames one by one, and announces itself."""

    def __init__(self, mac, port, rng):
        self.key, self.mac, self._port = rng.randbytes(16), mac, port
        self.model = _Node(self.key, mac, _Words(), FENCE, lambda: rng.getrandbits(32))
        self.model.identity = Identity(mac, serial=port, role=2, slots=1)
        #: Its oscillator is so much slower or faster.
        self._drift = 1 + rng.uniform(-50e-6, 50e-6)
        self._free, self._held, self.busy, self.announced = 0.0, 0, 0, 0

    def start(self, switch):
        self._switch = switch
        self._announce()

    def _announce(self):
        loop = asyncio.get_running_loop()
        frame, due = self.model.announce(loop.time() * 1e6 * self._drift)
        if frame is not None:
            self.announced += 1
            self._switch.send(self._port, frame)
        if due != float("inf"):
            loop.call_at(due / 1e6 / self._drift + 1e-9, self._announce)

    def came(self, frame):
        if self._held == BANKS:
            self.busy += 1
            return
        self._held += 1
        loop = asyncio.get_running_loop()
        takes = REQUESTED if frame[32] else ASKED
        self._free = max(self._free, loop.time()) + takes
        loop.call_at(self._free, self._answer, frame)

    def _answer(self, frame):
        self._held -= 1
        answer = self.model.take(frame, asyncio.get_running_loop().time() * 1e6)
        if answer is not None:
            self._switch.send(self._port, answer)


def ignores(frame):
    """A node does nothing with what is not from a manager."""
    return not is_management(frame) or frame[17] & 0xF or frame[18]


@pytest.mark.parametrize("step", [1, 16, 256, 257])
def test_nodes_that_start_at_once(step):
    """All are discovered, numbered and read, with addresses so far from each other, behind a
    switch with queues of 16 KiB; no frame is lost."""
    rng = random.Random(seed())
    ends = [End(b"\x02\x51\0" + (n * step).to_bytes(3, "big"), n, rng) for n in range(NODES)]

    async def whole():
        switch = LearningSwitch([*(end.came for end in ends), lambda frame: port.came(frame)],
                                [*(ignores for _ in ends), lambda frame: False])
        port = SwitchPort(switch, NODES)
        for end in ends:
            end.start(switch)
        loop = asyncio.get_running_loop()
        async with Manager(port, OWN) as manager:
            found = await manager.discover(0.008 + 0.001)
            early = switch.counts["lost"]
            assert [identity.mac for identity in found] == sorted(end.mac for end in ends)
            begin = loop.time()

            async def set_up(end, number):
                proxy = await Proxy.of(manager.node(end.mac, end.key))
                await proxy.set_number(number)
                return (await proxy.read("control.node"))["number"]

            numbers = await asyncio.gather(*(set_up(end, n) for n, end in enumerate(ends, 1)))
            took = loop.time() - begin
        port.close()
        assert numbers == [end.model.number for end in ends] == list(range(1, NODES + 1))
        print(f"many_nodes: step {step}: {NODES} nodes numbered and read {1e3 * took:.1f} ms after "
              f"their discovery; {switch.counts['in']} frames, {early} copies of announcements "
              f"lost, {switch.counts['lost'] - early} others, {sum(e.busy for e in ends)} found a "
              f"node busy; deepest queue {switch.deepest} bytes")
        assert not switch.counts["lost"]

    run(whole())
