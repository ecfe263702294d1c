"""``dxpu model paper``: every published figure beside that of the model, with errors."""

import argparse
import dataclasses
import json

from dxpu_performance import paper
from dxpu_performance.paper import Kind, Row

__all__ = ["add_arguments", "lines", "run"]

#: What each kind of row means, for the reader of the table.
MEANINGS = {
    Kind.IDENTITY: "the paper's formula and inputs give the paper's result",
    Kind.HELD_OUT: "measured there, predicted here; no parameter was fitted on it",
    Kind.THEIR_MODEL: "output of the paper's own model, for a workload that is not described",
    Kind.FITTED: "a parameter was fitted on it: its error says nothing",
    Kind.BOUNDS: "inputs are missing: bounds only",
    Kind.MISSING: "inputs are missing: not predicted",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the job."""
    parser.add_argument("--kind", choices=[kind.value for kind in Kind], default=None,
                        help="only rows of a kind")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    every = paper.rows()
    shown = [row for row in every if arguments.kind in (None, row.kind.value)]
    if arguments.json:
        print(json.dumps([dataclasses.asdict(row) | {"kind": row.kind.value, "error": row.error}
                          for row in shown], indent=2))
        return 0
    print("\n".join(lines(shown)))
    print()
    if arguments.kind is None:
        print("\n".join(_simulated()))
        print()
    print("\n".join(f"{kind.value:<11} {text}" for kind, text in MEANINGS.items()))
    print()
    for percent, of, unit in ((True, "shares of speed", "points"),
                              (False, "bandwidths", "percent")):
        found = paper.summary(every, percent=percent)
        print(f"{found.count} held-out {of}: mean error {found.mean:.2f} {unit}, "
              f"at most {found.greatest:.2f}")
    print("Forms of the model were chosen with these rows in view, so the table is a check of "
          "consistency, and no blind prediction.")
    return 0


def _simulated():
    """Published shares of table 9 beside both modes of the simulation."""
    from dxpu_performance.brackets import SHORT_US, brackets
    yield (f"simulated, with short kernels of {SHORT_US:g} us: {'published':>26} "
           f"{'one by one':>11} {'ahead':>6}")
    for each in brackets():
        yield (f"  ResNet-50 {each.run.name:<51} {each.run.percent:>6.1f} {each.serial:>11.1f} "
               f"{each.prefetch:>6.1f}  {each.place}")


def lines(rows: list[Row]) -> list[str]:
    """The table as lines of text, with a heading."""
    wide = max(len(row.what) for row in rows)
    found = [f"{'source':<20} {'figure':<{wide}} {'unit':<4} {'published':>12} {'ours':>11} "
             f"{'error':>8} {'rule':>6}  {'kind':<11} assumed, or missing"]
    for row in rows:
        told, ours, error, rule = row.texts()
        found.append(f"{row.source:<20} {row.what:<{wide}} {row.unit:<4} {told:>12} {ours:>11} "
                     f"{error:>8} {rule:>6}  {row.kind.value:<11} {row.assumed}".rstrip())
    return found
