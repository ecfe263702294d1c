"""Share of speed kept by a workload behind a fabric, by closed form and by simulation."""

from dataclasses import dataclass, replace

from .calibration import DELAY_US, calibrated, observed_round_trips
from .errors import ModelError, positive, share, whole
from .fabric import Fabric
from .kernels import share_kept
from .paper import rows, summary
from .program import Do, Program, overlapped
from .simulation import NATIVE, Link, Mode, simulate

__all__ = ["LIKE", "Case", "Causes", "Native", "Prediction", "closed_form",
           "longest_round_trip_us", "predict"]

#: Kinds of workloads in table 9 of the paper, by which round trips for each kernel are chosen.
LIKE = ("training", "inference")
#: Round trips beyond which a workload is said not to depend on them, in us.
_FAR_US = 1e7


@dataclass(frozen=True)
class Native:
    """A workload on a GPU in the host: the whole of all shares.

    Parameters
    ----------
    time_us : float
        Length of the run.
    to_gpu_gb_s, to_host_gb_s : float
        Bandwidths of copies.
    """

    time_us: float
    to_gpu_gb_s: float
    to_host_gb_s: float

    @classmethod
    def of(cls, program: Program, fabric: Fabric) -> "Native":
        """The native run of a program, simulated, and the native side of a fabric."""
        time_us = simulate(program, NATIVE).time_us
        return cls(positive("the native time of the workload", time_us),
                   fabric.native_to_gpu_gb_s, fabric.native_to_host_gb_s)


@dataclass(frozen=True)
class Case:
    """A workload on a fabric.

    Parameters
    ----------
    program : Program
        The work of a single GPU.
    fabric : Fabric
        Where the GPU is.
    native : Native
        The whole of all shares.
    gpus : int
        GPUs of the job, all with the same work.
    like : str, optional
        One of :data:`LIKE`; None: a round trip for each kernel, the rule of the paper.
    exposed : float, optional
        Share of a longer copy not hidden by kernels; None: as fitted.
    """

    program: Program
    fabric: Fabric
    native: Native
    gpus: int = 1
    like: str | None = None
    exposed: float | None = None

    def __post_init__(self) -> None:
        whole("gpus", self.gpus, 1, 4096)
        if self.exposed is not None:
            share("exposed", self.exposed)
        if self.like not in (None, *LIKE):
            raise ModelError(f"a workload is like {' or '.join(LIKE)}, not {self.like!r}")

    @classmethod
    def of(cls, program: Program, fabric: Fabric, *, gpus: int = 1, like: str | None = None,
           exposed: float | None = None) -> "Case":
        """A case with the native side of the same program and fabric."""
        return cls(program, fabric, Native.of(program, fabric), gpus, like, exposed)

    @property
    def round_trips(self) -> float:
        """Round trips of a command: 1, or as fitted for the kind."""
        if self.like == "training":
            return calibrated().training_round_trips
        return calibrated().inference_round_trips if self.like == "inference" else 1.0

    @property
    def round_trips_seen(self) -> tuple[float, float]:
        """Fewest and most round trips implied by the paper's rows of the kind, or by all rows."""
        seen = observed_round_trips(*([self.like] if self.like else []))
        return seen[0], seen[-1]

    @property
    def hidden_share(self) -> float:
        """Share of a longer copy not hidden by kernels."""
        return calibrated().exposed_copies if self.exposed is None else self.exposed

    @property
    def of_further_gpus(self) -> float:
        """Slowdown by the other GPUs of the job, fitted on ResNet-50, in proportion to delay."""
        return calibrated().slowdown_per_gpu * (self.gpus - 1) * self.fabric.delay_us / DELAY_US

    def link(self, round_trips: float) -> Link:
        """The fabric as the simulation sees it."""
        return Link(self.fabric.delay_us,
                    max(1.0, self.native.to_gpu_gb_s / self.fabric.to_gpu_gb_s(self.gpus)),
                    max(1.0, self.native.to_host_gb_s / self.fabric.to_host_gb_s(self.gpus)),
                    round_trips)


@dataclass(frozen=True)
class Causes:
    """Slowdowns by the closed form: added time as a share of the native time.

    Parameters
    ----------
    kernels : float
        Commands of kernels, fetched over the fabric.
    waits : float
        Processor and GPU waiting for each other.
    copies : float
        Copies beginning later, and taking longer.
    further_gpus : float
        GPUs of the job waiting for each other.
    """

    kernels: float
    waits: float
    copies: float
    further_gpus: float

    @property
    def total(self) -> float:
        """All together."""
        return self.kernels + self.waits + self.copies + self.further_gpus

    def shares(self) -> dict[str, float]:
        """Share of each cause, the largest first, none below 0.5 %."""
        if not self.total:
            return {}
        named = {"latency of kernels": self.kernels, "waits": self.waits, "copies": self.copies,
                 "further GPUs": self.further_gpus}
        found = {name: each / self.total for name, each in named.items()}
        return dict(sorted(((name, each) for name, each in found.items() if each >= 0.005),
                           key=lambda pair: -pair[1]))


