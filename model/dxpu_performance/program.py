"""A program for the simulation: requests of threads of the processor to streams of a GPU.

All times are in us of a native run.
"""

import enum
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from .errors import not_negative, positive, whole
from .workload import CallKind, Calls, Copies, Direction, Durations, Integers, Operations, Timeline

__all__ = ["Action", "Do", "Program", "Step", "of_durations", "of_step", "of_timeline",
           "overlapped"]

#: A thread that slept this long, while another one called, is taken to have waited for that one.
HANDOFF_US = 20.0


class Do(enum.IntEnum):
    """Kind of an action."""

    RUN = 0  #: a kernel or a memset: busy for its duration, at any bandwidth
    TO_GPU = 1  #: a copy from host to GPU
    TO_HOST = 2  #: a copy from GPU to host
    WAIT = 3  #: the processor waits until streams are empty
    GO_ON = 4  #: the processor works, and asks for nothing


class Action(NamedTuple):
    """A call of a thread.

    ``gap_us`` is the time of the processor before and during the call, without waiting; ``busy_us``
    the time of the GPU. ``stream`` is the queue, or for WAIT the queue to become empty, -1 for
    all. ``fetched`` is whether the GPU reads a command from the host for the action; for operations
    of a graph after the first there is no such read. ``after`` is the index, among all actions, of
    an earlier call of another thread, or -1.
    """

    do: Do
    stream: int
    gap_us: float
    busy_us: float
    bytes: int = 0
    fetched: bool = True
    after: int = -1


@dataclass(frozen=True)
class Program:
    """Actions by thread, numbered in the order of threads; streams are numbered from 0.

    ``native_us`` is the native length of the run by the trace, else None. ``launch_us`` is
    the native time from a call until its operation may begin.
    """

    threads: tuple[tuple[Action, ...], ...]
    streams: int
    launch_us: float = 0.0
    native_us: float | None = None

    @cached_property
    def counts(self) -> dict[Do, tuple[int, float]]:
        """Number of actions with a command to fetch, and time on streams, by kind."""
        found = {do: (0, 0.0) for do in Do}
        for thread in self.threads:
            for action in thread:
                number, time = found[action.do]
                found[action.do] = number + action.fetched, time + action.busy_us
        return found

    @property
    def kernels(self) -> int:
        """Number of operations without copies."""
        return sum(action.do is Do.RUN for thread in self.threads for action in thread)


@dataclass(frozen=True)
class Step:
    """A step of a workload in round figures, for users without a trace.

    Parameters
    ----------
    kernel_us : float
        Mean duration of a kernel.
    launches : int
        Kernels in a step.
    streams : int
        Streams with equal parts of the kernels, all running at once.
    synchronisations : int
        How often in a step the processor waits for the GPU.
    copies : int
        Copies to the GPU in a step.
    copy_bytes : int
        Bytes of each copy to the GPU.
    copies_back : int
        Copies of 4 KiB from the GPU, such as a loss.
    launch_us : float
        Time of the processor for a launch.
    """

    kernel_us: float
    launches: int = 1000
    streams: int = 1
    synchronisations: int = 0
    copies: int = 0
    copy_bytes: int = 0
    copies_back: int = 0
    launch_us: float = 0.0

    def __post_init__(self) -> None:
        positive("the duration of a kernel", self.kernel_us)
        whole("launches", self.launches, 1, 1_000_000)
        whole("streams", self.streams, 1, min(1024, self.launches))
        whole("synchronisations", self.synchronisations, 0, self.launches)
        whole("copies", self.copies, 0, 1_000_000)
        whole("copy_bytes", self.copy_bytes, 1 if self.copies else 0, 1 << 40)
        whole("copies_back", self.copies_back, 0, 1_000_000)
        not_negative("launch_us", self.launch_us)


