"""A manager of a pool before light nodes, over a bad network, in simulated time."""

import asyncio
import json
import os
import random
from collections import deque
from contextlib import asynccontextmanager
from pathlib import Path

from dxpu_manage import Manager
from dxpu_manager import Limits, Nodes, Pool, PoolManager
from dxpu_sim.system.agents import BOX, HOST, Agent, Card, Crowd, Fabric, Shape

from .manager_bench import OWN, Network
from .shelves import FileShelf
from .testbench import seed

__all__ = ["Bench", "CrowdNetwork", "Died", "System"]


class Died(BaseException):
    """The manager's process is killed here."""


class System:
    """Hosts and boxes, whatever managers do.

    Parameters
    ----------
    hosts : int
    boxes : list of lists of :class:`Card`
        The cards of each box, in its first slots.
    rows : int
        Ports of a host, slots of a box.
    peers, paths : int
        Of each node.
    """

    def __init__(self, hosts=2, boxes=((Card(), Card()),), *, rows=4, peers=None, paths=1,
                 rng=None):
        self.rng = rng or random.Random(seed())
        shape = Shape(rows=rows, paths=paths, peers=peers or max(rows, 4))
        made = []
        for n in range(hosts):
            made.append(self._agent(HOST, 0x100 + n, shape, {}))
        for n, cards in enumerate(boxes):
            made.append(self._agent(BOX, 0x200 + n, shape, dict(enumerate(cards, 1))))
        self.agents = made
        self.hosts, self.boxes = made[:hosts], made[hosts:]
        self.fabric = Fabric(made)
        #: Time of the nodes, in microseconds.
        self.now = 0.0
        #: By how much the clock of the manager's machine was set, in seconds; name of the machine's
        #: last start.
        self.step, self.boot = 0.0, "first"
        self.keys = {(agent.serial, agent.mac): agent.key for agent in made}

    def _agent(self, role, serial, shape, cards):
        mac = b"\x02\x51\0\0" + serial.to_bytes(2, "big")
        return Agent(role, mac=mac, serial=serial, key=self.rng.randbytes(16), shape=shape,
                     cards=cards, rng=random.Random(serial))


class _Network(Network):
    """Frames to and from agents that the manager reaches."""

    def __init__(self, system, *, loss, rng, on_frame):
        super().__init__([], loss=loss, rng=rng)
        self._system, self._on_frame = system, on_frame
        #: Agents that the manager does not reach.
        self.cut = set()
        # Each loop begins at 0, but nodes go on.
        self._began = system.now

    def now(self):
        self._system.now = self._began + super().now()
        return self._system.now

    def send(self, frame):
        self._on_frame("before")
        self.nodes = [agent.model for agent in self._system.agents if agent not in self.cut]
        super().send(frame)
        self._on_frame("after")

    def announce(self):
        """All nodes without a number say that they are there."""
        for agent in self._system.agents:
            if agent.number == 0xFFF and agent not in self.cut:
                self.give(agent.model.announcement())

    async def announce_always(self):
        """As in :meth:`announce`, now and then."""
        while True:
            self.announce()
            await asyncio.sleep(0.2)


class CrowdNetwork:
    """A port before very many agents; those without a number announce themselves as gateware does.
    """

    def __init__(self, system, *, loss, rng, on_frame):
        self.crowd = Crowd(system.agents, loss=loss, rng=rng)
        self._system, self._began, self._on_frame = system, system.now, on_frame
        self._frames = deque()
        self._read, self._write = os.pipe()
        self._speaker = asyncio.ensure_future(self._speaks())

    def now(self):
        self._system.now = self._began + 1e6 * asyncio.get_running_loop().time()
        return self._system.now

    async def _speaks(self):
        """Let agents say what is due; one that was reset is heard a while later."""
        while True:
            self._give(self.crowd.speak(self.now()))
            await asyncio.sleep(min(max(self.crowd.due() - self.now(), 1e3) / 1e6, 0.02))

    def fileno(self):
        return self._read

    def send(self, frame):
        self._on_frame("before")
        self._give(self.crowd.take(frame, self.now()))
        self._on_frame("after")

    def _give(self, frames):
        if frames and not self._frames:
            os.write(self._write, b"x")
        self._frames += frames

    def receive(self):
        if not self._frames:
            return None
        frame = self._frames.popleft()
        if not self._frames:
            os.read(self._read, 1)
        return frame

    def close(self):
        self._speaker.cancel()
        os.close(self._read)
        os.close(self._write)


