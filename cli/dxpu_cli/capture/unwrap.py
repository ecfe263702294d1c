"""Observed frames out of the frames of mirror ports, with their times and what is missing.

Ref: docs/reference/mirror.md
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from dxpu.observe.mirror_format import MirrorHeader, parse

__all__ = ["BAD", "RESET", "Observed", "Unwrapper"]

#: Comment of a frame that its MAC has found bad, or that its source gave up.
BAD = "bad: the frame ended with an error"
#: Comment of the first frame after a reset of the mirror.
RESET = "the mirror was reset before this frame"

_TIME, _NUMBER, _LOST = 1 << 48, 1 << 32, 1 << 16
#: Frames that come so many places late are not the first ones after a reset.
_LATE = 1024
#: Time of a mirror goes back by so much, in nanoseconds, at a reset only.
_BACK_NS = 10**9


class Observed(NamedTuple):
    """A frame that has passed the observed MAC."""

    path: int
    received: bool
    #: By the mirror's clock; that of the first frame is by the clock of this machine.
    time_ns: int
    #: Its beginning, or all of it, without FCS.
    data: bytes
    #: Bytes that it had.
    length: int
    bad: bool
    #: Frames of its direction that are missing before it.
    missing: int
    comment: str


@dataclass
class _Count:
    """Of one direction: number of the next frame, and the frames that the mirror has dropped."""

    next: int
    lost: int


@dataclass
class _Mirror:
    """The clock and the directions of the mirror of a path."""

    period: int
    #: Newest time in units of the mirror, not wrapped.
    time: int
    #: Nanoseconds at time 0.
    base_ns: int
    counts: dict[bool, _Count] = field(default_factory=dict)


def _signed(difference: int, modulus: int) -> int:
    """A difference of two wrapped numbers as the one that is nearest to 0."""
    return (difference + modulus // 2) % modulus - modulus // 2


class Unwrapper:
    """Makes :class:`Observed` of a mirror's frames, in the order in which they come.

    Times and numbers are extended beyond their wrap. A mirror whose time goes back by more than a
    second, or whose numbers go back, was reset.
    """

    def __init__(self) -> None:
        self._mirrors: dict[int, _Mirror] = {}

    def take(self, frame: bytes, now_ns: int) -> Observed | None:
        """What is in a frame that has come at ``now_ns``, by the clock of this machine; ``None`` if
        it is not of a mirror."""
        parsed = parse(frame)
        if parsed is None:
            return None
        header, data = parsed
        comments = [BAD] if header.bad else []
        mirror = self._mirrors.get(header.path)
        if mirror is None or self._was_reset(mirror, header):
            if mirror is not None:
                comments.append(RESET)
            mirror = _Mirror(header.period, header.time,
                             now_ns - header.time * header.period // 1000)
            self._mirrors[header.path] = mirror
        time = mirror.time + _signed(header.time - mirror.time, _TIME)
        mirror.time = max(mirror.time, time)
        missing, why = self._missing(mirror, header)
        return Observed(header.path, header.received,
                        mirror.base_ns + time * header.period // 1000, data, header.length,
                        header.bad, missing, ", ".join([*comments, *why]))

    def _was_reset(self, mirror: _Mirror, header: MirrorHeader) -> bool:
        if header.period != mirror.period:
            return True
        passed = _signed(header.time - mirror.time, _TIME)
        count = mirror.counts.get(header.received)
        steps = 0 if count is None else _signed(header.number - count.next, _NUMBER)
        return passed * header.period < -1000 * _BACK_NS or steps < -_LATE

    def _missing(self, mirror: _Mirror, header: MirrorHeader) -> tuple[int, list[str]]:
        """How many frames are missing before this one, and a comment that says where they went."""
        count = mirror.counts.get(header.received)
        if count is None:
            mirror.counts[header.received] = _Count(header.number + 1, header.lost)
            return 0, []
        missing = _signed(header.number - count.next, _NUMBER)
        if missing < 0:
            return 0, ["came late"]
        dropped = min((header.lost - count.lost) % _LOST, missing)
        mirror.counts[header.received] = _Count((header.number + 1) % _NUMBER, header.lost)
        if not missing:
            return 0, []
        places = [f"{number:,} {where}" for number, where in (
            (dropped, "had no room in the mirror"), (missing - dropped, "were lost behind it"))
            if number]
        return missing, [f"frames of this direction missing before this one: {missing:,} "
                         f"({', '.join(places)})"]
