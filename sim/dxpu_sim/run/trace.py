"""Traces of a window of a simulation."""

import ctypes
from pathlib import Path

__all__ = ["Trace"]


class Trace:
    """Trace file of a running simulation, controlled by the bench, in a build with waves.

    Parameters
    ----------
    path : path
        File to write; the format is compiled in.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._program = ctypes.CDLL(None)

    def start(self) -> None:
        """Trace from the current time on. The header alone lists every signal of the design."""
        if not self._program.dxpu_trace_open(str(self.path).encode()):
            raise OSError(f"cannot write the trace {self.path}, or another one is open")

    def stop(self) -> None:
        """Complete the file; no effect on a complete file."""
        self._program.dxpu_trace_close()
