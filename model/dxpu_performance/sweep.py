"""Many cases at once: tasks with the same results wherever they are done.

A sweep has two kinds of tasks: :func:`load` makes the program of a trace, where the file is, and
:func:`evaluate` predicts for some cases of one program, a :class:`Chunk`. The result of a case does
not depend on place, chunk or number of processes. :mod:`~dxpu_performance.pool` does tasks on the
cores of this machine, :mod:`~dxpu_performance.cluster` on a Dask cluster.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from .errors import ModelError
from .kernels import share_kept
from .prediction import Case, closed_form, longest_round_trip_us, predict
from .program import Program
from .readers import read
from .sample import of_workload
from .simulation import NATIVE, simulate

__all__ = ["CHUNK", "Chunk", "Loaded", "Result", "Trace", "chunks", "evaluate", "load", "sources"]

#: Cases of a chunk at most: few enough for progress, enough that sending them costs little.
CHUNK = 16


@lru_cache(maxsize=1)
def sources() -> str:
    """Digest of the sources of this package: results of processes with others do not go together.
    """
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True)
class Trace:
    """A file to make a program of.

    Parameters
    ----------
    path : str
        Where the file is, from the root: other processes have other working folders.
    most : int
        Kernels of the program at most.
    device : int, optional
        Number of the GPU; None: the one with most kernels.
    begin_ns, end_ns : int
        Window of the trace; None as the end: all that follows.
    made_by : str
        :func:`sources` of the process that made the task.
    """

    path: str
    most: int
    device: int | None = None
    begin_ns: int = 0
    end_ns: int | None = None
    made_by: str = field(default_factory=sources)


@dataclass(frozen=True)
class Loaded:
    """Program of a trace and its native time, with remarks; or ``error``, the line that says why
    there is none."""

    trace: Trace
    program: Program | None = None
    native_us: float = 0.0
    notes: tuple[str, ...] = ()
    error: str = ""


def load(trace: Trace) -> Loaded:
    """Make the program of a trace. A file that cannot be read is a result, too.

    Raises
    ------
    ModelError
        If the sources here are not those of the process that made the task.
    """
    _check_sources(trace.made_by)
    try:
        workload = read(trace.path)
    except ModelError as error:
        return Loaded(trace, error=str(error))
    try:
        part = workload.select(device=trace.device, begin_ns=trace.begin_ns, end_ns=trace.end_ns)
        sample = of_workload(part, most=trace.most)
        native_us = simulate(sample.program, NATIVE).time_us
        if not native_us > 0:
            raise ModelError("its kernels take no time")
    except ModelError as error:
        return Loaded(trace, error=f"{trace.path}: {error}")
    return Loaded(trace, sample.program, native_us, sample.notes)


def _check_sources(made_by: str) -> None:
    if made_by != sources():
        raise ModelError("a worker has other sources of dxpu: install the same version there")


@dataclass(frozen=True)
class Chunk:
    """Cases with numbers. ``keep`` is the share whose longest round trip is searched;
    ``simulated`` is whether the range is computed, by simulations; ``made_by`` is that of
    :class:`Trace`."""

    numbers: tuple[int, ...]
    cases: tuple[Case, ...]
    keep: float
    simulated: bool
    made_by: str = field(default_factory=sources)


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
    """Results of a chunk, in order.

    Raises
    ------
    ModelError
        If the sources here are not those of the process that made the chunk.
    """
    _check_sources(chunk.made_by)
    found = []
    for number, case in zip(chunk.numbers, chunk.cases, strict=True):
        longest = longest_round_trip_us(case, chunk.keep)
        if chunk.simulated:
            outcome = predict(case)
            found.append(Result(number, outcome.kept, outcome.low, outcome.high, longest))
        else:
            found.append(Result(number, share_kept(closed_form(case).total), None, None, longest))
    return found
