"""``dxpu bench``: the figures of the documents, measured."""

import contextlib
import json
import tempfile
from functools import partial
from pathlib import Path

from .cli import UserError, require
from .files import write_text
from .options import add_seed, file_to_write, given_seed

__all__ = ["add_arguments", "run"]

#: The contract's limit: payload per byte on the wire for writes with 4-DW headers, preamble and gap
#: counted, by payload and packing limit (docs/wire-format.md, "Efficiency").
WIRE_LIMIT = {(64, 0): 0.457, (64, 512): 0.645, (64, 1500): 0.699,
              (128, 0): 0.627, (128, 512): 0.750, (128, 1500): 0.809,
              (256, 0): 0.771, (256, 512): 0.771, (256, 1500): 0.879}


def add_arguments(parser):
    """Options of the command."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, text in (
        ("traversal", "cycles of the four traversals of a read through the proxies"),
        ("wire", "payload per byte on a saturated 1 Gbit/s line, against the contract's table"),
        ("size", "LUTs, registers and block RAMs of each proxy: packed for ECP5, not placed"),
        ("link", "the same of the fabric engine alone, by peers and streams"),
        ("clock", "frequency of the engine, by peers and streams, and of each proxy: placed and "
                  "routed for ECP5, up to hours"),
    ):
        sub = what.add_parser(name, help=text)
        sub.add_argument("--width", default="64,512" if name == "traversal" else "64",
                         metavar="BITS", help="data bits per beat, or a list with commas")
        if name in _SIMULATED:
            add_seed(sub)
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
    out = file_to_write("--out", arguments.out)
    require(*["sim"] if arguments.what in _SIMULATED else ["boards", "formal"])
    if arguments.what in _SIMULATED:
        measure = partial(_SIMULATED[arguments.what], seed=given_seed(arguments))
    else:
        measure = {"size": _size, "link": _link, "clock": _clock}[arguments.what]
    result = {width: measure(width) for width in widths}
    if out is not None:
        write_text(out, json.dumps(result, indent=2) + "\n")
    return 0


def _simulate(width, case, seed, **options):
    """Result of test ``case`` of the bench on the system that ``dxpu demo`` builds."""
    from .demo import system_design
    from .runner import SimulationFailed, fst_available, simulate
    design = system_design(width)
    print(f"Simulating the system at {width} bits (the first time it is built: minutes) ...",
          flush=True)
    try:
        folder = simulate(
            design, "dxpu_sim.benches.measure", testcase=f"{case}$",
            waves="fst" if fst_available() else "vcd", window=True, seed=seed,
            env={"DXPU_MEASURE": json.dumps({"system": design.kwargs, **options})})
    except SimulationFailed as error:
        raise UserError(f"the simulation failed: {str(error).splitlines()[0]}") from None
    return json.loads((folder / "result.json").read_text())


def _traversal(width, seed):
    result = _simulate(width, "traversal", seed)
    cycles = result["conversion_cycles"]
    print(f"{width:4} bits: host to fabric {cycles[0]}, fabric to GPU {cycles[1]}, GPU to fabric "
          f"{cycles[2]}, fabric to host {cycles[3]} cycles; all {sum(cycles)} "
          f"({sum(cycles) * 8} ns at 125 MHz), round trip {result['round_trip_ns']:,.0f} ns")
    return result


def _wire(width, seed):
    sizes, limits = (128, 256), (0, 512, 1500)
    result = _simulate(width, "wire", seed, sizes=sizes, limits=limits, writes=400)
    print(f"{'payload':>8} {'packing limit':>14} {'measured':>9} {'contract':>9}")
    for size in sizes:
        for limit in limits:
            print(f"{size:>6} B {limit or 'one a frame':>14} {result[f'{size} {limit}']:>9.1%} "
                  f"{WIRE_LIMIT[size, limit]:>9.1%}")
    return result


#: What is measured in a simulation.
_SIMULATED = {"traversal": _traversal, "wire": _wire}


@contextlib.contextmanager
def _netlist(component):
    """Folder with the netlist of a component, as long as it is needed."""
    from dxpu_boards import ecp5

    from .hdl.conversion import to_verilog
    with tempfile.TemporaryDirectory() as folder:
        try:
            ecp5.synthesize(to_verilog(component, name="top"), Path(folder))
            yield Path(folder)
        except ecp5.ToolFailed as error:
            raise UserError(str(error)) from None


def _proxy(role, width):
    """A proxy of eight slots and two paths."""
    from dxpu.proxy.verilog import PlainPorts

    from .generate import make
    print(f"Synthesising the {role} proxy, {width} bits, 8 slots, 2 paths (minutes) ...",
          flush=True)
    return PlainPorts(make(role, width=width))


def _size(width):
    from dxpu_boards import ecp5
    result, device = {}, "45k"
    for role in ("host", "box"):
        with _netlist(_proxy(role, width)) as folder:
            used = ecp5.pack(folder, [f"--{device}"])
        result[role] = {name: count for name, (count, _) in used.items()}
        print(f"  {role}: " + ", ".join(
            f"{count:,} {name} ({count / there:.0%} of an {ecp5.DEVICES[device]})"
            for name, (count, there) in used.items()))
    return result


def _clock(width):
    result = {}
    for peers, streams in ((1, 1), (16, 4)):
        print(f"Synthesising the fabric engine, {peers} peers, {streams} streams ...", flush=True)
        result[f"{peers} {streams}"] = _routed(_engine(width, peers, streams), "um5g-45k")
    for role in ("host", "box"):  # the host would fill the smaller part to 98%
        result[role] = _routed(_proxy(role, width), "um5g-85k")
    return result


def _routed(component, device):
    """MHz of each clock of a component."""
    from dxpu_boards import ecp5
    with _netlist(component) as folder:
        print("  placing and routing ...", flush=True)
        clocks = ecp5.clocks(folder, device)
    print(f"  {ecp5.DEVICES[device]}, speed 8: " + ", ".join(
        f"{name} {mhz:.1f} MHz" for name, mhz in clocks.items()), flush=True)
    return clocks


def _engine(width, peers, streams):
    """The fabric engine of a host proxy."""
    from dxpu.fabric.engine import FabricEngine
    from dxpu.fabric.flow import FlowControl, host_grants
    return FabricEngine(width, rows=8, paths=2, peers=peers, streams=streams,
                        flow=FlowControl.of(width, host_grants(width)))


def _link(width):
    from dxpu_boards import ecp5
    result = {}
    print(f"Synthesising the fabric engine, {width} bits, 8 rows, 2 paths (minutes each) ...")
    print(f"{'peers':>6} {'streams':>8} {'sessions':>9} {'LUT4':>7} {'FF':>7} {'DP16KD':>7}",
          flush=True)
    for peers, streams in ((1, 1), (1, 4), (4, 4), (16, 1), (16, 4)):
        with _netlist(_engine(width, peers, streams)) as folder:
            used = {name: count for name, (count, _) in ecp5.pack(folder).items()}
        result[f"{peers} {streams}"] = used
        print(f"{peers:>6} {streams:>8} {peers * streams:>9} " + " ".join(
            f"{used[name]:>7,}" for name in ("LUT4", "FF", "DP16KD")), flush=True)
    return result
