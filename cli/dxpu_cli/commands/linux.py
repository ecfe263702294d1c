"""``dxpu linux``: a stock Linux kernel in stock QEMU boots with a simulated system as its PCIe."""

import json
from dataclasses import asdict
from pathlib import Path

from dxpu_cli.main import require
from dxpu_cli.options import NO_KEYS, add_seed, file_to_write, given_seed
from dxpu_cli.output import FAILED, OutputFolder
from dxpu_cli.progress import Progress
from dxpu_tools.errors import UserError
from dxpu_tools.files import write_text

from .demo import CAPTURE, PATHS, system_design

__all__ = ["add_arguments", "run"]

#: Room needed by a run, in bytes.
ROOM = 64 << 20

#: BARs behind a VMD must lie below 4 GiB, where QEMU leaves two windows of 256 MiB.
GPU = {"vram_bytes": 16 << 20}


def add_arguments(parser):
    """Options of the command."""
    parser.add_argument("--scenario", action="append", metavar="NAME",
                        help="what to try; may be given several times, 'all' for all of --list")
    parser.add_argument("--list", action="store_true", help="show the scenarios, run nothing")
    parser.add_argument("--listen", metavar="SOCKET",
                        help="boot above an endpoint of another simulation, which connects to this "
                             "UNIX socket, in place of scenarios")
    parser.add_argument("--line", action="append", metavar="LINE",
                        help="with --listen: shell line for the guest; may be given several times "
                             "(default: lspci)")
    add_seed(parser, "seed of the simulation; a guest's time is real, so no two runs are the same")
    parser.add_argument("--json", metavar="FILE", help="write the results here, good or bad")
    parser.add_argument("--console", action="store_true",
                        help="show the guest's console; it is a file in any case")
    parser.add_argument("--pcap", action="store_true",
                        help=f"capture every frame and TLP, in {CAPTURE} of each machine's folder")
    parser.add_argument("--out", default="build/linux", metavar="FOLDER",
                        help="folder for logs, consoles and the guest's words")


def _chosen(names):
    from dxpu_sim.linux.scenarios import SCENARIOS
    if not names:
        return [s for s in SCENARIOS.values() if s.default]
    if "all" in names:
        return list(SCENARIOS.values())
    for name in names:
        if name not in SCENARIOS:
            raise UserError(f"--scenario must be 'all' or one of --list, not {name!r}")
    return [s for s in SCENARIOS.values() if s.name in names]


def _keyed():
    """Machines whose proxies a manager sets up by frames."""
    from dxpu_sim.linux.scenarios import MACHINES
    return {name for name, machine in MACHINES.items() if machine.system.get("managed")}


def run(arguments) -> int:
    """Run the scenarios; returns 0 only if every check held and Linux complained of nothing.

    Returns 3 if the machine was too busy for a verdict.
    """
    if arguments.listen is not None or arguments.line:
        return _listen(arguments)
    from dxpu_sim.linux.scenarios import SCENARIOS
    chosen = _chosen(arguments.scenario)
    if arguments.list:
        for s in chosen if arguments.scenario else SCENARIOS.values():
            print(f"{s.name:<12} {s.machine:<6} {s.text}")
        return 0
    require("sim", *["manager"] * bool(_keyed() & {s.machine for s in chosen}))
    seed = given_seed(arguments)
    file = file_to_write("--json", arguments.json)
    with OutputFolder("--out", arguments.out, room=ROOM) as out:
        return _Runs(chosen, seed, out, file, arguments.console, arguments.pcap).run()


def _listen(arguments):
    if arguments.listen is None:
        raise UserError("--line needs --listen")
    for name in ("scenario", "list", "json", "console", "pcap"):
        if getattr(arguments, name):
            raise UserError(f"--{name} is not for --listen")
    for line in arguments.line or ():
        if not line or "\n" in line or line != line.strip():
            raise UserError(f"--line must be one line without spaces around it, not {line!r}")
    require("sim")
    from dxpu_cli.listen import listen
    with OutputFolder("--out", arguments.out, room=ROOM) as out:
        return listen(arguments.listen, arguments.line, out)


