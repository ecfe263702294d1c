"""Progress of a long command: one line that changes on a terminal, one line per step elsewhere."""

import sys
import time
from pathlib import Path

__all__ = ["Progress"]


class Progress:
    """Shows which step runs, how long it takes and what it says.

    On a terminal the current step is one line that is rewritten; when a step ends, and everywhere
    else (files, continuous integration), there is one plain line per finished step.

    Parameters
    ----------
    stream
        Where to write; default standard output.
    terminal : bool
        Default whether ``stream`` is a terminal.
    clock : function
        Returns seconds.
    """

    def __init__(self, stream=None, *, terminal: bool | None = None, clock=time.monotonic):
        self._stream = sys.stdout if stream is None else stream
        self._terminal = self._stream.isatty() if terminal is None else terminal
        self._clock = clock
        self._step = ""
        self._detail = ""
        self._begin = 0.0
        self._shown = 0

    def step(self, name: str) -> None:
        """End the current step, begin another."""
        self.done()
        self._step, self._detail, self._begin = name, "", self._clock()
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
        """Show the time that has passed; does nothing where lines cannot be rewritten."""
        if self._terminal and self._step:
            self._rewrite(self._line("..."))

    def done(self, *, failed: bool = False) -> None:
        """End the current step."""
        if not self._step:
            return
        line = self._line("failed" if failed else "done")
        if self._terminal:
            self._rewrite(line)
            self._stream.write("\n")
            self._shown = 0
        else:
            self._stream.write(line + "\n")
        self._stream.flush()
        self._step = ""

    def _line(self, state):
        seconds = self._clock() - self._begin
        return f"  {self._step:<44} {state:<6} {seconds:5.1f} s  {self._detail}".rstrip()

    def _rewrite(self, line):
        self._stream.write("\r" + line.ljust(self._shown))
        self._stream.flush()
        self._shown = len(line)
