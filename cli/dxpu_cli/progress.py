"""Progress of a long command: one line that changes on a terminal; elsewhere one line per step, and
one now and then while a step takes long."""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from dxpu_tools.children import Task

__all__ = ["Notices", "Progress"]

#: Seconds of a step after which a line says that it goes on; then each so many seconds.
NOTICES = (5.0, 30.0)
LATER = 60.0


class Notices:
    """When to say of something that takes long that it goes on."""

    def __init__(self):
        self._count = 0

    def due(self, seconds: float) -> bool:
        """Whether it is time, so many seconds after the beginning; once for each time."""
        late = self._count - len(NOTICES)
        if seconds < (NOTICES[self._count] if late < 0 else NOTICES[-1] + (late + 1) * LATER):
            return False
        self._count += 1
        return True


class Progress:
    """Shows which step runs, how long it takes and what it says.

    On a terminal the current step is one line that is rewritten. Everywhere else (files, continuous
    integration) there is one plain line per finished step, and one after :data:`NOTICES` and each
    :data:`LATER` seconds of one that goes on. Several threads may use it.

    Parameters
    ----------
    stream
        Where to write; default standard output.
    terminal : bool
        Default whether ``stream`` is a terminal.
    brief : bool
        Nothing is shown of steps that are over before their first notice: for commands that mostly
        take no time.
    clock : function
        Returns seconds.
    """

    def __init__(self, stream=None, *, terminal: bool | None = None, brief: bool = False,
                 clock=time.monotonic):
        self._stream = sys.stdout if stream is None else stream
        self._terminal = self._stream.isatty() if terminal is None else terminal
        self._brief = brief
        self._clock = clock
        self._step = ""
        self._detail = ""
        self._begin = 0.0
        self._shown = 0
        self._notices = Notices()
        self._lock = threading.RLock()

    def step(self, name: str) -> None:
        """End the current step, begin another."""
        with self._lock:
            self.done()
            self._step, self._detail, self._begin = name, "", self._clock()
            self._notices = Notices()
            self.refresh()

    def update(self, detail: str) -> None:
        """Say what the current step is doing, or what has come out of it."""
        self._detail = detail
        self.refresh()

    def follow(self, path: Path, lines: int) -> int:
        """Show what a bench adds to ``path`` after its first ``lines`` whole lines.

        A line is ``step NAME`` or ``update DETAIL``. Returns how many there are now.
        """
        try:
            text = path.read_text().split("\n")[:-1]
        except OSError:
            text = []
        for line in text[lines:]:
            kind, _, words = line.partition(" ")
            (self.step if kind == "step" else self.update)(words)
        self.refresh()
        return max(lines, len(text))

    def refresh(self) -> None:
        """Show the time that has passed, where there is something to show."""
        with self._lock:
            if not self._step or self._is_hidden():
                return
            if self._terminal:
                self._rewrite(self._line("..."))
            elif self._notices.due(self._clock() - self._begin):
                self._stream.write(self._line("...") + "\n")
                self._stream.flush()

    def _is_hidden(self):
        return self._brief and self._clock() - self._begin < NOTICES[0]

    def run(self, job: Callable[[], object], poll: Callable[[], None] = lambda: None):
        """Result of ``job``, which runs beside this thread, so that the time is shown and a signal
        is heard; ``poll`` is called meanwhile. If one of them fails, so has the current step."""
        task = Task(job)
        try:
            while task.is_alive():
                task.join(0.2)
                poll()
                self.refresh()
            return task.outcome()
        except KeyboardInterrupt:
            self._leave()
            raise
        except BaseException:
            self.done(failed=True)
            raise

    def _leave(self):
        """Nothing more of the step; what follows begins a line of its own."""
        with self._lock:
            if self._terminal and self._step and not self._is_hidden():
                self._stream.write("\n")
                self._stream.flush()
            self._step = ""

    def done(self, *, failed: bool = False) -> None:
        """End the current step."""
        with self._lock:
            if not self._step:
                return
            line, hidden = self._line("failed" if failed else "done"), self._is_hidden()
            self._step = ""
            if hidden:
                return
            if self._terminal:
                self._rewrite(line)
                self._shown = 0
            else:
                self._stream.write(line)
            self._stream.write("\n")
            self._stream.flush()

    def _line(self, state):
        seconds = self._clock() - self._begin
        return f"  {self._step:<44} {state:<6} {seconds:5.1f} s  {self._detail}".rstrip()

    def _rewrite(self, line):
        self._stream.write("\r" + line.ljust(self._shown))
        self._stream.flush()
        self._shown = len(line)
