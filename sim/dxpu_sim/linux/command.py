"""``dxpu linux``: a stock Linux kernel in stock QEMU boots with a simulated system as its PCIe."""

import json
import shutil
import threading
from dataclasses import asdict
from pathlib import Path

from ..cli import UserError, require
from ..demo import system_design
from ..files import write_text
from ..options import add_seed, file_to_write, folder_to_write, given_seed
from ..progress import Progress
from . import images

__all__ = ["add_arguments", "run"]

#: BARs of devices behind a VMD are below 4 GiB, and QEMU leaves two windows of 256 MiB.
GPU = {"vram_bytes": 16 << 20}


def add_arguments(parser):
    """Options of the command."""
    parser.add_argument("--scenario", action="append", metavar="NAME",
                        help="what to try; may be given several times, 'all' for all of --list")
    parser.add_argument("--list", action="store_true", help="show the scenarios, run nothing")
    add_seed(parser, "seed of the simulation; a guest's time is real, so no two runs are the same")
    parser.add_argument("--json", metavar="FILE", help="write the results here")
    parser.add_argument("--console", action="store_true",
                        help="show the guest's console; it is a file in any case")
    parser.add_argument("--out", default="build/linux", metavar="FOLDER",
                        help="folder for logs, consoles and the guest's words")


def _chosen(names):
    from .scenarios import SCENARIOS
    if not names:
        return [s for s in SCENARIOS.values() if s.default]
    if "all" in names:
        return list(SCENARIOS.values())
    for name in names:
        if name not in SCENARIOS:
            raise UserError(f"--scenario must be 'all' or one of --list, not {name!r}")
    return [s for s in SCENARIOS.values() if s.name in names]


def run(arguments) -> int:
    """Run the scenarios; 0 only if every check held and Linux had nothing to complain about."""
    from .scenarios import SCENARIOS
    chosen = _chosen(arguments.scenario)
    if arguments.list:
        for s in chosen if arguments.scenario else SCENARIOS.values():
            print(f"{s.name:<12} {s.machine:<6} {s.text}")
        return 0
    require("sim")
    seed = given_seed(arguments)
    file = file_to_write("--json", arguments.json)
    out = folder_to_write("--out", arguments.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make folder {str(out)!r}: {error.strerror}") from None
    return _Runs(chosen, seed, out, file, arguments.console).run()


class _Runs:
    """One simulation for each machine that the scenarios need."""

    def __init__(self, chosen, seed, out, file, console):
        self._chosen, self._seed, self._out, self._file = chosen, seed, out, file
        self._console = console
        self._progress = Progress()
        self._shown = 0

    def run(self):
        machines = list(dict.fromkeys(s.machine for s in self._chosen))
        print(f"dxpu linux: {len(self._chosen)} scenarios, seed {self._seed}", flush=True)
        self._progress.step("Getting QEMU, kernel and programs (cached)")
        try:
            self._images = images.get()
        except images.ImagesMissing as error:
            self._progress.done(failed=True)
            raise UserError(str(error)) from None
        self._progress.update(self._images.version)
        results = {}
        for machine in machines:
            results[machine] = self._machine(machine)
        self._progress.done()
        return self._finish(results)

    def _machine(self, machine):
        from ..runner import Design, SimulationFailed, fst_available, simulate
        from .scenarios import MACHINES
        names = [s.name for s in self._chosen if s.machine == machine]
        design = system_design()
        design = Design(design.factory, {**design.kwargs, **MACHINES[machine].system})
        folder = (self._out / machine).absolute()
        shutil.rmtree(folder, ignore_errors=True)
        given = {"images": {k: str(v) if isinstance(v, Path) else v
                            for k, v in asdict(self._images).items()},
                 "system": design.kwargs, "gpu": GPU, "machine": machine, "scenarios": names}
        failure = []

        def job():
            try:
                # Compiled with waves as the demo is, so that both need one build.
                simulate(design, "dxpu_sim.benches.linux", env={"DXPU_LINUX": json.dumps(given)},
                         waves="fst" if fst_available() else "vcd", window=True,
                         folder=folder, seed=self._seed)
            except (SimulationFailed, RuntimeError, OSError) as error:
                failure.append(error)

        self._progress.step("Preparing the simulator (cached)")
        lines = console = 0
        thread = threading.Thread(target=job, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.2)
            lines = self._progress.follow(folder / "progress.txt", lines)
            console = self._follow_console(folder / "console.log", console)
        try:
            result = json.loads((folder / "result.json").read_text())
        except (OSError, ValueError):
            result = {"scenarios": {}, "evidence": {}, "error": str(failure[0]).splitlines()[0]
                      if failure else "no result"}
        result["ok"] = not failure
        folder.mkdir(parents=True, exist_ok=True)  # it is not there if no simulator could be built
        write_text(folder / "words.txt", "".join(
            f"== {what}\n{said}\n\n" for what, said in result["evidence"].items()))
        if failure:
            self._progress.done(failed=True)
        return result

    def _follow_console(self, path, position):
        if self._console and path.exists():
            with open(path, "rb") as console:
                console.seek(position)
                words = console.read()
            position += len(words)
            print(words.decode(errors="replace"), end="", flush=True)
        return position

    def _finish(self, results):
        ok = all(result["ok"] for result in results.values())
        report = {"ok": ok, "seed": self._seed, "versions": self._images.version,
                  "timers": "those of hardware; the guest lives longer than the simulation",
                  "machines": results}
        print(self._table(results))
        for machine, result in results.items():
            if not result["ok"]:
                print(f"\nFAILED: {machine}, {result.get('running') or 'at the end'}: "
                      f"{result.get('error', 'no result')}\n"
                      f"log: {self._out / machine / 'run.log'}, "
                      f"console: {self._out / machine / 'console.log'}")
        if self._file is not None:
            try:
                write_text(self._file, json.dumps(report, indent=1) + "\n")
            except OSError as error:
                raise UserError(f"cannot write {str(self._file)!r}: {error.strerror}") from None
        return 0 if ok else 1

    def _table(self, results):
        lines = [""]
        for s in self._chosen:
            result = results[s.machine]
            state = ("ok" if result["scenarios"].get(s.name)
                     else "FAILED" if result.get("running") == s.name else "not run")
            lines.append(f"{s.name:<12} {state:<7} {s.text}")
        lines.append("")
        for machine, r in results.items():
            if "seconds" in r:
                lines.append(
                    f"{machine}: the guest lived {r['guest_seconds']:.0f} s, the simulation "
                    f"{r['simulated_ms']:.1f} ms (timers are those of hardware); "
                    f"{r['counts']['accesses']:,} accesses, "
                    f"{r['counts'].get('interrupts', 0)} interrupts; {r['seconds']:.0f} s")
        lines.append(f"what the guest said: {self._out}/*/words.txt; its console and log beside it")
        return "\n".join(lines)
