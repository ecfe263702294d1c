"""A GPU workload as data: what its kernels, copies and calls took on a native GPU.

Two kinds of input exist. A trace gives a :class:`Timeline`: when each call of the processor and
each operation of a GPU began, and how long each lasted. A histogram gives :class:`Durations` only.
A :class:`Workload` has durations always, and a timeline where there is one. All times are whole
nanoseconds from the first event of the trace, in columns of numpy; ten million kernels take 340 MB.
"""

import dataclasses
import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from .errors import ModelError

__all__ = ["CallKind", "Calls", "Copies", "Direction", "Durations", "Integers", "Operations",
           "Timeline", "Workload", "WorkloadError", "union_ns"]

Integers = npt.NDArray[np.int64]
#: Longest time a column can hold, in ns: 146 years, so that the sum of two never overflows.
LONGEST_NS = (1 << 62) - 1


class WorkloadError(ModelError):
    """A workload, or a file of one, cannot be used; the message is one line for the user."""


class Direction(enum.IntEnum):
    """Direction of a copy."""

    OTHER = 0  #: from host to host, or unknown
    TO_DEVICE = 1  #: from host memory to a GPU
    TO_HOST = 2  #: from a GPU to host memory
    IN_DEVICE = 3  #: inside the memory of one GPU
    PEER = 4  #: from one GPU to another


class CallKind(enum.IntEnum):
    """What a call of the processor asks of a GPU."""

    OTHER = 0  #: nothing that a queue of the GPU sees
    KERNEL = 1  #: launches one kernel
    GRAPH = 2  #: launches a graph: many operations have the correlation of this call
    COPY = 3  #: begins a copy
    MEMSET = 4  #: begins a memset
    SYNCHRONISE = 5  #: waits for an event, a stream or a device
    EVENT = 6  #: records an event in a stream
    WAIT = 7  #: makes a stream wait for an event; the processor goes on


