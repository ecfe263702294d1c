"""Time of the manager's decisions: a place for a wish, and a turn of a long queue."""

import random
import statistics
import time
from functools import partial

from dxpu_manager.allocation import Inventory, Kind, Place, Where, Wish, place
from dxpu_manager.queue import Running, Waiting, schedule

__all__ = ["measure"]

#: Sizes of the pool, in GPUs of boxes of eight; wishes in the queue.
POOLS, QUEUE = (512, 4096), 100
#: Wishes and their rounds, of which the median counts.
WISHES = {"one GPU": {}, "four of a model": {"count": 4, "model": "a"},
          "eight in one joined box": {"count": 8, "where": Where.JOINED},
          "four apart": {"count": 4, "where": Where.APART}}
ROUNDS = 200
_HOST, _OTHERS = 1, 0


def pool(gpus: int, rng: random.Random) -> tuple[Inventory, list[Running]]:
    """Boxes of two kinds with GPUs of two models, of which half are taken by leases that end."""
    kinds = {box: rng.choice(list(Kind)) for box in range(gpus // 8)}
    places = [Place(f"{n:08x}", n // 8, rng.choice("ab")) for n in range(gpus)]
    free = Inventory(kinds, places, {_HOST: 1 << 20, _OTHERS: 1 << 20})
    taken = rng.sample(sorted(free.places), gpus // 2)
    free.take(_OTHERS, taken)
    return free, [Running(_OTHERS, (gpu,), float(n)) for n, gpu in enumerate(taken)]


def measure(seed: int) -> dict[str, dict[str, float]]:
    """Microseconds of a place for each wish, and of a turn of a queue in which most wishes wait,
    by the size of the pool; printed as a table."""
    result = {str(gpus): _times(gpus, random.Random(seed)) for gpus in POOLS}
    print(f"{'microseconds, median':<26}" + "".join(f"{gpus + ' GPUs':>12}" for gpus in result))
    for name in next(iter(result.values())):
        print(f"{name:<26}" + "".join(f"{times[name]:>12,.0f}" for times in result.values()))
    return result


def _times(gpus: int, rng: random.Random) -> dict[str, float]:
    free, running = pool(gpus, rng)
    times = {name: _median(partial(place, Wish(_HOST, **words), free), ROUNDS)
             for name, words in WISHES.items()}
    queue = [Waiting(n, Wish(_HOST, rng.randint(1, 8), where=rng.choice(list(Where))), float(n),
                     lease=50.0) for n in range(QUEUE)]
    times[f"turn of {QUEUE} wishes"] = _median(partial(schedule, 0.0, queue, running, free), 10)
    return times


def _median(does, rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        does()
        taken.append(1e6 * (time.perf_counter() - began))
    return round(statistics.median(taken), 1)
