"""``dxpu cache``: shows the size of the cache, and frees room."""

import re
import time

from dxpu_cli.progress import Progress
from dxpu_tools import cache
from dxpu_tools.errors import UserError
from dxpu_tools.room import size_text

__all__ = ["add_arguments", "run"]

#: Kinds of cache entries, with a description.
KINDS = {
    "verilog": "designs as Verilog", "verilator": "simulators", "runtime": "Verilator's library",
    "netlist": "netlists for simulation", "formal": "proofs", "runs": "simulations that passed",
    "passed": "tests that passed", "linux": "QEMU, kernel and programs of `dxpu linux`",
    "guest": "programs for its guests", "initramfs": "its guests' root file systems",
    "tools": "links to the tools", "sources": "digests of what modules may run",
}
_HOUR = 3600.0


def add_arguments(parser):
    """Options of the command."""
    jobs = parser.add_subparsers(dest="job", metavar="JOB")
    job = jobs.add_parser("clean", help="remove all that is not in use; it is made again when it "
                          "is needed, which takes minutes")
    job.add_argument("--unused", metavar="TIME", help="only what was of no use for so long: a "
                     "number of days, or of hours as 12h")


def run(arguments) -> int:
    """Show the cache, or clean it."""
    if arguments.job == "clean":
        return _clean(_age(arguments.unused))
    found = cache.entries()
    print(f"{cache.cache_root()}\n")
    for kind in sorted({entry.kind for entry in found}):
        some = [entry for entry in found if entry.kind == kind]
        print(f"{size_text(sum(entry.size for entry in some)):>10}  {len(some):>6}  {kind:<10} "
              f"{KINDS.get(kind, '')}".rstrip())
    print(f"{size_text(sum(entry.size for entry in found)):>10}  {len(found):>6}  in all")
    if unfinished := sum(not entry.complete for entry in found):
        print(f"\n{unfinished} of them unfinished: being built, or interrupted, and then removed "
              "by the next build")
    return 0


def _age(text):
    """Seconds of a time such as ``30`` (days) or ``12h``."""
    if text is None:
        return 0.0
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)([dh]?)", text)
    if not match:
        raise UserError(f"--unused must be a number of days such as 30, or of hours such as 12h, "
                        f"not {text!r}")
    return float(match[1]) * _HOUR * (1 if match[2] == "h" else 24)


def _clean(age):
    before = time.time() - age
    progress = Progress()
    progress.step("Cleaning the cache")

    def work():
        gone = busy = kept = 0
        for entry in cache.entries():
            if age and entry.used > before:
                kept += 1
            elif cache.remove(entry):
                gone += entry.size
            else:
                busy += 1
        return gone, busy, kept

    gone, busy, kept = progress.run(work)
    progress.update(f"{size_text(gone)} free again")
    progress.done()
    if kept:
        print(f"{kept} entries were of use since then, and stay")
    if busy:
        print(f"{busy} entries are in use, and stay")
    return 0
