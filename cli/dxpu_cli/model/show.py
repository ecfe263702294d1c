"""``dxpu model show``: what a reader took from a trace, and the figures that describe it."""

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .traces import add_part, open_workload, part_of

if TYPE_CHECKING:
    from dxpu_performance.summary import Summary, TimelineSummary
    from dxpu_performance.workload import Workload

__all__ = ["add_arguments", "as_json", "lines", "run"]

#: Directions of copies in words, by name.
DIRECTIONS = {"TO_DEVICE": "host to GPU", "TO_HOST": "GPU to host", "IN_DEVICE": "inside a GPU",
              "PEER": "GPU to GPU", "OTHER": "other"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the job."""
    parser.add_argument("trace", metavar="TRACE",
                        help="a trace of Nsight Systems (SQLite) or the PyTorch profiler (JSON), "
                        "a report of nsys stats (CSV), or durations (CSV or JSON)")
    add_part(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the figures."""
    from dxpu_performance.summary import summarise

    workload = open_workload(arguments.trace, part_of(arguments))
    summary = summarise(workload)
    if arguments.json:
        print(json.dumps(as_json(workload, summary), indent=2))
    else:
        print("\n".join(lines(workload, summary)))
    return 0


def as_json(workload: "Workload", summary: "Summary") -> dict[str, Any]:
    """The figures as JSON: times in ns, shares of 1; ``timeline`` is null without a trace."""
    import dataclasses
    value = dataclasses.asdict(summary)
    if summary.timeline is not None:
        value["timeline"]["copies"] = {
            direction.name.lower(): dataclasses.asdict(copies)
            for direction, copies in summary.timeline.copies.items()}
    return {"name": workload.name, "source": workload.source, **value,
            "notes": list(workload.notes)}


def lines(workload: "Workload", summary: "Summary") -> list[str]:
    """The figures as a table, with a heading and what the file lacks."""
    rows = [("kernels", f"{summary.kernels:,.0f}, {_time(summary.kernel_ns)} together"),
            ("  mean, median", f"{_time(summary.mean_ns)}, {_time(summary.median_ns)}"),
            ("  of 10 us and less", f"{summary.short_count_share:.1%} of the number, "
             f"{summary.short_time_share:.1%} of the time")]
    if summary.timeline is not None:
        rows += _of_timeline(summary.timeline, bool(len(_calls(workload))))
    wide = max(len(name) for name, _ in rows)
    return [f"{workload.name}: {workload.source}", "",
            *(f"{name:<{wide}}  {value}" for name, value in rows),
            *(f"\nnote: {note}" for note in workload.notes)]


def _calls(workload: "Workload") -> Any:
    return () if workload.timeline is None else workload.timeline.calls


def _of_timeline(times: "TimelineSummary", has_calls: bool) -> Iterator[tuple[str, str]]:
    yield "span", _time(times.span_ns)
    yield "GPUs, streams", f"{times.devices}, {times.streams}"
    yield "a kernel runs for", f"{times.busy_share:.1%} of the span"
    for direction, copies in times.copies.items():
        yield (f"copies, {DIRECTIONS[direction.name]}",
               f"{copies.count:,}, {_size(copies.bytes)}, {_time(copies.time_ns)}")
    yield ("  beside no kernel", f"{times.exposed_copies:,} between host and GPU; "
           f"{_time(times.exposed_copy_ns)} of all of them")
    yield "memsets", f"{times.memsets:,}"
    if has_calls:
        yield "launches", f"{times.launches:,}"
        yield ("synchronisations", f"{times.synchronisations:,}, "
               f"{_time(times.synchronisation_ns)} of waiting")
    if times.queue_depth is not None and times.empty_queue_share is not None:
        yield "queue at a launch", (f"{times.queue_depth:.1f} operations in the mean, none at "
                                    f"{times.empty_queue_share:.1%}")


def _time(ns: float) -> str:
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= unit:
            return f"{ns / unit:.3f} {name}"
    return f"{ns:.0f} ns"


def _size(size: int) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3f} {name}"
    return f"{size} B"
