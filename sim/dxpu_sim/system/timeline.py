"""Draws the stages of a transaction: one lane per place, one bar per stage, as SVG and PNG."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["KINDS", "Stage", "draw", "totals"]

#: Kinds of stages, with colours (distinguishable with colour blindness, and in grey).
KINDS = {
    "PCIe": "#9aa5b1",
    "conversion": "#e07a1f",
    "MAC": "#7b5ea7",
    "Ethernet": "#2a7f9e",
    "GPU": "#5b8c3e",
}


@dataclass(frozen=True)
class Stage:
    """A stage of the transaction."""

    lane: str
    name: str
    start_ns: float
    end_ns: float
    #: Key of :data:`KINDS`.
    kind: str

    @property
    def ns(self) -> float:
        """Duration of the stage."""
        return self.end_ns - self.start_ns


def totals(stages: Sequence[Stage]) -> dict[str, float]:
    """Nanoseconds per kind, in the order of :data:`KINDS`, without unused kinds."""
    return {kind: sum(s.ns for s in stages if s.kind == kind) for kind in KINDS
            if any(s.kind == kind for s in stages)}


def draw(stages: Sequence[Stage], lanes: Sequence[str], paths: Sequence[str | Path], *,
         title: str, cycle_ns: float) -> None:
    """Draw ``stages`` into every file of ``paths`` (the suffix is the format).

    Parameters
    ----------
    stages
        Stages in the order of time.
    lanes
        Names of the lanes, from the top.
    title : str
        Headline.
    cycle_ns : float
        Period of the clock for durations in cycles.
    """
    if not stages:
        raise ValueError("a timeline needs at least one stage")
    for stage in stages:
        if stage.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, not {stage.kind!r}")
        if stage.lane not in lanes:
            raise ValueError(f"lane must be one of {', '.join(lanes)}, not {stage.lane!r}")
        if stage.end_ns < stage.start_ns:
            raise ValueError(f"stage {stage.name!r} ends before it starts")
    # Imported here, because the import takes a second and only this function needs matplotlib.
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    settings = {"svg.hashsalt": "dxpu", "font.family": "DejaVu Sans", "font.size": 9}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(13, 1.9 + 0.95 * len(lanes)), dpi=110, layout="constrained")
        FigureCanvasAgg(figure)
        _Picture(figure, stages, lanes, cycle_ns).draw(title)
        for path in map(Path, paths):
            # No date in the file: the same run gives the same picture.
            metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
            figure.savefig(path, metadata=metadata)


class _Picture:
    BAR = 0.34
    #: Height of one line of labels, in lanes.
    LABEL = 0.17

    def __init__(self, figure, stages, lanes, cycle_ns):
        self.figure = figure
        self.stages = stages
        self.lanes = list(lanes)
        self.cycle_ns = cycle_ns
        self.start = min(s.start_ns for s in stages)
        self.end = max(s.end_ns for s in stages)
        self.axes = figure.subplots()

    def draw(self, title):
        axes, span = self.axes, self.end - self.start
        axes.set_xlim(-0.01 * span, 1.01 * span)
        axes.set_ylim(len(self.lanes) - 0.7, -0.75)
        axes.set_yticks(range(len(self.lanes)), self.lanes, fontsize=10, fontweight="bold")
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("nanoseconds from the request")
        axes.xaxis.grid(True, color="#e4e7eb", linewidth=0.8)
        axes.set_axisbelow(True)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        for n in range(len(self.lanes)):
            axes.axhspan(n - 0.7, n + 0.25, color="#f5f7fa" if n % 2 else "#ffffff", zorder=0)
        self._bars()
        self._hops()
        self._legend()
        axes.set_title(title, loc="left", fontsize=12, fontweight="bold", pad=12)

    def _bars(self):
        #: Per lane, for each line of labels, the position up to which it is taken.
        taken = {lane: [] for lane in self.lanes}
        for stage in sorted(self.stages, key=lambda s: s.start_ns):
            lane = self.lanes.index(stage.lane)
            left = stage.start_ns - self.start
            self.axes.barh(lane, max(stage.ns, 1), self.BAR, left, color=KINDS[stage.kind],
                           edgecolor="white", linewidth=0.6, zorder=3)
            self._label(stage, lane, left + stage.ns / 2, taken[stage.lane])

    def _label(self, stage, lane, center, lines):
        """Put the label above the bar, in the lowest line with enough room."""
        text = f"{stage.name}  {stage.ns:,.0f} ns"
        if stage.kind in ("conversion", "MAC"):
            text += f" · {stage.ns / self.cycle_ns:.0f} cycles"
        width = self._width(text)
        left = min(max(center - width / 2, 0), self.end - self.start - width)
        line = next((n for n, end in enumerate(lines) if end <= left), len(lines))
        gap = 0.006 * (self.end - self.start)
        if line == len(lines):
            lines.append(0)
        lines[line] = left + width + gap
        y = lane - self.BAR / 2 - 0.04 - line * self.LABEL
        if line:
            self.axes.plot([center, center], [lane - self.BAR / 2, y], color=KINDS[stage.kind],
                           linewidth=0.7, zorder=2)
        self.axes.text(left, y, text, va="bottom", ha="left", fontsize=8, color="#1f2933",
                       zorder=4, bbox={"facecolor": "white" if lane % 2 == 0 else "#f5f7fa",
                                       "edgecolor": "none", "pad": 0.4})

    def _width(self, text):
        """Width of ``text`` as a label, in nanoseconds: 8 point on axes about 11 inches wide."""
        return 0.0052 * len(text) * (self.end - self.start)

    def _hops(self):
        """Thin lines from lane to lane, where one stage follows another."""
        for before, after in zip(self.stages, self.stages[1:], strict=False):
            if before.lane != after.lane:
                x = after.start_ns - self.start
                self.axes.plot([before.end_ns - self.start, x],
                               [self.lanes.index(before.lane), self.lanes.index(after.lane)],
                               color="#616e7c", linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)

    def _legend(self):
        from matplotlib.patches import Patch
        span = self.end - self.start
        handles = [Patch(color=KINDS[kind], label=f"{kind}  {ns:,.0f} ns "
                         f"({ns / self.cycle_ns:.0f} cycles, {100 * ns / span:.0f} %)")
                   for kind, ns in totals(self.stages).items()]
        self.figure.legend(handles=handles, loc="outside lower center", ncols=len(handles),
                           frameon=False, fontsize=9, handlelength=1.2, columnspacing=1.6)
