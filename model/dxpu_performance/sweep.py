"""Many cases at once, on the cores of the machine or on a Dask cluster, with the same result.

Cases of the same program travel together in a :class:`Chunk`; each chunk is a task. The result of a
case does not depend on place, chunk or number of computations.
"""

import importlib
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from .errors import ModelError, whole
from .kernels import share_kept
from .prediction import Case, closed_form, longest_round_trip_us, predict

__all__ = ["CHUNK", "Chunk", "Result", "chunks", "evaluate", "on_cluster", "on_cores"]

#: Cases of a chunk at most: few enough for progress, enough that sending them costs little.
CHUNK = 16
#: How often a task may be lost with its worker before the sweep fails.
_LOSSES = 10
#: Seconds to wait for the scheduler.
_PATIENCE_S = 10


@dataclass(frozen=True)
class Chunk:
    """Cases with numbers. ``keep`` is the share whose longest round trip is searched;
    ``simulated`` is whether the range is computed, by simulations."""

    numbers: tuple[int, ...]
    cases: tuple[Case, ...]
    keep: float
    simulated: bool


@dataclass(frozen=True)
class Result:
    """Outcome of the case with a number; ``low`` and ``high`` are None without simulations."""

    number: int
    kept: float
    low: float | None
    high: float | None
    longest_round_trip_us: float


def chunks(cases: Sequence[Case], keep: float, *, simulated: bool) -> list[Chunk]:
    """All cases in chunks; successive cases of the same program stay together."""
    found: list[Chunk] = []
    begin = 0
    for end in range(1, len(cases) + 1):
        full = end - begin == CHUNK
        if full or end == len(cases) or cases[end].program is not cases[begin].program:
            found.append(Chunk(tuple(range(begin, end)), tuple(cases[begin:end]), keep, simulated))
            begin = end
    return found


def evaluate(chunk: Chunk) -> list[Result]:
    """Results of a chunk, in order."""
    found = []
    for number, case in zip(chunk.numbers, chunk.cases, strict=True):
        longest = longest_round_trip_us(case, chunk.keep)
        if chunk.simulated:
            outcome = predict(case)
            found.append(Result(number, outcome.kept, outcome.low, outcome.high, longest))
        else:
            found.append(Result(number, share_kept(closed_form(case).total), None, None, longest))
    return found


def on_cores(work: Iterable[Chunk], jobs: int | None = None) -> Iterator[list[Result]]:
    """Results of finished chunks, computed by ``jobs`` processes, by default as many as cores.

    Raises
    ------
    ModelError
        A process was killed, as by a machine without memory left.
    """
    jobs = whole("jobs", len(os.sched_getaffinity(0)) if jobs is None else jobs, 1, 1024)
    work = list(work)
    if jobs == 1 or len(work) < 2:
        yield from map(evaluate, work)
        return
    # Processes that are spawned share no threads and locks with this one.
    with ProcessPoolExecutor(min(jobs, len(work)), get_context("spawn")) as pool:
        futures = [pool.submit(evaluate, chunk) for chunk in work]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool:
            raise ModelError("a process of the sweep was killed: is memory short? fewer --jobs "
                             "need less") from None
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def on_cluster(work: Iterable[Chunk], address: str) -> Iterator[list[Result]]:
    """Results of finished chunks, computed by the workers of a Dask scheduler.

    Chunks of a lost worker are computed by another worker. Late workers take part.

    Parameters
    ----------
    address : str
        Address of the scheduler, such as ``tcp://10.0.0.1:8786``.

    Raises
    ------
    ModelError
        No scheduler answers, workers lack the package, or too many workers were lost.
    """
    # Without types: the package has some of its functions without.
    distributed: Any = importlib.import_module("distributed")
    try:
        client = distributed.Client(address, timeout=_PATIENCE_S)
    except (OSError, TimeoutError, ValueError) as error:
        said = str(error) or type(error).__name__
        raise ModelError(f"no Dask scheduler answers at {address}: "
                         f"{said.splitlines()[0]}") from None
    with client:
        futures = [client.submit(evaluate, chunk, pure=False, retries=_LOSSES) for chunk in work]
        try:
            for future in distributed.as_completed(futures):
                yield future.result()
        except distributed.KilledWorker:
            raise ModelError("workers were lost again and again: see their logs") from None
        except ModuleNotFoundError as error:
            raise ModelError(f"a worker of {address} lacks {error.name}: install the same version "
                             "of dxpu there, with its extra `performance`") from None
        finally:
            client.cancel(futures)
