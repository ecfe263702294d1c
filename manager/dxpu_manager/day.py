"""A day of requests, from a trace, in a pool and in fixed servers: who waits, and what is used.

The columns of a trace are those of the public Alibaba trace ``cluster-trace-gpu-v2023``.
"""

import csv
import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from .allocation import Inventory, Kind, Place, Wish, place
from .queue import Running, Waiting, schedule

__all__ = ["POLICIES", "Job", "Outcome", "Site", "read_trace", "simulate", "write_trace"]

#: Columns that are read.
COLUMNS = ("name", "cpu_milli", "num_gpu", "creation_time", "deletion_time")
#: Wishes of the queue that one turn looks at.
LOOKED_AT = 100


@dataclass(frozen=True)
class Job:
    """A job of a trace: whole GPUs, and thousandths of a CPU, from a time in seconds on."""

    name: str
    arrives: float
    lasts: float
    gpus: int
    cpus: int


@dataclass(frozen=True)
class Site:
    """Servers with CPUs, and GPUs: in some of the servers, or in as many boxes beside.

    Parameters
    ----------
    servers : int
    boxes : int
        Servers with GPUs, or boxes of the pool.
    gpus : int
        Of each of these.
    cpus : int
        Thousandths of a CPU of a server.
    ports : int
        Most GPUs of a host of the pool.
    """

    servers: int = 12
    boxes: int = 8
    gpus: int = 8
    cpus: int = 96_000
    ports: int = 8

    @property
    def all_gpus(self) -> int:
        """GPUs of the site."""
        return self.boxes * self.gpus


def read_trace(lines: Iterable[str]) -> list[Job]:
    """Jobs with GPUs, in order of arrival; a share of a GPU is a whole one.

    Raises
    ------
    ValueError
        With the number of the line.
    """
    reader = csv.DictReader(lines)
    lacks = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
    if lacks:
        raise ValueError(f"line 1: no column {lacks[0]}; it needs {', '.join(COLUMNS)}")
    jobs = []
    for row in reader:
        try:
            gpus = int(row["num_gpu"])
            begin, end = float(row["creation_time"]), float(row["deletion_time"])
            job = Job(row["name"], begin, end - begin, gpus, int(row["cpu_milli"]))
        except (TypeError, ValueError) as error:
            raise ValueError(f"line {reader.line_num}: {error}") from None
        if gpus < 0 or job.cpus < 0 or not job.lasts >= 0:
            raise ValueError(f"line {reader.line_num}: fewer than no GPUs or CPUs, or an end before"
                             " the begin")
        if gpus:
            jobs.append(job)
    return sorted(jobs, key=lambda job: job.arrives)


def write_trace(jobs: Iterable[Job]) -> str:
    """A trace that :func:`read_trace` reads."""
    return "".join(f"{','.join(map(str, row))}\n" for row in (COLUMNS, *(
        (job.name, job.cpus, job.gpus, f"{job.arrives:g}", f"{job.arrives + job.lasts:g}")
        for job in jobs)))


@dataclass(frozen=True)
class _Sized(Wish):
    """A wish with CPUs."""

    cpus: int = 0


@dataclass
class _Servers:
    """Servers whose GPUs are their own."""

    gpus: list[int]
    cpus: list[int]

    def copy(self) -> "_Servers":
        return _Servers(list(self.gpus), list(self.cpus))

    def take(self, host: int, things: Sequence[str]) -> None:
        self._change(things, -1)

    def give(self, host: int, things: Sequence[str]) -> None:
        self._change(things, 1)

    def _change(self, things: Sequence[str], sign: int) -> None:
        server, gpus, cpus = map(int, things[0].split())
        if sign < 0 and (self.gpus[server] < gpus or self.cpus[server] < cpus):
            raise ValueError(things)
        self.gpus[server] += sign * gpus
        self.cpus[server] += sign * cpus

    def place(self, wish: Wish) -> tuple[str, ...] | None:
        """The fullest server with room for the wish."""
        cpus = wish.cpus if isinstance(wish, _Sized) else 0
        fits = [n for n, left in enumerate(self.gpus)
                if left >= wish.count and self.cpus[n] >= cpus]
        if not fits:
            return None
        server = min(fits, key=lambda n: (self.gpus[n], self.cpus[n], n))
        return (f"{server} {wish.count} {cpus}",)


class _Pool(_Servers):
    """Servers with ports, and GPUs in boxes: whoever has CPUs and ports left gets any GPUs."""

    def __init__(self, gpus: list[int], cpus: list[int], boxes: Inventory) -> None:
        super().__init__(gpus, cpus)
        self._boxes = boxes

    def copy(self) -> "_Pool":
        return _Pool(list(self.gpus), list(self.cpus), self._boxes.copy())

    def take(self, host: int, things: Sequence[str]) -> None:
        super().take(host, things)
        self._boxes.take(0, things[1:])

    def give(self, host: int, things: Sequence[str]) -> None:
        super().give(host, things)
        self._boxes.give(0, things[1:])

    def place(self, wish: Wish) -> tuple[str, ...] | None:
        """A server with CPUs and ports, and GPUs of the pool."""
        server = super().place(wish)
        gpus = place(Wish(0, wish.count), self._boxes)
        return None if server is None or gpus is None else (*server, *gpus)


