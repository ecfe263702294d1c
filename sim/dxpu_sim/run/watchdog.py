"""Ends a simulation without progress, or before it fills the disk.

A simulator reports simulated time from time to time (:mod:`.pulse`), through a pipe. A simulator
with all threads asleep and no progress of time is stuck, like Verilator's trace writer on a full
disk. A simulator that computes for long without a step of time gets more patience, as it may be
waiting for a processor.
"""

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from dxpu_tools import children

__all__ = ["NoProgress", "Watchdog"]

#: Format of a report: simulated time in its smallest step.
PULSE = struct.Struct("<Q")
#: Name of the thread that sends the reports.
NAME = "dxpu-pulse"
#: Environment variable with the file descriptor of the reports.
VARIABLE = "DXPU_PULSE"
#: Seconds without progress of simulated time: while asleep, and in any case.
STUCK, LONGEST = 60.0, 1800.0
#: Seconds between two checks. Longer intervals, as after Ctrl-Z, count at most twice as much.
LOOK = 1.0
#: Least free room where a simulation writes, in bytes.
LEAST_ROOM = 8 << 20


class NoProgress(RuntimeError):
    """A simulation was ended; the message is one line with the reason."""


class Watchdog:
    """Watches one program, run by :func:`dxpu_tools.children.run` in a process group of its own.

    Parameters
    ----------
    folder : path
        Output folder of the program.
    stuck, longest : float
        Seconds, as :data:`STUCK` and :data:`LONGEST`.
    clock : function
        Returns seconds.

    Attributes
    ----------
    environment : dict
        Variables for the program.
    descriptors : tuple of int
        File descriptors to be inherited by the program.
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
        #: Seconds without progress of simulated time, and how many of the last seconds all threads
        #: slept.
        self._still, self._idle = 0.0, 0.0

    def close(self) -> None:
        """Close the pipe."""
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
        """The last report that has come; reports are written whole."""
        reached = self._now
        try:
            while data := os.read(self._pulses, 256 * PULSE.size):
                reached, = PULSE.unpack_from(data, len(data) - PULSE.size)
        except BlockingIOError:
            pass
        return reached


def _computes(group):
    """Whether a thread of a group computes, or waits for a processor or a disk.

    The thread of the reports does not count, as it runs even if all other threads are stuck.
    """
    for pid in children.members(group):
        for stat in Path("/proc", str(pid), "task").glob("*/stat"):
            try:
                name, _, rest = stat.read_text().rpartition(")")
            except OSError:
                continue
            if rest.split()[0] in "RD" and not name.endswith(f"({NAME}"):
                return True
    return False
