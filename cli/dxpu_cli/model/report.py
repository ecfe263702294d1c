"""``dxpu model report``: one page with tables and pictures, and the pictures as files."""

import argparse

from dxpu_cli.options import whole_number
from dxpu_cli.output import OutputFolder
from dxpu_tools.errors import UserError
from dxpu_tools.files import write_text

from .traces import open_workload

__all__ = ["add_arguments", "run"]

#: Results in the folder.
PAGE, PICTURES = "report.html", "pictures"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the job."""
    parser.add_argument("traces", nargs="*", metavar="TRACE",
                        help="workloads of your own beside those of the paper")
    parser.add_argument("--rtl", metavar="FILE", default=None,
                        help="figures of `dxpu bench paper` (default: those of this version)")
    parser.add_argument("--paper", action="store_true", help="only the paper's fabric")
    parser.add_argument("--most", metavar="N", default="4000",
                        help="kernels to simulate of each trace")
    parser.add_argument("--out", default="build/model", metavar="FOLDER",
                        help="folder for the page and the pictures")


def run(arguments: argparse.Namespace) -> int:
    """Write the page."""
    from dxpu_performance.measured import STORED, read
    from dxpu_performance.plots import PLOTS, draw, kernel_times, save
    from dxpu_performance.report import Subject, page
    from dxpu_performance.sample import of_workload
    if arguments.paper and arguments.rtl:
        raise UserError("--paper and --rtl are two fabrics: give one")
    measured = None
    if arguments.rtl or (STORED.exists() and not arguments.paper):
        measured = read(arguments.rtl or STORED)
    most = whole_number("--most", arguments.most, 1, 10_000_000)
    workloads = [open_workload(name, {}) for name in arguments.traces]
    subjects = [Subject(each.name, of_workload(each, most=most).program) for each in workloads]
    own = [kernel_times(each.name, each.durations) for each in workloads]
    with OutputFolder("--out", arguments.out, room=32 << 20) as out:
        pictures = out.work / PICTURES
        pictures.mkdir()
        for name, plot in (*PLOTS.items(),
                           *((f"kernels-{n}", each) for n, each in enumerate(own, 1))):
            save(draw(plot, measured), pictures / name)
        write_text(out.work / PAGE, page(measured, subjects, own))
        out.good([PAGE, PICTURES])
    print(f"{arguments.out}/{PAGE}, and pictures as SVG and PNG in {arguments.out}/{PICTURES}")
    if measured is None and not arguments.paper:
        print("note: there are no figures of the gateware, so only the paper's fabric is shown: "
              "`dxpu bench paper --out rtl.json` makes them")
    return 0
