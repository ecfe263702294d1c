"""``dxpu waves``: a window of a scenario as a wave, with rows in words beside the signals.

A scenario runs twice. The first run gives a capture, in which the window is found; the second one,
which is the same by its seed, ends with the window, and only the window is traced.
"""

import argparse
import json
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from dxpu_cli.commands.demo import CAPTURE, CYCLE_NS, PATHS, system_design
from dxpu_cli.main import require
from dxpu_cli.options import add_seed, folder_to_write, given_seed, whole_number
from dxpu_cli.output import OutputFolder
from dxpu_cli.progress import Progress
from dxpu_cli.trace.packets import packets
from dxpu_cli.trace.selection import Selection, add_selection
from dxpu_tools.errors import Failed, UserError
from dxpu_tools.files import write_text

from .scenarios import SCENARIOS
from .story import KINDS, Event, Story, tell

__all__ = ["Window", "add_arguments", "markers", "run", "window_around"]

#: Room needed by a run without its wave, and by a cycle in a wave of each format, written twice.
ROOM = 64 << 20
CYCLE_BYTES = {"fst": 1200, "vcd": 12_000}
#: Files of the result folder that belong together.
RESULTS = ("wave.fst", "wave.vcd", "wave.gtkw", "wave-enums", CAPTURE)
#: Part of the window before an event.
BEFORE = 0.25


@dataclass(frozen=True)
class Window:
    """Begin and end of a trace, and position of the marker, in ns."""

    begin: int
    end: int
    at: int
    what: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--scenario", default="bind", metavar="NAME", help="what to run")
    parser.add_argument("--list", action="store_true",
                        help="show scenarios and kinds of events, run nothing")
    parser.add_argument("--around", metavar="KIND[:N]",
                        help="trace around the first event of a kind, or the N-th")
    add_selection(parser)
    parser.add_argument("--at", metavar="NS", help="trace around that time of the run")
    parser.add_argument("--cycles", default="2000", metavar="N",
                        help="cycles to trace, 100 to 1000000; more if a TLP takes longer")
    parser.add_argument("--events", action="store_true",
                        help="show all events of the scenario, trace nothing")
    parser.add_argument("--format", choices=tuple(CYCLE_BYTES), default="fst",
                        help="format of the wave")
    add_seed(parser)
    parser.add_argument("--out", default="build/waves", metavar="FOLDER",
                        help="folder for wave, save file and capture")


def run(arguments: argparse.Namespace) -> int:
    """Run the scenario, find the window, run the scenario up to its end with a wave."""
    if arguments.scenario not in SCENARIOS:
        raise UserError(f"--scenario must be one of --list, not {arguments.scenario!r}")
    if arguments.list:
        for name, scenario in SCENARIOS.items():
            print(f"{name:<10} {scenario.text}; by default around: {scenario.around}")
        print()
        for kind, text in KINDS.items():
            print(f"{kind:<10} {text}")
        return 0
    require("sim")
    wanted = _Wanted.of(arguments)
    folder_to_write("--out", arguments.out)
    room = ROOM + CYCLE_BYTES[arguments.format] * wanted.cycles
    with OutputFolder("--out", arguments.out, room=room) as out:
        return _Run(arguments, wanted, out).run()


@dataclass(frozen=True)
class _Wanted:
    """Checked options."""

    cycles: int
    seed: int
    selection: Selection
    kind: str
    number: int
    at: int | None

    @classmethod
    def of(cls, arguments):
        kind, _, number = (arguments.around or "").partition(":")
        kind = kind or SCENARIOS[arguments.scenario].around
        if kind not in KINDS:
            raise UserError(f"--around must be a kind of --list, or a kind and a number such as "
                            f"fault:3, not {arguments.around!r}")
        selection = Selection.of(arguments)
        given = {"--around": arguments.around is not None, "a TLP": selection.given,
                 "--at": arguments.at is not None}
        if sum(given.values()) > 1:
            raise UserError("the window is around one thing: " + " or ".join(
                name for name, there in given.items() if there))
        return cls(
            whole_number("--cycles", arguments.cycles, 100, 1_000_000), given_seed(arguments),
            selection, kind, whole_number("--around", number or "1", 1, 1 << 30),
            None if arguments.at is None else whole_number("--at", arguments.at, 1, 10**12))


def window_around(at: int, cycles: int, what: str, *, last: int | None = None) -> Window:
    """A window of so many cycles around a time, or around a TLP from ``at`` to ``last``."""
    length = cycles * CYCLE_NS
    if last is not None:
        length = max(length, round((last - at) / (1 - 2 * BEFORE)))
    begin = max(1, at - round(length * BEFORE))
    return Window(begin, begin + length, at, what)


def markers(events: list[Event], window: Window, most: int) -> list[list[Event]]:
    """Events in the window with a marker, in the order of time; events of the same time share a
    marker. With more than ``most`` times, the times next to the event of the window count."""
    inside = [event for event in events if window.begin <= event.time_ns <= window.end]
    times = [list(together) for _, together in groupby(inside, key=lambda event: event.time_ns)]
    times.sort(key=lambda together: abs(together[0].time_ns - window.at))
    return sorted(times[:most], key=lambda together: together[0].time_ns)


