"""``dxpu demo``: a host boots with GPUs behind an Ethernet, uses and measures them; then a manager
gives GPUs of a pool to hosts."""

import json
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from dxpu_cli.main import require
from dxpu_cli.options import NO_KEYS, add_seed, folder_to_write, given_seed, whole_number
from dxpu_cli.output import FAILED, OutputFolder
from dxpu_cli.pool.demonstration import CHOICES, PoolDemo
from dxpu_cli.progress import Progress
from dxpu_tools.errors import UserError
from dxpu_tools.files import write_text

__all__ = ["CAPTURE", "PATHS", "Options", "add_arguments", "options", "parse_size", "run", "split",
           "system_design", "table", "wave_span"]

WIDTHS = (32, 64, 128, 256, 512)
PORTS = 8
#: Ethernet ports of each proxy.
PATHS = 2
MAX_BOXES = 4
MAX_SIZE = 16 << 20
CYCLE_NS = 8
#: Room needed by a run without its wave, and by a cycle in the wave. A run that needs more, as at
#: larger widths, is ended before the disk is full.
ROOM = 32 << 20
CYCLE_BYTES = 600
#: Cycles of a whole run.
CYCLES = 620_000
#: Files of the result folder that belong together.
RESULTS = ("report.json", "timeline.svg", "timeline.png", "wave.fst", "wave.gtkw",
           "wave-enums", "capture.pcapng")
#: The capture among them.
CAPTURE = "capture.pcapng"
#: The paper's figures for the same split: Table 6, nanoseconds of a host's read of a GPU.
PAPER_ROUND_TRIP_NS = 6800
PAPER_CONVERSION_NS = 3700


@dataclass(frozen=True)
class Options:
    """Checked options of a run."""

    #: GPUs in each box.
    boxes: tuple[int, ...]
    width: int
    seed: int
    #: Bytes of the large copy.
    size: int
    wave: str
    #: Cycles in the wave, around the read that is split into stages.
    wave_cycles: int
    #: Reads whose round trip is measured, besides that read.
    reads: int
    #: All frames and TLPs are captured.
    pcap: bool
    #: How the manager of the pool reaches the nodes, if there is a pool.
    pool: str
    out: Path


def add_arguments(parser):
    """Options of the command."""
    parser.add_argument("--boxes", default="2", help=f"GPU boxes, 1 to {MAX_BOXES}")
    parser.add_argument("--gpus", default="3",
                        help=f"GPUs, 1 to {PORTS}, spread evenly over the boxes")
    parser.add_argument("--width", default="64", help="data bits per beat of the proxies: "
                        + ", ".join(map(str, WIDTHS)))
    add_seed(parser)
    parser.add_argument("--size", default="64K",
                        help="bytes to copy to a GPU and back, 64 to 16M; suffixes K and M")
    parser.add_argument("--wave", default="on", choices=("on", "off", "all"),
                        help="trace the cycles around one read, nothing, or the whole run")
    parser.add_argument("--wave-cycles", default="50000", metavar="N",
                        help="cycles to trace with --wave on, 1000 to 10000000")
    parser.add_argument("--pcap", action="store_true",
                        help="capture every frame and TLP, for Wireshark (`dxpu wireshark`)")
    parser.add_argument("--reads", default="4", metavar="N",
                        help="reads to measure the round trip with, 1 to 10000")
    parser.add_argument("--pool", default="on", choices=CHOICES,
                        help="a manager and two hosts afterwards: over a veth where this machine "
                        "permits that, else at a UNIX socket; by one of both; or not at all")
    parser.add_argument("--out", default="build/demo", metavar="FOLDER",
                        help="folder for report, pictures and waves; made if it is not there")


def parse_size(text: str) -> int:
    """Bytes of ``text``: a number with an optional suffix K, M, KiB or MiB."""
    match = re.fullmatch(r"(\d+)\s*(?:([KM])(?:i?B)?)?", text, re.IGNORECASE | re.ASCII)
    if not match:
        raise UserError(f"--size must be a number of bytes such as 4096 or 64K, not {text!r}")
    return int(match[1]) << {"": 0, "K": 10, "M": 20}[(match[2] or "").upper()]


