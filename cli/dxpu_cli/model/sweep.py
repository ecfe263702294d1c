"""``dxpu model sweep``: a table of all combinations of some values, and of some traces."""

import argparse
import csv
import io
import itertools
import os
import re
import sys
import time
import warnings
from dataclasses import dataclass

from dxpu_cli.main import require
from dxpu_cli.options import decimal_number, file_to_write, whole_number
from dxpu_cli.progress import Progress
from dxpu_tools.errors import UserError
from dxpu_tools.files import write_text

from .inputs import add_case, given

__all__ = ["VARIED", "add_arguments", "run", "values"]

#: Options that can be varied.
VARIED = ("rtt", "tags", "read-bytes", "payload-bytes", "line-gbit", "pcie", "proxies", "km",
          "loss", "gpus", "like", "exposed", "kernel-us", "launches", "streams", "syncs", "copies",
          "copy-mb", "copies-back", "launch-us", "rate")
#: Options of the fabric, with which a program stays the same.
_FABRIC = ("rtt", "tags", "read-bytes", "payload-bytes", "line-gbit", "pcie", "proxies", "km",
           "loss", "gpus", "like", "exposed", "rate")
#: Combinations at most.
MOST = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the job."""
    add_case(parser)
    parser.add_argument("--trace", metavar="FILE", action="append", dest="fleet", default=[],
                        help="a further trace of a fleet; may be given again")
    parser.add_argument("--vary", metavar="NAME=VALUES", action="append", default=[],
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
                        help="write the table as CSV into a file, not to standard output")


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
    """Cases with what names them: workload and values."""

    heads: list[str]
    labels: list[tuple[str, ...]]
    cases: list


def run(arguments: argparse.Namespace) -> int:
    """Compute all combinations, and write a table."""
    if arguments.dask is not None:
        require("dask")
        if arguments.jobs is not None:
            raise UserError("--jobs is for this machine, --dask for a cluster: give one")
    from dxpu_performance.sweep import chunks, on_cluster, on_cores
    keep = decimal_number("--keep", arguments.keep, 0.1, 99.9) / 100
    jobs = None if arguments.jobs is None else whole_number("--jobs", arguments.jobs, 1, 1024)
    out = file_to_write("--out", arguments.out)
    plan = _plan(arguments)
    work = chunks(plan.cases, keep, simulated=not arguments.closed_form)
    where = (f"at {arguments.dask}" if arguments.dask else
             f"in {_many(min(jobs or len(os.sched_getaffinity(0)), len(work)), 'process')}")
    # An interrupt ends all processes at once, and the rest of them need not be told of each other.
    warnings.filterwarnings("ignore", message="resource_tracker")
    progress = Progress(sys.stderr, brief=True)
    progress.step(f"{_many(len(plan.cases), 'case')} {where}")
    begin, found = time.monotonic(), []

    def compute():
        done = (on_cluster(work, arguments.dask) if arguments.dask else on_cores(work, jobs))
        for results in done:
            found.extend(results)
            progress.update(f"{len(found):,} of {len(plan.cases):,}")

    progress.run(compute)
    progress.done()
    text = _table(plan, sorted(found, key=lambda result: result.number))
    seconds = time.monotonic() - begin
    if out is None:
        print(text, end="")
    else:
        write_text(out, text)
    print(f"{_many(len(plan.cases), 'case')} {where} in {seconds:.1f} s",
          file=sys.stderr if out is None else sys.stdout)
    return 0


def _many(number: int, one: str) -> str:
    return f"{number:,} {one}" + ("es" if one.endswith("s") else "s") * (number != 1)


def _plan(arguments: argparse.Namespace) -> _Plan:
    """All combinations, those of one program one after the other."""
    varied = dict(values(text) for text in arguments.vary)
    if len(varied) < len(arguments.vary):
        raise UserError("--vary has one of its names twice")
    traces = [arguments.trace, *arguments.fleet] if arguments.trace else arguments.fleet
    workloads = [*dict.fromkeys(traces)] or [None]
    # Options of the fabric vary fastest, so that a program is made once for all of them.
    names = sorted(varied, key=lambda name: name in _FABRIC)
    total = len(workloads)
    for name in names:
        total *= len(varied[name])
    if total > MOST:
        raise UserError(f"{total:,} combinations are too many: at most {MOST:,}")
    labels, cases, made = [], [], {}
    for workload in workloads:
        for combination in itertools.product(*(varied[name] for name in names)):
            chosen = argparse.Namespace(**vars(arguments))
            chosen.trace = workload
            for name, value in zip(names, combination, strict=True):
                setattr(chosen, name.replace("-", "_"), value)
            own = (workload, *(value for name, value in zip(names, combination, strict=True)
                               if name not in _FABRIC))
            asked = given(chosen, made.setdefault(own, {}))
            if len(asked.cases) != 1:
                raise UserError("--rtt has several values: vary them by --vary rtt=...")
            labels.append((asked.name, *combination))
            cases.append(asked.cases[0])
    return _Plan(["workload", *names], labels, cases)


def _table(plan: _Plan, results) -> str:
    """The table as CSV: values, shares in percent, and the longest round trip in us."""
    found = io.StringIO()
    writer = csv.writer(found, lineterminator="\n")
    writer.writerow([*plan.heads, "kept_percent", "low_percent", "high_percent",
                     "longest_round_trip_us"])
    for label, result in zip(plan.labels, results, strict=True):
        shares = ["" if each is None else f"{100 * each:.4f}"
                  for each in (result.kept, result.low, result.high)]
        writer.writerow([*label, *shares, f"{result.longest_round_trip_us:.4f}"])
    return found.getvalue()
