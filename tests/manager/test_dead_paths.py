"""dxpu_manager: paths that lose their link, and get it back."""

import asyncio
from contextlib import suppress

import pytest

from dxpu_manager import Conflict, Gpu, Phase, Progress, State, Wish
from dxpu_manager.paths import alive, loads, mask, taken
from dxpu_sim.system.agents import Card
from tests.support.pool_bench import Bench, Died, System
from tests.support.pool_desk import (
    H0, H1, LIMITS, are_as_recorded, at_rest, cards_of, desk, settled,
)
from tests.support.simulated_time import run

#: GPUs of two boxes with four each.
A, B, C, D = "00000200.1", "00000200.2", "00000201.1", "00000200.3"


def a_system():
    return System(2, 2 * ((Card(), Card(), Card(), Card()),), rows=8, paths=2)


async def attached(manager, host, *gpus):
    task = await manager.wait(manager.attach(host, gpus).number)
    assert task.progress is Progress.DONE, task.said


def lives(pool):
    return {gpu.name: gpu.generation for gpu in pool.all(Gpu) if gpu.binding is not None}


async def said(pool, word):
    """What events say that have a word."""
    await pool.durable()
    return [event.said async for event in pool.store.events() if word in event.said]


def test_a_row_has_all_paths_that_do_not_come_before_the_wanted_one():
    """Whatever path a session begins to look from: the wanted one is taken, and no row could name
    another path beside without taking it."""
    for count in range(1, 6):
        for path in range(count):
            assert mask(path, None, count) == 1 << path
            for begins in range(count):
                paths = mask(path, begins, count)
                assert taken(paths, begins, count) == path
                for other in set(range(count)) - {n for n in range(count) if paths >> n & 1}:
                    assert taken(paths | 1 << other, begins, count) == other
    assert [mask(0, 0, 2), mask(1, 0, 2), mask(1, 1, 2), mask(0, 1, 2)] == [3, 2, 3, 1]
    # A session that has left for a path that the peer has not.
    assert mask(1, 2, 2) == 2


@pytest.mark.parametrize("end", ["host", "box"])
def test_a_gpu_stays_where_the_row_names_another_path(shelf, end):
    """The card is the host's all the time; the records follow, and events say why."""
    async def does(requests, system):
        manager, pool = requests.manager, requests.pool
        await attached(manager, H0, A, B)
        before = lives(pool)
        node = system.hosts[0] if end == "host" else system.boxes[0]
        node.link(0, up=False)
        assert cards_of(system, system.hosts[0]) == {A, B}
        await asyncio.sleep(LIMITS.look + 1)
        assert cards_of(system, system.hosts[0]) == {A, B} and lives(pool) == before
        assert [pool.gpu(name).binding.path for name in (A, B)] == [1, 1]
        are_as_recorded(system, pool)
        assert pool.node(node.serial).dead == 1
        assert await said(pool, "link") == [
            f"{end} {node.serial:08x}: path 0 has no link",
            *(f"GPU {name}: host 00000100 takes path 1 to it, as path 0 has no link"
              for name in (A, B))]

    at_rest(a_system(), shelf, does)


def test_a_gpu_that_its_path_has_taken_along_comes_back_by_another(shelf):
    """The row of the last path names no other one: the card goes, and is bound again. Others notice
    nothing."""
    async def does(requests, system):
        manager, pool = requests.manager, requests.pool
        await attached(manager, H0, A)
        await attached(manager, H1, B)
        assert pool.gpu(B).binding.path == 1
        before = lives(pool)
        system.boxes[0].link(1, up=False)
        assert cards_of(system, system.hosts[1]) == set()
        await asyncio.sleep(LIMITS.look + 3)
        assert cards_of(system, system.hosts[1]) == {B}
        assert pool.gpu(B).state is State.ATTACHED and pool.gpu(B).binding.path == 0
        after = lives(pool)
        assert after[A] == before[A] and after[B] == before[B] + 1
        are_as_recorded(system, pool)
        # Without any path it waits, and has nothing lost when one is there again.
        system.boxes[0].link(0, up=False)
        await asyncio.sleep(20)
        assert cards_of(system, system.hosts[1]) == set()
        assert not any(gpu.broken for gpu in pool.all(Gpu))
        system.boxes[0].link(1, up=True)
        await asyncio.sleep(LIMITS.look + 3)
        assert cards_of(system, system.hosts[0]) == {A}
        assert cards_of(system, system.hosts[1]) == {B}
        are_as_recorded(system, pool)

    at_rest(a_system(), shelf, does)


def test_pairs_return_to_a_path_that_stays(shelf):
    """Without a host that notices; not to one whose link comes and goes."""
    async def does(requests, system):
        manager, pool, box = requests.manager, requests.pool, system.boxes[0]
        await attached(manager, H0, A)
        await attached(manager, H1, B)
        box.link(1, up=False)
        await asyncio.sleep(5)
        assert loads(pool, pool.node(0x200)) == {0: 2}
        before = lives(pool)
        for _ in range(3):
            box.link(1, up=True)
            await asyncio.sleep(LIMITS.look + 1)
            box.link(1, up=False)
            await asyncio.sleep(LIMITS.look + 1)
        await asyncio.sleep(LIMITS.calm)
        assert loads(pool, pool.node(0x200)) == {0: 2}
        box.link(1, up=True)
        await asyncio.sleep(LIMITS.look + LIMITS.calm + 1)
        assert loads(pool, pool.node(0x200)) == {0: 1, 1: 1}
        assert lives(pool) == before
        assert {*cards_of(system, system.hosts[0]), *cards_of(system, system.hosts[1])} == {A, B}
        are_as_recorded(system, pool)

    at_rest(a_system(), shelf, does)


