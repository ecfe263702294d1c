"""``dxpu bench scale``: area, clock and latency against rows, sessions and width.

One parameter at a time leaves :data:`BASELINE`. Each figure is kept for the same sources and tools,
so a run that was interrupted goes on, and a second run takes no time.

Area and clock are of the fabric engine of a host proxy, latency is of a read through both proxies.
"""

from collections.abc import Callable

from dxpu_cli.output import OutputFolder
from dxpu_cli.progress import Progress
from dxpu_tools.errors import Failed

from .simulated import run_case
from .synthesised import engine, kept, packed, routed

__all__ = ["BASELINE", "PARAMETERS", "PARTS", "POINTS", "SEED", "measure"]

#: What is measured, and against what, in this order.
PARTS, PARAMETERS = ("size", "latency", "clock"), ("rows", "sessions", "width")
#: The proxy of ``dxpu generate``. Rows of a host are its downstream ports.
BASELINE = {"rows": 8, "peers": 16, "streams": 4, "width": 64}
#: Of nextpnr's placer, and of the simulations.
SEED = 1
_ROWS, _WIDTHS = (1, 2, 4, 8, 16, 32), (32, 64, 128, 256, 512)
#: Peers and streams of each.
_SESSIONS = ((1, 1), (4, 1), (4, 4), (16, 1), (16, 2), (16, 4), (64, 1))
#: What each point of a parameter changes, by the point's name.
_CHANGES = {
    "rows": {str(n): {"rows": n} for n in _ROWS},
    "sessions": {f"{peers}x{streams}": {"peers": peers, "streams": streams}
                 for peers, streams in _SESSIONS},
    "width": {str(n): {"width": n} for n in _WIDTHS},
}
#: Points of each part, by parameter. To route one takes many minutes; to build a simulator, some.
POINTS = {
    "size": {parameter: tuple(points) for parameter, points in _CHANGES.items()},
    "latency": {"rows": ("1", "8", "32"), "sessions": ("1x1", "16x4"),
                "width": tuple(map(str, _WIDTHS))},
    "clock": {"rows": ("1", "8", "32"), "sessions": ("1x1", "16x4"),
              "width": ("32", "64", "128", "256")},
}
#: Parts in which an engine is routed: the second, if it needs more than this, four fifths of the
#: first.
_DEVICES, _SMALL = ("um5g-45k", "um5g-85k"), {"LUT4": 35_000, "FF": 35_000, "DP16KD": 86}
#: Sources on which sizes and clocks depend.
_SOURCES = ("dxpu.fabric.engine", "dxpu.fabric.credit.sizing", "dxpu_boards.ecp5")


def measure(parts: list[str], parameters: list[str], progress: Progress,
            save: Callable[[dict], None] = lambda result: None) -> dict:
    """Print and return the figures: by part, by parameter and by point; ``save`` gets those that
    are there after each point.

    Raises
    ------
    Failed
    """
    result: dict = {"baseline": BASELINE | {"paths": 2}, "seed": SEED}
    of_part = {"size": _size, "latency": _latency, "clock": _clock}
    for part in parts:
        for parameter in parameters:
            found = result.setdefault(part, {}).setdefault(parameter, {})
            for point in POINTS[part][parameter]:
                shape = BASELINE | _CHANGES[parameter][point]
                found[point] = of_part[part](shape, progress)
                save(result)
            print(table(part, parameter, found), flush=True)
    return result


def table(part: str, parameter: str, found: dict[str, dict]) -> str:
    """The figures of a part by the points of a parameter."""
    same = {"rows": "{peers} peers x {streams} streams, {width} bits",
            "sessions": "{rows} rows, {width} bits",
            "width": "{rows} rows, {peers} peers x {streams} streams"}[parameter]
    lines = [f"{part} by {parameter}; {same.format(**BASELINE)}"]
    for point, figures in found.items():
        if part == "latency":
            shown = "; ".join(f"port {port}: {', '.join(map(str, cycles))}, all {sum(cycles)} "
                              "cycles" for port, cycles in figures.items())
        else:
            shown = ", ".join(f"{value} {name}" if part == "size" else f"{name} {value}"
                              for name, value in figures.items())
        lines.append(f"{point:>8}  {shown}")
    return "\n".join(lines)


def _name(shape):
    return "the engine: rows {rows}, sessions {peers}x{streams}, {width} bits".format(**shape)


def _size(shape, progress):
    # The larger part, as some engines need more than the smaller one has.
    used = kept(_SOURCES, ("engine", *sorted(shape.items())), lambda: packed(
        engine(**shape), _name(shape), progress, "85k"))
    return {name: count for name, (count, _) in used.items()}


def _clock(shape, progress):
    """Size of an engine mapped for speed, MHz, and the part."""
    from dxpu_boards import ecp5
    used = _size(shape, progress)
    device = _DEVICES[any(used[name] > most for name, most in _SMALL.items())]
    found = kept(_SOURCES, ("routed engine", *sorted(shape.items()), device, SEED),
                 lambda: routed(engine(**shape), _name(shape), device, progress, (SEED,)))
    return {"MHz": min(mhz for mhz, in found["MHz"].values()), "LUT4": found["LUT4"],
            "part": ecp5.DEVICES[device]}


def _latency(shape, progress):
    """Cycles of the four traversals of a read by a GPU at the first and at the last port."""
    ports = sorted({0, shape["rows"] - 1})
    simulator = _simulator(shape)

    def cycles():
        from dxpu_cli.prepare import prepare
        prepare({"scale": simulator}, progress)
        with OutputFolder("", "build/bench/scale", room=64 << 20) as folder:
            try:
                return run_case(simulator, _name(shape).replace("the engine", "a read"),
                                "ports", SEED, folder.work / "run", progress, ports=ports)
            except Failed as error:
                folder.bad()
                raise Failed(folder.as_kept(str(error))) from None

    return kept(("dxpu_sim.system.benches.measure",),
                (simulator.design.key, SEED, ports), cycles)


def _simulator(shape):
    """The simulator of a system with proxies of this shape; that of ``dxpu demo``, where it is the
    same."""
    from dxpu_cli.commands.demo import system_design
    from dxpu_cli.prepare import Simulator
    from dxpu_sim.run.runner import Design
    design = system_design(shape["width"], (2, 1) if shape["rows"] > 1 else (1,))
    changed = {"ports": shape["rows"]}
    if any(shape[name] != BASELINE[name] for name in ("peers", "streams")):
        # One box is one peer.
        changed |= {"boxes": (2,), "peers": shape["peers"], "streams": shape["streams"]}
    return Simulator(Design(design.factory, design.kwargs | changed), {"waves": "fst"})
