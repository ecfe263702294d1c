"""The time of the pool, which steps of the machine's clock do not touch.

Ref: docs/reference/manager.md ("Time")
"""

import secrets
import time
from collections.abc import Callable
from pathlib import Path

from .records import Reading

__all__ = ["Clock", "boot", "since_boot"]

#: Seconds by which the wall clock must step to be noted.
STEP = 1.0
#: Linux's name of a start of the machine.
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def since_boot() -> float:
    """Seconds since the machine has started; nobody can set them, and sleep counts."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot() -> str:
    """Name of this start of the machine; where there is none, of this run alone."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return secrets.token_hex(16)


class Clock:
    """Seconds of the pool; a call gives the present ones.

    They begin as seconds since 1970, and go on with the seconds since the machine has started. A
    later run goes on from the newest reading: by the same seconds, if the machine has not started
    again since; else by the wall clock. They never go back.

    Parameters
    ----------
    held : Reading or None
        The newest reading of former runs.
    latest : float
        Seconds of the pool that have passed for sure.
    wall : function
        Seconds since 1970, as the machine has them.
    since_boot : function
        Seconds since the machine has started.
    boot : str
        Name of that start.
    """

    def __init__(self, held: Reading | None, latest: float, wall: Callable[[], float],
                 since_boot: Callable[[], float], boot: str) -> None:
        self._wall, self._since_boot, self._boot = wall, since_boot, boot
        self._zero = since_boot()
        if held is None:
            begins = wall()
        elif held.boot == boot:
            begins = held.time + self._zero - held.since_boot
        else:
            begins = held.time + wall() - held.wall
        self._begins = max(begins, latest)

    def __call__(self) -> float:
        return self._begins + self._since_boot() - self._zero

    def wall(self, seconds: float) -> float:
        """Seconds since 1970, for people, of seconds of the pool."""
        return seconds + self._wall() - self()

    def reading(self) -> Reading:
        """All clocks at this instant."""
        return Reading(self(), self._wall(), self._boot, self._since_boot())

    def is_known(self, held: Reading | None) -> bool:
        """Whether a later run could go on from a reading as well as from a new one."""
        if held is None or held.boot != self._boot:
            return False
        return abs(self._wall() - self() - (held.wall - held.time)) < STEP