def of_durations(durations: Durations, most: int, seed: int = 1) -> Program:
    """Kernels of a histogram in random order, a single stream, all launched at once.

    With more than ``most`` kernels, ``most`` quantiles stand for all kernels, and keep the mean.
    """
    count = min(most, max(1, round(durations.kernels)))
    above = np.cumsum(durations.count)
    time = np.concatenate([[0.0], np.cumsum(durations.ns * durations.count)])
    # Time of the first x kernels, the shortest first, at count + 1 even places of x.
    places = np.linspace(0, above[-1], count + 1)
    chosen = np.diff(np.interp(places, np.concatenate([[0.0], above]), time)) / np.diff(places)
    np.random.default_rng(seed).shuffle(chosen)
    return Program((tuple(Action(Do.RUN, 0, 0.0, float(ns) / 1000) for ns in chosen),), 1)


def of_step(step: Step, *, to_gpu_gb_s: float, to_host_gb_s: float) -> Program:
    """Actions of a step: copies to the GPU come first, in the first stream; waits and copies back
    are spread evenly, and the last wait ends the step."""
    actions = []
    for _ in range(step.copies):
        actions.append(Action(Do.TO_GPU, 0, step.launch_us,
                              step.copy_bytes / to_gpu_gb_s / 1000, step.copy_bytes))
    for number in range(step.launches):
        actions.append(Action(Do.RUN, number % step.streams, step.launch_us, step.kernel_us))
        for _ in range(_due(number, step.launches, step.copies_back)):
            actions.append(Action(Do.TO_HOST, 0, step.launch_us, 4096 / to_host_gb_s / 1000, 4096))
        for _ in range(_due(number, step.launches, step.synchronisations)):
            actions.append(Action(Do.WAIT, -1, 0.0, 0.0))
    return Program((tuple(actions),), step.streams)


def overlapped(program: Program) -> Program:
    """The same program, whose copies to the GPU have a stream of their own."""
    return replace(program, streams=program.streams + 1, threads=tuple(
        tuple(action._replace(stream=program.streams) if action.do is Do.TO_GPU else action
              for action in thread) for thread in program.threads))


def _due(number: int, of: int, times: int) -> int:
    """How many of ``times`` events, spread over ``of`` places, are at place ``number``."""
    return (number + 1) * times // of - number * times // of


def of_timeline(timeline: Timeline) -> Program:
    """Calls of a trace with the operations launched; operations without a call are left out.

    A waiting call lasts until the streams are empty; other calls last as long as natively. A thread
    asleep during calls of other threads waits for the last of these calls.
    """
    calls = timeline.calls
    launched, numbers = _launched(timeline)
    threads = [np.flatnonzero(calls.thread == thread) for thread in np.unique(calls.thread)]
    after = _handoffs(calls, threads)
    first = np.full(len(calls), -1, np.int64)
    found: list[tuple[Action, ...]] = []
    number = 0
    for rows in threads:
        actions: list[Action] = []
        before = 0
        for row in rows:
            start, end = int(calls.start[row]), int(calls.end[row])
            came = int(calls.end[after[row]]) if after[row] >= 0 else before
            gap = max(0, start - max(before, came)) / 1000
            awaited = numbers.get((int(calls.device[row]), int(calls.stream[row])), -1)
            own = _actions(calls, int(row), gap, launched.get(int(row), ()), awaited,
                           int(after[row]))
            first[row] = number + len(actions)
            actions += own
            before = max(before, end)
        number += len(actions)
        found.append(tuple(actions))
    numbered = tuple(tuple(action._replace(after=int(first[action.after]))
                           if action.after >= 0 else action for action in actions)
                     for actions in found)
    streams = 1 + max((action.stream for thread in numbered for action in thread), default=0)
    return Program(numbered, streams, _launch_us(timeline), timeline.span_ns / 1000)


#: An operation as a call launches it: what to do, stream, duration in us, bytes.
_Operation = tuple[Do, int, float, int]


