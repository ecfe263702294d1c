"""``dxpu faults``: TLPs over lines that lose, double, delay, reorder and change frames."""

import json
import math
import os
import shutil
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict

from dxpu_cli.main import require
from dxpu_cli.options import add_seed, file_to_write, given_seed, whole_number
from dxpu_cli.output import FAILED, OutputFolder
from dxpu_cli.progress import Progress
from dxpu_sim.fabric import cases, plot
from dxpu_sim.fabric.incast import shares
from dxpu_sim.fabric.score import ERRORS, goodput, goodput_in_theory, score
from dxpu_tools import children
from dxpu_tools.errors import Failed, UserError
from dxpu_tools.files import write_text

__all__ = ["add_arguments", "run"]

#: Fewest TLPs of a case of weight 1; a shorter case may by chance see no fault.
LEAST_TLPS = 1000
#: With so many TLPs, a case of weight 1 without a fault has failed; with fewer it is skipped.
ENOUGH_TLPS = 3000
#: The contract: least goodput at a loss; judged from so many TLPs on, where chance is small.
LEAST_GOODPUT = {"go-back-n": {0.01: 0.94}, "selective": {0.01: 0.98}}
GOODPUT_TLPS = 10_000
#: Room needed by a campaign, in bytes; files left by a good campaign.
ROOM = 64 << 20
#: Room needed by the captures, for each TLP of the campaign.
TLP_BYTES = 800
#: Folder of the captures.
CAPTURES = "captures"
RESULTS = (*(f"goodput{mode}.{kind}" for mode in ("", "-selective") for kind in ("svg", "png")),
           CAPTURES)
_ROW = "{:<25} {:>9} {:>9} {:>8} {:>7} {:>7} {:>7} {:>9} {:>8}  {}"
_HEAD = _ROW.format("case", "TLPs", "frames", "lost", "twice", "late", "changed", "again",
                    "timeouts", "TLPs wrong")


def add_arguments(parser):
    """Options of the command."""
    parser.add_argument("--tlps", default="100000", metavar="N",
                        help=f"TLPs of the whole campaign, both ways together; most cases "
                        f"have at least {LEAST_TLPS}")
    add_seed(parser)
    parser.add_argument("--arq", choices=(*cases.ARQ, "all"), default=cases.ARQ[0],
                        help="link mode: go-back-N, selective repeat, or both")
    parser.add_argument("--case", action="append", metavar="NAME",
                        help="only this case; may be given several times (default: all)")
    parser.add_argument("--list", action="store_true", help="show the cases, run nothing")
    parser.add_argument("--json", metavar="FILE", help="write the results here, good or bad")
    parser.add_argument("--out", default="build/faults", metavar="FOLDER",
                        help="folder for pictures and the logs of failed cases")
    parser.add_argument("--pcap", action="store_true",
                        help=f"capture every frame, in {CAPTURES}/CASE.pcapng of the folder")
    parser.add_argument("--jobs", default=str(min(2, os.cpu_count() or 1)), metavar="N",
                        help="cases to run at a time")


def run(arguments) -> int:
    """Run the campaign; returns 0 only if it found no error.

    No TLP may be lost, doubled, out of order or changed, every frame must be explained, and the
    goodput must meet the contract.
    """
    modes = cases.ARQ if arguments.arq == "all" else (arguments.arq,)
    known = {case.name: case for mode in modes for case in cases.every(mode)}
    for name in arguments.case or ():
        if name not in known:
            raise UserError(f"--case must be one of --list, not {name!r}")
    chosen = [known[name] for name in arguments.case] if arguments.case else list(known.values())
    if arguments.list:
        for case in chosen:
            print(f"{case.name:<25} {case.text}")
        return 0
    require("sim")
    tlps = whole_number("--tlps", arguments.tlps, 1, 10**9)
    seed = given_seed(arguments)
    jobs = whole_number("--jobs", arguments.jobs, 1, 64)
    file = file_to_write("--json", arguments.json)
    room = ROOM + TLP_BYTES * tlps * arguments.pcap
    with OutputFolder("--out", arguments.out, room=room) as out:
        return _Campaign(chosen, tlps, seed, jobs, out, file, arguments.pcap).run()


