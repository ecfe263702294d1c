"""Part of the watchdog inside a simulator: reports simulated time, and ends with the parent
process.

Ref: :mod:`.watchdog`, the listener.
"""

import ctypes
import os
import signal
import threading
import time

from .watchdog import NAME, PULSE, VARIABLE

__all__ = ["begin", "end_with_parent", "take_name"]

#: Seconds between two reports.
PERIOD = 0.5
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def end_with_parent() -> None:
    """Let the kernel kill this process at the end of the thread that started it, even after a
    kill."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def begin() -> None:
    """Start the reports, if a watchdog listens."""
    descriptor = os.environ.pop(VARIABLE, None)
    if descriptor is None:
        return
    end_with_parent()
    threading.Thread(target=_pulses, args=(int(descriptor),), daemon=True).start()


def take_name() -> None:
    """Name the calling thread, so that the watchdog ignores its work."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, NAME.encode())


def _pulses(descriptor):
    from cocotb import simulator
    take_name()
    os.set_blocking(descriptor, False)
    while True:
        time.sleep(PERIOD)
        high, low = simulator.get_sim_time()
        try:
            os.write(descriptor, PULSE.pack(high << 32 | low))
        except BlockingIOError:
            pass  # the last reports are still unread, so nobody misses this one
        except OSError:
            return