class _Runs:
    """One simulation for each machine that the scenarios need."""

    def __init__(self, chosen, seed, out, file, console, pcap):
        self._chosen, self._seed, self._out, self._file = chosen, seed, out, file
        self._console, self._pcap = console, pcap
        self._progress = Progress()
        self._shown = 0

    def run(self):
        from dxpu_cli.prepare import prepare
        from dxpu_sim.linux.carrier import images
        machines = list(dict.fromkeys(s.machine for s in self._chosen))
        print(f"dxpu linux: {len(self._chosen)} scenarios, seed {self._seed}", flush=True)
        if set(machines) - _keyed():
            print(NO_KEYS, flush=True)
        self._progress.step("Getting QEMU, kernel and programs")
        try:
            self._images = self._progress.run(images.get)
        except images.ImagesMissing as error:
            raise UserError(str(error)) from None
        self._progress.update(self._images.version)
        prepare({machine: self._simulator(machine) for machine in machines}, self._progress)
        results = {}
        for machine in machines:
            results[machine] = self._machine(machine)
        self._progress.done()
        return self._finish(results)

    def _simulator(self, machine):
        from dxpu_cli.prepare import Simulator
        from dxpu_sim.linux.scenarios import MACHINES
        from dxpu_sim.run.runner import Design
        design = system_design()
        # Compiled with waves like the demo, so that both share one build.
        options = {"waves": "fst"}
        if self._pcap:
            from dxpu_sim.system.capture import public
            options["public"] = public(PATHS)
        return Simulator(Design(design.factory, {**design.kwargs, **MACHINES[machine].system}),
                         options)

    def _machine(self, machine):
        from dxpu_sim.run.runner import SimulationFailed, simulate
        names = [s.name for s in self._chosen if s.machine == machine]
        simulator = self._simulator(machine)
        folder = (self._out.work / machine).absolute()
        given = {"images": {k: str(v) if isinstance(v, Path) else v
                            for k, v in asdict(self._images).items()},
                 "system": simulator.design.kwargs, "gpu": GPU, "machine": machine,
                 "scenarios": names, "pcap": CAPTURE if self._pcap else ""}
        failure, lines, console = [], 0, 0

        def job():
            try:
                simulate(simulator.design, "dxpu_sim.linux.bench", **simulator.options,
                         env={"DXPU_LINUX": json.dumps(given)}, window=True, folder=folder,
                         seed=self._seed)
            except (SimulationFailed, RuntimeError, OSError) as error:
                failure.append(error)

        def follow():
            nonlocal lines, console
            lines = self._progress.follow(folder / "progress.txt", lines)
            console = self._follow_console(folder / "console.log", console)

        self._progress.step("Starting the simulation")
        self._progress.run(job, follow)
        try:
            result = json.loads((folder / "result.json").read_text())
        except (OSError, ValueError):
            result = {"scenarios": {}, "evidence": {}, "complaints": [], "stalls": [],
                      "stalled": False, "error": self._out.as_kept(str(failure[0]).splitlines()[0])
                      if failure else "no result"}
        result["ok"] = not failure
        folder.mkdir(parents=True, exist_ok=True)  # missing if nothing could be started
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
        if ok:
            self._out.good(results)
        else:
            self._out.bad()
        place = self._out.path if ok else self._out.path / FAILED
        print(self._table(results))
        print(f"what the guest said: {place}/*/words.txt; its console and log beside it")
        for machine, result in results.items():
            if not result["ok"]:
                print(f"\n{'STALLED' if result['stalled'] else 'FAILED'}: {machine}, "
                      f"{result.get('running') or 'at the end'}: "
                      f"{result.get('error', 'no result')}\n"
                      f"log: {place / machine / 'run.log'}, "
                      f"console: {place / machine / 'console.log'}")
            elif result["stalls"]:
                print(f"\nnote: {machine}: the machine was busy, and the guest without a processor "
                      f"{len(result['stalls'])} times; nothing came of it")
        undecided = [r for r in results.values() if not r["ok"] and r["stalled"]]
        if undecided and all(r["ok"] or r["stalled"] for r in results.values()):
            print("\nNothing is known about the design: run it again when the machine has less to "
                  "do")
        if self._file is not None:
            try:
                write_text(self._file, json.dumps(report, indent=1) + "\n")
            except OSError as error:
                raise UserError(f"cannot write {str(self._file)!r}: {error.strerror}") from None
        if ok:
            return 0
        return 3 if all(r["ok"] or r["stalled"] for r in results.values()) else 1

    def _table(self, results):
        lines = [""]
        for s in self._chosen:
            result = results[s.machine]
            state = ("ok" if result["scenarios"].get(s.name)
                     else ("STALLED" if result["stalled"] else "FAILED")
                     if result.get("running") == s.name else "not run")
            lines.append(f"{s.name:<12} {state:<7} {s.text}")
        lines.append("")
        for machine, r in results.items():
            if "seconds" in r:
                lines.append(
                    f"{machine}: the guest lived {r['guest_seconds']:.0f} s, the simulation "
                    f"{r['simulated_ms']:.1f} ms (timers are those of hardware); "
                    f"{r['counts']['accesses']:,} accesses, "
                    f"{r['counts'].get('interrupts', 0)} interrupts; {r['seconds']:.0f} s")
        return "\n".join(lines)
