"""dxpu_manager.paths: GPUs are spread over paths of hosts and boxes, and each pair has one path."""

import asyncio
import random
from collections import Counter

import pytest

from dxpu_manager import Conflict, Gpu, Progress, Wish
from dxpu_manager.paths import loads
from dxpu_sim.system.agents import Card
from tests.support.pool_bench import System
from tests.support.pool_desk import H0, H1, at_rest
from tests.support.testbench import seed


def scene(shelf, does, *, paths=2, boxes=2):
    """Two hosts and boxes of four GPUs, with ports to the fabric."""
    system = System(2, boxes * ((Card(), Card(), Card(), Card()),), rows=8, paths=paths)
    at_rest(system, shelf, does)


def test_pairs_take_the_path_that_carries_the_fewest(shelf):
    """The rows of both nodes have it; all GPUs of a pair take it; the records know it, so another
    manager goes on with it."""
    async def does(requests, system):
        manager, pool = requests.manager, requests.pool
        for host, gpus in ((H0, ["00000200.1", "00000200.2"]), (H1, ["00000200.3"]),
                           (H1, ["00000201.1"]), (H0, ["00000201.2"]), (H0, ["00000200.4"])):
            task = await manager.wait(manager.attach(host, gpus).number)
            assert task.progress is Progress.DONE, task.said
        assert {name: pool.gpu(name).binding.path for name in (
            "00000200.1", "00000200.2", "00000200.4", "00000200.3", "00000201.1",
            "00000201.2")} == {
                "00000200.1": 0, "00000200.2": 0, "00000200.4": 0,  # host 0 and box 0
                "00000200.3": 1,    # box 0 has two on path 0
                "00000201.1": 0,    # host 1 has one on path 1
                "00000201.2": 1}    # box 1 has one on path 0, host 0 has two there
        # The lower path has the other one for the case that it dies.
        assert [row.paths for row in system.boxes[0].rows[:4]] == [3, 3, 2, 3]
        assert {row.slot: row.paths for row in system.hosts[1].rows if row.used} == {3: 2, 1: 3}
        assert loads(pool, pool.node(0x200)) == {0: 3, 1: 1}
        assert loads(pool, pool.node(H0)) == {0: 3, 1: 1}

    scene(shelf, does)


def test_a_wish_for_a_path(shelf):
    async def does(requests, system):
        manager, pool = requests.manager, requests.pool
        request = requests.ask(Wish(H0, 2, path=1))
        await asyncio.sleep(3)
        held = pool.request(request.number)
        assert [pool.gpu(name).binding.path for name in held.gpus] == [1, 1]
        assert pool.request(request.number).wish.path == 1
        box = pool.gpu(held.gpus[0]).box
        other = requests.ask(Wish(H0, 5, path=0))
        await asyncio.sleep(1)
        assert requests.explain(other.number) == (
            "5 GPUs by path 0: never; with nobody else in the pool there are 4 free GPUs by path 0")
        requests.give_back(other.number)
        free = next(g for g in pool.all(Gpu) if g.box == box and not g.request)
        request = requests.ask(Wish(H0, 1, path=0))
        with pytest.raises(Conflict, match=f"^host 00000100 takes path 1 to all its GPUs of box "
                                           f"{box:08x}$"):
            manager.attach(H0, [free.name], request=request)
        request = requests.ask(Wish(H1, 1, path=2))
        with pytest.raises(Conflict, match="^path 2 does not lead from host 00000101 to box "
                                           f"{box:08x}: there are paths 0 to 1$"):
            manager.attach(H1, [free.name], request=request)
        await asyncio.sleep(3)

    scene(shelf, does)


def test_nodes_with_one_port(shelf):
    async def does(requests, system):
        manager, pool = requests.manager, requests.pool
        await manager.wait(manager.attach(H0, ["00000200.1", "00000201.1"]).number)
        assert pool.node(0x200).paths == 1
        assert {pool.gpu(name).binding.paths for name in ("00000200.1", "00000201.1")} == {1}

    scene(shelf, does, paths=1)


def test_any_attaches_and_detaches_stay_balanced(tmp_path):
    """Each pair has one path, and when a pair begins, its path is the one of the box with the
    fewest GPUs, as the records say after each step."""
    async def does(requests, system):
        manager, pool, rng = requests.manager, requests.pool, random.Random(seed())
        for _ in range(60):
            before = {(g.binding.host, g.box): g.binding.path
                      for g in pool.all(Gpu) if g.binding is not None}
            there = {box: loads(pool, pool.node(box)) for box in (0x200, 0x201, 0x202)}
            gpu = rng.choice(list(pool.all(Gpu)))
            if gpu.binding is not None:
                await manager.wait(manager.detach([gpu.name], force=True).number)
                continue
            host = rng.choice((H0, H1))
            if gpu.slot > 4 or len(pool.bound_to(host)) == 8:
                continue
            await manager.wait(manager.attach(host, [gpu.name]).number)
            path = pool.gpu(gpu.name).binding.path
            if (host, gpu.box) in before:
                assert path == before[host, gpu.box]
            else:
                assert there[gpu.box][path] == min(there[gpu.box][n] for n in range(3))
        taken = Counter((g.binding.host, g.box, g.binding.path)
                        for g in pool.all(Gpu) if g.binding is not None)
        assert len({key[:2] for key in taken}) == len(taken)

    scene(tmp_path / "pool.db", does, paths=3, boxes=3)
