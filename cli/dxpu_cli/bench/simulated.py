"""Measurements of ``dxpu bench`` by simulation of the whole system."""

import json
from pathlib import Path

from dxpu_cli.commands.demo import CAPTURE, PATHS, system_design
from dxpu_cli.output import OutputFolder
from dxpu_cli.progress import Progress
from dxpu_tools.errors import Failed

__all__ = ["SIMULATED", "WIRE_LIMIT", "capture_of", "measure", "run_case", "simulate", "simulator"]

#: The contract's limit: payload per byte on the wire for writes with 4-DW headers, preamble and gap
#: counted, by payload and packing limit (docs/reference/wire-format.md, "Efficiency").
WIRE_LIMIT = {(64, 0): 0.457, (64, 512): 0.645, (64, 1500): 0.699,
              (128, 0): 0.627, (128, 512): 0.750, (128, 1500): 0.809,
              (256, 0): 0.771, (256, 512): 0.771, (256, 1500): 0.879}
#: Loads under which traversals are measured, in percent of the wire limit, and reads of each.
LOADS, LOADED_READS = (50, 90), 100
#: The four traversals.
CONVERSIONS = ("host to fabric", "fabric to GPU", "GPU to fabric", "fabric to host")


def measure(what: str, widths: list[int], seed: int, *, pcap: bool = False) -> dict[int, dict]:
    """Results of one of :data:`SIMULATED` by width; simulations run one at a time, so that each has
    the whole processor.

    ``pcap``: all frames and TLPs are captured, in a file for each width (:func:`capture_of`).
    """
    from dxpu_cli.prepare import prepare
    progress = Progress()
    with OutputFolder("", f"build/bench/{what}", room=64 << 20) as folder:
        prepare({f"{width} bits": simulator(width, pcap=pcap) for width in widths}, progress)
        try:
            result = {width: SIMULATED[what](width, seed, folder.work / str(width), progress,
                                             pcap=pcap) for width in widths}
        except Failed as error:
            folder.bad()
            raise Failed(folder.as_kept(str(error))) from None
        if pcap:
            for width in widths:
                (folder.work / str(width) / CAPTURE).replace(folder.work / capture_of(width))
            folder.good([capture_of(width) for width in widths])
            for width in widths:
                print(f"capture  {folder.path / capture_of(width)}")
        return result


def capture_of(width: int) -> str:
    """Name of the capture at a width, in ``build/bench/WHAT``."""
    return f"{width}.pcapng"


def simulator(width: int, *, pcap: bool = False):
    """The simulator of ``dxpu demo``, with the same options."""
    from dxpu_cli.prepare import Simulator
    options: dict[str, object] = {"waves": "fst"}
    if pcap:
        from dxpu_sim.system.capture import public
        options["public"] = public(PATHS)
    return Simulator(system_design(width), options)


def simulate(width: int, case: str, seed: int, folder: Path, progress: Progress,
             pcap: bool = False, **options) -> dict:
    """Result of test ``case`` of the bench at this width, run in ``folder``."""
    return run_case(simulator(width, pcap=pcap), f"at {width} bits", case, seed, folder, progress,
                    pcap=CAPTURE if pcap else "", **options)


def run_case(simulator, what: str, case: str, seed: int, folder: Path, progress: Progress,
             **options) -> dict:
    """Result of test ``case`` of the bench in a simulator that was prepared; ``what`` it is of goes
    to the progress.

    Raises
    ------
    Failed
    """
    from dxpu_sim.run import runner
    progress.step(f"Simulating {what}")
    try:
        progress.run(lambda: runner.simulate(
            simulator.design, "dxpu_sim.system.benches.measure", testcase=f"{case}$", window=True,
            seed=seed, folder=folder, **simulator.options, env={"DXPU_MEASURE": json.dumps(
                {"system": simulator.design.kwargs, **options})}))
    except runner.SimulationFailed as error:
        raise Failed(f"the simulation failed: {str(error).splitlines()[0]}") from None
    progress.done()
    return json.loads((folder / "result.json").read_text())


def _traversal(width, seed, folder, progress, *, pcap):
    result = simulate(width, "traversal", seed, folder, progress, pcap=pcap, loads=LOADS,
                      reads=LOADED_READS, fill=WIRE_LIMIT[256, 512])
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


def _wire(width, seed, folder, progress, *, pcap):
    sizes, limits = (128, 256), (0, 512, 1500)
    result = simulate(width, "wire", seed, folder, progress, sizes=sizes, limits=limits,
                      writes=400, pcap=pcap)
    print(f"{'payload':>8} {'packing limit':>14} {'measured':>9} {'contract':>9}")
    for size in sizes:
        for limit in limits:
            print(f"{size:>6} B {limit or 'one a frame':>14} {result[f'{size} {limit}']:>9.1%} "
                  f"{WIRE_LIMIT[size, limit]:>9.1%}")
    return result


#: Measurements made by simulation.
SIMULATED = {"traversal": _traversal, "wire": _wire}
