"""``dxpu model``: the jobs of the performance model.

A module for each job has ``add_arguments(parser)`` and ``run(arguments)``, as the modules of
:data:`dxpu_cli.main.COMMANDS` do.
"""

import argparse
import importlib

from dxpu_cli.main import require
from dxpu_tools.errors import UserError

__all__ = ["JOBS", "add_arguments", "run"]

#: Module and help line of each job.
JOBS = {
    "predict": ("dxpu_cli.model.predict",
                "predict what a workload keeps, say why, and what would help"),
    "what-if": ("dxpu_cli.model.what_if",
                "tell what changes of fabric or workload would bring"),
    "sweep": ("dxpu_cli.model.sweep",
              "predict all combinations of some values and traces, on all cores or a cluster"),
    "report": ("dxpu_cli.model.report",
               "write a page with tables and pictures of all that the model says"),
    "paper": ("dxpu_cli.model.paper",
              "compare the model with every figure that the paper published"),
    "show": ("dxpu_cli.model.show", "show what a trace of a GPU workload tells the model"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True)
    for name, (module, text) in JOBS.items():
        importlib.import_module(module).add_arguments(jobs.add_parser(name, help=text))


def run(arguments: argparse.Namespace) -> int:
    """Do one job; returns its exit status."""
    require("performance")
    from dxpu_performance.errors import ModelError
    from dxpu_performance.measured import FileError
    from dxpu_performance.workload import WorkloadError
    try:
        status: int = importlib.import_module(JOBS[arguments.job][0]).run(arguments)
    except (ModelError, FileError, WorkloadError) as error:
        raise UserError(str(error)) from None
    return status