@dataclass(frozen=True)
class Prediction:
    """Shares of the native speed, from 0 to 1.

    Parameters
    ----------
    kept : float
        The closed form, whose errors against the paper are known.
    low, high : float
        Range, see :func:`predict`.
    serial, prefetch : float
        Both modes of the simulation.
    causes : Causes
        Why the rest is lost.
    """

    kept: float
    low: float
    high: float
    serial: float
    prefetch: float
    causes: Causes


def closed_form(case: Case, round_trips: float | None = None,
                exposed: float | None = None) -> Causes:
    """Slowdowns of a case by the closed form.

    Each command of a kernel or copy waits for ``round_trips`` (by default as the case says),
    each wait of the processor for a single round trip; streams running at once wait at once. Copies
    take longer by the ratio of bandwidths; the share ``exposed`` of the difference is not hidden.

    Ref: paper, section 3.4; waits, copies and further GPUs are ours.
    """
    trips = case.round_trips if round_trips is None else round_trips
    link, native = case.link(trips), case.native.time_us
    kernels, busy_us = case.program.counts[Do.RUN]
    each = link.delay_us * trips / max(1.0, busy_us / native)
    seen = case.hidden_share if exposed is None else exposed
    copies = 0.0
    for do, ratio in ((Do.TO_GPU, link.to_gpu_ratio), (Do.TO_HOST, link.to_host_ratio)):
        number, time = case.program.counts[do]
        copies += number * each + seen * (ratio - 1) * time
    return Causes(kernels * each / native, case.program.counts[Do.WAIT][0] * link.delay_us / native,
                  copies / native, case.of_further_gpus)


def predict(case: Case) -> Prediction:
    """Predict what a workload keeps.

    The range spans the closed form and both modes of the simulation, with the fewest and the most
    round trips for each kernel in the paper's rows, and with copies hidden or not. The range
    reaches beyond the prediction by at least the greatest error of a held-out row. A known kind of
    workload (``like``) has the range of rows of the same kind, without the mode fetching ahead.
    """
    fewest, most = case.round_trips_seen
    causes = closed_form(case)
    kept = share_kept(causes.total)
    margin = summary(rows(), percent=True).greatest / 100
    serial = _simulated(case, case.program, case.round_trips, Mode.SERIAL)
    program = case.program if case.program.native_us is not None else overlapped(case.program)
    prefetch = _simulated(case, program, case.round_trips, Mode.PREFETCH)
    given = case.exposed
    ends = [kept - margin, kept + margin, serial,
            _simulated(case, case.program, most, Mode.SERIAL),
            share_kept(closed_form(case, most, 1.0 if given is None else given).total),
            share_kept(closed_form(case, fewest, 0.0 if given is None else given).total)]
    if case.like is None:
        ends.append(prefetch)
    return Prediction(kept, max(0.0, min(ends)), min(1.0, max(ends)), serial, prefetch, causes)


def _simulated(case: Case, program: Program, round_trips: float, mode: Mode) -> float:
    """Share of the speed of a program without a fabric; a faster run is none."""
    native = (case.native.time_us if program is case.program
              else simulate(program, NATIVE, mode).time_us)
    far = simulate(program, case.link(round_trips), mode).time_us / native - 1
    return share_kept(max(0.0, far), case.of_further_gpus)


def longest_round_trip_us(case: Case, least_share: float) -> float:
    """Longest round trip at which a workload keeps ``least_share`` by the closed form; infinite if
    any will do, 0 if none will. Bandwidth of reads falls with the round trip, as equation 1 says.
    """
    if not 0 < least_share < 1:
        raise ModelError(f"the share to keep must be between 0 and 1, not {least_share:g}")

    def enough(round_trip_us: float) -> bool:
        there = replace(case, fabric=case.fabric.at(round_trip_us))
        return share_kept(closed_form(there).total) >= least_share

    near, far = case.fabric.native_round_trip_us, _FAR_US
    if not enough(near):
        return 0.0
    if enough(far):
        return float("inf")
    while far - near > 1e-6 * far:
        middle = (near * far) ** 0.5
        near, far = (middle, far) if enough(middle) else (near, middle)
    return near
