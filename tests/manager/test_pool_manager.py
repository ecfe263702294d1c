"""dxpu_manager: GPUs are given to hosts and taken from them, whatever happens to the nodes."""

import pytest

from dxpu_manager import Gpu, Progress, State, Task, replay
from tests.support.pool_bench import Bench, Died, System
from tests.support.simulated_time import run

H0, H1 = 0x100, 0x101
A, B = "00000200.1", "00000200.2"


def cards_of(system, host):
    """GPUs whose cards a host sees."""
    return {f"{box.serial:08x}.{slot}" for box, slot in system.fabric.cards_of(host)}


def test_a_gpu_goes_from_host_to_host(shelf):
    system = System()
    bench = Bench(system, shelf, loss=0.05)

    async def whole():
        async with bench.manager() as manager:
            pool = manager.pool
            assert {name: pool.gpu(name).state for name in (A, B)} == {
                A: State.FREE, B: State.FREE}
            task = await manager.wait(manager.attach(H0, [A, B]).number)
            assert task.progress is Progress.DONE, task.said
            assert cards_of(system, system.hosts[0]) == {A, B}
            task = await manager.wait(manager.detach([A]).number)
            assert (task.progress, pool.gpu(A).state) == (Progress.DONE, State.FREE)
            task = await manager.wait(manager.attach(H1, [A]).number)
            assert cards_of(system, system.hosts[1]) == {A}
            assert cards_of(system, system.hosts[0]) == {B}
            assert pool.gpu(A).state is pool.gpu(B).state is State.ATTACHED
            assert [task.number for task in pool.all(Task)] == [1, 2, 3]
            await replays(pool)

    run(whole())


async def replays(pool):
    """The store has the records, and so do the events in it."""
    held = {key: record.text() for key, record in pool.records.items()}
    assert replay([event async for event in pool.store.events()]) == held
    assert (await pool.store.load())[0] == held


async def settled(system, pool):
    """What must be so when nothing is under way."""
    bound = {}
    for host in system.hosts:
        for port, row in enumerate(host.rows):
            if row.used:
                box = next(box for box in system.boxes if box.number == row.node)
                there = box.rows[row.slot - 1]
                # I2: no row of a host without that of the box, and of the same generation.
                assert (there.used, there.node, there.generation) == (
                    True, host.number, row.generation)
                name = f"{box.serial:08x}.{row.slot}"
                assert name not in bound  # I1
                bound[name] = host.serial, port
    for box in system.boxes:
        for row in box.rows:
            assert not row.used or f"{box.serial:08x}.{row.slot}" in bound
    wanted = {gpu.name: (gpu.binding.host, gpu.binding.port) for gpu in pool.all(Gpu)
              if gpu.state is State.ATTACHED}
    assert wanted == bound
    for box in system.boxes:
        for slot in box.dirty:
            assert pool.gpu(f"{box.serial:08x}.{slot}").state is not State.FREE  # I6
    for gpu in pool.all(Gpu):
        assert not gpu.task and gpu.state not in (State.ATTACHING, State.DRAINING)  # I3
    assert all(task.progress.ended for task in pool.all(Task))
    await replays(pool)  # I5


async def end(manager):
    """Wait for all tasks."""
    for task in list(manager.pool.all(Task)):
        await manager.wait(task.number)
    await manager.pool.durable()


async def give_and_move(manager):
    """Host 0 gets both GPUs, then host 1 the first of them; what was done already is not done
    again."""
    pool = manager.pool
    await end(manager)
    if not list(pool.all(Task)) or pool.gpu(B).state is State.FREE:
        await manager.wait(manager.attach(H0, [A, B]).number)
    if pool.gpu(A).binding and pool.gpu(A).binding.host == H0:
        await manager.wait(manager.detach([A]).number)
    if pool.gpu(A).state is State.FREE:
        await manager.wait(manager.attach(H1, [A]).number)


def killed(shelf, acts):
    """Kill a manager after ``acts``, and let the next one go on; returns how many there were, and
    where the GPUs were when all had come to rest."""
    system = System()
    bench = Bench(system, shelf)

    async def first():
        async with bench.manager() as manager:
            before = bench.acts
            bench.kill_after(acts)
            await give_and_move(manager)
            bench.kill_after(None)
            await end(manager)
            await settled(system, manager.pool)
            assert not bench.wrong, bench.wrong
            return bench.acts - before

    async def second():
        bench.kill_after(None)
        async with bench.manager() as manager:
            await end(manager)
            await settled(system, manager.pool)
            where = tuple(manager.pool.gpu(name).binding for name in (A, B))
            await give_and_move(manager)
            await end(manager)
            await settled(system, manager.pool)
            assert cards_of(system, system.hosts[1]) == {A}
            assert cards_of(system, system.hosts[0]) == {B}
            assert not bench.wrong, bench.wrong
            return tuple(binding and binding.host for binding in where)

    if acts is None:
        return run(first()), None
    with pytest.raises(Died):
        run(first())
    return None, run(second())


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
def test_the_manager_is_killed_at_any_moment(shelves, step):
    """Before and after each durable write and each frame: the next manager brings all to an end,
    and what was asked for is done whole or not at all."""
    acts, _ = killed(shelves(), None)
    found = {killed(shelves(), n)[1] for n in range(0, acts, step)}
    assert found == {(None, None), (H0, H0), (None, H0), (H1, H0)}
    print(f"killed at {acts} moments")
