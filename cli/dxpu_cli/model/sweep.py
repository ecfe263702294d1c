"""``dxpu model sweep``: a table of all combinations of some values, and of some traces."""

import argparse
import contextlib
import csv
import io
import itertools
import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dxpu_cli.main import require
from dxpu_cli.options import decimal_number, file_to_write, whole_number
from dxpu_cli.progress import Progress
from dxpu_tools.errors import UserError
from dxpu_tools.files import write_text

from .inputs import add_case, given, most_of, refuse_steps
from .traces import part_of

__all__ = ["VARIED", "add_arguments", "run", "values"]

#: Options that can be varied.
VARIED = ("rtt", "tags", "read-bytes", "payload-bytes", "line-gbit", "pcie", "proxies", "km",
          "loss", "load", "gpus", "like", "exposed", "kernel-us", "launches", "streams", "syncs",
          "copies", "copy-mb", "copies-back", "launch-us", "rate")
#: Options of the fabric, with which a program stays the same.
_FABRIC = ("rtt", "tags", "read-bytes", "payload-bytes", "line-gbit", "pcie", "proxies", "km",
           "loss", "load", "gpus", "like", "exposed", "rate")
#: Combinations at most.
MOST = 1_000_000
FORMATS = (".csv", ".json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the job."""
    add_case(parser)
    parser.add_argument("--trace", metavar="FILE", action="append", dest="fleet", default=None,
                        help="a further trace of a fleet; may be given again")
    parser.add_argument("--vary", metavar="NAME=VALUES", action="append", default=None,
                        help="an option above without its dashes, and its values: a list with "
                        "commas, or FIRST:LAST:STEP; may be given again")
    parser.add_argument("--closed-form", action="store_true",
                        help="no simulations, so no range: some hundred times as fast")
    parser.add_argument("--keep", metavar="PERCENT", default="90",
                        help="share of speed for which the longest round trip is searched")
    parser.add_argument("--jobs", metavar="N", default=None,
                        help="processes on this machine (default: one a core)")
    parser.add_argument("--dask", metavar="ADDRESS", default=None,
                        help="scheduler of a Dask cluster that computes, such as "
                        "tcp://10.0.0.1:8786")
    parser.add_argument("--out", metavar="FILE", default=None,
                        help="file for the table, as CSV or JSON by its ending, written whole or "
                        "not at all (default: CSV on standard output)")


def values(text: str) -> tuple[str, list[str]]:
    """Name and values of ``--vary``.

    Raises
    ------
    UserError
        There is no such name, or no values.
    """
    name, equals, listed = text.partition("=")
    if not equals or name not in VARIED:
        raise UserError(f"--vary must be NAME=VALUES with a name of {', '.join(VARIED)}, not "
                        f"{text!r}")
    span = re.fullmatch(r"([\d.]+):([\d.]+):([\d.]+)", listed)
    if span is None:
        found = [each.strip() for each in listed.split(",")]
        if not all(found) or ":" in listed:
            raise UserError(f"--vary {name} needs values such as 1,2,4 or 1:9:0.5, not {listed!r}")
        return name, found
    first, last, step = (decimal_number(f"--vary {name}", each, 0, 10**12)
                         for each in span.groups())
    if step == 0 or last < first or (last - first) / step > MOST:
        raise UserError(f"--vary {name} must rise from FIRST to LAST in at most {MOST:,} steps, "
                        f"not {listed!r}")
    # The small part keeps LAST in the list where a sum of steps just misses it.
    count = int((last - first) / step + 1e-9) + 1
    return name, [f"{first + number * step:.12g}" for number in range(count)]


@dataclass(frozen=True)
class _Plan:
    """Cases with what names them: workload and values; and traces that are left out, with why."""

    heads: list[str]
    labels: list[tuple[str, ...]]
    cases: list
    left_out: list[str]


@dataclass(frozen=True)
class _Place:
    """Where tasks are done: in words, how many at once, and what does them."""

    words: str
    workers: int
    do: Callable[[Callable, list], Iterator]


def run(arguments: argparse.Namespace) -> int:
    """Compute all combinations, and write a table; returns 1 if traces were left out."""
    from dxpu_performance.sweep import chunks, evaluate
    keep = decimal_number("--keep", arguments.keep, 0.1, 99.9) / 100
    out = file_to_write("--out", arguments.out)
    if out is not None and out.suffix not in FORMATS:
        raise UserError(f"--out must end in .csv or .json, not {arguments.out!r}")
    begin = time.monotonic()
    with _place(arguments) as place, _Shown() as shown:
        plan = _plan(arguments, place, shown)
        work = chunks(plan.cases, keep, simulated=not arguments.closed_form)
        found = [result for results in shown.all_of(
            place.do(evaluate, work), "predictions", len(plan.cases)) for result in results]
    seconds = time.monotonic() - begin
    for error in plan.left_out:
        print(f"dxpu model: left out: {error}", file=sys.stderr)
    if plan.cases:
        text = _table(plan, sorted(found, key=lambda result: result.number),
                      ".csv" if out is None else out.suffix)
        if out is None:
            print(text, end="")
        else:
            write_text(out, text)
        print(f"{_many(len(plan.cases), 'case')} {place.words} in {seconds:.1f} s",
              file=sys.stderr if out is None else sys.stdout)
    return 1 if plan.left_out else 0


@contextlib.contextmanager
def _place(arguments: argparse.Namespace) -> Iterator[_Place]:
    """Cores of this machine, or a cluster."""
    if arguments.dask is None:
        from dxpu_performance import pool
        jobs = pool.cores() if arguments.jobs is None else whole_number(
            "--jobs", arguments.jobs, 1, 1024)
        yield _Place(f"in {_many(jobs, 'process')}", jobs,
                     lambda function, tasks: pool.run(function, tasks, jobs))
        return
    if arguments.jobs is not None:
        raise UserError("--jobs is for this machine, --dask for a cluster: give one")
    require("dask")
    from dxpu_performance.cluster import Cluster
    with Cluster(arguments.dask) as cluster:
        yield _Place(f"at {arguments.dask}", cluster.cores(), cluster.run)


class _Shown:
    """Progress on standard error, whose clock goes on between results."""

    def __enter__(self):
        self._progress, self._end = Progress(sys.stderr, brief=True), threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)
        self._clock.start()
        return self

    def __exit__(self, kind, error, trace):
        self._end.set()
        self._clock.join()
        self._progress.done(failed=error is not None)

    def _tick(self):
        while not self._end.wait(0.2):
            self._progress.refresh()

    def all_of(self, results: Iterator, what: str, total: int) -> list:
        """All results; one may be a list of several."""
        self._progress.step(what)
        found, done = [], 0
        # Closed at once, whatever happens: with the iterator all processes end.
        with contextlib.closing(results):
            for result in results:
                found.append(result)
                done += len(result) if isinstance(result, list) else 1
                self._progress.update(f"{done:,} of {total:,}")
        self._progress.done()
        return found


