"""Plots of the model, in the forms of the paper: published points, and ours above.

Points of the gateware are drawn where figures of the gateware are given.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import published
from .bandwidth import aggregate_gb_s, tags_gb_s
from .calibration import DELAY_US, calibrated
from .fabric import Fabric
from .kernels import kernel_slowdown, share_kept
from .measured import Measured
from .paper import Kind, rows
from .workload import Durations

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PLOTS", "Plot", "draw", "kernel_times", "save", "svg"]

OURS, THEIRS, GATEWARE, SOFT = "#1d4ed8", "#b45309", "#047857", "#9aa5b1"
_STYLE: Any = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e4e7eb", "axes.edgecolor": "#52606d", "axes.titlesize": 10,
    "axes.titleweight": "bold", "axes.titlelocation": "left", "legend.frameon": False,
    "svg.hashsalt": "dxpu", "svg.fonttype": "path", "axes.axisbelow": True}
_SIZE = (6.4, 3.9)


@dataclass(frozen=True)
class Plot:
    """A picture: title, a sentence for the reader, and the function drawing on axes."""

    title: str
    text: str
    paint: Callable[["Axes", Measured | None], None]


def draw(plot: Plot, measured: Measured | None) -> "Figure":
    """Draw a picture."""
    import matplotlib
    from matplotlib.figure import Figure
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(plot.title)
        plot.paint(axes, measured)
    return figure


def save(figure: "Figure", stem: Path) -> None:
    """Write a picture as SVG and as PNG, the same bytes at each run."""
    import matplotlib
    with matplotlib.rc_context(_STYLE):
        figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(stem.with_suffix(".png"), dpi=150)


def svg(figure: "Figure") -> str:
    """A picture as text for a page."""
    import io

    import matplotlib
    found = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(found, format="svg", metadata={"Date": None})
    return "<svg" + found.getvalue().partition("<svg")[2]


def _trips(measured: Measured | None) -> dict[str, float]:
    """Measured round trips, in us, by rate of the line."""
    return {rate: found.round_trip.p50_ns / 1000
            for rate, found in (measured.rates if measured else {}).items()}


def _curve(axes: "Axes", measured: Measured | None) -> None:
    trip = np.linspace(1.2, 26, 200)
    fit = calibrated()
    batch = published.RESNET50[1]
    lines = (("figure 4, fitted at 8 us", fit.curve_kernel_us, 1.0, 0.0, "-"),
             ("ResNet-50 training, batch 64", batch.mean_us, fit.training_round_trips, 1.2, "--"),
             ("ResNet-50 inference, batch 64", published.RESNET50[4].mean_us,
              fit.inference_round_trips, 1.2, ":"))
    for name, mean, trips, native, style in lines:
        kept = [100 * share_kept(kernel_slowdown(each - native, mean, trips)) for each in trip]
        axes.plot(trip, kept, style, color=OURS, label=f"model: {name}")
    axes.axhline(90, color=SOFT, linewidth=1)
    axes.plot(*_points(published.FIGURE_4), "s", color=THEIRS, label="paper: figure 4")
    axes.plot(*_points({at: each.model_percent for at, each in published.TABLE_4.items()}), "^",
              color=THEIRS, mfc="white", label="paper: table 4, their model")
    axes.plot(*_points({at: each.measured_percent for at, each in published.TABLE_4.items()}), "o",
              color=THEIRS, label="paper: table 4, measured")
    for number, (rate, each) in enumerate(_trips(measured).items()):
        if each <= trip[-1]:
            axes.axvline(each, color=GATEWARE, linewidth=1, linestyle=(0, (1 + number, 2)),
                         label=f"gateware, {rate}: {each:.1f} us")
    axes.set(xlabel="round trip, us", ylabel="performance, % of native", ylim=(74, 101),
             xlim=(0, 26))
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)


def _points(found: dict[float, float]) -> tuple[list[float], list[float]]:
    return list(found), list(found.values())


def _parity(axes: "Axes", _measured: Measured | None) -> None:
    marks = {Kind.HELD_OUT: ("o", OURS, OURS, "held out"),
             Kind.THEIR_MODEL: ("^", OURS, "white", "their model's output"),
             Kind.FITTED: ("o", SOFT, "white", "fitted")}
    low, high = 70, 101
    line = np.array([low, high])
    axes.fill_between(line, line - 2, line + 2, color="#dbe4ff", label="2 points")
    axes.plot(line, line, color=SOFT, linewidth=1)
    for kind, (mark, edge, face, name) in marks.items():
        chosen = [row for row in rows() if row.unit == "%" and row.kind is kind]
        axes.plot([row.published for row in chosen],
                  [row.ours for row in chosen if row.ours is not None], mark, color=edge, mfc=face,
                  label=name)
    rule = [row for row in rows() if row.rule is not None and row.kind is not Kind.BOUNDS]
    axes.plot([row.published for row in rule], [row.rule for row in rule if row.rule is not None],
              "x", color=THEIRS, label="by the paper's rule, nothing fitted")
    axes.set(xlabel="published, % of native", ylabel="model, % of native", xlim=(low, high),
             ylim=(low, high), aspect="equal")
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.02, 1))


def _copies(axes: "Axes", measured: Measured | None) -> None:
    paper = Fabric.of_paper()
    trip = np.geomspace(0.8, 30, 200)
    axes.plot(trip, [tags_gb_s(paper.tags, paper.read_bytes, each) for each in trip], "--",
              color=OURS, linewidth=1, label="equation 1: 140 x 128 B / round trip")
    reads = [min(paper.native_to_gpu_gb_s, tags_gb_s(paper.tags, paper.read_bytes, each))
             for each in trip]
    axes.plot(trip, reads, color=OURS, label="model: equation 1 and the PCIe link")
    axes.axhline(replace(paper, written=True).to_gpu_gb_s(), color=OURS, linestyle=":",
                 label="model: writes of the CPU, fitted")
    axes.plot(*_points(published.READS_GB_S), "o", color=THEIRS, label="paper: measured reads")
    axes.plot([6.8], [published.WRITES_BY_CPU_GB_S], "s", color=THEIRS,
              label="paper: writes of the CPU")
    best = next(iter(measured.rates.items())) if measured else None
    if best is not None and best[1].trips:
        rate, found = best
        at = [point.round_trip_ns / 1000 for point in found.trips]
        axes.plot(at, [point.measured_gb_s for point in found.trips], "D", color=GATEWARE,
                  markersize=5, label=f"gateware, {rate}: measured")
        axes.plot(at, [point.predicted_gb_s for point in found.trips], "x", color="black",
                  markersize=5, label=f"gateware, {rate}: predicted")
    axes.set(xlabel="round trip, us", ylabel="copies to the GPU, GB/s", xscale="log",
             xlim=(0.8, 30), ylim=(0, 16))
    axes.set_xticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    axes.minorticks_off()
    axes.legend(fontsize=7, loc="upper right")


def _split(axes: "Axes", measured: Measured | None) -> None:
    parts = {"paper": (published.NATIVE_ROUND_TRIP_US, published.NETWORK_US,
                       published.CONVERSION_US)}
    for rate, found in (measured.rates if measured else {}).items():
        split = found.split
        parts[f"gateware, {rate}"] = (split.native_ns / 1000, split.network_ns / 1000,
                                      split.conversion_ns / 1000)
    names = list(parts)
    left = np.zeros(len(names))
    for number, (name, color) in enumerate((("native", SOFT), ("network", THEIRS),
                                            ("conversion", OURS))):
        wide = np.array([each[number] for each in parts.values()])
        axes.barh(names, wide, left=left, color=color, label=name, height=0.55)
        for row, (begin, length) in enumerate(zip(left, wide, strict=True)):
            if length > 0.05 * sum(list(parts.values())[row]):
                axes.text(begin + length / 2, row, f"{length:.1f}", ha="center", va="center",
                          color="white", fontsize=8)
        left += wide
    for row, end in enumerate(left):
        axes.text(end, row, f" {end:.1f} us", va="center", fontsize=8)
    axes.set(xlabel="round trip, us", xlim=(0, 1.14 * max(left)), ylim=(-0.6, len(names) - 0.1))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3)


def _scaling(axes: "Axes", measured: Measured | None) -> None:
    fit = calibrated()
    gpus = np.arange(1, 17)
    axes.plot(gpus, [aggregate_gb_s(int(n), fit.gpu_demand_gb_s, fit.proxy_capacity_gb_s)
                     for n in gpus], color=OURS, label="model, fitted on 2 and 8 GPUs")
    for (name, figures), mark in zip(published.TABLE_12_GB_S.items(), "os", strict=True):
        axes.plot(*_points({float(n): each for n, each in figures.items()}), mark, color=THEIRS,
                  mfc="white" if mark == "s" else THEIRS, label=f"paper: table 12, {name}")
    axes.axhline(fit.proxy_capacity_gb_s, color=SOFT, linewidth=1, label="capacity of a proxy")
    best = next(iter(measured.rates.items())) if measured else None
    if best is not None:
        for proxies in sorted({point.proxies for point in best[1].scaling}):
            chosen = {float(point.gpus): point.measured_gb_s for point in best[1].scaling
                      if point.proxies == proxies}
            axes.plot(*_points(chosen), "D-", color=GATEWARE, linewidth=1, markersize=5,
                      mfc=GATEWARE if proxies == 1 else "white",
                      label=f"gateware, {best[0]}, proxies: {proxies}")
    axes.set(xlabel="GPUs", ylabel="copies to all GPUs, GB/s", xlim=(0, 16.5), ylim=(0, None))
    axes.legend(fontsize=7)


def _map(axes: "Axes", measured: Measured | None) -> None:
    means, trips = np.geomspace(4, 1000, 160), np.geomspace(1.21, 40, 160)
    kept = 100 / (1 + np.maximum(0, trips[:, None] - 1.2) / means[None, :])
    shown = axes.contourf(means, trips, kept, levels=[0, 20, 40, 60, 70, 80, 85, 90, 95, 97.5, 100],
                          cmap="RdYlGn")
    line = axes.contour(means, trips, kept, levels=[80, 90, 95], colors="black", linewidths=0.8)
    axes.clabel(line, fmt="%d %%", fontsize=7,
                manual=[(23.8 / (100 / each - 1), 25) for each in (80, 90, 95)])
    axes.set(xscale="log", yscale="log", xlabel="mean duration of a kernel, us",
             ylabel="round trip, us", xlim=(4, 1000), ylim=(1.21, 40))
    named = [(published.RESNET50[1], "64"), (published.RESNET50[0], "batch 32"),
             (published.RESNET50[2], "128: ResNet-50"), (published.SSD320[3], "SSD320")]
    for run, name in named:
        axes.plot([run.mean_us], [6.8], "o", color="black", markersize=4)
        axes.annotate(name, (run.mean_us, 6.8), xytext=(5, -9), textcoords="offset points",
                      fontsize=7, bbox={"color": "white", "alpha": 0.6, "pad": 0.5})
    for number, (rate, trip) in enumerate(_trips(measured).items()):
        axes.axhline(trip, color="black", linestyle=(0, (3 + 3 * number, 3)), linewidth=0.8,
                     label=f"gateware, {rate}: {trip:.1f} us")
    if measured is not None:
        axes.legend(fontsize=7, loc="lower right", frameon=True)
    axes.set_xticks([5, 10, 20, 50, 100, 200, 500], ["5", "10", "20", "50", "100", "200", "500"])
    axes.set_yticks([2, 5, 10, 20, 40], ["2", "5", "10", "20", "40"])
    axes.minorticks_off()
    axes.figure.colorbar(shown, ax=axes, label="performance, % of native")


def _peer(axes: "Axes", measured: Measured | None) -> None:
    bars: dict[str, float] = {"paper: figure 7": published.PEER_TO_PEER_PERCENT}
    for rate, found in (measured.rates if measured else {}).items():
        if found.gpu_to_gpu is not None:
            bars[f"gateware, {rate}"] = 100 * found.gpu_to_gpu.share
    shown = axes.bar(list(bars), list(bars.values()), width=0.5,
                     color=[THEIRS] + [GATEWARE] * (len(bars) - 1))
    axes.bar_label(shown, fmt="%.0f %%")
    axes.axhline(100, color=SOFT, linewidth=1)
    axes.set(ylabel="over two proxies, % of under one", xlim=(-0.8, len(bars) - 0.2),
             ylim=(0, max(115, 1.1 * max(bars.values()))))
    axes.grid(visible=False, axis="x")


def kernel_times(name: str, durations: Durations, delay_us: float = DELAY_US) -> Plot:
    """A plot of the durations of a workload's kernels: shares of number and time up to each."""
    def paint(axes: "Axes", _measured: Measured | None) -> None:
        at = durations.ns / 1000
        number = np.cumsum(durations.count)
        time = np.cumsum(durations.ns * durations.count)
        axes.step(at, 100 * number / number[-1], where="post", color=OURS, label="of the kernels")
        axes.step(at, 100 * time / time[-1], where="post", color=THEIRS, label="of their time")
        axes.axvline(delay_us, color=SOFT, linestyle="--", label=f"added delay, {delay_us:.1f} us")
        axes.axvline(durations.mean_ns / 1000, color=OURS, linestyle=":",
                     label=f"mean, {durations.mean_ns / 1000:.1f} us")
        axes.set(xlabel="duration of a kernel, us", ylabel="share up to the duration, %",
                 xscale="log", ylim=(0, 102))
        axes.legend(fontsize=7)

    return Plot(f"Kernels of {name}", "Share of the kernels, and of their time, that kernels up to "
                "a duration have.", paint)