def _fixed(site: Site) -> _Servers:
    return _Servers([site.gpus] * site.boxes, [site.cpus] * site.boxes)


def _pooled(site: Site) -> _Servers:
    kinds = {box: (Kind.JOINED, Kind.SWITCH)[box % 2] for box in range(site.boxes)}
    places = [Place(f"{box}.{slot}", box) for box in kinds for slot in range(1, site.gpus + 1)]
    boxes = Inventory(kinds, places, {0: site.all_gpus})
    return _Pool([site.ports] * site.servers, [site.cpus] * site.servers, boxes)


#: Policies by name: what there is, and whether short jobs may jump.
POLICIES: dict[str, tuple[Callable[[Site], _Servers], bool]] = {
    "fixed servers": (_fixed, False), "fixed servers, backfill": (_fixed, True),
    "pool": (_pooled, False), "pool, backfill": (_pooled, True)}


@dataclass
class Outcome:
    """What came of a day under a policy.

    ``steps`` has the time, the number of GPUs in use and the number of waiting jobs, after each
    change; ``waits`` the seconds and the GPUs of each job that started; ``refused`` jobs fit never.
    """

    policy: str
    site: Site
    steps: list[tuple[float, int, int]] = field(default_factory=list)
    waits: list[tuple[float, int]] = field(default_factory=list)
    refused: list[Job] = field(default_factory=list)

    @property
    def ends(self) -> float:
        """Time of the last change."""
        return self.steps[-1][0] if self.steps else 0.0

    def share(self, until: float | None = None) -> float:
        """Mean share of the GPUs in use, from the first change on."""
        return self._mean(lambda used, waiting: used / self.site.all_gpus, until)

    def idle_while_waiting(self, until: float | None = None) -> float:
        """Mean share of the GPUs that nobody uses although somebody waits: fragments."""
        return self._mean(
            lambda used, waiting: (1 - used / self.site.all_gpus) * (waiting > 0), until)

    def wait(self, share: float) -> float:
        """The wait that so many of the jobs do not exceed, in seconds."""
        ordered = sorted(wait for wait, _ in self.waits)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def mean_wait(self, *, by_gpus: bool = False) -> float:
        """Mean of the waits, in seconds: of jobs, or of wished GPUs."""
        weights = [(wait, gpus if by_gpus else 1) for wait, gpus in self.waits]
        total = sum(weight for _, weight in weights)
        return sum(wait * weight for wait, weight in weights) / total if total else 0.0

    def _mean(self, of: Callable[[int, int], float], until: float | None) -> float:
        end = self.ends if until is None else until
        area = total = 0.0
        for (begin, used, waiting), (next_begin, _, _) in zip(
                self.steps, [*self.steps[1:], (end, 0, 0)], strict=True):
            span = max(0.0, min(next_begin, end) - begin)
            area, total = area + span * of(used, waiting), total + span
        return area / total if total else 0.0


def simulate(jobs: Sequence[Job], site: Site, policy: str,
             tells: Callable[[int], None] = lambda done: None) -> Outcome:
    """Let all jobs come, wait, run and end under a policy.

    Parameters
    ----------
    jobs : sequence of Job
        In order of arrival.
    tells : function
        Called with the number of jobs that have come.
    """
    make, backfills = POLICIES[policy]
    empty, free, outcome = make(site), make(site), Outcome(policy, site)
    queue: list[Waiting] = []
    running: dict[int, Running] = {}
    ends: list[tuple[float, int]] = []
    used, come = 0, 0
    while come < len(jobs) or ends:
        now = min([*(job.arrives for job in jobs[come:come + 1]), *(end for end, _ in ends[:1])])
        while ends and ends[0][0] <= now:
            _, number = heapq.heappop(ends)
            gone = running.pop(number)
            free.give(0, gone.gpus)
            used -= jobs[number].gpus
        while come < len(jobs) and jobs[come].arrives <= now:
            job = jobs[come]
            wish = _Sized(0, job.gpus, cpus=job.cpus)
            if empty.place(wish) is None:
                outcome.refused.append(job)
            else:
                queue.append(Waiting(come, wish, job.arrives, lease=job.lasts))
            come += 1
            tells(come)
        found = schedule(now, queue[:LOOKED_AT], running.values(), free,
                         place=lambda wish, left: left.place(wish), backfills=backfills)
        for one, things in found.starts:
            job = jobs[one.number]
            free.take(0, things)
            running[one.number] = Running(0, things, now + job.lasts)
            heapq.heappush(ends, (now + job.lasts, one.number))
            queue.remove(one)
            used += job.gpus
            outcome.waits.append((now - job.arrives, job.gpus))
        outcome.steps.append((now, used, len(queue)))
    return outcome
