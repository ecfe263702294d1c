"""dxpu_manager: hundreds of nodes, which lose frames and restart, are as the records say."""

import asyncio
import random

import pytest

from dxpu_manager import Gpu, Limits, Node, PoolError, Progress, State
from dxpu_sim.system.agents import Card
from tests.support.pool_bench import Bench, CrowdNetwork, System
from tests.support.pool_desk import end, settled
from tests.support.simulated_time import run
from tests.support.testbench import seed

#: All frames of all nodes are lost so often.
LOSS = 0.01
SLOTS = 8
LIMITS = Limits(attach=6.0, consent=4.0, patience=2.0, look=20.0, admits=True)


class Hall:
    """Tenants who take GPUs and give them back, while nodes restart.

    Parameters
    ----------
    cycles : int
        Attaches that are ended by a detach.
    restarts : int
        Nodes that restart meanwhile.
    """

    def __init__(self, manager, system, cycles, restarts):
        self.manager, self.system, self.pool = manager, system, manager.pool
        self.cycles, self.restarts, self.done = cycles, restarts, 0
        self._rng, self._taken = random.Random(seed()), set()

    async def found(self):
        """Seconds until all nodes have numbers and all GPUs are free."""
        began = asyncio.get_running_loop().time()
        gpus = SLOTS * len(self.system.boxes)
        while sum(gpu.state is State.FREE for gpu in self.pool.all(Gpu)) < gpus or not all(
                agent.number != 0xFFF for agent in self.system.agents):
            await asyncio.sleep(0.1)
        return asyncio.get_running_loop().time() - began

    async def tenant(self):
        """Take one to four GPUs of any boxes, use them, give them back, again and again."""
        while self.done < self.cycles:
            host = self._rng.choice(self.system.hosts).serial
            free = [gpu.name for gpu in self.pool.all(Gpu)
                    if gpu.state is State.FREE and not gpu.task and gpu.name not in self._taken]
            gpus = self._rng.sample(free, min(len(free), self._rng.randint(1, 4)))
            self._taken |= {*gpus}
            try:
                task = await self.manager.wait(self.manager.attach(host, gpus).number)
                if task.progress is Progress.DONE:
                    await asyncio.sleep(self._rng.uniform(0.0, 3.0))
                    await self._give_back(gpus)
            except PoolError:
                await asyncio.sleep(0.2)  # no port, or no GPU, is left
            self._taken -= {*gpus}

    async def _give_back(self, gpus):
        """With consent, or by force from who restarts."""
        for force in (False, True, True, True):
            try:
                task = await self.manager.wait(self.manager.detach(gpus, force=force).number)
            except PoolError:
                await asyncio.sleep(2.0)  # bound again after a restart
                continue
            if task.progress is Progress.DONE:
                self.done += 1
                return

    async def trouble(self):
        """Nodes restart, until all tenants are gone."""
        for n in range(self.restarts):
            while self.done < n * self.cycles // self.restarts:
                await asyncio.sleep(0.1)
            self._rng.choice(self.system.agents).reset()


@pytest.mark.parametrize("hosts, boxes, cycles, restarts", [
    (16, 8, 60, 6), pytest.param(128, 64, 1000, 100, marks=pytest.mark.long)])
def test_many_nodes(tmp_path, hosts, boxes, cycles, restarts):
    """More boxes than a host has peers; tables and store agree when all is calm again, with GPUs
    attached. Found within 10 s."""
    system = System(hosts, [[Card() for _ in range(SLOTS)] for _ in range(boxes)], rows=SLOTS)
    bench = Bench(system, tmp_path / "pool.db", loss=LOSS, limits=LIMITS, network=CrowdNetwork)

    async def whole():
        async with bench.manager(watches=True) as manager:
            hall = Hall(manager, system, cycles, restarts)
            discovery = await hall.found()
            assert discovery < 10
            await asyncio.gather(hall.trouble(), *(hall.tenant() for _ in range(hosts // 4)))
            print(f"{hosts + boxes} nodes: found in {discovery:.1f} s, {hall.done} cycles in "
                  f"{asyncio.get_running_loop().time():.0f} s of simulated time")
            for host in system.hosts[:hosts // 2]:
                free = next(gpu.name for gpu in manager.pool.all(Gpu) if gpu.state is State.FREE)
                manager.attach(host.serial, [free])
            manager.network.crowd.loss = 0.0
            for _ in range(4):
                await asyncio.sleep(LIMITS.look)
                await end(manager)
            assert not manager.down and not manager.strangers
            await settled(system, manager.pool)
            assert not bench.wrong, bench.wrong
            for node in manager.pool.all(Node):
                assert (await manager.nodes.reach(node)).node.events.qsize() < 2 * SLOTS
            states = [gpu.state for gpu in manager.pool.all(Gpu)]
            assert states.count(State.ATTACHED) >= hosts // 2 - 1
            assert {*states} == {State.ATTACHED, State.FREE}

    run(whole())