@dataclass(frozen=True)
class _Columns:
    """Columns of one length, in the order of ``start``; :meth:`of` makes them of anything."""

    start: Integers
    duration: Integers

    def __len__(self) -> int:
        return len(self.start)

    @property
    def end(self) -> Integers:
        """Ends, in ns."""
        return self.start + self.duration

    @classmethod
    def of(cls, **columns: Any) -> Self:
        """Columns of sequences of one length, converted and ordered by ``start``.

        Columns left out hold the default of their name: -1 for what is unknown (``correlation``,
        ``device``, ``stream``, ``name``), 0 for others.

        Raises
        ------
        WorkloadError
            If lengths differ, or a time is negative or no number.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(set(columns) - set(names))
        if unknown:
            raise TypeError(f"{cls.__name__} has no column {unknown[0]!r}")
        length = len(columns["start"])
        arrays = {}
        for name in names:
            given = columns.get(name)
            if given is None:
                given = np.full(length, -1 if name in _UNKNOWN else 0, _dtype(name))
            arrays[name] = _converted(cls, name, given)
            if len(arrays[name]) != length:
                raise WorkloadError(f"{cls.__name__}: {length} starts, but {len(arrays[name])} of "
                                    f"{name}")
        start = arrays["start"]
        if (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            arrays = {name: array[order] for name, array in arrays.items()}
        return cls(**arrays)

    @classmethod
    def none(cls) -> Self:
        """No rows."""
        return cls.of(start=[], duration=[])

    def where(self, choice: npt.NDArray[Any]) -> Self:
        """The rows of a mask, or of ascending indices."""
        return dataclasses.replace(self, **{field.name: getattr(self, field.name)[choice]
                                            for field in dataclasses.fields(self)})

    def earlier(self, ns: int) -> Self:
        """The same rows, each ``ns`` earlier."""
        return dataclasses.replace(self, start=self.start - ns)


#: Columns that hold -1 where nothing is known.
_UNKNOWN = {"correlation", "device", "stream", "name"}
_TYPES = {"device": np.int32, "name": np.int32, "direction": np.int8, "kind": np.int8}


#: Columns whose values take 32 bits if all of them fit.
NARROW = frozenset(("correlation", "duration", "stream"))


def fits(column: npt.NDArray[Any]) -> bool:
    """Whether all values of a column fit 32 bits."""
    limits = np.iinfo(np.int32)
    return not len(column) or bool(limits.min <= column.min() and column.max() <= limits.max)


def _dtype(name: str, column: npt.NDArray[Any] | None = None) -> Any:
    if name in NARROW and column is not None and fits(column):
        return np.int32
    return _TYPES.get(name, np.int64)


def _converted(cls: type, name: str, given: Any) -> npt.NDArray[Any]:
    try:
        array = np.asarray(given)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise WorkloadError(f"{cls.__name__}: a value of {name} is not finite")
        if len(array) == 0 or array.dtype.kind == "b":
            array = array.astype(_dtype(name))
        if array.dtype.kind == "f":
            array = np.rint(array)
            if (np.abs(array) > LONGEST_NS).any():
                raise WorkloadError(f"{cls.__name__}: a value of {name} is too large")
        if array.dtype.kind not in "iuf" or array.ndim != 1:
            raise WorkloadError(f"{cls.__name__}: a value of {name} is not a number")
        if name in ("start", "duration", "bytes") and len(array):
            low, high = int(array.min()), int(array.max())
            if low < 0 and name != "start":
                raise WorkloadError(f"{cls.__name__}: a {name} is negative: {low}")
            if high > LONGEST_NS or low < -LONGEST_NS:
                raise WorkloadError(f"{cls.__name__}: a value of {name} is too large: {high}")
        return array.astype(_dtype(name, array), copy=False)
    except (OverflowError, TypeError) as error:
        raise WorkloadError(f"{cls.__name__}: a value of {name} is not a number: {error}") from None


@dataclass(frozen=True)
class Operations(_Columns):
    """Operations of a GPU in the order of their starts: kernels or memsets.

    Members
    -------
    start, duration : ns
    device, stream : number of GPU and stream; streams are numbered for each GPU on its own
    correlation : number of the call that launched the operation, or -1
    name : index into :attr:`Timeline.names`, or -1
    """

    device: npt.NDArray[np.int32]
    stream: Integers
    correlation: Integers
    name: npt.NDArray[np.int32]


@dataclass(frozen=True)
class Copies(Operations):
    """Copies in the order of their starts, with :class:`Direction` and size in bytes."""

    direction: npt.NDArray[np.int8]
    bytes: Integers


_Table = TypeVar("_Table", bound=Operations)


@dataclass(frozen=True)
class Calls(_Columns):
    """Calls of the processor in the order of their starts.

    Members
    -------
    start, duration : ns, of the processor: a call that synchronises lasts as long as it waits
    thread : number of the thread that called
    correlation : number that operations refer to, or -1
    kind : :class:`CallKind`
    device, stream : what a call that synchronises waits for; -1: all, or unknown
    """

    thread: Integers
    correlation: Integers
    kind: npt.NDArray[np.int8]
    device: npt.NDArray[np.int32]
    stream: Integers


@dataclass(frozen=True)
class Timeline:
    """What happened when, on the processor and on GPUs.

    The first event is at 0 ns; :meth:`of` moves the events there. ``calls`` is empty if the trace
    has none.
    """

    kernels: Operations
    copies: Copies
    memsets: Operations
    calls: Calls
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, kernels: Operations, copies: Copies | None = None,
           memsets: Operations | None = None, calls: Calls | None = None,
           names: Sequence[str] = ()) -> Self:
        """A timeline of tables whose times have any common origin."""
        copies = Copies.none() if copies is None else copies
        memsets = Operations.none() if memsets is None else memsets
        calls = Calls.none() if calls is None else calls
        first = min((int(table.start[0]) for table in (kernels, copies, memsets, calls)
                     if len(table)), default=0)
        if kernels.name.max(initial=-1) >= len(names):
            raise WorkloadError("a kernel has the number of a name that is not there")
        return cls(kernels.earlier(first), copies.earlier(first), memsets.earlier(first),
                   calls.earlier(first), tuple(names))

    @cached_property
    def span_ns(self) -> int:
        """Time from the first event to the last end: what the workload takes natively."""
        return max((int(table.end.max()) for table in
                    (self.kernels, self.copies, self.memsets, self.calls) if len(table)), default=0)

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """Numbers of the GPUs that do anything, ascending."""
        return tuple(int(device) for device in np.unique(np.concatenate(
            [table.device for table in (self.kernels, self.copies, self.memsets)])))

    def launch_of(self, operations: Operations) -> Integers:
        """Index into ``calls`` of the call that launched each operation, or -1.

        All operations of a graph have the call that launched the graph.
        """
        order = np.argsort(self.calls.correlation, kind="stable")
        order = order[self.calls.correlation[order] >= 0]
        known = self.calls.correlation[order]
        if not len(known):
            return np.full(len(operations), -1, np.int64)
        place = np.minimum(np.searchsorted(known, operations.correlation), len(known) - 1)
        found = known[place] == operations.correlation
        return np.where(found, order[place], -1).astype(np.int64)

    def select(self, *, device: int | None = None, begin_ns: int = 0,
               end_ns: int | None = None) -> Self:
        """The part with one GPU, or with what begins in a window, or both.

        An operation belongs to a window if it starts there. A call belongs to a window if it starts
        there or launched an operation that does; of calls that launch, only those for the GPU stay.
        The origin moves to the first event that stays.
        """
        end = LONGEST_NS if end_ns is None else end_ns

        def stays(table: _Columns) -> npt.NDArray[np.bool_]:
            return (table.start >= begin_ns) & (table.start < end)

        needed = np.zeros(len(self.calls) + 1, np.bool_)  # the last one stands for "no call"
        elsewhere = needed.copy()

        def part(table: _Table) -> _Table:
            launch = self.launch_of(table)
            mask = stays(table)
            if device is not None:
                mask &= table.device == device
                elsewhere[launch[table.device != device]] = True
            needed[launch[mask]] = True
            return table.where(mask)

        kernels, copies, memsets = part(self.kernels), part(self.copies), part(self.memsets)
        calls = self.calls.where(needed[:-1] | stays(self.calls) & ~elsewhere[:-1])
        return type(self).of(kernels, copies, memsets, calls, self.names)


@dataclass(frozen=True)
class Durations:
    """Durations of kernels with counts.

    Members
    -------
    ns : durations in ns, ascending, each above zero or zero
    count : how often each occurs; weights that are not whole are allowed
    """

    ns: npt.NDArray[np.float64]
    count: npt.NDArray[np.float64]

    @classmethod
    def of(cls, ns: Iterable[float] | npt.NDArray[Any],
           count: Iterable[float] | npt.NDArray[Any] | None = None) -> Self:
        """Durations of a list, each once unless counts are given; equal ones are added up.

        Raises
        ------
        WorkloadError
            If there is none, lengths differ, or a value is negative or not finite.
        """
        try:
            values = np.asarray(ns if isinstance(ns, np.ndarray) else list(ns), np.float64)
            if count is None:
                values, number = np.unique(values, return_counts=True)
                counts = number.astype(np.float64)
            else:
                counts = np.asarray(count if isinstance(count, np.ndarray) else list(count),
                                    np.float64)
        except (TypeError, ValueError, OverflowError):
            raise WorkloadError("a duration or a count is not a number") from None
        if values.shape != counts.shape or values.ndim != 1:
            raise WorkloadError(f"{len(values)} durations, but {len(counts)} counts")
        if not (np.isfinite(values).all() and np.isfinite(counts).all()):
            raise WorkloadError("a duration or a count is not finite")
        if (values < 0).any() or (counts < 0).any():
            raise WorkloadError("a duration or a count is negative")
        if (values > LONGEST_NS).any():
            raise WorkloadError("a duration is too large")
        distinct, place = np.unique(values, return_inverse=True)
        total = np.bincount(place, counts, len(distinct)).astype(np.float64)
        present = total > 0
        if not present.any():
            raise WorkloadError("no kernel at all")
        return cls(distinct[present], total[present])

    @property
    def kernels(self) -> float:
        """Number of kernels."""
        return float(self.count.sum())

    @property
    def total_ns(self) -> float:
        """Sum of all durations, in ns."""
        return float(self.ns @ self.count)

    @property
    def mean_ns(self) -> float:
        """Mean duration, in ns."""
        return self.total_ns / self.kernels

    def quantile_ns(self, share: float) -> float:
        """Shortest duration that at least this share of the kernels does not exceed, in ns."""
        below = np.cumsum(self.count)
        place = int(np.searchsorted(below, share * below[-1] * (1 - 1e-12)))
        return float(self.ns[min(place, len(self.ns) - 1)])

    def share_to(self, ns: float) -> tuple[float, float]:
        """Shares of number and of time that kernels of at most ``ns`` have."""
        short = self.ns <= ns
        total = self.total_ns
        return (float(self.count[short].sum()) / self.kernels,
                float(self.ns[short] @ self.count[short]) / total if total else 0.0)


@dataclass(frozen=True)
class Workload:
    """A workload by name, with what is known of it.

    Members
    -------
    name : what reports call the workload, such as the name of its file
    durations : of the kernels
    timeline : of a trace, else None
    source : the format in words, such as "Nsight Systems SQLite"
    notes : what the file lacks or what was left out, a sentence each
    """

    name: str
    durations: Durations
    timeline: Timeline | None = None
    source: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, timeline: Timeline, *, source: str = "",
           notes: Sequence[str] = ()) -> Self:
        """A workload of a timeline; raises :exc:`WorkloadError` if no kernel is there."""
        if not len(timeline.kernels):
            raise WorkloadError("no kernel at all")
        return cls(name, Durations.of(timeline.kernels.duration), timeline, source, tuple(notes))

    def select(self, *, device: int | None = None, begin_ns: int = 0,
               end_ns: int | None = None) -> Self:
        """The part with one GPU or of a window (:meth:`Timeline.select`).

        Raises
        ------
        WorkloadError
            If the workload has no timeline, or no kernel stays.
        """
        if device is None and begin_ns == 0 and end_ns is None:
            return self
        if self.timeline is None:
            raise WorkloadError("durations alone have no GPU and no time to choose by")
        if device is not None and device not in self.timeline.devices:
            known = ", ".join(map(str, self.timeline.devices))
            raise WorkloadError(f"no GPU {device} is in the trace; there are: {known}")
        part = self.timeline.select(device=device, begin_ns=begin_ns, end_ns=end_ns)
        if not len(part.kernels):
            raise WorkloadError("no kernel is in the chosen part; the trace lasts "
                                f"{self.timeline.span_ns / 1e6:.3f} ms")
        return type(self).of(self.name, part, source=self.source, notes=self.notes)


def union_ns(start: Integers, end: Integers) -> int:
    """Time that at least one interval covers, in ns; starts are ascending."""
    if not len(start):
        return 0
    covered = np.maximum.accumulate(end)
    before = np.concatenate([start[:1], covered[:-1]])
    return int(np.maximum(covered - np.maximum(start, before), 0).sum())
