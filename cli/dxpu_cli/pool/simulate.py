"""``dxpu pool simulate``: what a pool would do with a trace of requests."""

import argparse
import json
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from dxpu_cli.main import require
from dxpu_cli.options import file_to_write, whole_number
from dxpu_cli.progress import Progress
from dxpu_manager.day import POLICIES, Job, Outcome, Site, read_trace, simulate
from dxpu_tools.errors import UserError
from dxpu_tools.files import write_text

__all__ = ["add_arguments", "run"]

_HOUR = 3600.0
#: Colour and style of each policy in a plot.
_STYLES = {"fixed servers": ("#c7a17a", "--"), "fixed servers, backfill": ("#e07a1f", "-"),
           "pool": ("#9ab7c4", "--"), "pool, backfill": ("#2a7f9e", "-")}


def add_arguments(jobs: Any) -> None:
    """The job, with its options, among those of `dxpu pool`."""
    job = jobs.add_parser("simulate", help="let the requests of a trace come to a pool and to "
                          "fixed servers, and compare")
    job.add_argument("--trace", metavar="FILE", default=None,
                     help="CSV with the columns name, cpu_milli, num_gpu, creation_time and "
                     "deletion_time, as Alibaba's public trace of 2023 has (default: a day of 536 "
                     "jobs that comes with DXPU)")
    site = Site()
    for name, text in (("servers", "servers with CPUs"),
                       ("boxes", "how many of the servers have GPUs, or boxes of a pool"),
                       ("gpus", "GPUs of each of these"), ("ports", "most GPUs of a pool's host")):
        job.add_argument(f"--{name}", metavar="N", default=str(getattr(site, name)), help=text)
    job.add_argument("--cpus", metavar="N", default=str(site.cpus // 1000),
                     help="CPUs of a server")
    job.add_argument("--plot", metavar="FILE", default=None,
                     help="draw GPUs in use and waiting jobs over time, as SVG or PNG")
    job.add_argument("--out", metavar="FILE", default=None, help="write the figures as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Simulate each policy, and print a line for each."""
    numbers = {name: whole_number(f"--{name}", getattr(arguments, name), 1, 100_000)
               for name in ("servers", "boxes", "gpus", "ports", "cpus")}
    if numbers["boxes"] > numbers["servers"]:
        raise UserError(f"--boxes is at most the {numbers['servers']} servers, as so many of them "
                        f"have GPUs when these are fixed, not {numbers['boxes']}")
    numbers["cpus"] *= 1000
    site, plot = Site(**numbers), file_to_write("--plot", arguments.plot)
    out = file_to_write("--out", arguments.out)
    if plot is not None:
        if plot.suffix not in (".svg", ".png"):
            raise UserError(f"--plot must end in .svg or .png, not {plot.name!r}")
        require("sim")
    jobs = _jobs(arguments.trace)
    outcomes = _simulated(jobs, site)
    day = max(job.arrives for job in jobs)
    figures = [_figures(outcome, day) for outcome in outcomes]
    _say(jobs, site, figures)
    if out is not None:
        write_text(out, json.dumps(figures, indent=2) + "\n")
    if plot is not None:
        _draw(outcomes, plot)
    return 0


def _jobs(name: str | None) -> list[Job]:
    if name is None:
        text = (resources.files("dxpu_manager") / "sample_day.csv").read_text()
    else:
        try:
            text = Path(name).read_text()
        except OSError as error:
            raise UserError(f"--trace: cannot read {name!r}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UserError(f"--trace: {name!r} is no text") from None
    try:
        jobs = read_trace(text.splitlines())
    except ValueError as error:
        raise UserError(f"--trace: {name!r}, {error}") from None
    if not jobs:
        raise UserError(f"--trace: {name!r} has no job with a GPU")
    return jobs


def _simulated(jobs: list[Job], site: Site) -> list[Outcome]:
    progress, outcomes = Progress(sys.stderr, brief=True), []
    for policy in POLICIES:
        progress.step(policy)
        progress.run(lambda policy=policy: outcomes.append(simulate(
            jobs, site, policy,
            lambda come: progress.update(f"{come:,} of {len(jobs):,} jobs"))))
        progress.done()
    return outcomes


def _figures(outcome: Outcome, day: float) -> dict[str, Any]:
    return {"policy": outcome.policy, "in_use": round(outcome.share(day), 4),
            "idle_while_somebody_waits": round(outcome.idle_while_waiting(), 4),
            "wait_mean_s": round(outcome.mean_wait(), 1),
            "wait_mean_of_gpus_s": round(outcome.mean_wait(by_gpus=True), 1),
            "wait_95_s": outcome.wait(0.95), "refused": len(outcome.refused),
            "ends_s": outcome.ends}


def _say(jobs: list[Job], site: Site, figures: list[dict[str, Any]]) -> None:
    print(f"{len(jobs):,} jobs, {site.all_gpus} GPUs, {site.servers} servers\n\n"
          f"{'':<24}{'GPUs in use':>14}{'idle while':>11}{'mean wait':>12}{'mean wait':>11}"
          f"{'95 % wait':>11}{'jobs that':>11}{'all have':>13}\n"
          f"{'':<24}{'as jobs come':>14}{'some wait':>11}{'of a job':>12}{'of a GPU':>11}"
          f"{'at most':>11}{'fit never':>11}{'ended after':>13}")
    for row in figures:
        print(f"{row['policy']:<24}{row['in_use']:>14.1%}{row['idle_while_somebody_waits']:>11.1%}"
              f"{row['wait_mean_s']:>10,.0f} s{row['wait_mean_of_gpus_s']:>9,.0f} s"
              f"{row['wait_95_s']:>9,.0f} s{row['refused']:>11,}{row['ends_s'] / _HOUR:>11.1f} h")


def _draw(outcomes: list[Outcome], path: Path) -> None:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context({"svg.hashsalt": "dxpu"}):
        figure, (upper, lower) = plt.subplots(2, sharex=True, figsize=(8, 5.5),
                                              layout="constrained")
        for outcome in outcomes:
            colour, style = _STYLES[outcome.policy]
            hours = [time / _HOUR for time, _, _ in outcome.steps]
            for axes, place in ((upper, 1), (lower, 2)):
                axes.step(hours, [step[place] for step in outcome.steps], where="post", lw=1.2,
                          color=colour, ls=style, label=outcome.policy)
        upper.axhline(outcomes[0].site.all_gpus, color="#444444", lw=0.8)
        upper.set_ylabel("GPUs in use")
        lower.set_ylabel("jobs that wait")
        lower.set_xlabel("hours")
        upper.legend(loc="upper right", frameon=False, fontsize=8)
        for axes in (upper, lower):
            axes.set_ylim(bottom=0)
            axes.grid(color="#e3e7eb")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        plt.close(figure)
