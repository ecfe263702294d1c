"""Child processes of dxpu, all of which end with dxpu.

Each child leads its own process group. So a signal to the group of the terminal does not reach the
child, and a child ends together with all its descendants. :func:`ending_with_us` ends all children
when a signal ends dxpu; no child is started after the signal.
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

#: Seconds between two calls of ``look`` while a child runs.
LOOK = 0.2
_PAUSE = 0.02
#: Signals that end dxpu.
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_starting = threading.RLock()
_ending = False


class Terminated(KeyboardInterrupt):
    """A signal ended dxpu; ``number`` is the number of the signal."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def child(command: Sequence[object], **options) -> Iterator[subprocess.Popen]:
    """Run a program at most as long as the block; ``options`` are those of ``Popen``.

    If the block ends by an exception, the program and its own children are killed. Otherwise the
    block waits for the program, and then kills children that the program left running.
    """
    with _starting:
        if _ending:
            raise Terminated(signal.SIGTERM)
        process = subprocess.Popen([os.fspath(word) if isinstance(word, Path) else word
                                    for word in command], start_new_session=True, **options)
    try:
        yield process
        if process.returncode is None:
            # Not reaped yet, so that no other process gets the number of its group.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    finally:
        if process.returncode is None:
            _end_group(process.pid)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def run(command: Sequence[object], *, look: Callable[[int], None] | None = None,
        **options) -> int:
    """Run a program to its end; return its exit status, below 0 for a signal.

    Parameters
    ----------
    look : function
        Called every :data:`LOOK` seconds with the process number; an exception of ``look`` ends the
        program.
    """
    with child(command, **options) as process:
        since = time.monotonic()
        # Not reaped, as the group must still be killed.
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            time.sleep(_PAUSE)
            if look is not None and time.monotonic() - since >= LOOK:
                since = time.monotonic()
                look(process.pid)
    return process.returncode


def members(group: int) -> list[int]:
    """Process numbers of a group."""
    return [pid for pid, _, pgrp in _processes() if pgrp == group]


def _processes():
    """Number, parent and group of all processes that have not ended."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                text = Path("/proc", entry.name, "stat").read_text()
                # The process name before these fields may contain blanks and parentheses.
                state, parent, group = text.rpartition(")")[2].split()[:3]
                if state not in "ZX":
                    yield int(entry.name), int(parent), int(group)


def _end_group(group, number=signal.SIGKILL):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _signal_children(number):
    """Send a signal to all children; return their numbers and groups.

    Children of :func:`child` are signalled with their groups; other children, such as Amaranth's
    Yosys, alone.
    """
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
    """Kill all children, and start none from now on. On return no child writes any more."""
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
    """If a signal ends the block (:exc:`Terminated`), end all children before raising.

    While the terminal stops dxpu, the children stop as well. Has no effect outside the main thread.
    Ignored signals stay ignored, as `nohup` needs.
    """
    global _ending
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ends(number, frame):
        if _ending:  # a second signal: the user is in a hurry
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
        # Another thread may have been about to start a child; no child starts after this.
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
    """Keep a terminal's interrupt from programs that other code starts in the block.

    Each program would report the interrupt in lines of its own. Has no effect in the main thread:
    the main thread must receive the interrupt.
    """
    if threading.current_thread() is threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Task(threading.Thread):
    """A job in a second thread, so that the main thread can handle signals and show progress."""

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
        """Result of the job; raises the exception of the job."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._result
