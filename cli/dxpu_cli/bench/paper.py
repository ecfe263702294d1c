"""``dxpu bench paper``: the tables of the paper, measured on the gateware in simulations."""

import dataclasses
import json
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from dxpu_cli.output import OutputFolder
from dxpu_cli.progress import Progress
from dxpu_performance import measured
from dxpu_performance.measured import (
    Assumption, Bandwidth, LoadPoint, LossPoint, Measured, PeerToPeer, Rate, RoundTrip, Scaling,
    Split, TripPoint,
)
from dxpu_tools.errors import Failed, UserError

__all__ = ["LIMIT", "PARTS", "build_rate", "design_of", "measure", "percentile", "run_native",
           "run_part"]

#: Parts of the measurement.
PARTS = ("latency", "bandwidth", "trips", "scaling", "peers", "load", "loss")
#: Error of Eq. 1 beside the measured bandwidth: that of the paper, 3.66 instead of 3.9 GB/s.
LIMIT = 0.07
#: Header of a memory request with an address of 64 bits, and of a completion.
_WRITE_HEADER, _COMPLETION_HEADER = 16, 12

Figures = Sequence[Mapping[str, float]]


def percentile(times: Iterable[float], share: float) -> float:
    """The least of some times that is not exceeded by a share of them."""
    ordered = sorted(times)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def design_of(rate: str):
    """The simulated design of a rate."""
    from dxpu_sim.system.paper.design import PaperBench
    from dxpu_sim.system.paper.plan import SETUPS
    from dxpu_sim.run.runner import Design
    return Design(PaperBench, SETUPS[rate].design)


def _simulate(design, test, plan, folder):
    """Figures of the steps of a plan."""
    from dxpu_sim.run import runner
    try:
        runner.simulate(design, "dxpu_sim.system.paper.bench", testcase=f"{test}$", seed=1,
                        folder=folder, env={"DXPU_PAPER": json.dumps(plan)})
    except runner.SimulationFailed as error:
        raise Failed(f"the simulation failed: {str(error).splitlines()[0]}") from None
    return json.loads((Path(folder) / "result.json").read_text())


def run_native(folder: Path) -> Figures:
    """Figures of the steps without proxies: lone reads, reads, writes."""
    from dxpu_sim.system.paper.design import NativeBench
    from dxpu_sim.system.paper.plan import native_steps
    from dxpu_sim.run.runner import Design
    return _simulate(Design(NativeBench), "native", {"steps": native_steps()}, folder)


def run_part(rate: str, part: str, folder: Path) -> Figures:
    """Figures of the steps of a part at a rate."""
    from dxpu_sim.system.paper import plan
    setup = plan.SETUPS[rate]
    return _simulate(design_of(rate), "proxies", {
        "design": setup.design, "settings": setup.settings, "steps": plan.PARTS[part](setup)},
        folder)


def _rate_of(step, *names):
    """GB/s of some counts of bytes."""
    return round(sum(step[name] for name in names) / step["ns"], 4)


def _engines(setup):
    return [f"read_bytes{n}" for n in range(setup.pairs * setup.slots)]


def _latency(setup, found, native):
    step, = found
    trips, times, ns = step["trips_ns"], step["times"], setup.shape.period_ps / 1000
    begin, *at, end = times
    conversion = sum(at[n + 1] - at[n] for n in (0, 2, 4, 6))
    network = at[2] - at[1] + at[6] - at[5]
    return {
        "round_trip": RoundTrip(percentile(trips, 0.5), percentile(trips, 0.99), max(trips),
                                measured.bins(trips)),
        "split": Split(ns * (end - begin - conversion - network), ns * network, ns * conversion),
    }


def _bandwidth(setup, found, native):
    from dxpu_sim.system.paper.plan import WRITE_BYTES
    reads, writes = found
    tlps = writes["written_bytes0"] / WRITE_BYTES
    return {
        "overhead_bytes": round(writes["to_host0"] / tlps - WRITE_BYTES, 3),
        "host_to_gpu": Bandwidth(_rate_of(reads, "read_bytes0"), _rate_of(native[1], "read_bytes")),
        "gpu_to_host": Bandwidth(_rate_of(writes, "written_bytes0"),
                                 _rate_of(native[2], "written_bytes")),
    }


def _trips(setup, found, native):
    from dxpu_sim.system.paper import plan
    limit = plan.line_limit(setup, plan.COMPLETION_BYTES, _COMPLETION_HEADER)
    points = []
    for lone, full in zip(found[::2], found[1::2], strict=True):
        trip = percentile(lone["trips_ns"], 0.5)
        points.append(TripPoint(trip, round(plan.TAGS * plan.READ_BYTES / trip, 4),
                                round(limit, 4), _rate_of(full, "read_bytes0")))
    return {"trips": tuple(points)}