def options(arguments) -> Options:
    """Checked options; the first wrong value raises :exc:`~dxpu_tools.errors.UserError`."""
    boxes = whole_number("--boxes", arguments.boxes, 1, MAX_BOXES)
    gpus = whole_number("--gpus", arguments.gpus, 1, PORTS)
    if gpus < boxes:
        raise UserError(f"--gpus must be at least one per box: {boxes} boxes, but {gpus} "
                        f"GPU{'s' * (gpus > 1)}")
    try:
        width = int(arguments.width)
    except ValueError:
        width = None
    if width not in WIDTHS:
        raise UserError(f"--width must be one of {', '.join(map(str, WIDTHS))}, "
                        f"not {arguments.width!r}")
    size = parse_size(arguments.size)
    if not 64 <= size <= MAX_SIZE:
        raise UserError(f"--size must be from 64 bytes to 16M, not {arguments.size!r}")
    out = folder_to_write("--out", arguments.out)
    return Options(
        boxes=tuple(gpus // boxes + (n < gpus % boxes) for n in range(boxes)), width=width,
        seed=given_seed(arguments), size=size,
        wave=arguments.wave,
        wave_cycles=whole_number("--wave-cycles", arguments.wave_cycles, 1000, 10_000_000),
        reads=whole_number("--reads", arguments.reads, 1, 10_000), pcap=arguments.pcap,
        pool=arguments.pool, out=out)


def run(arguments) -> int:
    """Run the demo; returns 0 only if every check held."""
    chosen = options(arguments)
    require("sim", *["manager"] * (chosen.pool != "off"))
    with OutputFolder("--out", arguments.out, room=_room(chosen)) as out:
        return _Demo(chosen, out).run()


def _room(chosen):
    """Bytes that a run may write."""
    cycles = chosen.wave_cycles if chosen.wave == "on" else CYCLES
    return ROOM if chosen.wave == "off" else ROOM + CYCLE_BYTES * cycles


def system_design(width: int = 64, boxes: tuple[int, ...] = (2, 1)):
    """The system that a run simulates (:class:`~dxpu_sim.run.runner.Design`)."""
    from dxpu_sim.run.runner import Design
    from dxpu_sim.system.design import System
    return Design(System, {"width": width, "boxes": boxes, "ports": PORTS})


class _Demo:
    def __init__(self, chosen: Options, out: OutputFolder):
        self.options = chosen
        self.out = out
        self.progress = Progress()
        #: Format of the wave; empty without one.
        self.wave = "" if chosen.wave == "off" else "fst"
        self.failure = None
        self.pool = None
        self._lines, self._started = 0, time.monotonic()

    def run(self):
        from dxpu_cli.prepare import Simulator, prepare
        from dxpu_sim.run.runner import SimulationFailed, simulate
        o = self.options
        self.design = system_design(o.width, o.boxes)
        gpus = sum(o.boxes)
        print(f"dxpu demo: a host, {len(o.boxes)} GPU box{'es' * (len(o.boxes) > 1)}, {gpus} "
              f"GPU{'s' * (gpus > 1)}, {o.width}-bit proxies, seed {o.seed}\n{NO_KEYS}", flush=True)
        work = (self.out.work / "simulation").absolute()
        build = {"waves": self.wave}
        if o.pcap:
            from dxpu_sim.system.capture import public
            build["public"] = public(PATHS)
        simulators = {"demo": Simulator(self.design, build)}
        if o.pool != "off":
            self.pool = PoolDemo(o.pool, o.seed, work.with_name("pool"))
            simulators["pool"] = Simulator(self.pool.design, {})
        prepare(simulators, self.progress)
        environment = {"DXPU_DEMO": json.dumps({
            "system": self.design.kwargs, "size": o.size, "wave": o.wave,
            "wave_cycles": o.wave_cycles, "wave_file": f"wave.{self.wave}", "reads": o.reads,
            "pcap": CAPTURE if o.pcap else ""})}

        def job():
            simulate(self.design, "dxpu_sim.system.benches.demo", env=environment, **build,
                     window=True, folder=work, seed=o.seed)

        def follow():
            self._lines = self.progress.follow(work / "progress.txt", self._lines)

        self.progress.step("Starting the simulation")
        try:
            self.progress.run(job, follow)
        except (SimulationFailed, RuntimeError, OSError) as error:
            self.failure = error
        result = _read_json(work / "result.json")
        if self.failure is None and not all(result.get("checks", {"": 0}).values()):
            self.failure = RuntimeError("a check did not hold")
        self.progress.done(failed=self.failure is not None)
        return self._finish(result, work)

    def _finish(self, result, work):
        o = self.options
        checks = result.get("checks") or {"simulation": False}
        files = {}
        if result.get("stages"):
            self.progress.step("Drawing the timeline")
            checks["timeline"] = self.progress.run(lambda: self._draw(result, files))
            self.progress.done(failed=not checks["timeline"])
        if o.pcap and (work / CAPTURE).exists():
            (work / CAPTURE).replace(self.out.work / CAPTURE)
            files["capture"] = CAPTURE
        if self.wave:
            self.progress.step("Writing the wave's save file")
            checks["wave"] = self.progress.run(lambda: self._waves(result, work, files))
            self.progress.done(failed=not checks["wave"])
        ok = self.failure is None and all(checks.values())
        pool = {}
        if ok and self.pool is not None:
            print(self.pool.heading(), flush=True)
            pool = self.pool.run(self.progress)
            ok = pool["error"] is None and all(pool["checks"].values())
        seconds = time.monotonic() - self._started
        place = self.out.path if ok else self.out.path / FAILED
        files = {what: str(place / name) for what, name in files.items()}
        report = {
            "ok": ok, "seed": o.seed, "checks": checks,
            "error": None if ok else self._why(result, pool),
            "options": {**asdict(o), "out": str(o.out)},
            **{k: v for k, v in result.items() if k not in ("checks", "error")},
            "split": split(result.get("stages", [])), "files": files, "total_seconds": seconds,
            "pool": pool,
        }
        write_text(self.out.work / "report.json",
                   json.dumps(report, indent=2, default=list) + "\n")
        if ok:
            self.out.good(RESULTS)
        else:
            self.out.bad()
        print(table(report))
        print(f"\nreport   {place / 'report.json'}")
        for what, path in files.items():
            print(f"{what:<8} {path}")
        if "waves" in files:
            print(f"         look at it with: gtkwave {files['waves']}")
        if "capture" in files:
            print(f"         look at it with: wireshark -C DXPU {files['capture']} (once: dxpu "
                  "wireshark install)")
        if not ok:
            kept = " (what the last good run made is still there)" * any(
                (self.out.path / name).exists() for name in RESULTS)
            log = place / ("pool" if pool else "simulation") / "run.log"
            print(f"\nFAILED: {report['error']}\nlog: {log}{kept}")
            return 1
        held = f"{len(checks)} checks of the fabric" + (
            f" and {len(pool['checks'])} of the pool" if pool else "")
        print(f"\nok: {held} held, in {seconds:.0f} s")
        return 0

    def _why(self, result, pool):
        if pool:
            return f"the pool: {pool['error']}"
        error = result.get("error")
        if error and not error.startswith("CancelledError"):
            return error
        return str(self.failure or "a file could not be written").strip().split("\n")[0]

    def _draw(self, result, files):
        from dxpu_sim.system import timeline
        stages = [timeline.Stage(**s) for s in result["stages"]]
        lanes = list(dict.fromkeys(s.lane for s in stages))
        paths = [self.out.work / "timeline.svg", self.out.work / "timeline.png"]
        try:
            timeline.draw(
                stages, lanes, paths, cycle_ns=CYCLE_NS,
                title=f"One read of a GPU register through the fabric: "
                      f"{result['round_trip_ns']:,.0f} ns from request to completion "
                      f"({self.options.width} bit at 125 MHz, 1 Gbit/s Ethernet)")
        except OSError as error:
            self.failure = error
            return False
        files["timeline"], files["picture"] = (path.name for path in paths)
        return all(p.stat().st_size for p in paths)

    def _told(self):
        """Rows of texts of the capture."""
        from dxpu_cli.waves.story import tell
        from dxpu_sim.system.shape import node_names
        return tell(self.out.work / CAPTURE, node_names(self.design.kwargs)).rows

    def _waves(self, result, work, files):
        from dxpu_sim.waves import fst, groups as wave_groups, gtkwave
        from dxpu_sim.run import runner
        source, target = work / f"wave.{self.wave}", self.out.work / f"wave.{self.wave}"
        if not source.exists():
            return False
        texts = self._told() if "capture" in files else {}
        if texts:
            fst.add_texts(source, target, [row for rows in texts.values() for row in rows])
        else:
            source.replace(target)
        files["wave"] = target.name
        save = self.out.work / "wave.gtkw"
        start, end = wave_span(result)
        margin = (end - start) / 10
        shown = gtkwave.save_file(
            save, target, runner.verilog(self.design),
            wave_groups.system_groups(self.options.boxes), names=wave_groups.NAMES,
            marker_ps=round(start * 1e3), start_ps=round((start - margin) * 1e3),
            span_ps=round((end - start + 2 * margin) * 1e3), texts=texts)
        # The message names files by their final place.
        write_text(save, save.read_text().replace(str(self.out.work.absolute()),
                                                  str(self.out.path.absolute())))
        files["waves"] = save.name
        return bool(shown and target.stat().st_size and "wave_to_ns" in result)


def wave_span(result: dict) -> tuple[float, float]:
    """Start and end of the view in the wave, in ns: the read split into stages, else the last
    event."""
    if stages := result.get("stages"):
        return stages[0]["start_ns"], stages[-1]["end_ns"]
    end = result.get("wave_to_ns", 10_000)
    return max(result.get("wave_from_ns", 0), end - 10_000), end


def _read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def split(stages) -> dict:
    """Round trip of a read by place, as in the paper's Table 6: cycles and nanoseconds of each."""
    groups = {"PCIe": ("PCIe", "GPU"), "conversion": ("conversion",), "wire": ("MAC", "Ethernet")}
    result = {}
    for name, kinds in groups.items():
        ns = sum(s["end_ns"] - s["start_ns"] for s in stages if s["kind"] in kinds)
        result[name] = {"ns": ns, "cycles": ns / CYCLE_NS}
    return result


def table(report: dict) -> str:
    """What the terminal shows at the end."""
    lines = [""]
    if report.get("tree"):
        lines += [report["tree"], ""]
    if report.get("stages"):
        lines += _split_lines(report)
    for name, key in (("host to GPU", "h2d_MBps"), ("GPU to host", "d2h_MBps")):
        if key in report:
            size = report["options"]["size"]
            lines.append(f"{name:<34}{report[key]:>10.1f} MB/s   {size:,} bytes by the GPU's "
                         "copy engine, verified")
    for name, key in (("binding to first config request", "bind_to_first_config_ns"),
                      ("GPU pulled to first UR", "loss_to_ur_ns")):
        if key in report:
            lines.append(f"{name:<34}{report[key]:>10,.0f} ns")
    if "frames" in report:
        lines.append(f"{'through the fabric':<34}{report['frames']:>10,} frames, "
                     f"{report['tlps']:,} TLPs; at the PCIe ends {report['pcie_tlps']:,} TLPs")
    if "frames_sent_again" in report:
        lines.append(f"{'lost on the bad fabric':<34}{report['frames_lost']:>10,} frames, "
                     f"{report['frames_sent_again']:,} sent again; TLPs: none")
    if "simulated_cycles_per_s" in report:
        lines.append(f"{'simulation':<34}{report['simulated_cycles_per_s']:>10,.0f} cycles/s, "
                     f"{report['cycles']:,} cycles in {report['seconds']:.1f} s")
    lines += ["", "checks"]
    for name, held in (report["checks"] | report.get("pool", {}).get("checks", {})).items():
        lines.append(f"  {name.replace('_', ' '):<32}{'ok' if held else 'FAILED'}")
    return "\n".join(lines)


def _split_lines(report):
    total = report["round_trip_ns"]
    lines = [f"{'one read of 4 bytes':<34}{'cycles':>8}{'ns':>10}{'share':>8}"]
    for stage in report["stages"]:
        ns = stage["end_ns"] - stage["start_ns"]
        lines.append(f"  {stage['lane'] + ': ' + stage['name']:<32}{ns / CYCLE_NS:>8.0f}"
                     f"{ns:>10,.0f}{ns / total:>8.1%}")
    paper = {"conversion": PAPER_CONVERSION_NS}
    for name, part in report["split"].items():
        text = f"{name}, all" if name != "conversion" else "conversion, four traversals"
        note = f"   paper, Table 6: {paper[name]:,} ns" if name in paper else ""
        lines.append(f"{text:<34}{part['cycles']:>8.0f}{part['ns']:>10,.0f}"
                     f"{part['ns'] / total:>8.1%}{note}")
    samples = report["round_trip_samples_ns"]
    lines.append(f"{'round trip':<34}{total / CYCLE_NS:>8.0f}{total:>10,.0f}{1:>8.1%}"
                 f"   paper: {PAPER_ROUND_TRIP_NS:,} ns; {samples['reads']} reads: "
                 f"{samples['min']:,.0f} to {samples['max']:,.0f} ns")
    return [*lines, ""]
