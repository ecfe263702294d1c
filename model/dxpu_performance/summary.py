"""Figures that describe a workload: what ``dxpu model show`` prints."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .workload import CallKind, Copies, Direction, Integers, Timeline, Workload, union_ns

__all__ = ["SHORT_NS", "CopySummary", "Summary", "TimelineSummary", "queue_depths", "summarise"]

#: A kernel of at most this time is short. Ref: He et al., section 4.2
SHORT_NS = 10_000
#: Kinds of calls that put work into a queue of the GPU.
_LAUNCHES = (CallKind.KERNEL, CallKind.GRAPH, CallKind.COPY, CallKind.MEMSET)


@dataclass(frozen=True)
class CopySummary:
    """Copies of one direction: how many, of how many bytes, and how long together, in ns."""

    count: int
    bytes: int
    time_ns: int


@dataclass(frozen=True)
class TimelineSummary:
    """Figures that need a timeline.

    Members
    -------
    span_ns : from the first event to the last end
    busy_share : share of the span in which a kernel runs, mean of all GPUs
    devices, streams : GPUs, and streams of all GPUs, that do anything
    copies : by direction, only those that occur
    exposed_copies : copies to or from a host that overlap no kernel of the same GPU
    exposed_copy_ns : time of copies to or from a host in which no kernel of the same GPU runs
    memsets : their number
    launches : calls that put work into a queue; 0 with operations if the trace has no calls
    synchronisations, synchronisation_ns : calls that wait for the GPU, and their time together
    queue_depth : mean number of operations that a launched one finds unfinished on its GPU, or
        None if no operation has a call
    empty_queue_share : share of the operations that find none unfinished, or None
    """

    span_ns: int
    busy_share: float
    devices: int
    streams: int
    copies: dict[Direction, CopySummary]
    exposed_copies: int
    exposed_copy_ns: int
    memsets: int
    launches: int
    synchronisations: int
    synchronisation_ns: int
    queue_depth: float | None
    empty_queue_share: float | None


@dataclass(frozen=True)
class Summary:
    """Figures of a workload.

    Members
    -------
    kernels : their number
    kernel_ns, mean_ns, median_ns : all durations together, their mean and median
    short_count_share, short_time_share : shares that kernels of 10 us and less have, of the number
        and of the time
    timeline : what only a trace tells, or None
    """

    kernels: float
    kernel_ns: float
    mean_ns: float
    median_ns: float
    short_count_share: float
    short_time_share: float
    timeline: TimelineSummary | None


def summarise(workload: Workload) -> Summary:
    """The figures of a workload."""
    durations = workload.durations
    by_count, by_time = durations.share_to(SHORT_NS)
    return Summary(durations.kernels, durations.total_ns, durations.mean_ns,
                   durations.quantile_ns(0.5), by_count, by_time,
                   None if workload.timeline is None else _of_timeline(workload.timeline))


def _of_timeline(timeline: Timeline) -> TimelineSummary:
    kernels, copies, calls = timeline.kernels, timeline.copies, timeline.calls
    busy = exposed = alone = 0
    for device in timeline.devices:
        running = kernels.where(kernels.device == device)
        busy += union_ns(running.start, running.end)
        host = np.isin(copies.direction, (Direction.TO_DEVICE, Direction.TO_HOST))
        copying = copies.where((copies.device == device) & host)
        exposed += _uncovered(copying, running.start, running.end)
        alone += int(_overlaps_none(copying, running.start, running.end).sum())
    streams = np.unique(np.concatenate(
        [np.stack([table.device, table.stream], axis=1)
         for table in (kernels, copies, timeline.memsets)]), axis=0)
    waits = calls.kind == CallKind.SYNCHRONISE
    depths = queue_depths(timeline)
    return TimelineSummary(
        span_ns=timeline.span_ns,
        busy_share=busy / (timeline.span_ns * len(timeline.devices)) if timeline.span_ns else 0.0,
        devices=len(timeline.devices), streams=len(streams),
        copies={direction: CopySummary(int(chosen.sum()), int(copies.bytes[chosen].sum()),
                                       int(copies.duration[chosen].sum()))
                for direction in Direction
                if (chosen := copies.direction == direction).any()},
        exposed_copies=alone, exposed_copy_ns=exposed, memsets=len(timeline.memsets),
        launches=int(np.isin(calls.kind, _LAUNCHES).sum()),
        synchronisations=int(waits.sum()), synchronisation_ns=int(calls.duration[waits].sum()),
        queue_depth=float(depths.mean()) if len(depths) else None,
        empty_queue_share=float((depths == 0).mean()) if len(depths) else None)


def queue_depths(timeline: Timeline) -> Integers:
    """For each operation with a call: how many operations the call finds unfinished on its GPU.

    An operation is unfinished if its call began earlier and the operation ends later than the call
    in question begins. Operations of one graph do not count for each other.
    """
    depths = []
    tables = (timeline.kernels, timeline.copies, timeline.memsets)
    launch = np.concatenate([timeline.launch_of(table) for table in tables])
    device = np.concatenate([table.device for table in tables])
    end = np.concatenate([table.end for table in tables])
    for number in timeline.devices:
        chosen = (device == number) & (launch >= 0)
        called = timeline.calls.start[launch[chosen]]
        # A clock of the GPU that runs behind lets an operation end before its call.
        ended = np.sort(np.maximum(end[chosen], called + 1))
        called = np.sort(called)
        depths.append(np.searchsorted(called, called) - np.searchsorted(ended, called, "right"))
    return np.concatenate(depths) if depths else np.zeros(0, np.int64)


def _uncovered(copies: Copies, start: Integers, end: Integers) -> int:
    """Time of copies outside of all intervals, in ns; copies at once count once."""
    both = np.concatenate([copies.start, start])
    order = np.argsort(both, kind="stable")
    return (union_ns(both[order], np.concatenate([copies.end, end])[order])
            - union_ns(start, end))


def _overlaps_none(copies: Copies, start: Integers, end: Integers) -> npt.NDArray[np.bool_]:
    """Which copies no interval touches; starts are ascending."""
    if not len(start):
        return np.ones(len(copies), np.bool_)
    latest = np.concatenate([[-1], np.maximum.accumulate(end)])
    before = latest[np.searchsorted(start, copies.end)]  # of intervals that begin before its end
    return before <= copies.start