def _scaling(setup, found, native):
    from dxpu_sim.system.paper.plan import spread
    return {"scaling": tuple(
        Scaling(gpus, proxies, _rate_of(step, *_engines(setup)))
        for (gpus, proxies, _), step in zip(spread(setup), found, strict=True))}


def _peers(setup, found, native):
    if setup.pairs < 2:
        return {"gpu_to_gpu": None}
    one, two = found
    return {"gpu_to_gpu": PeerToPeer(_rate_of(one, "arrived_bytes1"),
                                     _rate_of(two, f"arrived_bytes{setup.slots}"))}


def _load(setup, found, native):
    # A frame counts when its bytes are known, so a full line may have a few too many.
    capacity = setup.shape.gbit_s / 8
    return {"load": tuple(
        LoadPoint(round(min(1, max(step["to_host0"], step["to_box0"]) / step["ns"] / capacity), 4),
                  percentile(step["trips_ns"], 0.5), percentile(step["trips_ns"], 0.99))
        for step in found)}


def _loss(setup, found, native):
    return {"loss": tuple(
        LossPoint(loss, percentile(step["trips_ns"], 0.5), percentile(step["trips_ns"], 0.99),
                  _rate_of(step, "read_bytes0"))
        for loss, step in zip(setup.losses, found, strict=True))}


_FOUND: dict[str, Callable] = {"latency": _latency, "bandwidth": _bandwidth, "trips": _trips,
                               "scaling": _scaling, "peers": _peers, "load": _load, "loss": _loss}


def build_rate(rate: str, part: str, found: Figures, native: Figures) -> dict:
    """Fields of a :class:`~dxpu_performance.measured.Rate` from the figures of a part."""
    from dxpu_sim.system.paper.plan import SETUPS
    return _FOUND[part](SETUPS[rate], found, native)


def _constants(rate):
    """Fields of a rate that are not measured."""
    from dxpu_sim.system.paper import plan
    shape = plan.SETUPS[rate].shape
    return {"clock_hz": 1e12 / shape.period_ps, "width_bits": shape.width,
            "line_gbit_s": float(shape.gbit_s), "tags": plan.TAGS, "read_bytes": plan.READ_BYTES,
            "max_payload_bytes": plan.WRITE_BYTES}


def measure(rates: Sequence[str], parts: Sequence[str], out: Path | None) -> int:
    """Measure parts at some rates, print tables, and write or update the file ``out``.

    Returns 1 if Eq. 1 and a measured bandwidth differ by more than :data:`LIMIT`, else 0.

    Raises
    ------
    ~dxpu_tools.errors.UserError
        ``out`` is to be updated, as not all is measured, and cannot be read.
    ~dxpu_tools.errors.Failed
        A simulation failed.
    """
    from dxpu_cli.prepare import Simulator, prepare
    from dxpu_sim.system.paper.design import NativeBench
    from dxpu_sim.run.runner import Design
    before = _before(rates, parts, out)
    progress = Progress()
    with OutputFolder("", "build/bench/paper", room=64 << 20) as folder:
        prepare({"native": Simulator(Design(NativeBench)),
                 **{rate: Simulator(design_of(rate)) for rate in rates}}, progress)
        try:
            progress.step("Simulating PCIe alone")
            native = progress.run(lambda: run_native(folder.work / "native"))
            fields: dict[str, dict] = {rate: {} for rate in rates}
            for rate in rates:
                for part in parts:
                    progress.step(f"Simulating {rate}, {part}")
                    found = progress.run(lambda rate=rate, part=part: run_part(
                        rate, part, folder.work / f"{rate}-{part}"))
                    fields[rate] |= build_rate(rate, part, found, native)
            progress.done()
        except Failed as error:
            folder.bad()
            raise Failed(folder.as_kept(str(error))) from None
    for rate in rates:
        _print(rate, fields[rate], native)
    if out is not None:
        whole = dict(before.rates) if before else {}
        for rate in rates:
            whole[rate] = (dataclasses.replace(whole[rate], **_constants(rate), **fields[rate])
                           if rate in whole else Rate(**_constants(rate), **fields[rate]))
        measured.write(out, Measured(
            shlex.join(["dxpu", "bench", "paper"]), {name: whole[name] for name in measured.RATES
                                                     if name in whole}, _assumptions()))
    wrong = [(rate, point) for rate in rates for point in fields[rate].get("trips", ())
             if abs(point.error) > LIMIT]
    for rate, point in wrong:
        print(f"{rate}: at a round trip of {point.round_trip_ns:,.0f} ns Eq. 1 and the line allow "
              f"{point.predicted_gb_s:.2f} GB/s, and {point.measured_gb_s:.2f} are measured: "
              f"{point.error:+.1%}, more than {LIMIT:.0%}")
    return 1 if wrong else 0