def _launched(timeline: Timeline) -> tuple[dict[int, list[_Operation]], dict[tuple[int, int], int]]:
    """Operations by the row of the call, in the order of starts; numbers of streams by GPU and
    stream."""
    numbers: dict[tuple[int, int], int] = {}
    every: list[tuple[int, int, _Operation]] = []
    for table in (timeline.kernels, timeline.copies, timeline.memsets):
        calls = timeline.launch_of(table)
        for row in np.flatnonzero(calls >= 0):
            stream = numbers.setdefault((int(table.device[row]), int(table.stream[row])),
                                        len(numbers))
            do, size = Do.RUN, 0
            if isinstance(table, Copies):
                size = int(table.bytes[row])
                do = {Direction.TO_DEVICE: Do.TO_GPU, Direction.TO_HOST: Do.TO_HOST}.get(
                    Direction(int(table.direction[row])), Do.RUN)
            every.append((int(calls[row]), int(table.start[row]),
                          (do, stream, int(table.duration[row]) / 1000, size)))
    found: dict[int, list[_Operation]] = {}
    for call, _, operation in sorted(every, key=lambda each: each[:2]):
        found.setdefault(call, []).append(operation)
    return found, numbers


def _actions(calls: Calls, row: int, gap_us: float, launched: list[_Operation] | tuple[()],
             awaited: int, after: int) -> list[Action]:
    """Actions of a call; ``awaited`` is the stream to become empty if the call waits, -1: all."""
    duration = int(calls.duration[row]) / 1000
    if calls.kind[row] == CallKind.SYNCHRONISE:
        return [Action(Do.WAIT, awaited, gap_us, 0.0, after=after)]
    if not launched:
        return [Action(Do.GO_ON, -1, gap_us + duration, 0.0, after=after)]
    blocks = calls.kind[row] == CallKind.COPY and duration >= sum(each[2] for each in launched)
    spent = gap_us if blocks else gap_us + duration
    actions = [Action(do, stream, 0.0 if number else spent, busy, size, not number,
                      -1 if number else after)
               for number, (do, stream, busy, size) in enumerate(launched)]
    if blocks:
        actions.append(Action(Do.WAIT, launched[-1][1], 0.0, 0.0))
    return actions


def _handoffs(calls: Calls, threads: list[Integers]) -> Integers:
    """For each call the row of the awaited call of another thread, or -1."""
    found = np.full(len(calls), -1, np.int64)
    if len(threads) < 2:
        return found
    by_end = np.argsort(calls.end, kind="stable")
    ends = calls.end[by_end]
    last = np.searchsorted(ends, calls.start, side="right") - 1
    for rows in threads:
        slept = np.diff(calls.start[rows], prepend=0) / 1000 > HANDOFF_US
        before = np.concatenate([[0], calls.end[rows][:-1]])
        for row, sleeps, own in zip(rows, slept, before, strict=True):
            other = int(by_end[last[row]]) if last[row] >= 0 else -1
            if sleeps and other >= 0 and calls.thread[other] != calls.thread[row] \
                    and calls.end[other] > own:
                found[row] = other
    return found


def _launch_us(timeline: Timeline) -> float:
    """Median native time from a call to the begin of a kernel whose stream was empty, in us."""
    kernels: Operations = timeline.kernels
    rows = timeline.launch_of(kernels)
    known = rows >= 0
    if not known.any():
        return 0.0
    called = timeline.calls.start[rows[known]]
    stream = kernels.stream[known] + (kernels.device[known].astype(np.int64) << 32)
    order = np.lexsort((kernels.start[known], stream))
    start, end = kernels.start[known][order], kernels.end[known][order]
    same = np.concatenate([[False], np.diff(stream[order]) == 0])
    before = np.where(same, np.concatenate([[0], end[:-1]]), 0)
    lone = before < called[order]
    lag = (start - called[order])[lone]
    own = timeline.calls.duration[rows[known]][order][lone]
    return float(np.median(np.maximum(lag - own, 0)) / 1000) if lone.any() else 0.0
