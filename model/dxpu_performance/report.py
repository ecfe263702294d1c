"""The report as an HTML page: comparison with the paper, predictions, changes, pictures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from html import escape

from . import published
from .brackets import brackets
from .calibration import Parameters, calibrated
from .fabric import Fabric
from .measured import Measured
from .paper import Kind, Row, rows, summary
from .plots import PLOTS, Plot, draw, svg
from .prediction import Case, longest_round_trip_us, predict
from .program import Program, Step, of_step
from .what_if import FABRIC_CHANGES, WORKLOAD_CHANGES, effects, gateware_changes

__all__ = ["Subject", "page"]

_CSS = """
body{font:15px/1.5 system-ui,sans-serif;color:#1f2933;max-width:70rem;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.7rem}h2{margin-top:2.4rem;border-bottom:1px solid #cbd2d9}
table{border-collapse:collapse;font-size:13px;margin:1rem 0}
th,td{padding:.25rem .6rem;border-bottom:1px solid #e4e7eb;text-align:left;vertical-align:top}
td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
tr.held-out{background:#eef4ff}tr.fitted,tr.missing{color:#616e7c}
.wide{overflow-x:auto}figure{margin:1rem 0;display:inline-block;width:49%;min-width:26rem;
vertical-align:top}figure svg{width:100%;height:auto}figcaption{font-size:13px;color:#52606d}
.big{font-size:1.25rem}
"""


@dataclass(frozen=True)
class Subject:
    """A workload of the report, by name."""

    name: str
    program: Program
    like: str | None = None


def _subjects() -> list[Subject]:
    """Workloads of the paper with a published mean of kernels."""
    native = Fabric.of_paper()
    found = []
    for run in published.RESNET50:
        like = run.kind if run.kind in ("training", "inference") else "inference"
        found.append(Subject(f"ResNet-50 {run.name}", of_step(
            Step(run.mean_us, 100), to_gpu_gb_s=native.native_to_gpu_gb_s,
            to_host_gb_s=native.native_to_host_gb_s), like))
    return found


def page(measured: Measured | None, subjects: Sequence[Subject] = (),
         plots: Iterable[Plot] = ()) -> str:
    """The page as text, complete in itself: no other file and no network is needed.

    Parameters
    ----------
    measured : Measured, optional
        Figures of the gateware; without figures only the paper's fabric is shown.
    subjects : sequence of Subject
        Workloads beside the paper's.
    plots : iterable of Plot
        Pictures beside :data:`~dxpu_performance.plots.PLOTS`.
    """
    fabrics = [Fabric.of_paper(trip) for trip in published.ROUND_TRIPS_US]
    if measured is not None:
        fabrics += [Fabric.of_measured(measured, rate) for rate in measured.rates]
    parts = [_headline(rows()), "<h2>The paper's figures and ours</h2>", _comparison(rows()),
             "<h2>The simulation beside table 9</h2>", _simulated(),
             "<h2>Pictures</h2>", *_pictures(measured, plots),
             "<h2>What workloads keep</h2>", _predictions([*_subjects(), *subjects], fabrics),
             "<h2>What changes would bring</h2>", _changes(subjects, fabrics, measured),
             "<h2>Fitted parameters</h2>", _parameters(calibrated())]
    if measured is not None:
        parts += ["<h2>Equation 1 on the gateware</h2>", _trips(measured)]
        parts += ["<h2>Assumptions of the gateware's figures</h2>", _table(
            ("assumed", "value", "source"),
            [(each.name, each.value, each.source) for each in measured.assumptions])]
    return ("<!doctype html><html lang=en><meta charset=utf-8>"
            "<meta name=viewport content='width=device-width'>"
            "<title>DXPU: what a workload keeps</title>"
            f"<style>{_CSS}</style><h1>What a workload keeps of its speed behind a proxy</h1>"
            + "".join(parts) + "</html>\n")


def _headline(found: list[Row]) -> str:
    shares, bandwidths = summary(found, percent=True), summary(found, percent=False)
    missing = sum(row.kind in (Kind.MISSING, Kind.BOUNDS) for row in found)
    return (f"<p class=big>Mean error {shares.mean:.2f} points over {shares.count} shares of speed "
            f"that no parameter was fitted on, at most {shares.greatest:.2f}.</p>"
            f"<p>Bandwidths: {bandwidths.mean:.1f} % over {bandwidths.count} figures, at most "
            f"{bandwidths.greatest:.1f} %. {missing} rows of {len(found)} cannot be predicted from "
            "what was published. The forms of the model were chosen with these rows in view, so "
            "the comparison shows consistency and is no blind prediction. Nothing was run on a "
            "GPU.</p>")


def _comparison(found: list[Row]) -> str:
    lines = []
    for row in found:
        first = "".join(f"<td>{escape(text)}</td>" for text in (row.source, row.what, row.unit))
        numbers = "".join(f"<td class=n>{escape(text)}</td>" for text in row.texts())
        lines.append(f"<tr class={row.kind.value.replace(' ', '-')}>{first}{numbers}"
                     f"<td>{row.kind.value}</td><td>{escape(row.assumed)}</td></tr>")
    heads = "".join(f"<th{' class=n' if number else ''}>{text}</th>" for text, number in (
        ("source", False), ("figure", False), ("unit", False), ("published", True), ("ours", True),
        ("error", True), ("rule", True), ("kind", False), ("assumed, or missing", False)))
    return (f"<div class=wide><table><tr>{heads}</tr>{''.join(lines)}</table></div>"
            "<p><i>Rule</i>: the paper's own rule, one round trip for each kernel, nothing fitted. "
            "Errors are in points where the unit is %.</p>")


def _simulated() -> str:
    return _table(
        ("ResNet-50", "published, %", "one by one, %", "ahead, %", "published lies"),
        [(each.run.name, f"{each.run.percent:.1f}", f"{each.serial:.1f}", f"{each.prefetch:.1f}",
          each.place) for each in brackets()])


def _trips(measured: Measured) -> str:
    return _table(
        ("rate", "round trip, us", "equation 1, GB/s", "limit of the line, GB/s", "measured, GB/s",
         "error of the lesser"),
        [(rate, f"{each.round_trip_ns / 1000:.2f}", f"{each.equation_gb_s:.2f}",
          f"{each.limit_gb_s:.2f}", f"{each.measured_gb_s:.2f}", f"{100 * each.error:+.1f} %")
         for rate, found in measured.rates.items() for each in found.trips])


def _pictures(measured: Measured | None, more: Iterable[Plot]) -> Iterable[str]:
    for plot in (*PLOTS.values(), *more):
        yield (f"<figure>{svg(draw(plot, measured))}"
               f"<figcaption>{escape(plot.text)}</figcaption></figure>")


def _predictions(subjects: Sequence[Subject], fabrics: Sequence[Fabric]) -> str:
    lines = []
    for subject in subjects:
        cells, limit = [subject.name], ""
        for fabric in fabrics:
            case = Case.of(subject.program, fabric, like=subject.like)
            found = predict(case)
            cells.append(f"{100 * found.kept:.1f} ({100 * found.low:.0f} to "
                         f"{100 * found.high:.0f})")
            if fabric is fabrics[0]:
                longest = longest_round_trip_us(case, 0.9)
                limit = "any" if longest == float("inf") else f"{longest:.1f} us"
        lines.append((*cells, limit))
    return _table(("workload", *(f"{fabric.source}, {fabric.far_round_trip_us:.2f} us"
                                 for fabric in fabrics), "90 % up to"), lines)


def _changes(subjects: Sequence[Subject], fabrics: Sequence[Fabric],
             measured: Measured | None) -> str:
    native = fabrics[0]
    step = Subject("a training step: 500 kernels of 56 us, 10 waits, 8 copies of 1 MB", of_step(
        Step(56.0, 500, 1, 10, 8, 1_000_000), to_gpu_gb_s=native.native_to_gpu_gb_s,
        to_host_gb_s=native.native_to_host_gb_s), "training")
    found = []
    for subject in (step, *subjects):
        for fabric in fabrics[1:]:
            case = Case.of(subject.program, fabric, like=subject.like)
            own = gateware_changes(measured) if measured and fabric is fabrics[1] else ()
            every = effects(case, own + FABRIC_CHANGES + WORKLOAD_CHANGES)
            found.append(f"<h3>{escape(subject.name)}; {escape(fabric.source)}, "
                         f"{fabric.far_round_trip_us:.2f} us</h3>")
            found.append(_table(
                ("change", "kept, %", "points", "copies to GPU, GB/s"),
                [(effect.name, f"{100 * effect.kept:.1f}", f"{effect.points:+.1f}",
                  f"{effect.to_gpu_gb_s:.2f}") for effect in every]))
    return "".join(found)


def _parameters(found: Parameters) -> str:
    text = " ".join((Parameters.__doc__ or "").split()).partition("---------- ")[2]
    values = [(each.name, f"{getattr(found, each.name):.4g}") for each in fields(found)]
    return _table(("parameter", "value"), values) + f"<p>{escape(text)}</p>"


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(
            f"<{tag}{' class=n' if number else ''}>{escape(cell)}</{tag}>"
            for number, cell in enumerate(cells)) + "</tr>"

    return ("<div class=wide><table>" + row(heads, "th")
            + "".join(row(cells, "td") for cells in lines) + "</table></div>")
