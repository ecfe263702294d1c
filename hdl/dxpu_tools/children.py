"""Programs that dxpu runs, none of which outlives it.

Each is the leader of a process group of its own: a signal for the terminal's group does not reach
it, and it ends together with all that it started itself. :func:`ending_with_us` ends whatever runs
when a signal ends dxpu; nothing is started any more after that.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

__all__ = ["Task", "Terminated", "child", "end_all", "ending_with_us", "leave_interrupts_to_us",
           "members", "run"]

#: Seconds between two looks at what runs.
LOOK = 0.2
_PAUSE = 0.02
#: Signals that end dxpu, and the one by which a terminal stops it.
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_starting = threading.RLock()
_ending = False


class Terminated(KeyboardInterrupt):
    """A signal ended dxpu; ``number`` is which."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def child(command: Sequence[object], **options) -> Iterator[subprocess.Popen]:
    """A program that runs as long as the block, or shorter; ``options`` are those of ``Popen``.

    If the block ends by an exception the program is ended with all its own; else its end is waited
    for, and what it left running is ended.
    """
    with _starting:
        if _ending:
            raise Terminated(signal.SIGTERM)
        process = subprocess.Popen([os.fspath(word) if isinstance(word, Path) else word
                                    for word in command], start_new_session=True, **options)
    try:
        yield process
        if process.returncode is None:
            # Not reaped yet, so that nothing else gets the number of its group.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    finally:
        if process.returncode is None:
            _end_group(process.pid)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def run(command: Sequence[object], *, look: Callable[[int], None] | None = None,
        **options) -> int:
    """Run a program to its end; returns its exit status, below 0 for a signal.

    Parameters
    ----------
    look : function
        Called with the number of the process every :data:`LOOK` seconds; what it raises ends the
        program.
    """
    with child(command, **options) as process:
        since = time.monotonic()
        # Not reaped, as its group is still to be ended.
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            time.sleep(_PAUSE)
            if look is not None and time.monotonic() - since >= LOOK:
                since = time.monotonic()
                look(process.pid)
    return process.returncode


def members(group: int) -> list[int]:
    """Processes of a group."""
    return [pid for pid, _, pgrp in _processes() if pgrp == group]


def _processes():
    """Number, parent and group of all processes that have not ended."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                text = Path("/proc", entry.name, "stat").read_text()
                # The name before them may have blanks and parentheses of its own.
                state, parent, group = text.rpartition(")")[2].split()[:3]
                if state not in "ZX":
                    yield int(entry.name), int(parent), int(group)


def _end_group(group, number=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _signal_children(number):
    """To all children: those of :func:`child` with their groups, and others, such as the Yosys that
    Amaranth starts, alone. Returns their numbers and groups."""
    own = os.getpid()
    found = [(pid, group) for pid, parent, group in _processes() if parent == own]
    for pid, group in found:
        if group == pid:
            _end_group(group, number)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
    return found


def end_all() -> None:
    """End all children, and start none from now on. When it returns they write no more."""
    global _ending
    with _starting:
        _ending = True
        ended = _signal_children(signal.SIGKILL)
    latest = time.monotonic() + 2
    while time.monotonic() < latest and any(
            (pid, group) in ended or (group, group) in ended for pid, _, group in _processes()):
        time.sleep(0.01)


@contextlib.contextmanager
def ending_with_us() -> Iterator[None]:
    """If a signal ends the block (:exc:`Terminated`), all children are ended before it is raised;
    while the terminal stops it, they stop. Does nothing but in the main thread.

    Signals that are ignored stay so, as `nohup` wants it.
    """
    global _ending
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ends(number, frame):
        if _ending:  # somebody is in a hurry
            os._exit(128 + number)
        end_all()
        raise Terminated(number)

    def stops(number, frame):
        _signal_children(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        _signal_children(signal.SIGCONT)

    wanted = {number: ends for number in ENDS} | {signal.SIGTSTP: stops}
    before = {number: signal.getsignal(number) for number in wanted}
    _ending = False
    for number, handler in wanted.items():
        if before[number] not in (signal.SIG_IGN, None):
            signal.signal(number, handler)
    try:
        yield
    except KeyboardInterrupt:
        # A thread may have been about to start one; and none does any more.
        end_all()
        raise
    except Exception:
        _ending = False
        raise
    else:
        _ending = False
    finally:
        for number, handler in before.items():
            if handler not in (signal.SIG_IGN, None):
                signal.signal(number, handler)


@contextlib.contextmanager
def leave_interrupts_to_us() -> Iterator[None]:
    """For programs that somebody else's code starts in the block: a terminal's interrupt does not
    reach them. They would say so, each in lines of its own. Only for threads beside the main one,
    which has to hear it."""
    if threading.current_thread() is threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Task(threading.Thread):
    """A job beside the main thread, which stays free to hear signals and to show progress."""

    def __init__(self, job: Callable[[], object]):
        super().__init__(daemon=True)
        self._job = job
        self._result: object = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._job()
        except BaseException as error:
            self._error = error

    def outcome(self):
        """Result of the job, or what it raised."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._result
