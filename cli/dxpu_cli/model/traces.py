"""Files of workloads on command lines: options that choose a part of a trace, and reading."""

import argparse
import sys
from typing import TYPE_CHECKING

from dxpu_cli.options import decimal_number, whole_number
from dxpu_cli.progress import Progress

if TYPE_CHECKING:
    from dxpu_performance.workload import Workload

__all__ = ["add_part", "open_workload", "part_of"]

#: Latest time of a window, in ms: the longest recording that makes sense, ten years.
_LATEST_MS = 316_000_000_000


def add_part(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a part of a trace."""
    parser.add_argument("--device", metavar="N", help="only what GPU N of the trace does")
    parser.add_argument("--begin", metavar="MS", default="0",
                        help="only what begins at this time of the trace or later, in ms")
    parser.add_argument("--end", metavar="MS", help="only what begins before this time, in ms")


def part_of(arguments: argparse.Namespace) -> dict[str, int]:
    """What the options of :func:`add_part` choose, as arguments of ``Workload.select``.

    Raises
    ------
    UserError
        If an option makes no sense.
    """
    chosen = {}
    if arguments.device is not None:
        chosen["device"] = whole_number("--device", arguments.device, 0, 1 << 20)
    begin = decimal_number("--begin", arguments.begin, 0, _LATEST_MS)
    chosen["begin_ns"] = round(begin * 1e6)
    if arguments.end is not None:
        chosen["end_ns"] = round(decimal_number("--end", arguments.end, begin, _LATEST_MS) * 1e6)
    return chosen


def open_workload(path: str, part: dict[str, int]) -> "Workload":
    """A workload from a file, with progress on standard error if reading takes long.

    Raises
    ------
    dxpu_performance.errors.ModelError
        If the file cannot be read, or nothing of it is chosen; the text begins with its name.
    """
    from dxpu_performance.readers import read
    from dxpu_performance.workload import WorkloadError

    progress = Progress(sys.stderr, brief=True)
    progress.step(f"reading {path}")
    workload = progress.run(lambda: read(path, lambda share: progress.update(f"{share:.0%}")))
    progress.done()
    try:
        return workload.select(**part)
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from None
