"""What has happened at a node between two snapshots: rates, losses, times."""

from dataclasses import dataclass
from typing import Any

from dxpu.observe.log import TIME_BITS
from dxpu.observe.log import TIME_UNIT as CLOCK_UNIT
from dxpu.switch.tracking.types import TIME_UNIT

from .snapshot import Histogram, Row, Snapshot

__all__ = ["Look", "RowLook", "Times", "look_at", "was_reset"]

#: Counters of what passes. All others need a reason to rise.
TRAFFIC = ("tx_frames", "rx_frames", "tx_tlps", "rx_tlps", "tx_good", "rx_good", "switch_config",
           "switch_peer", "table_committed", "management_calculated", "given_up")
_WORD = 1 << 32


@dataclass(frozen=True)
class Times:
    """Times in an interval, in microseconds.

    Attributes
    ----------
    count : int
    mean, most : float or None
        ``most``: 99 of 100 are below, an upper end of a bin; ``None`` without times.
    longest : float
        Since the reset, or since somebody has written the register.
    bins : tuple of int
    unit : float
        In microseconds; bin n begins at ``2 ** n`` units.
    """

    count: int
    mean: float | None
    most: float | None
    longest: float
    bins: tuple[int, ...]
    unit: float


@dataclass(frozen=True)
class RowLook:
    """A binding in an interval."""

    row: Row
    requests: float | None
    trips: Times | None
    send: Times
    receive: Times


@dataclass(frozen=True)
class Look:
    """A node in an interval; rates are in a second of the node's own time."""

    now: Snapshot
    #: Of the interval, since the reset, and of a unit of the node's time.
    seconds: float
    uptime: float
    unit: float
    rates: dict[str, float]
    rows: tuple[RowLook, ...]

    @property
    def resent(self) -> float:
        """Share of the frames sent in the interval that were sent again."""
        frames = self.rates["fabric_tx_frames"]
        return self.rates["fabric_tx_repeated"] / frames if frames else 0.0

    @property
    def notable(self) -> dict[str, tuple[float, int]]:
        """Rate and total of counters that are not traffic, the fastest first."""
        named = {name: (self.rates[name], total) for name, total in self.now.counters.items()
                 if total and not name.endswith(TRAFFIC)}
        return dict(sorted(named.items(), key=lambda item: -item[1][0]))

    def as_json(self) -> dict[str, Any]:
        """Of this interval, for programs."""
        now = self.now

        def times(of: Times | None) -> dict[str, Any] | None:
            return None if of is None else {
                "count": of.count, "mean_us": of.mean, "p99_us": of.most,
                "longest_us": of.longest, "bins": list(of.bins), "bin_unit_us": of.unit}

        return {
            "node": now.node, "seconds": self.seconds, "uptime": self.uptime,
            "links": list(now.links), "resent": self.resent, "rates": self.rates,
            "counters": now.counters,
            "queues": {name: {"now": mark.now, "most": mark.most, "of": mark.room}
                       for name, mark in now.marks.items()},
            "bindings": [{
                "row": one.row.number, "node": one.row.node, "slot": one.row.slot,
                "stream": one.row.stream, "generation": one.row.generation,
                "waits_for_credits": one.row.waits, "requests_wait": one.row.request_waits,
                "requests_per_second": one.requests, "round_trip": times(one.trips),
                "send": times(one.send), "receive": times(one.receive)} for one in self.rows],
            "events": {"recorded": now.recorded, "lost": now.lost, "missed": now.missed,
                       "new": [{"number": event.number, "seconds": event.time * self.unit,
                                "kind": event.kind, "argument": event.argument}
                               for event in now.events]},
        }


def was_reset(before: Snapshot, after: Snapshot) -> bool:
    """Whether the node was reset in between: the time is lower, and did not wrap."""
    return (after.time - before.time) % (1 << TIME_BITS) >> TIME_BITS - 1 == 1


def _since(before: Histogram | None, after: Histogram) -> tuple[tuple[int, ...], int]:
    """Bins and sum of an interval; both wrap."""
    if before is None:
        return after.bins, after.total
    bins = tuple((b - a) % _WORD for a, b in zip(before.bins, after.bins, strict=True))
    return bins, (after.total - before.total) % (1 << 64)


def _times(before: Histogram | None, after: Histogram, unit: float) -> Times:
    """``unit`` is in microseconds."""
    bins, total = _since(before, after)
    count, most, passed = sum(bins), None, 0
    for n, number in enumerate(bins):
        passed += number
        if count and passed * 100 >= count * 99:
            most = (2 << n) * unit
            break
    return Times(count, total * unit / count if count else None, most, after.longest * unit, bins,
                 unit)


def look_at(before: Snapshot | None, after: Snapshot, hz: float) -> Look:
    """What has happened since ``before``, or, without it, since the reset.

    ``hz`` is the frequency of the core clock.
    """
    unit = CLOCK_UNIT / hz
    units = after.time if before is None else (after.time - before.time) % (1 << TIME_BITS)
    seconds = max(units, 1) * unit
    old = {} if before is None else before.counters
    rates = {name: (total - old.get(name, 0)) % _WORD / seconds
             for name, total in after.counters.items()}
    # Totals go on from binding to binding: those of a row that was free are of an old one.
    rows, held = [], {} if before is None else {row.number: row for row in before.rows}
    for row in after.rows:
        was = held.get(row.number, row if before else None)
        trips = None
        if row.trips is not None:
            trips = _times(was and was.trips, row.trips, TIME_UNIT / hz * 1e6)
        rows.append(RowLook(
            row, None if trips is None else trips.count / seconds, trips,
            _times(was and was.send, row.send, 1e6 / hz),
            _times(was and was.receive, row.receive, 1e6 / hz)))
    return Look(after, seconds, after.time * unit, unit, rates, tuple(rows))
