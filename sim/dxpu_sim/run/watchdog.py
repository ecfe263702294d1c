"""Ends a simulation that makes no progress, or that is about to fill the disk.

A simulator says now and then how far its time has come (:mod:`.pulse`), through a pipe. One whose
time stands still while it sleeps is stuck, as Verilator's trace writer is once a disk is full; one
that computes for long without a step of time gets more patience, as it may want a processor.
"""

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from dxpu_tools import children

__all__ = ["NoProgress", "Watchdog"]

#: How far simulated time has come, in its smallest step.
PULSE = struct.Struct("<Q")
#: Name of the thread that pulses come from.
NAME = "dxpu-pulse"
#: Environment variable with the descriptor that pulses are written to.
VARIABLE = "DXPU_PULSE"
#: Seconds without simulated time: of sleep, and in any case.
STUCK, LONGEST = 60.0, 1800.0
#: Seconds between two looks; what it was stopped for, as by Ctrl-Z, is no time.
LOOK = 1.0
#: Bytes that must be free where a simulation writes.
LEAST_ROOM = 8 << 20


class NoProgress(RuntimeError):
    """A simulation was ended; one line that says why."""


class Watchdog:
    """Watches one program, whose process group is that of :func:`dxpu_tools.children.run`.

    Parameters
    ----------
    folder : path
        Where it writes.
    stuck, longest : float
        Seconds, as :data:`STUCK` and :data:`LONGEST`.
    clock : function
        Returns seconds.

    Attributes
    ----------
    environment : dict
        Variables that the program needs.
    descriptors : tuple of int
        What it must inherit.
    """

    def __init__(self, folder: Path, *, stuck: float = STUCK, longest: float = LONGEST,
                 clock: Callable[[], float] = time.monotonic):
        self._folder, self._stuck, self._longest = folder, stuck, longest
        self._clock = clock
        self._pulses, writes = os.pipe()
        os.set_blocking(self._pulses, False)
        self.descriptors = (writes,)
        self.environment = {VARIABLE: str(writes)}
        self._looked = clock()
        self._now = 0
        #: Seconds for which time stood still, and for how many of the last ones all slept.
        self._still, self._idle = 0.0, 0.0

    def close(self) -> None:
        """Give back what it holds."""
        os.close(self._pulses)
        for descriptor in self.descriptors:
            os.close(descriptor)

    def look(self, group: int) -> None:
        """Called often while the program runs; raises :exc:`NoProgress` to end it."""
        now = self._clock()
        if now - self._looked < LOOK:
            return
        passed, self._looked = min(now - self._looked, 2 * LOOK), now
        free = os.statvfs(self._folder)
        if free.f_bavail * free.f_frsize < LEAST_ROOM:
            raise NoProgress(f"the disk is full: less than {LEAST_ROOM >> 20} MiB are left in "
                             f"{str(self._folder)!r}; free some space and run it again")
        reached = self._newest()
        if reached != self._now:
            self._still = self._idle = 0.0
        else:
            self._still += passed
            self._idle = 0.0 if _computes(group) else self._idle + passed
        self._now = reached
        if self._idle >= self._stuck or self._still >= self._longest:
            what = "does nothing any more" if self._idle >= self._stuck else "makes no progress"
            raise NoProgress(f"the simulation {what}: it has stood at {reached} steps of its time "
                             f"for {self._still:.0f} s, and was ended")

    def _newest(self):
        """The last pulse that has come; a pulse is written whole."""
        reached = self._now
        try:
            while data := os.read(self._pulses, 256 * PULSE.size):
                reached, = PULSE.unpack_from(data, len(data) - PULSE.size)
        except BlockingIOError:
            pass
        return reached


def _computes(group):
    """Whether a thread of a group runs, or would if there were a processor or a disk for it; but
    for the one with the pulses, which runs even if all others are stuck."""
    for pid in children.members(group):
        for stat in Path("/proc", str(pid), "task").glob("*/stat"):
            try:
                name, _, rest = stat.read_text().rpartition(")")
            except OSError:
                continue
            if rest.split()[0] in "RD" and not name.endswith(f"({NAME}"):
                return True
    return False
