"""The order of wishes: priorities, leases, and backfill.

Backfill after Lifka, "The ANL/IBM SP scheduling system" (1995), known as EASY: the first waiting
wish has a time of its start, and later wishes may start before unless the first would be delayed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .allocation import Inventory, Wish, lacks, place

__all__ = ["Decision", "Running", "Waiting", "explain", "schedule"]


@dataclass(frozen=True)
class Waiting:
    """A wish in the queue.

    Parameters
    ----------
    number : int
    wish : Wish
    since : float
        Time of arrival.
    priority : int
        Higher priorities go first.
    lease : float or None
        Seconds with the GPUs; ``None``: without an end.
    """

    number: int
    wish: Wish
    since: float = 0.0
    priority: int = 0
    lease: float | None = None

    @property
    def order(self) -> tuple[int, float, int]:
        """Whose turn is first."""
        return -self.priority, self.since, self.number


@dataclass(frozen=True)
class Running:
    """GPUs of a host, and the end of the lease."""

    host: int
    gpus: tuple[str, ...]
    until: float | None = None


@dataclass(frozen=True)
class Decision:
    """Wishes that start now; the first waiting wish, and the time of the start."""

    starts: tuple[tuple[Waiting, tuple[str, ...]], ...]
    head: Waiting | None = None
    by: float | None = None


def _starts_by(head: Waiting, now: float, running: Iterable[Running], free: Any,
               place: Callable[[Wish, Any], tuple[str, ...] | None] = place) -> tuple[
                   float | None, Any]:
    """The time of a place for a wish, as leases end, and the inventory then; ``None``: ends of
    leases make no place."""
    later = free.copy()
    ends = sorted((r for r in running if r.until is not None), key=lambda r: r.until or 0.0)
    for n, one in enumerate(ends):
        later.give(one.host, one.gpus)
        is_last = n + 1 == len(ends) or ends[n + 1].until != one.until
        if is_last and place(head.wish, later) is not None:
            return max(now, one.until or 0.0), later
    return None, later


def schedule(now: float, waiting: Iterable[Waiting], running: Iterable[Running], free: Any, *,
             place: Callable[[Wish, Any], tuple[str, ...] | None] = place,
             backfills: bool = True) -> Decision:
    """Decide about all waiting wishes, in order.

    The first wish without a place gets the time of a place, as leases end. Later wishes start now
    only if the first wish has a place at the same time nevertheless. If the first wish waits for
    somebody without a lease, the time is not known, and later wishes start whenever there is a
    place.

    Parameters
    ----------
    now : float
    waiting, running : iterables
    free : Inventory
        Or anything else with ``copy``, ``take`` and ``give``, for a ``place`` of its own. It is not
        changed.
    place : function
        Finds a place for a wish in ``free``.
    backfills : bool
        If not, nobody starts before the first wish.
    """
    free, going = free.copy(), list(running)
    starts: list[tuple[Waiting, tuple[str, ...]]] = []
    head, by, later = None, None, free
    for one in sorted(waiting, key=lambda w: w.order):
        gpus = place(one.wish, free)
        if gpus is None:
            if head is None:
                head = one
                if not backfills:
                    break
                by, later = _starts_by(one, now, going, free, place)
            continue
        until = None if one.lease is None else now + one.lease
        if head is not None and by is not None and (until is None or until > by):
            then = later.copy()
            try:
                then.take(one.wish.host, gpus)
            except ValueError:
                continue
            if place(head.wish, then) is None:
                continue
            later = then
        free.take(one.wish.host, gpus)
        going.append(Running(one.wish.host, gpus, until))
        starts.append((one, gpus))
    return Decision(tuple(starts), head, by)


def explain(number: int, now: float, waiting: Iterable[Waiting], running: Iterable[Running],
            free: Inventory) -> str:
    """Why a wish waits, and the time of a start, in a line.

    Raises
    ------
    KeyError
        If no such wish waits.
    """
    queue, going = sorted(waiting, key=lambda w: w.order), list(running)
    one = next((w for w in queue if w.number == number), None)
    if one is None:
        raise KeyError(number)
    if number in {w.number for w, _ in schedule(now, queue, going, free).starts}:
        return f"{one.wish}: starts now"
    whole = free.copy()
    for held in going:
        whole.give(held.host, held.gpus)
    if place(one.wish, whole) is None:
        return f"{one.wish}: never; with nobody else in the pool {lacks(one.wish, whole)}"
    ahead = queue.index(one)
    why = lacks(one.wish, free) or "it would delay a wish before it"
    turn = f", {ahead} before it" if ahead else ""
    by, _ = _starts_by(one, now, going, free)
    when = ("waits for somebody without a lease" if by is None
            else f"could start in {by - now:,.0f} s, when leases end")
    return f"{one.wish}: {why}{turn}; {when}"
