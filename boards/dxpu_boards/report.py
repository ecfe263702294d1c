"""Report of a build: clocks, resources used, critical paths, crossings."""

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dxpu_tools.identity import Identity, release

from . import crossings as cdc
from .ecp5 import CONSTRAINTS, NETLIST, REPORT, RESOURCES

__all__ = ["BuildReport", "ClockFigures", "LongestPath", "constraints", "crossings_of",
           "netlist_of", "read"]

#: A clock constraint as written by Amaranth: of a net, or of a pin.
CONSTRAINT = re.compile(r'^FREQUENCY (NET|PORT) "([^"]+)" ([\d.e+]+) HZ;', re.MULTILINE)


@dataclass(frozen=True)
class LongestPath:
    """The slowest path of a clock; ``start`` and ``end`` are registers."""

    delay_ns: float
    start: str
    end: str


@dataclass(frozen=True)
class ClockFigures:
    """Figures of a clock, all in MHz.

    Constraint; frequency that it must reach, with the board's margin; frequency that it reaches
    (``None``: no path from register to register).
    """

    name: str
    constraint: float
    wanted: float
    achieved: float | None
    longest: LongestPath | None

    @property
    def met(self) -> bool:
        return self.lacks == 0

    @property
    def lacks(self) -> float:
        """Shortfall, as a share of the frequency that must be reached."""
        return 0 if self.achieved is None else max(0, 1 - self.achieved / self.wanted)

    def __str__(self):
        """Shortfall and longest path, in one line."""
        share = self.wanted / self.constraint - 1
        margin = f" ({self.constraint:g} MHz and {share:.0%} margin)" if share > 1e-3 else ""
        return (f"clock {self.name} reaches {self.achieved:.1f} MHz and must reach "
                f"{self.wanted:.4g} MHz{margin}; its longest path is from {self.longest.start} to "
                f"{self.longest.end}, {self.longest.delay_ns:.1f} ns")


@dataclass
class BuildReport:
    """Figures of a build.

    ``seed`` belongs to the placement reported; the seed in ``identity`` to the first placement
    tried. ``seconds`` is the time from the beginning to the report, with all placements tried.
    ``delays`` are nextpnr's longest delays from clock to clock, in ns.
    """

    board: str
    role: str
    part: str
    seed: int
    goal: str
    shape: dict
    identity: Identity = Identity()
    seconds: int = 0
    clocks: list[ClockFigures] = field(default_factory=list)
    used: dict[str, tuple[int, int]] = field(default_factory=dict)
    crossings: list[cdc.Crossing] = field(default_factory=list)
    delays: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def failures(self) -> list[str]:
        """Reasons of a failed build, a line each; none for a good build."""
        return [str(clock) for clock in self.clocks if not clock.met]

    def write(self, folder: Path) -> None:
        """Write ``report.json`` and ``report.txt``."""
        (folder / "report.json").write_text(json.dumps(self.as_json(), indent=2) + "\n")
        (folder / "report.txt").write_text(self.as_text())

    def as_json(self) -> dict:
        return {
            "board": self.board, "role": self.role, "part": self.part, "seed": self.seed,
            "goal": self.goal, "shape": self.shape, "met": not self.failures,
            "version": ".".join(map(str, release())), "dirty": self.identity.dirty,
            "commit": f"{self.identity.commit:08x}" if self.identity.commit else None,
            "seconds": self.seconds,
            "clocks": {clock.name: {
                "constraint_mhz": clock.constraint, "wanted_mhz": clock.wanted,
                "achieved_mhz": clock.achieved, "met": clock.met,
                "longest_path": clock.longest and asdict(clock.longest),
            } for clock in self.clocks},
            "used": {name: {"used": used, "available": there}
                     for name, (used, there) in self.used.items()},
            "crossings": [asdict(crossing) | {
                "longest_ns": self.delays.get((crossing.source, crossing.target))}
                for crossing in self.crossings],
        }

    def as_text(self) -> str:
        shape = ", ".join(f"{value} {name}" for name, value in self.shape.items())
        lines = [f"{self.board}, {self.role}: {self.part}, for {self.goal}, "
                 f"seed {self.seed}; {shape}", f"{self.identity}",
                 f"took {self.seconds // 60} min {self.seconds % 60:02} s", "",
                 f"{'clock':<22} {'constraint':>11} {'wanted':>11} {'achieved':>11}"]
        for clock in self.clocks:
            reached = "no path" if clock.achieved is None else f"{clock.achieved:.1f} MHz"
            lines.append(f"{clock.name:<22} {clock.constraint:>7.2f} MHz {clock.wanted:>7.2f} MHz "
                         f"{reached:>11}  {'met' if clock.met else 'NOT MET'}")
        lines += ["", f"{'of the part':<22} {'used':>11} {'there':>11}"]
        lines += [f"{name:<22} {used:>11,} {there:>11,}  {used / there:.1%}"
                  for name, (used, there) in self.used.items()]
        lines += ["", "longest paths"]
        lines += [f"  {clock.name}: {clock.longest.delay_ns:.2f} ns, {clock.longest.start} to "
                  f"{clock.longest.end}" for clock in self.clocks if clock.longest]
        lines += ["", "from clock to clock"]
        for crossing in self.crossings:
            delay = self.delays.get((crossing.source, crossing.target))
            longest = "" if delay is None else f"; longest way {delay:.2f} ns"
            lines.append(f"  {crossing.source} to {crossing.target}: {crossing.count} x "
                         f"{crossing.kind}{longest} ({crossing.example})")
        lines += [f"  {kind}: {why}" for kind, why in cdc.KINDS.items()]
        return "\n".join(lines) + "\n"