class _Campaign:
    def __init__(self, chosen, tlps, seed, jobs, out, file, pcap):
        self._chosen, self._seed, self._jobs = chosen, seed, jobs
        self._out, self._file, self._pcap = out, file, pcap
        # Cases that lose TLPs on purpose do not count.
        weight = sum(case.weight for case in chosen if not case.reboot_us)
        share = max(tlps / weight if weight else tlps, LEAST_TLPS)
        self._short = share < ENOUGH_TLPS
        self._tlps = {case.name: 2 * math.ceil(share * case.weight / 2) for case in chosen}
        self._results, self._scores = {}, {}

    def run(self):
        progress = Progress()
        print(f"dxpu faults: {len(self._chosen)} cases, {sum(self._tlps.values()):,} TLPs, "
              f"seed {self._seed}", flush=True)
        try:
            self._simulate(progress)
        except Failed:
            progress.done(failed=True)
            self._out.bad()
            raise
        print("\n" + _HEAD)
        for case in self._chosen:
            print(self._row(case))
        for case in self._chosen:
            if case.hosts:
                part = shares(case, self._results[case.name])
                print(f"\n{case.name}: {part.goodput:.1%} of the line is payload; each host gets "
                      f"{part.least:.1%} to {part.most:.1%} of an equal share;\n  {part.waited:,} "
                      f"bytes waited at most, {part.dropped:,} frames were dropped")
        measured = {mode: kept for mode in cases.ARQ if (kept := self._goodput(mode))}
        problems = [f"{case.name}: {problem}" for case in self._chosen
                    for problem in self._problems(case)]
        skipped = {case.name: self._scores[case.name].silent for case in self._chosen
                   if self._is_skipped(case)}
        files = []
        for mode, kept in measured.items():
            if len(kept) > 1:
                files += self._draw(mode, kept)
            names = {loss: case.name for loss, case in self._goodput_cases(mode).items()}
            problems += [f"goodput at {loss:.1%} loss, {mode}: {kept[loss]:.1%}, not {part:.0%}"
                         for loss, part in LEAST_GOODPUT[mode].items()
                         if loss in kept and kept[loss] < part
                         and self._tlps[names[loss]] >= GOODPUT_TLPS]
        if self._file is not None:
            try:
                write_text(self._file, json.dumps(self._report(measured, problems, skipped),
                                                  indent=1)
                           + "\n")
            except OSError as error:
                raise UserError(f"cannot write {str(self._file)!r}: {error.strerror}") from None
        if problems:
            self._out.bad()
        else:
            self._out.good([name for name in RESULTS if (self._out.work / name).exists()])
        place = self._out.path / FAILED if problems else self._out.path
        for name in files:
            print(f"picture  {place / name}")
        if self._pcap:
            print(f"captures {place / CAPTURES}")
        for name, silent in skipped.items():
            print(f"skipped: {name}: in so short a run there was nothing of: {', '.join(silent)}; "
                  "more --tlps show it")
        for problem in problems:
            print(f"FAILED: {problem}")
        if problems:
            print(f"logs and counts of the cases that failed: {place / 'runs'}")
        if not problems:
            forgotten = any(case.reboot_us for case in self._chosen)
            print("All TLPs once, in order and unchanged"
                  + ", but what was under way when an end was reset" * forgotten
                  + "; all frames explained.")
        return 1 if problems else 0

    def _simulate(self, progress):
        from dxpu_sim.fabric.fault_design import FaultBench
        from dxpu_sim.fabric.incast_design import IncastBench

        from dxpu_cli.prepare import Simulator, prepare
        from dxpu_sim.run.runner import Design

        def kind(case):
            return case.arq, case.hosts

        designs = {(mode, hosts): Design(
            IncastBench if hosts else FaultBench,
            ({"arq": mode} if mode != cases.ARQ[0] else {}) | ({"hosts": hosts} if hosts else {}))
            for mode, hosts in dict.fromkeys(map(kind, self._chosen))}
        prepare({f"{mode}, {hosts} hosts" if hosts else mode: Simulator(design, self._build(hosts))
                 for (mode, hosts), design in designs.items()}, progress)
        if self._pcap:
            (self._out.work / CAPTURES).mkdir()
        with ThreadPoolExecutor(self._jobs) as pool:
            waiting = {case.name: pool.submit(self._case, designs[kind(case)], case)
                       for case in self._chosen}
            try:
                for case in self._chosen:
                    self._follow(case, waiting[case.name], progress)
            except BaseException:
                for running in waiting.values():
                    running.cancel()
                children.end_all()
                raise

    def _build(self, hosts):
        """Options of the simulator with so many hosts, or with lines."""
        if not self._pcap:
            return {}
        from dxpu_sim.fabric.capture import public
        return {"public": public(switch=bool(hosts))}

    def _follow(self, case, running, progress):
        """Show the progress of a case until its end."""
        progress.step(case.name)
        while not running.done():
            progress.update(f"{self._arrived(case):,} of {self._tlps[case.name]:,} TLPs")
            wait([running], timeout=0.3)
        self._results[case.name] = result = running.result()
        self._scores[case.name] = score(case, result)
        progress.update(f"{self._scores[case.name].tlps:,} TLPs, "
                        f"{result['cycle'] / result['seconds']:,.0f} cycles/s")
        progress.done(failed=bool(self._problems(case)))

    def _problems(self, case):
        """Errors of a case. A case with enough TLPs in which no fault occurred is an error, too."""
        judged = self._scores[case.name]
        return judged.problems + (() if self._short else tuple(
            f"{name}: none, so the case shows nothing" for name in judged.silent))

    def _is_skipped(self, case):
        judged = self._scores[case.name]
        return self._short and bool(judged.silent) and not judged.problems

    @staticmethod
    def _file_name(case):
        return case.name.replace(" ", "-").replace("%", "")

    def _folder(self, case):
        return self._out.work / "runs" / self._file_name(case)

    def _arrived(self, case):
        """TLPs that have arrived so far in a running case."""
        try:
            return int((self._folder(case) / "progress.txt").read_text().split()[-1])
        except (OSError, IndexError, ValueError):
            return 0

    def _case(self, design, case):
        """Run a case in a folder of its own; returns the counts of the bench."""
        from dxpu_sim.run.runner import SimulationFailed, simulate
        folder = self._folder(case)
        settings = {**asdict(case), "tlps": self._tlps[case.name]}
        if self._pcap:
            settings["pcap"] = str((self._out.work / CAPTURES).absolute()
                                   / f"{self._file_name(case)}.pcapng")
        # Cases with equal fault rates must not get equal faults.
        seed = (self._seed * 1_000_003 + sum(map(ord, case.name))) % (1 << 32)
        try:
            simulate(design, f"dxpu_sim.fabric.{'incast' if case.hosts else 'fault'}_bench",
                     env={"DXPU_FAULTS": json.dumps(settings)}, folder=folder, seed=seed,
                     **self._build(case.hosts))
        except SimulationFailed as error:
            raise Failed(f"the simulation of {case.name!r} failed: "
                         f"{self._out.as_kept(str(error).splitlines()[0])}") from None
        result = json.loads((folder / "result.json").read_text())
        judged = score(case, result)
        if not judged.problems and (self._short or not judged.silent):
            shutil.rmtree(folder, ignore_errors=True)
        return result

    def _row(self, case):
        judged = self._scores[case.name]
        happened = judged.happened
        wrong = [f"{count:,} {name}" for name, count in judged.errors.items() if count]
        return _ROW.format(
            case.name, f"{judged.tlps:,}", *(f"{happened[name]:,}" for name in (
                "frames", "lost", "twice", "late", "changed", "repeated", "timeout")),
            ", ".join(wrong) or ("skipped" if self._is_skipped(case) else "-"))

    def _goodput_cases(self, mode):
        """Map each loss to the case that measures its goodput."""
        return dict(zip(cases.GOODPUT_LOSSES, cases.every(mode)[-len(cases.GOODPUT_LOSSES):],
                        strict=True))

    def _goodput(self, mode):
        """Map each loss to its goodput, relative to the goodput without loss."""
        measured = {loss: goodput(self._results[case.name])
                    for loss, case in self._goodput_cases(mode).items()
                    if case.name in self._results}
        clean = measured.get(0.0)
        return {loss: value / clean for loss, value in measured.items()} if clean else {}

    def _draw(self, mode, measured):
        """Draw the goodput; returns the files."""
        case = cases.goodput()[0]

        def theory(loss):
            if mode == "selective":
                return 1 - loss
            return goodput_in_theory(loss, frame=case.packing_limit, delay=case.delay)

        name = "goodput" if mode == cases.ARQ[0] else f"goodput-{mode}"
        paths = [self._out.work / f"{name}.svg", self._out.work / f"{name}.png"]
        plot.draw(measured, theory, LEAST_GOODPUT[mode], paths, mode=mode)
        print(f"\ngoodput, {mode:<9} " + " ".join(f"{loss:>8.1%}" for loss in measured))
        print("  kept             " + " ".join(f"{part:>8.1%}" for part in measured.values()))
        print("  in theory        " + " ".join(f"{theory(loss):>8.1%}" for loss in measured))
        return [path.name for path in paths]

    def _report(self, measured, problems, skipped):
        scores = self._scores.values()
        return {
            "ok": not problems, "seed": self._seed, "tlps": sum(s.tlps for s in scores),
            **{name: sum(s.errors[name] for s in scores) for name in ERRORS},
            "goodput": {mode: {str(loss): part for loss, part in kept.items()}
                        for mode, kept in measured.items()},
            "incast": {case.name: asdict(shares(case, self._results[case.name]))
                       for case in self._chosen if case.hosts},
            "problems": problems, "skipped": skipped,
            "cases": {case.name: {
                "text": case.text, "tlps": self._scores[case.name].tlps,
                **self._scores[case.name].errors,
                "happened": self._scores[case.name].happened,
                "counters": self._results[case.name]} for case in self._chosen},
        }
