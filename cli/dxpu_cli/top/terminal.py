"""A terminal's screen that is drawn in place, and left as before."""

import contextlib
import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Iterator
from types import TracebackType
from typing import Self

__all__ = ["Terminal"]

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
#: Keys that end the program.
QUIT = b"qQ\x04"


class Terminal:
    """The standard output as a screen; a context, which puts everything back at the end.

    Keys of a terminal at the standard input are not shown.
    """

    def __init__(self) -> None:
        self._settings: list[object] | None = None

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            with contextlib.suppress(termios.error):
                self._settings = termios.tcgetattr(sys.stdin)
                tty.setcbreak(sys.stdin, termios.TCSANOW)
        self._write(_ENTER)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            self._write(_LEAVE)
        if self._settings is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(sys.stdin, termios.TCSANOW, self._settings)  # type: ignore[arg-type]

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        columns, lines = shutil.get_terminal_size()
        with contextlib.suppress(OSError):  # as it is now, whatever $COLUMNS says
            columns, lines = os.get_terminal_size(sys.stdout.fileno())
        return max(columns, 1), max(lines, 1)

    def show(self, lines: list[str]) -> None:
        """Draw over the last screen."""
        self._write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")

    def keys(self, seconds: float) -> Iterator[bytes]:
        """Keys pressed within a time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._settings is None:
                time.sleep(left)
                continue
            ready, _, _ = select.select([sys.stdin], [], [], left)
            if ready:
                key = os.read(sys.stdin.fileno(), 1)
                if not key:  # nobody is there any more
                    self._settings = None
                    continue
                yield key

    def wait(self, seconds: float) -> bool:
        """Whether somebody presses a key of :data:`QUIT` within a time."""
        return any(key in QUIT for key in self.keys(seconds))