def test_nothing_new_takes_a_dead_path(shelf):
    async def does(requests, system):
        manager, pool = requests.manager, requests.pool
        system.boxes[0].link(0, up=False)
        system.boxes[1].link(1, up=False)
        await asyncio.sleep(LIMITS.look + 1)
        assert alive(pool.node(H0), pool.node(0x200)) == [1]
        await attached(manager, H0, A, C)
        assert [pool.gpu(name).binding.path for name in (A, C)] == [1, 0]
        are_as_recorded(system, pool)
        with pytest.raises(Conflict, match="^path 0 from host 00000101 to box 00000200 has no "
                                           "link$"):
            manager.attach(H1, [B], request=requests.ask(Wish(H1, path=0)))
        # A wish for a path goes where that has a link; without any path it waits.
        await asyncio.sleep(3)
        held = pool.request(1)
        assert [pool.gpu(name).box for name in held.gpus] == [0x201]
        system.hosts[1].link(1, up=False)
        await asyncio.sleep(LIMITS.look + 1)
        with pytest.raises(Conflict, match="^no path from host 00000101 to box 00000200 has a "
                                           "link$"):
            manager.attach(H1, [B])
        waits = requests.ask(Wish(H1, 4))
        await asyncio.sleep(2)
        assert pool.request(waits.number).phase is Phase.WAITING
        assert requests.explain(waits.number).startswith("4 GPUs: there are 2 free GPUs; ")
        system.boxes[0].link(0, up=True)
        await asyncio.sleep(LIMITS.look + 3)
        assert pool.request(waits.number).phase is Phase.HOLDING
        requests.give_back(waits.number)
        await asyncio.sleep(3)

    at_rest(a_system(), shelf, does)


def test_a_node_without_any_link_that_answers_is_not_believed(shelf):
    """Its links are not wired to the proxy, or nobody would hear it."""
    async def does(requests, system):
        manager, pool = requests.manager, requests.pool
        system.boxes[0].links = 0
        system.fabric.reaches = lambda one, other: True
        for agent in system.agents:
            agent.way = lambda row, alive: 0
        await asyncio.sleep(LIMITS.look + 1)
        assert pool.node(0x200).dead == 0
        await attached(manager, H0, A)

    at_rest(a_system(), shelf, does)


def test_paths_are_balanced_when_somebody_wishes(shelf):
    """With as few changes as can be, and no host notices."""
    async def does(requests, system):
        manager, pool = requests.manager, requests.pool
        for host, count in ((H0, 2), (H1, 1)):
            request = requests.ask(Wish(host, count, path=0))
            requests.turn()
            await asyncio.sleep(3)
            assert pool.request(request.number).phase is Phase.HOLDING
        boxes = {gpu.box for gpu in pool.all(Gpu) if gpu.binding is not None}
        assert len(boxes) == 1
        before = lives(pool)
        assert len(manager.rebalance()) == 1
        assert manager.rebalance() == []
        await asyncio.sleep(2)
        assert sorted(loads(pool, pool.node(boxes.pop())).values()) == [1, 2]
        assert lives(pool) == before and len(before) == 3
        are_as_recorded(system, pool)

    at_rest(a_system(), shelf, does)


def test_records_follow_a_node_that_has_left_a_path_by_itself(shelf):
    """Both links are there, but nobody answers on the path: what the node has found out is not
    undone, and the other node takes that path too."""
    async def does(requests, system):
        manager, pool, host = requests.manager, requests.pool, system.hosts[0]
        await attached(manager, H0, A)
        before = lives(pool)
        n, _ = host.peer_of(system.boxes[0].number)
        host._state.ways[n] = 1
        await asyncio.sleep(LIMITS.look + 2)
        assert pool.gpu(A).binding.path == 1 and lives(pool) == before
        are_as_recorded(system, pool)
        assert await said(pool, "has left") == [
            f"GPU {A}: host 00000100 takes path 1 to it, as host 00000100 has left path 0"]

    at_rest(a_system(), shelf, does)


def test_a_manager_dies_while_gpus_leave_a_path(tmp_path):
    """Whenever it dies: the next one has all GPUs on a path with a link, in rows and records."""
    for acts in range(0, 60, 3):
        system = a_system()
        bench = Bench(system, tmp_path / f"{acts}.db", limits=LIMITS)

        async def first(bench=bench, system=system, acts=acts):
            async with desk(bench) as requests:
                await attached(requests.manager, H0, A, B, C)
                await attached(requests.manager, H1, D)
                bench.kill_after(acts)
                for node in (system.boxes[0], system.hosts[1]):
                    node.link(1, up=False)
                system.boxes[1].link(0, up=False)
                await asyncio.sleep(20)

        async def second(bench=bench, system=system):
            bench.kill_after(None)
            async with desk(bench) as requests:
                await asyncio.sleep(8)
                await settled(system, requests.pool)
                are_as_recorded(system, requests.pool)
                assert cards_of(system, system.hosts[0]) == {A, B, C}
                assert cards_of(system, system.hosts[1]) == {D}
                assert not bench.wrong

        with suppress(Died):
            run(first())
        run(second())
