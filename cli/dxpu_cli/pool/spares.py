"""``dxpu pool spares``: how many spares a pool wants, and has."""

import argparse
from typing import Any

from dxpu_cli.options import decimal_number

from .client import add_arguments as add_client
from .client import client
from .tables import say, table

__all__ = ["add_arguments", "run"]

_SERVICE = "CompositionService"
_TITLES = ("MODEL", "GPUS", "FAILURES", "GPU-YEARS", "RATE", "IN REPAIR", "WANTED", "HELD",
           "COVERED")


def add_arguments(jobs: Any) -> None:
    """Options of the command."""
    job = jobs.add_parser("spares", help="plan spares by the rate of failures, and let the manager "
                          "keep them")
    job.add_argument("--keep", choices=("yes", "no"), default=None,
                     help="the manager keeps so many free GPUs back by itself, or does not")
    job.add_argument("--rate", metavar="RATE", default=None, help="failures of a GPU in a year, "
                     "such as 0.09, or `measured`: by what the pool has seen")
    job.add_argument("--repair-days", metavar="DAYS", default=None,
                     help="from a failure until a GPU is there again")
    job.add_argument("--probability", metavar="P", default=None,
                     help="that no failed GPU is without a spare")
    add_client(job)


def run(arguments: argparse.Namespace) -> int:
    """Change what is wanted, if something is said, and show the plan."""
    change: dict[str, Any] = {}
    if arguments.keep is not None:
        change["Keep"] = arguments.keep == "yes"
    if arguments.rate is not None:
        change["AnnualFailureRate"] = None if arguments.rate == "measured" else decimal_number(
            "--rate", arguments.rate, 0, 100)
    for name, least, most in (("RepairDays", 0.001, 3650), ("Probability", 0.5, 0.999999)):
        option = {"RepairDays": "repair_days"}.get(name, "probability")
        text = getattr(arguments, option)
        if text is not None:
            change[name] = decimal_number(f"--{option.replace('_', '-')}", text, least, most)
    with client(arguments) as there:
        if change:
            there.patch(_SERVICE, {"Oem": {"DxPU": {"Spares": change}}})
        found = there.get(_SERVICE)["Oem"]["DxPU"]["Spares"]
    shown = {"keep": found["Keep"], "probability": found["Probability"],
             "repair_days": found["RepairDays"], "rate": found["AnnualFailureRate"],
             "models": [{
                 "model": one["Model"] or "", "gpus": one["Gpus"], "failures": one["Failures"],
                 "gpu_years": one["GpuYears"], "rate": one["AnnualFailureRate"],
                 "in_repair": one["InRepair"], "wanted": one["Wanted"], "held": one["Held"],
                 "covered": one["Probability"]} for one in found["Models"]]}
    rows = [(one["model"] or "(none said)", one["gpus"], one["failures"],
             f"{one['gpu_years']:.2f}", f"{one['rate']:.3f}", f"{one['in_repair']:.3f}",
             one["wanted"], one["held"], f"{one['covered']:.4%}") for one in shown["models"]]
    says = (f"spares are {'kept' if shown['keep'] else 'not kept'} by the manager; "
            f"{shown['repair_days']:g} days of repair, {shown['probability']:g} of the time")
    say(arguments.json, shown, f"{table(_TITLES, rows)}\n\n{says}")
    return 0