class Bench:
    """Managers one after the other, with one store, whose disk is slow.

    Parameters
    ----------
    system : System
    shelf : Path or FileShelf or EtcdShelf
        Where the store is; a path: in this file.
    loss : float
        Frames that are lost, and as many that come twice.
    network : class
        :class:`CrowdNetwork` for very many nodes.
    """

    def __init__(self, system, shelf, *, loss=0.0, limits=Limits(admits=True), network=_Network):
        self.shelf = FileShelf(shelf) if isinstance(shelf, Path) else shelf
        self.system, self.loss, self.limits = system, loss, limits
        self._network = network
        self.acts, self._dies_at, self._process = 0, None, None
        #: Rows that were changed against the rules.
        self.wrong = []
        for agent in system.agents:
            agent.committed = self._committed

    def _committed(self, agent, number, row):
        """A command has changed a row: that must have been written down before, and a host may get
        a card only whose box knows of it."""
        if not row.used:
            return
        host = agent if agent.role == HOST else self._numbered(row.node)
        box = agent if agent.role == BOX else self._numbered(row.node)
        name = f"{box.serial:08x}.{row.slot}" if box else None
        found = self.shelf.text(f"gpu/{name}")
        binding = found and json.loads(found)["binding"]
        if box and host and (not binding or (binding["host"], binding["generation"]) != (
                host.serial, row.generation)):
            self.wrong.append(f"{name} is bound with {row.generation}, written down is {binding}")
        if agent.role == HOST and box and not box.is_young:
            there = box.rows[row.slot - 1]
            if (there.used, there.node, there.generation) != (True, host.number, row.generation):
                self.wrong.append(f"{name} is bound at the host before the box")

    def _numbered(self, number):
        return next((agent for agent in self.system.agents if agent.number == number), None)

    def kill_after(self, acts):
        """Kill the manager's process at a later act: before or after it sends a frame or writes
        something down. ``None``: never."""
        self._dies_at = None if acts is None else self.acts + acts

    def _act(self, when):
        self.acts += 1
        if self._dies_at is not None and self.acts > self._dies_at:
            self._process.cancel()
            raise Died

    @asynccontextmanager
    async def manager(self, *, watches=False):
        """A manager that has met all nodes, in the running loop; :exc:`Died` if it is killed.

        ``watches``: it meets nodes that announce themselves, and looks at all, by itself.
        """
        self._process = asyncio.current_task()
        store = self.shelf.open(self._act)
        network = self._network(self.system, loss=self.loss, rng=self.system.rng,
                                on_frame=self._act)
        try:
            pool = await Pool.of(store, lambda: 1e9 + self.system.step + network.now() / 1e6,
                                 since_boot=lambda: network.now() / 1e6, boot=self.system.boot)
            async with Manager(network, OWN, epoch=store.epoch) as manager:
                made = PoolManager(pool, Nodes(manager, self.system.keys), self.limits)
                made.network = network
                async with made:
                    if watches:
                        tasks = [asyncio.ensure_future(made.watch())]
                        if self._network is _Network:
                            tasks.append(asyncio.ensure_future(network.announce_always()))
                    else:
                        tasks = []
                        await meet_all(made)
                        await made.look_at_all()
                    try:
                        yield made
                    finally:
                        for task in tasks:
                            task.cancel()
        except asyncio.CancelledError:
            raise Died from None
        finally:
            network.now()  # the next one goes on from here
            network.close()
            await store.close()


async def meet_all(manager):
    """Let the manager meet all nodes without a number."""
    found = asyncio.ensure_future(manager.nodes.manager.discover(0.2))
    for _ in range(5):
        await asyncio.sleep(0.02)
        manager.network.announce()
    for identity in await found:
        await manager.meet(identity)
