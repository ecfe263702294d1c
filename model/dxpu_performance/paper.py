"""The paper's figures beside those of the model, by one set of parameters for all rows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from . import published
from .bandwidth import Cable, PCIeLink, aggregate_gb_s, read_gb_s, tags_gb_s, write_gb_s
from .calibration import DELAY_US, calibrated
from .kernels import copy_slowdown, kernel_slowdown, round_trips_of, share_kept

__all__ = ["PAYLOAD_BYTES", "Kind", "Row", "Summary", "rows", "summary"]

#: Max_Payload_Size of all PCIe links, assumed: the paper does not give it. With 256 bytes copies
#: from GPU to host would be 11.6 GB/s behind the proxy as published, but 13.7 natively.
PAYLOAD_BYTES = 128


class Kind(Enum):
    """Meaning of a row of the comparison."""

    #: A formula of the paper over inputs of the paper, against what the paper computed by it.
    IDENTITY = "identity"
    #: A measurement, predicted without a parameter that was fitted on the row.
    HELD_OUT = "held out"
    #: Output of the paper's own model, whose workload the paper does not describe.
    THEIR_MODEL = "their model"
    #: The row that a parameter was fitted on.
    FITTED = "fitted"
    #: Inputs are missing: only bounds are known.
    BOUNDS = "bounds"
    #: Inputs are missing: nothing can be predicted.
    MISSING = "missing"


@dataclass(frozen=True)
class Row:
    """A published figure and ours.

    Parameters
    ----------
    source : str
        Table, figure, equation or section of the paper.
    what : str
        Quantity and run.
    unit : str
        ``GB/s``, ``us``, or ``%`` of native speed.
    published : float
        The paper's figure; of a range the lower end.
    kind : Kind
        What the row shows.
    ours : float, optional
        The model's figure.
    rule : float, optional
        The figure by the paper's own rule, a round trip for each kernel, nothing fitted.
    bounds : tuple of float, optional
        Least and most by the model.
    until : float, optional
        Upper end, where the paper's figures of several rows are a range.
    assumed : str
        The assumption, or the reason for no prediction.
    """

    source: str
    what: str
    unit: str
    published: float
    kind: Kind
    ours: float | None = None
    rule: float | None = None
    bounds: tuple[float, float] | None = None
    until: float | None = None
    assumed: str = ""

    @property
    def error(self) -> float | None:
        """Ours less published: in points for ``%``, otherwise in percent of the published
        figure."""
        if self.ours is None:
            return None
        difference = self.ours - self.published
        return difference if self.unit == "%" else 100 * difference / self.published

    def texts(self) -> tuple[str, str, str, str]:
        """Published figure, ours, error, and figure by the rule, for a table; empty if none."""
        digits = 1 if self.unit == "%" else 2
        told = f"{self.published:g}" + ("" if self.until is None else f" to {self.until:g}")
        ours = "" if self.ours is None else f"{self.ours:.{digits}f}"
        if self.ours is None and self.bounds is not None:
            ours = f"{self.bounds[0]:.1f} to {self.bounds[1]:.0f}"
        # Zero is added so that no zero has a minus.
        error = "" if self.error is None else f"{round(self.error, 1) + 0.0:+.1f}"
        if error and self.unit != "%":
            error += " %"
        return told, ours, error, "" if self.rule is None else f"{self.rule:.1f}"


def rows() -> list[Row]:
    """All rows, in the order of the paper: system, bandwidth, models, workloads."""
    return [*_split(), *_bandwidth(), *_curve(), *_kernels(), *_graphics(), *_copies(),
            *_several_gpus(), *_missing()]


def _split() -> Iterator[Row]:
    whole = published.NATIVE_ROUND_TRIP_US + published.NETWORK_US + published.CONVERSION_US
    yield Row("table 6", "round trip: native, network and conversion together", "us",
              published.ROUND_TRIPS_US[1], Kind.IDENTITY, whole)


def _bandwidth() -> Iterator[Row]:
    native, far = PCIeLink(), published.ROUND_TRIPS_US
    cable = Cable(calibrated().cable_overhead_bytes)
    tags, size = published.TAGS, published.READ_BYTES
    for trip, figure in published.EQUATION_1_GB_S.items():
        yield Row("equation 1", f"copies to GPU, round trip {trip} us", "GB/s", figure,
                  Kind.IDENTITY, tags_gb_s(tags, size, trip))
    for trip, figure in published.READS_GB_S.items():
        way = cable if trip in far else None
        yield Row("table 7", f"copies to GPU, measured, round trip {trip} us", "GB/s", figure,
                  Kind.HELD_OUT, read_gb_s(tags, size, trip, native, way),
                  assumed="" if way else "capped by Gen3 x16, completions of 64 B, 5 % DLLPs; "
                  "equation 1 alone gives 14.9")
    assumed = f"payload of {PAYLOAD_BYTES} B"
    for trip, figure in published.WRITES_GB_S.items():
        way = cable if trip in far else None
        yield Row("table 7", f"copies from GPU, measured, round trip {trip} us", "GB/s", figure,
                  Kind.HELD_OUT, write_gb_s(native, PAYLOAD_BYTES, way),
                  assumed=f"{assumed}, one cable of 100 Gb/s; 256 B: 11.6" if way else
                  f"{assumed}, 5 % DLLPs; 256 B: 13.7")
    yield Row("section 5.1", "copies to GPU by writes of the CPU", "GB/s",
              published.WRITES_BY_CPU_GB_S, Kind.FITTED, write_gb_s(native, 64, cable),
              assumed="writes of 64 B, one cable of 100 Gb/s")


def _curve() -> Iterator[Row]:
    mean = calibrated().curve_kernel_us

    def kept(trip: float) -> float:
        return 100 * share_kept(kernel_slowdown(trip, mean))

    form = "kernels of 72 us, axis read as the whole round trip"
    for trip, figure in published.FIGURE_4.items():
        kind = Kind.FITTED if trip == 8 else Kind.THEIR_MODEL
        yield Row("figure 4", f"model of ResNet-50, {trip:g} us", "%", figure, kind, kept(trip),
                  assumed=form)
    for trip, pair in published.TABLE_4.items():
        yield Row("table 4", f"model of ResNet-50, {trip} us", "%", pair.model_percent,
                  Kind.THEIR_MODEL, kept(trip), assumed=form)
    for trip, pair in published.TABLE_4.items():
        yield Row("table 4", f"ResNet-50 measured, {trip} us; the paper's model: "
                  f"{pair.model_percent - pair.measured_percent:+.1f}", "%", pair.measured_percent,
                  Kind.HELD_OUT, kept(trip), assumed=form)


def _kernels() -> Iterator[Row]:
    fit = calibrated()
    trips = {"training": fit.training_round_trips, "inference": fit.inference_round_trips,
             "training, XLA": fit.inference_round_trips}
    for run in published.RESNET50:
        fitted = run.name in ("training, batch 64", "inference, batch 64")
        yield Row(run.source, f"ResNet-50 {run.name}", "%", run.percent,
                  Kind.FITTED if fitted else Kind.HELD_OUT,
                  100 * share_kept(kernel_slowdown(DELAY_US, run.mean_us, trips[run.kind])),
                  100 * share_kept(kernel_slowdown(DELAY_US, run.mean_us)),
                  assumed="waits as rarely as inference" if run.kind == "training, XLA" else "")


def _graphics() -> Iterator[Row]:
    for run in published.GLMARK2_IDEAS:
        kernel = kernel_slowdown(DELAY_US, run.mean_us)
        fitted = run is published.GLMARK2_IDEAS[0]
        yield Row(run.source, f"{run.name}, {run.mean_us} us", "%", run.percent,
                  Kind.FITTED if fitted else Kind.HELD_OUT,
                  100 * share_kept(kernel, calibrated().graphics_constant),
                  100 * share_kept(kernel), assumed="a constant slowdown of 5.2 %")
    for name, figure in published.GRAPHICS_PERCENT.items():
        yield Row("section 4, graphics", f"Unigine {name}", "%", figure, Kind.MISSING,
                  assumed="no durations of frames or kernels are published")


def _copies() -> Iterator[Row]:
    ratio = published.READS_GB_S[1.2] / published.READS_GB_S[6.8]
    for run in published.CPU_PARAMETER_DEVICE:
        what = f"ResNet-50, parameters on the CPU, {run.name}"
        if run.copy_percent is None or run.mean_copy_us is None:
            yield Row("table 9", what, "%", run.percent, Kind.MISSING,
                      assumed="share and size of copies (table 11) are not among our inputs")
            continue

        def kept(exposed: float, run: published.CopyRun = run) -> float:
            assert run.copy_percent is not None and run.mean_copy_us is not None
            return 100 * share_kept(copy_slowdown(
                run.copy_percent / 100, ratio, DELAY_US, run.mean_copy_us, exposed))

        yield Row("tables 9, 11", what, "%", run.percent, Kind.FITTED,
                  kept(calibrated().exposed_copies), bounds=(kept(1), kept(0)),
                  assumed="half of a longer copy is not hidden by kernels")
    least, most = published.IMAGENET_PERCENT
    yield Row("table 9", "ResNet-50 on ImageNet, parameters on the GPU", "%", least, Kind.MISSING,
              until=most, assumed="time of a step, and overlap of copies and kernels")


def _several_gpus() -> Iterator[Row]:
    fit = calibrated()
    one = 100 / published.MULTI_GPU_PERCENT[1] - 1
    for gpus, figure in published.MULTI_GPU_PERCENT.items():
        yield Row("table 12", f"ResNet-50 training, batch 64, GPUs: {gpus}", "%", figure,
                  Kind.FITTED if gpus in (1, 8) else Kind.HELD_OUT,
                  100 * share_kept(one + fit.slowdown_per_gpu * (gpus - 1)),
                  assumed="each further GPU slows down by as much")
    for name, figures in published.TABLE_12_GB_S.items():
        for gpus, figure in figures.items():
            fitted = name == "first run" and gpus in (2, 8)
            yield Row("table 12", f"copies to all GPUs, {name}, GPUs: {gpus}", "GB/s", figure,
                      Kind.FITTED if fitted else Kind.HELD_OUT,
                      aggregate_gb_s(gpus, fit.gpu_demand_gb_s, fit.proxy_capacity_gb_s),
                      assumed="both runs ask for as much")


def _missing() -> Iterator[Row]:
    for run in published.SSD320:
        ours = share_kept(kernel_slowdown(DELAY_US, run.mean_us))
        busy = round_trips_of(run.percent / 100, DELAY_US, run.mean_us)
        yield Row(run.source, run.name, "%", run.percent, Kind.BOUNDS, rule=100 * ours,
                  bounds=(100 * ours, 100.0),
                  assumed=f"share of time with a kernel; {100 * busy:.0f} % would explain the row")
    least, most = published.TABLE_8_PERCENT
    shortest, longest = (DELAY_US / (100 / each - 1) for each in (least, most))
    yield Row("table 8", "twelve basic workloads", "%", least, Kind.MISSING, until=most,
              assumed=f"sizes; kernels of {shortest:.0f} to {longest:.0f} us would explain them")
    yield Row("figure 7", "GPU to GPU over two proxies, of that under one bridge", "%",
              published.PEER_TO_PEER_PERCENT, Kind.MISSING,
              assumed="what 100 % is in GB/s; 12.8 would explain it, by writes of 64 B")
    for percent in published.BERT_PERCENT:
        yield Row("section 4, BERT", "BERT training", "%", percent, Kind.MISSING,
                  assumed="no durations or counts are published")
    least, most = published.NCF_PERCENT
    yield Row("section 4, NCF", "NCF training", "%", least, Kind.MISSING, until=most,
              assumed="no durations or counts are published")


@dataclass(frozen=True)
class Summary:
    """Errors of rows of equal unit: how many, mean and greatest absolute error."""

    count: int
    mean: float
    greatest: float


def summary(some: Iterable[Row], *, percent: bool) -> Summary:
    """Errors of the held-out rows: in points for shares of speed (``percent``), otherwise in
    percent of bandwidths."""
    errors = [abs(row.error) for row in some if row.kind is Kind.HELD_OUT
              and row.error is not None and (row.unit == "%") is percent]
    return Summary(len(errors), sum(errors) / len(errors), max(errors))


