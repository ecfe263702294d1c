"""Discovery, attach and detach of a manager before many light nodes, in real time."""

import asyncio
import multiprocessing
import random
import resource
import socket
import statistics
import tempfile
import time
from pathlib import Path

from dxpu_cli.progress import Progress

__all__ = ["measure"]

#: Numbers of nodes, half of them hosts, half boxes with eight GPUs each; the most for which a
#: manager has numbers.
SIZES, MOST = (64, 128, 256, 512, 1024), 4064
#: Light nodes are some times slower than gateware, and all are one process.
SLOWER = 20.0
#: Seconds without which a discovery counts as failed.
_PATIENCE = 1200.0
_OWN = bytes.fromhex("02aabbccddee")
_HOST, _BOX = 0x100000, 0x200000
_ROWS = 8

#: What is measured, and its unit.
NAMES = {"discovery": "s", "discovery, CPU": "s", "discovery, CPU of all nodes": "s",
         "attach": "ms", "attach, 95 %": "ms",
         "detach": "ms", "detach, 95 %": "ms", "attach and detach, CPU": "ms", "memory": "MB"}


class _Line:
    """A port of a manager: a socket that keeps frames apart."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        line.setblocking(False)

    def fileno(self) -> int:
        return self._line.fileno()

    def send(self, frame: bytes) -> None:
        """Send a frame, or lose it."""
        try:
            self._line.send(frame)
        except BlockingIOError:
            return

    def receive(self) -> bytes | None:
        """The next frame; ``None`` if there is none now."""
        try:
            return self._line.recv(2000)
        except BlockingIOError:
            return None


def _keys(nodes: int, seed: int) -> dict[tuple[int, bytes], bytes]:
    """Keys of all nodes, by serial number and factory address."""
    rng = random.Random(seed)
    return {(serial, b"\x02\x51" + serial.to_bytes(4, "big")): rng.randbytes(16)
            for first in (_HOST, _BOX) for serial in range(first, first + nodes // 2)}


def _nodes(keys, line, command) -> None:
    """The process of the nodes."""
    from dxpu_sim.system.agents import BOX, HOST, Agent, Card, Crowd, Fabric, Shape, serve
    shape = Shape(rows=_ROWS, peers=16)
    agents = [Agent(BOX if serial >= _BOX else HOST, mac=mac, serial=serial, key=key, shape=shape,
                    cards={n: Card() for n in range(1, _ROWS + 1)} if serial >= _BOX else {})
              for (serial, mac), key in keys.items()]
    Fabric(agents)
    serve(Crowd(agents), line, command)


def _cpu(crowd) -> float:
    """CPU seconds of the process of the nodes."""
    return time.process_time()


def _manager(keys, line, command, cycles, seed, results) -> None:
    """The process of the manager."""
    def of_nodes():
        command.send(_cpu)
        return command.recv()

    with tempfile.TemporaryDirectory() as folder:
        results.send(asyncio.run(_manage(keys, _Line(line), of_nodes, cycles, seed,
                                         Path(folder) / "pool.db")))


async def _manage(keys, port, of_nodes, cycles, seed, path) -> dict[str, float]:
    from dxpu_manage import Manager
    from dxpu_manager import Gpu, Limits, Nodes, Pool, PoolManager, Progress, SqliteStore, State
    store, rng, times = SqliteStore(path), random.Random(seed), {"attach": [], "detach": []}
    pool = await Pool.of(store)
    async with (Manager(port, _OWN, epoch=store.epoch, slower=SLOWER) as fabric,
                PoolManager(pool, Nodes(fabric, keys), Limits(admits=True)) as manager):
        before, began, cpu = of_nodes(), time.monotonic(), time.process_time()
        watching = asyncio.create_task(manager.watch(0.5 / SLOWER))
        gpus = [f"{serial:08x}.{slot}" for serial, _ in keys if serial >= _BOX
                for slot in range(1, _ROWS + 1)]
        while sum(gpu.state is State.FREE for gpu in pool.all(Gpu)) < len(gpus):
            await asyncio.sleep(0.25)
            if time.monotonic() - began > _PATIENCE:
                raise TimeoutError(f"after {_PATIENCE:.0f} s not all nodes are found")
        result = {"discovery": time.monotonic() - began,
                  "discovery, CPU": time.process_time() - cpu,
                  "discovery, CPU of all nodes": of_nodes() - before}
        hosts, cpu = [serial for serial, _ in keys if serial < _BOX], time.process_time()
        for _ in range(cycles):
            gpu = rng.choice(gpus)
            for name in times:
                began = time.monotonic()
                task = (manager.attach(rng.choice(hosts), [gpu]) if name == "attach"
                        else manager.detach([gpu]))
                done = await manager.wait(task.number)
                times[name].append(1e3 * (time.monotonic() - began))
                if done.progress is not Progress.DONE:
                    raise RuntimeError(done.said)
        result["attach and detach, CPU"] = 1e3 * (time.process_time() - cpu) / cycles
        watching.cancel()
    await store.close()
    for name, taken in times.items():
        result |= {name: statistics.median(taken),
                   f"{name}, 95 %": statistics.quantiles(taken, n=20)[-1]}
    result["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {name: round(result[name], 2) for name in NAMES}


def _pool(nodes: int, cycles: int, seed: int) -> dict[str, float]:
    context, keys = multiprocessing.get_context("spawn"), _keys(nodes, seed)
    # Of a kind whose queue is limited by bytes, as a switch's is, and not by frames.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command, end = context.Pipe()
    came, results = context.Pipe(duplex=False)
    processes = [context.Process(target=target, args=(keys, *arguments)) for target, *arguments in (
        (_nodes, theirs, end), (_manager, ours, command, cycles, seed, results))]
    for process in processes:
        process.start()
    for each in (ours, theirs, command, end, results):
        each.close()
    try:
        return came.recv()
    except EOFError:
        raise RuntimeError("the manager has ended; why is above") from None
    finally:
        for process in processes:
            process.join()


def measure(sizes: list[int], cycles: int, seed: int) -> dict[str, dict[str, float]]:
    """Figures of a manager by the number of nodes, by as many attaches and detaches of a GPU, one
    after the other; printed as a table.

    The slope is by how much a figure of the last pool is larger than in proportion to the nodes of
    the first one: 1 is linear, and a figure that does not depend on the nodes has less.
    """
    result, progress = {}, Progress()
    for nodes in sizes:
        progress.step(f"Pool of {nodes:,} nodes")
        result[str(nodes)] = _pool(nodes, cycles, seed)
    progress.done()
    slope = len(sizes) > 1
    print(f"{'nodes':<32}" + "".join(f"{nodes:>10,}" for nodes in sizes) + "     slope" * slope)
    for name, unit in NAMES.items():
        found = [figures[name] for figures in result.values()]
        line = f"{f'{name}, {unit}':<32}" + "".join(f"{value:>10,.1f}" for value in found)
        times = found[-1] / found[0] / (sizes[-1] / sizes[0])
        print(line + f"{times:>10.2f}" * slope)
    return result