def _many(number: int, one: str) -> str:
    return f"{number:,} {one}" + ("es" if one.endswith("s") else "s") * (number != 1)


def _plan(arguments: argparse.Namespace, place: _Place, shown: _Shown) -> _Plan:
    """All combinations, those of one program one after the other."""
    varied = dict(values(text) for text in arguments.vary or ())
    if len(varied) < len(arguments.vary or ()):
        raise UserError("--vary has one of its names twice")
    further = arguments.fleet or []
    traces = list(dict.fromkeys([arguments.trace, *further] if arguments.trace else further))
    # Options of the fabric vary fastest, so that a program is made once for all of them.
    grid = {name: varied[name] for name in sorted(varied, key=lambda name: name in _FABRIC)}
    total = math.prod(map(len, grid.values())) * max(1, len(traces))
    if total > MOST:
        raise UserError(f"{total:,} combinations are too many: at most {MOST:,}")
    plan = _Plan(["workload", *grid], [], [], [])
    if not traces:
        _add(plan, arguments, grid, None, {})
        return plan
    # A mistake in an option is told before traces are read, which may take long.
    _add(_Plan([], [], [], []), arguments, grid, traces[0],
         {"program": ("", _nothing(), ()), "native_us": 1.0})
    for name, loaded in _load(arguments, traces, place, shown):
        if loaded.error:
            plan.left_out.append(loaded.error)
        else:
            _add(plan, arguments, grid, name, {
                "program": (name, loaded.program, loaded.notes), "native_us": loaded.native_us})
    return plan


def _nothing():
    """A program without actions."""
    from dxpu_performance.program import Program
    return Program((), 1)


def _add(plan: _Plan, arguments: argparse.Namespace, grid: dict[str, list[str]],
         trace: str | None, prepared: dict[str, Any]) -> None:
    """Add all combinations of a grid for a workload to a plan; ``prepared`` is for ``given``."""
    made: dict[Any, dict] = {}
    for combination in itertools.product(*grid.values()):
        chosen = argparse.Namespace(**vars(arguments))
        chosen.trace = trace
        for name, value in zip(grid, combination, strict=True):
            setattr(chosen, name.replace("-", "_"), value)
        if trace is not None:
            refuse_steps(chosen)
        own = tuple(value for name, value in zip(grid, combination, strict=True)
                    if name not in _FABRIC)
        asked = given(chosen, made.setdefault(own, dict(prepared)))
        if len(asked.cases) != 1:
            raise UserError("--rtt has several values: vary them by --vary rtt=...")
        plan.labels.append((asked.name, *combination))
        plan.cases.append(asked.cases[0])


def _load(arguments: argparse.Namespace, traces: list[str], place: _Place,
          shown: _Shown) -> list[tuple[str, Any]]:
    """Names of traces, and what was loaded of each, in the order of the command line."""
    from dxpu_performance.sweep import Trace, load
    part, most = part_of(arguments), most_of(arguments)
    tasks = [Trace(path, most, **part) for path in dict.fromkeys(map(os.path.abspath, traces))]
    found = {loaded.trace.path: loaded for loaded in shown.all_of(
        place.do(load, tasks), "traces", len(tasks))}
    return [(name, found[os.path.abspath(name)]) for name in traces]


def _table(plan: _Plan, results: list, suffix: str) -> str:
    """The table as CSV or JSON: values, shares in percent, and the longest round trip in us."""
    heads = [*plan.heads, "kept_percent", "low_percent", "high_percent", "longest_round_trip_us"]
    rows = []
    for label, result in zip(plan.labels, results, strict=True):
        shares = [None if each is None else round(100 * each, 4)
                  for each in (result.kept, result.low, result.high)]
        rows.append([*label, *shares, round(result.longest_round_trip_us, 4)])
    if suffix == ".json":
        # An infinite round trip, at which everything is kept, has no number in JSON.
        cases = [dict(zip(heads, [*row[:-1], row[-1] if row[-1] < float("inf") else None],
                          strict=True)) for row in rows]
        return json.dumps({"version": 1, "cases": cases, "left_out": plan.left_out},
                          indent=1) + "\n"
    found = io.StringIO()
    writer = csv.writer(found, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([*row[:-4], *("" if each is None else f"{each:.4f}" for each in row[-4:])]
                     for row in rows)
    return found.getvalue()
