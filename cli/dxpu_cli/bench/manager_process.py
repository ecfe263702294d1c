"""A process with one of several managers, before light nodes, that wishes for GPUs by itself.

It prints a line of JSON for all that it knows to be so, with the time of the machine's monotonic
clock: ``leads``, ``written`` (a wish is durable), ``done`` (its task has ended), ``deposed``,
``rest``. SIGTERM: no wishes any more, and an end when all tasks have ended.
"""

import asyncio
import json
import random
import signal
import sys
import time

from dxpu_manage import Manager
from dxpu_manager import Gpu, Limits, Nodes, Pool, PoolError, PoolManager, State
from dxpu_manager.etcd import Etcd, EtcdStore

from .light_nodes import HOSTS, KEYS, Line

__all__ = ["main"]

#: Wishes at a time.
_AT_ONCE = 3


def say(what, **more):
    """Print what is so."""
    print(json.dumps({"time": time.monotonic(), "what": what, **more}), flush=True)


async def _wishes(manager, ends):
    """Attach and detach GPUs."""
    pool, rng = manager.pool, random.Random()
    while not ends.is_set():
        idle = [gpu for gpu in pool.all(Gpu) if not gpu.task]
        free = [gpu.name for gpu in idle if gpu.state is State.FREE]
        held = [gpu.name for gpu in idle if gpu.state is State.ATTACHED]
        try:
            if free and (not held or rng.random() < 0.5):
                task = manager.attach(rng.choice(HOSTS), [rng.choice(free)])
            elif held:
                task = manager.detach([rng.choice(held)])
            else:
                await asyncio.sleep(0.01)
                continue
        except PoolError:
            await asyncio.sleep(0.01)
            continue
        await pool.durable()
        say("written", number=task.number, gpus=task.gpus, host=task.host, job=task.job)
        task = await manager.wait(task.number)
        say("done", number=task.number, progress=task.progress)


async def main(endpoints, prefix, nodes, own, ttl):
    """Wait, lead, and wish until the end."""
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    leads = asyncio.create_task(EtcdStore.lead(Etcd(endpoints, prefix=prefix), own, ttl=int(ttl)))
    ended = asyncio.create_task(ends.wait())
    say("waits")
    await asyncio.wait({leads, ended}, return_when=asyncio.FIRST_COMPLETED)
    if not leads.done():
        leads.cancel()
        await asyncio.wait({leads})
        return
    store, line = leads.result(), Line(own, nodes)
    say("leads", epoch=store.epoch)
    pool = await Pool.of(store)
    fabric = Manager(line, line.mac, epoch=store.epoch)
    limits = Limits(admits=True, again=0.05, look=2.0)
    async with fabric, PoolManager(pool, Nodes(fabric, KEYS), limits) as manager:
        watches = asyncio.create_task(manager.watch(0.2))
        deposed = asyncio.create_task(manager.deposed.wait())
        wishes = asyncio.gather(*(_wishes(manager, ends) for _ in range(_AT_ONCE)),
                                return_exceptions=True)
        await asyncio.wait({deposed, wishes}, return_when=asyncio.FIRST_COMPLETED)
        say("deposed" if deposed.done() else "rest")
        for each in (watches, deposed, wishes):
            each.cancel()
        await asyncio.gather(watches, deposed, wishes, return_exceptions=True)
    line.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