def constraints(folder: Path, netlist: cdc.Netlist) -> dict[int, tuple[str, float]]:
    """Name and MHz of each constrained clock, by its net.

    A clock of :class:`~dxpu_boards.clocks.Clocks` has the name of its domain, an external clock the
    name of its pin. Clocks without a load may be missing.
    """
    found = {}
    for what, name, hertz in CONSTRAINT.findall((folder / CONSTRAINTS).read_text()):
        if what == "NET":
            if name not in netlist.module["netnames"]:
                continue
            bit = netlist.module["netnames"][name]["bits"][0]
            short = name.rpartition(".")[2].removeprefix("pll_")
        else:
            bit = netlist.through_pad(name)
            short = re.sub("__(io|p)$", "", name).replace("__", ".")
        found[bit] = short, float(hertz) / 1e6
    return found


def netlist_of(folder: Path, file: str = NETLIST) -> cdc.Netlist:
    """Netlist made by the synthesis."""
    return cdc.Netlist(json.loads((folder / file).read_text())["modules"]["top"])


def crossings_of(netlist: cdc.Netlist, clocks: dict) -> tuple[list[cdc.Crossing], list[str]]:
    """Crossings, and errors: unsafe crossings, and clocks without a constraint."""
    named = {bit: name for bit, (name, _) in clocks.items()}
    bare = {clock for _, _, clock, _, _ in netlist.registers} - named.keys()
    wrong = [f"clock {netlist.clock_name(clock)} has no constraint" for clock in sorted(bare)]
    found = cdc.find(netlist, named)
    wrong += [f"without a synchroniser or queue from clock {c.source} to clock {c.target}: "
              f"{c.example}" + (f", and {c.count - 1} more" if c.count > 1 else "")
              for c in cdc.unexplained(found)]
    return found, wrong


def read(report: BuildReport, folder: Path, netlist: cdc.Netlist, clocks: dict, margins: dict):
    """Fill ``report`` with the figures of nextpnr.

    Parameters
    ----------
    margins : dict
        Margins of clocks, by name; clocks without a margin are missing.
    """
    figures = json.loads((folder / REPORT).read_text())
    nets = {name: net["bits"][0] for name, net in netlist.module["netnames"].items()}

    def name_of(net):
        net = net.removeprefix("posedge ").removeprefix("negedge ").removeprefix("$glbnet$")
        return clocks.get(nets.get(net), (net,))[0]

    achieved = {name_of(net): figure["achieved"] for net, figure in figures["fmax"].items()}
    given = {name_of(net): figure["constraint"] for net, figure in figures["fmax"].items()}
    longest = {}
    for path in figures["critical_paths"]:
        source, target = name_of(path["from"]), name_of(path["to"])
        delay = sum(step["delay"] for step in path["path"])
        if source == target:
            longest[source] = LongestPath(delay, _place(path["path"][0]["from"]),
                                    _place(path["path"][-1]["to"]))
        else:
            report.delays[source, target] = delay
    report.clocks = [ClockFigures(name, given.get(name, mhz), mhz * (1 + margins.get(name, 0)),
                                  achieved.get(name), longest.get(name))
                     for name, mhz in clocks.values()]
    report.used = {ours: (figures["utilization"][name]["used"],
                          figures["utilization"][name]["available"])
                   for name, ours in RESOURCES.items()}


def _place(pin):
    """Name of a register in the design: cells are named after their nets."""
    return re.sub(r"_(TRELLIS_FF|TRELLIS_DPR16X4|DP16KD)_.*$", "", pin["cell"])