class _Run:
    def __init__(self, arguments, wanted, out):
        self._name, self._format = arguments.scenario, arguments.format
        self._events = arguments.events
        self._wanted, self._out = wanted, out
        self._progress = Progress()
        self._design = system_design()

    def run(self):
        from dxpu_cli.prepare import Simulator, prepare
        from dxpu_sim.system.capture import public
        from dxpu_sim.system.shape import node_names
        self._build = {"waves": self._format, "public": public(PATHS)}
        print(f"dxpu waves: {self._name}, seed {self._wanted.seed}", flush=True)
        prepare({"waves": Simulator(self._design, self._build)}, self._progress)
        try:
            first = self._simulate("first", "Running the scenario")
            self._progress.step("Reading the capture")
            story = self._progress.run(
                lambda: tell(first / CAPTURE, node_names(self._design.kwargs)))
            self._progress.done()
            if self._events:
                _print_all(story)
                return 0
            window = self._window(story, first / CAPTURE)
            second = self._simulate("second", f"Tracing {window.what}", window)
        except Failed:
            self._out.bad()
            raise
        if not (second / f"wave.{self._format}").exists():
            raise UserError(f"the scenario {self._name} ends before {window.begin:,} ns")
        _check_same(first / CAPTURE, second / CAPTURE, window.end)
        self._progress.step("Writing wave and save file")
        shown = self._progress.run(lambda: self._write(story, window, second))
        self._progress.done()
        (first / CAPTURE).replace(self._out.work / CAPTURE)
        self._out.good(RESULTS)
        self._tell(shown, window)
        return 0

    def _simulate(self, name, step, window=None):
        """Run the scenario in a folder of its own; returns the folder."""
        from dxpu_sim.run.runner import SimulationFailed, simulate
        folder, lines = (self._out.work / name).absolute(), 0
        options = {"system": self._design.kwargs, "size": 4096, "wave": "off", "reads": 2,
                   "wave_cycles": 0, "wave_file": f"wave.{self._format}", "pcap": CAPTURE,
                   "steps": SCENARIOS[self._name].steps,
                   "window_ns": (window.begin, window.end) if window else None}

        def follow():
            nonlocal lines
            lines = self._progress.follow(folder / "progress.txt", lines)

        self._progress.step(step)
        try:
            self._progress.run(lambda: simulate(
                self._design, "dxpu_sim.system.benches.demo", env={
                    "DXPU_DEMO": json.dumps(options)}, **self._build, window=True, folder=folder,
                seed=self._wanted.seed), follow)
        except SimulationFailed as error:
            self._progress.done(failed=True)
            raise Failed(f"the simulation failed: "
                         f"{self._out.as_kept(str(error).splitlines()[0])}") from None
        self._progress.done()
        return folder

    def _window(self, story, capture):
        wanted = self._wanted
        if wanted.at is not None:
            return window_around(wanted.at, wanted.cycles, f"{wanted.at:,} ns")
        if wanted.selection.given:
            found = wanted.selection.find(capture)
            journey = wanted.selection.one(found, f"the scenario {self._name}")
            return window_around(journey.first.time_ns, wanted.cycles, journey.text,
                                 last=journey.sights[-1].time_ns)
        found = [event for event in story.events if event.kind == wanted.kind]
        if len(found) < wanted.number:
            raise UserError(f"--around: the scenario {self._name} has {len(found)} events of kind "
                            f"{wanted.kind}")
        event = found[wanted.number - 1]
        return window_around(event.time_ns, wanted.cycles, f"{event.kind} {wanted.number}")

    def _write(self, story: Story, window, folder):
        from dxpu_sim.run import runner
        from dxpu_sim.waves import fst, groups as wave_groups, gtkwave, vcd
        trace = self._out.work / f"wave.{self._format}"
        rows = [row for group in story.rows.values() for row in group]
        {"fst": fst, "vcd": vcd}[self._format].add_texts(folder / trace.name, trace, rows)
        chosen = markers(story.events, window, len(gtkwave.MARKERS))
        save = self._out.work / "wave.gtkw"
        gtkwave.save_file(
            save, trace, runner.verilog(self._design),
            wave_groups.system_groups(self._design.kwargs["boxes"]), names=wave_groups.NAMES,
            marker_ps=window.at * 1000, start_ps=window.begin * 1000,
            span_ps=(window.end - window.begin) * 1000, texts=story.rows,
            markers=[(together[0].time_ns * 1000, "+".join(event.kind for event in together))
                     for together in chosen])
        # The save file names files by their final place.
        write_text(save, save.read_text().replace(str(self._out.work.absolute()),
                                                  str(self._out.path.absolute())))
        return chosen

    def _tell(self, chosen, window):
        from dxpu_sim.waves.gtkwave import MARKERS
        place = self._out.path
        print(f"\n{window.what}: {window.begin:,} to {window.end:,} ns")
        for letter, together in zip(MARKERS, chosen, strict=False):
            for event in together:
                print(f"  {letter} {event.time_ns:>12,} ns  {event.kind:<9} {event.text}")
        size = (place / f"wave.{self._format}").stat().st_size
        print(f"\nwave     {place / f'wave.{self._format}'} ({size / 1e6:.1f} MB)\n"
              f"capture  {place / CAPTURE}\n"
              f"waves    {place / 'wave.gtkw'}\n"
              f"         look at it with: gtkwave {place / 'wave.gtkw'}")


def _check_same(first: Path, second: Path, end: int) -> None:
    """The second run must equal the first run: then all times are equal."""
    # What was under way at the end is missing.
    whole, part = ([packet for packet in packets(path) if packet.time_ns < end - 20_000]
                   for path in (first, second))
    if whole != part:
        raise Failed("the second run of the scenario was not like the first one")


def _print_all(story: Story) -> None:
    counts: dict[str, int] = {}
    for event in story.events:
        counts[event.kind] = counts.get(event.kind, 0) + 1
        print(f"{event.time_ns:>12,} ns  {f'{event.kind}:{counts[event.kind]}':<14} {event.text}")
