"""A simulated pool at a desk: a manager with a queue, and what must be so when all is at rest."""

import asyncio
from contextlib import asynccontextmanager

from dxpu_manager import Gpu, Limits, Requests, State, Task, replay

from .pool_bench import Bench
from .simulated_time import run

__all__ = ["A", "B", "H0", "H1", "LIMITS", "are_as_recorded", "at_rest", "cards_of", "desk", "end",
           "replays", "settled"]

#: Hosts and GPUs of :class:`~tests.support.pool_bench.System`.
H0, H1 = 0x100, 0x101
A, B = "00000200.1", "00000200.2"
LIMITS = Limits(attach=4.0, consent=3.0, patience=2.0, look=5.0, admits=True)


@asynccontextmanager
async def desk(bench):
    """Requests to a manager that has met all nodes."""
    async with bench.manager(watches=True) as manager:
        requests = Requests(manager)
        turns = asyncio.ensure_future(requests.run())
        await asyncio.sleep(2)
        try:
            yield requests
        finally:
            turns.cancel()


def at_rest(system, shelf, does):
    """Let ``does`` go on with requests and a system; then all must be at rest."""
    bench = Bench(system, shelf, limits=LIMITS)

    async def whole():
        async with desk(bench) as requests:
            await does(requests, system)
            await requests.pool.durable()
            await settled(system, requests.pool)
            assert not bench.wrong

    run(whole())


def cards_of(system, host):
    """GPUs whose cards a host sees."""
    return {f"{box.serial:08x}.{slot}" for box, slot in system.fabric.cards_of(host)}


def are_as_recorded(system, pool):
    """Both nodes of each binding send by the path of the records."""
    for host in system.hosts:
        for row in host.rows:
            if not row.used:
                continue
            box = next(box for box in system.boxes if box.number == row.node)
            gpu, common = pool.gpu(f"{box.serial:08x}.{row.slot}"), host.links & box.links
            if gpu.state is State.ATTACHED:
                ways = host.way(row, common), box.way(box.rows[row.slot - 1], common)
                assert ways == (gpu.binding.path, gpu.binding.path), gpu.name


async def end(manager):
    """Wait for all tasks."""
    for task in list(manager.pool.all(Task)):
        await manager.wait(task.number)
    await manager.pool.durable()


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
