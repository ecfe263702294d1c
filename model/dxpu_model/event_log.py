"""The log of events of a proxy, cycle by cycle, and what a reader makes of its words.

Ref: docs/reference/observe.md, "Events"
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["DEPTH", "LOST_MOST", "Event", "EventLogModel", "still_there"]

#: Entries of a log.
DEPTH = 256
#: The count of losses stays at that.
LOST_MOST = 0xFFFF
#: Cycles that an event takes, and cycles of a unit of time.
_TURN, _UNIT = 4, 16


@dataclass(frozen=True)
class Event:
    """An event.

    Attributes
    ----------
    number : int
        From 0 since the reset.
    time : int
        In units of 16 cycles since the reset.
    kind, argument : int
    """

    number: int
    time: int
    kind: int
    argument: int

    @classmethod
    def of(cls, number: int, time: int, what: int) -> "Event":
        """The event of the two words of an entry."""
        return cls(number, time | (what & 0xFF) << 32, what >> 8 & 0xFF, what >> 16)


def still_there(before: int, after: int, *, depth: int = DEPTH) -> range:
    """Numbers of the events whose entries were whole while they were read, if the log had noted
    ``before`` events when a reader began, and ``after`` when it ended; the oldest entry may be
    written at any moment."""
    return range(max(0, after - depth + 1), before)


class EventLogModel:
    """A log with sources of words, and pulses.

    What happens in a cycle waits from the end of the next one on. The log takes one at a time, the
    first source first, and is free again four cycles later. A source keeps one that waits, and may
    get the next one in the cycle in which the log is done with it.

    Parameters
    ----------
    words : int
        Sources of words.
    pulses : sequence of (kind, argument, quiet)
        A quiet one is not taken again before the end of its period.
    period : int
        Cycles of a period.
    """

    def __init__(self, words: int, pulses: Sequence[tuple[int, int, bool]] = (), *,
                 period: int = 1 << 20) -> None:
        self._words, self._pulses, self._period = words, tuple(pulses), period
        self._cycle = 0
        self._arrived: dict[int, tuple[int, int]] = {}
        self._waiting: dict[int, tuple[int, int]] = {}
        self._resting: set[int] = set()
        self._at_work: tuple[int, int, int] | None = None  #: source, time, cycle of the end
        #: All events so far; a log keeps the last ones.
        self.events: list[Event] = []
        self.lost = 0

    def _is_quiet(self, source: int) -> bool:
        return source >= self._words and self._pulses[source - self._words][2]

    def step(self, words: Iterable[tuple[int, int, int]] = (), pulses: Iterable[int] = (), *,
             frozen: bool = False) -> None:
        """A cycle: ``words`` that come (source, kind, argument), and numbers of ``pulses``."""
        done = None
        if self._at_work and self._cycle == self._at_work[2]:
            done, time, _ = self._at_work
            kind, argument = self._waiting.pop(done)
            self.events.append(Event(len(self.events), time, kind, argument))
            self._at_work = None
        elif self._at_work is None and self._waiting:
            self._at_work = (min(self._waiting), self._cycle // _UNIT, self._cycle + _TURN - 1)
        lost = False
        for source, event in self._arrived.items():
            if source not in self._waiting and source not in self._resting and not frozen:
                self._waiting[source] = event
            else:
                lost |= not self._is_quiet(source)
        self.lost = min(LOST_MOST, self.lost + lost)
        if done is not None and self._is_quiet(done):
            self._resting.add(done)
        if self._cycle % self._period == self._period - 1:
            self._resting.clear()
        self._arrived = {source: (kind, argument) for source, kind, argument in words}
        self._arrived |= {self._words + n: self._pulses[n][:2] for n in pulses}
        self._cycle += 1
