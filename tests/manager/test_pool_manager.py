"""dxpu_manager: GPUs are given to hosts and taken from them, whatever happens to the nodes."""

import pytest

from dxpu_manager import Progress, State, Task
from tests.support.pool_bench import Bench, Died, System
from tests.support.pool_desk import H0, H1, A, B, cards_of, end, replays, settled
from tests.support.simulated_time import run

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