#: All pictures of the report, by name of their files.
PLOTS: dict[str, Plot] = {
    "round-trip": Plot(
        "Performance and round trip (paper, figure 4)",
        "Share of native speed against the round trip. The model of figure 4 takes the axis as the "
        "whole round trip; the lines of ResNet-50 take it less the native 1.2 us.", _curve),
    "parity": Plot(
        "Published and ours, shares of speed",
        "Each published share against that of the model. Hollow marks were fitted, or are output "
        "of the paper's own model; crosses are the paper's rule with nothing fitted.", _parity),
    "copies": Plot(
        "Copies to the GPU and round trip (equation 1)",
        "Reads of the GPU fall with the round trip; writes of the CPU do not.", _copies),
    "split": Plot("Where a round trip goes (paper, table 6)",
                  "Parts of the round trip: those of a native GPU, network, conversion.", _split),
    "scaling": Plot("GPUs under one proxy (paper, table 12)",
                    "Bandwidth of copies to all GPUs together.", _scaling),
    "peer": Plot("GPU to GPU (paper, figure 7)",
                 "Bandwidth over two proxies as a share of that under one.", _peer),
    "map": Plot(
        "What a mean kernel keeps, by the paper's rule",
        "One round trip for each kernel: what is kept at each mean duration and round trip.",
        _map)}

