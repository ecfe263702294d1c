"""Progress of a long command: on a terminal a line that changes, elsewhere a line per step.

Elsewhere a long step also gives a line from time to time.
"""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from dxpu_tools.children import Task

__all__ = ["Notices", "Progress"]

#: Seconds after the start of a step at which a line says that the step goes on; then an interval.
NOTICES = (5.0, 30.0)
LATER = 60.0


class Notices:
    """Times of the reports on a long step."""

    def __init__(self):
        self._count = 0

    def due(self, seconds: float) -> bool:
        """Whether a report is due ``seconds`` after the beginning; true once for each report."""
        late = self._count - len(NOTICES)
        if seconds < (NOTICES[self._count] if late < 0 else NOTICES[-1] + (late + 1) * LATER):
            return False
        self._count += 1
        return True


class Progress:
    """Shows the current step, its duration and its messages.

    On a terminal the current step is one line that is rewritten. Elsewhere (files, continuous
    integration) each finished step gives a plain line, and a step that goes on gives a line after
    :data:`NOTICES` and each :data:`LATER` seconds. Safe for several threads.

    Parameters
    ----------
    stream
        Output; by default standard output.
    terminal : bool
        By default whether ``stream`` is a terminal.
    brief : bool
        Hide steps that end before their first notice: for commands that mostly take no time.
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
        """Show the activity of the current step, or its result."""
        self._detail = detail
        self.refresh()

    def follow(self, path: Path, lines: int) -> int:
        """Show lines that a bench adds to ``path`` after its first ``lines`` whole lines.

        A line is ``step NAME`` or ``update DETAIL``. Returns the number of lines so far.
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
        """Show the elapsed time, unless there is no step to show."""
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
        """Result of ``job``, run in a second thread, while this thread shows the time and receives
        signals.

        ``poll`` is called meanwhile. An exception of ``job`` or ``poll`` fails the current step.
        """
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
        """Leave the line of the current step, so that further output begins a new line."""
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