def _before(rates, parts, out):
    """What the file has so far, if some of it stays."""
    all_parts = set(parts) == set(PARTS)
    if out is None or all_parts and (set(rates) == set(measured.RATES) or not out.exists()):
        return None
    try:
        found = measured.read(out)
    except measured.FileError as error:
        raise UserError(f"--out: only a part is measured, which updates a file: {error}") from None
    missing = set(rates) - found.rates.keys()
    if missing and not all_parts:
        raise UserError(f"--out: {out} has nothing of {', '.join(sorted(missing))}, so all parts "
                        "of it must be measured")
    return found


def _print(rate, fields, native):
    """Tables of what was measured at a rate."""
    from dxpu_sim.system.paper.plan import SETUPS
    shape = SETUPS[rate].shape
    print(f"{rate}: {shape.width} bits at {1e6 / shape.period_ps:,.2f} MHz")
    if "split" in fields:
        trip, split = fields["round_trip"], fields["split"]
        print(f"  {'round trip of a read of 128 B':<40}{'measured':>10}{'paper':>10}  (Table 6)")
        for name, ns, paper in (
                ("native: PCIe and memory (a model)", split.native_ns, 1200),
                ("network (a model)", split.network_ns, 1900),
                ("conversion", split.conversion_ns, 3700),
                ("all, median", trip.p50_ns, 6800)):
            print(f"  {name:<40}{ns:>7,.0f} ns{paper:>7,} ns")
        print(f"  99 % take {trip.p99_ns:,.0f} ns at most, the longest {trip.longest_ns:,.0f} ns")
    if "host_to_gpu" in fields:
        print(f"  {'GB/s':<28}{'native':>8}{'measured':>10}{'share':>8}{'paper':>8}  (Table 7)")
        for name, each, paper in (("host to GPU, 140 tags of 128 B", fields["host_to_gpu"], 0.241),
                                  ("GPU to host, writes of 128 B", fields["gpu_to_host"], 0.928)):
            print(f"  {name:<30}{each.native_gb_s:>6.2f}{each.measured_gb_s:>10.3f}"
                  f"{each.share:>8.1%}{paper:>8.1%}")
        print(f"  a write takes {fields['overhead_bytes']:.1f} B beside its data on the line")
    for point in fields.get("trips", ()):
        print(f"  round trip {point.round_trip_ns:>9,.0f} ns: Eq. 1 {point.equation_gb_s:.3f}, "
              f"line {point.limit_gb_s:.3f}, measured {point.measured_gb_s:.3f} GB/s "
              f"({point.error:+.1%})")
    for each in fields.get("scaling", ()):
        print(f"  {each.gpus} GPUs over {each.proxies} proxies: {each.measured_gb_s:.3f} GB/s")
    if fields.get("gpu_to_gpu"):
        each = fields["gpu_to_gpu"]
        print(f"  GPU to GPU under one proxy {each.one_proxy_gb_s:.3f}, across two "
              f"{each.two_proxies_gb_s:.3f} GB/s: {each.share:.1%} (Figure 7: 74 %)")
    for each in fields.get("load", ()):
        print(f"  {each.load:>6.1%} of the line in use: {each.p50_ns:,.0f} ns, 99 % "
              f"{each.p99_ns:,.0f} ns")
    for each in fields.get("loss", ()):
        print(f"  {each.loss:>6.1%} of frames lost, all tags: {each.p50_ns:,.0f} ns, 99 % "
              f"{each.p99_ns:,.0f} ns, {each.goodput_gb_s:.3f} GB/s")


def _assumptions() -> tuple[Assumption, ...]:
    """What is a model in the bench."""
    from dxpu_sim.system.paper import plan
    fast = plan.SETUPS["100G"]
    return (
        Assumption("core clock at 100G", "250 MHz, 512 bits",
                   "user clock of a hard PCIe Gen3 x16 at 512 bits (PG213); no open part and no "
                   "tool here was asked for it"),
        Assumption("PCIe link", "Gen3 x16: 15.75 GB/s, 95 % without DLLPs, 8 B beside a TLP",
                   "PCIe Base 5.0, 3.6.2 and 4.2.2; WP350"),
        Assumption("PCIe PHYs and hard IP of the proxies", "0 ns", "left out"),
        Assumption("native round trip", f"{plan.NATIVE_NS} ns", "He et al., Table 6"),
        Assumption("completions of the host", f"{plan.COMPLETION_BYTES} B",
                   "Read Completion Boundary, PCIe Base 5.0, 2.3.1.1"),
        Assumption("network at 100G, one way", f"{fast.one_way_ns:.0f} ns",
                   "a cut-through switch of 250 ns; RS-FEC of both links, 21.7 and 114.8 ns each "
                   "(PG203, table A-4); two cables of 5 m"),
        Assumption("network at 10G, one way", f"{plan.SETUPS['10G'].one_way_ns:.0f} ns",
                   "a cut-through switch of 250 ns; two cables of 5 m"),
        Assumption("network at 1G, one way", "1000 ns and the length of the frame",
                   "a store-and-forward switch"),
    )
