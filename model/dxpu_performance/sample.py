"""The simulated part of a workload, as a program."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .errors import whole
from .program import Program, of_durations, of_timeline
from .workload import Integers, Timeline, Workload

__all__ = ["MOST", "Sample", "of_workload"]

#: Kernels that are simulated by default.
MOST = 4000


@dataclass(frozen=True)
class Sample:
    """A program standing for a workload, and remarks on parts left out, a sentence each."""

    program: Program
    notes: tuple[str, ...] = ()


def of_workload(workload: Workload, *, most: int = MOST, seed: int = 1) -> Sample:
    """The program of a workload: at most ``most`` kernels, from the middle of a trace; of several
    GPUs the GPU with most kernels.

    Parameters
    ----------
    workload : Workload
        The whole workload. Without calls of the processor only durations count.
    most : int
        Kernels of the program at most.
    seed : int
        Order of the kernels of a histogram.

    Raises
    ------
    ModelError
        ``most`` is no number from 1 to 10^7.
    """
    whole("most", most, 1, 10_000_000)
    if workload.timeline is None:
        return Sample(of_durations(workload.durations, most, seed))
    notes = []
    timeline = workload.timeline
    if len(timeline.devices) > 1:
        numbers, counts = np.unique(timeline.kernels.device, return_counts=True)
        device = int(numbers[counts.argmax()])
        notes.append(f"GPU {device} of {len(timeline.devices)}: the others are left out")
        workload = workload.select(device=device)
        assert workload.timeline is not None
        timeline = workload.timeline
    if not len(timeline.calls) or not (timeline.launch_of(timeline.kernels) >= 0).any():
        notes.append("the trace has no calls that launch kernels: gaps, waits and copies are left "
                     "out")
        return Sample(of_durations(workload.durations, most, seed), tuple(notes))
    kernels = len(timeline.kernels)
    if kernels > most:
        timeline = _middle(timeline, most)
        notes.append(f"{len(timeline.kernels):,} of {kernels:,} kernels, from the middle of the "
                     "trace")
    return Sample(of_timeline(timeline), tuple(notes))


def _middle(timeline: Timeline, most: int) -> Timeline:
    """The part with the calls launching ``most`` kernels around the middle."""
    rows = timeline.launch_of(timeline.kernels)
    called = np.where(rows >= 0, timeline.calls.start[rows], timeline.kernels.start)
    called = np.sort(called)
    first = (len(called) - most) // 2
    begin, end = int(called[first]), int(called[first + most - 1]) + 1
    rows = np.flatnonzero((timeline.calls.start >= begin) & (timeline.calls.start < end))
    wanted = np.unique(timeline.calls.correlation[rows])

    def launched(correlation: Integers) -> npt.NDArray[np.bool_]:
        return np.isin(correlation, wanted[wanted >= 0])

    return Timeline.of(timeline.kernels.where(launched(timeline.kernels.correlation)),
                       timeline.copies.where(launched(timeline.copies.correlation)),
                       timeline.memsets.where(launched(timeline.memsets.correlation)),
                       timeline.calls.where(rows), timeline.names)
