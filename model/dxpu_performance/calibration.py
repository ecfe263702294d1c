"""The only set of fitted parameters, each computed from a named row of the paper.

A fitted row says nothing about the model: the table of :mod:`dxpu_performance.paper` marks such a
row, and the headline leaves fitted rows out.
"""

from dataclasses import dataclass
from functools import cache
from math import sqrt

from . import published
from .kernels import round_trips_of

__all__ = ["DELAY_US", "Parameters", "calibrated", "observed_round_trips"]

#: What the paper's fabric adds to a round trip at 6.8 us.
DELAY_US = published.ROUND_TRIPS_US[1] - published.NATIVE_ROUND_TRIP_US


@dataclass(frozen=True)
class Parameters:
    """Fitted parameters.

    Parameters
    ----------
    training_round_trips, inference_round_trips : float
        Round trips for each kernel, of training and inference of ResNet-50: batch 64 of table 9.
    curve_kernel_us : float
        Mean duration of the kernels behind figure 4, of a run without a description: the point at
        8 us.
    graphics_constant : float
        Slowdown of glmark2 beside round trips of kernels: the first size.
    exposed_copies : float
        Share of a longer copy not hidden by kernels: inference with XLA, parameters on the CPU.
    cable_overhead_bytes : float
        Bytes of a TLP on the cable beside the data: copies by writes of the CPU, of 64 bytes.
    gpu_demand_gb_s, proxy_capacity_gb_s : float
        Copies of a single GPU, and capacity of a proxy: two and eight GPUs of table 12, first run.
    slowdown_per_gpu : float
        Slowdown by each further GPU of a job: 1 and 8 GPUs, batch 64.
    """

    training_round_trips: float
    inference_round_trips: float
    curve_kernel_us: float
    graphics_constant: float
    exposed_copies: float
    cable_overhead_bytes: float
    gpu_demand_gb_s: float
    proxy_capacity_gb_s: float
    slowdown_per_gpu: float


def _implied(run: published.KernelRun) -> float:
    return round_trips_of(run.percent / 100, DELAY_US, run.mean_us)


def observed_round_trips(*kinds: str) -> tuple[float, ...]:
    """Round trips for each kernel implied by rows of table 9, of some kinds or of all, rising."""
    return tuple(sorted(_implied(run) for run in published.RESNET50
                        if not kinds or run.kind in kinds))


@cache
def calibrated() -> Parameters:
    """The parameters."""
    train, infer = published.RESNET50[1], published.RESNET50[4]
    ideas = published.GLMARK2_IDEAS[0]
    copies = published.CPU_PARAMETER_DEVICE[-1]
    assert copies.copy_percent is not None and copies.mean_copy_us is not None
    longer = published.READS_GB_S[1.2] / published.READS_GB_S[6.8] - 1
    of_copies = (100 / copies.percent - 1) / (copies.copy_percent / 100)
    two, eight = (published.TABLE_12_GB_S["first run"][n] for n in (2, 8))
    # 1 / sum^2 = 1 / (n demand)^2 + 1 / capacity^2, for two values of n.
    demand = sqrt((1 / 4 - 1 / 64) / (two ** -2 - eight ** -2))
    capacity = 1 / sqrt(two ** -2 - 1 / (2 * demand) ** 2)
    one_gpu, eight_gpus = (published.MULTI_GPU_PERCENT[n] for n in (1, 8))
    return Parameters(
        training_round_trips=_implied(train), inference_round_trips=_implied(infer),
        curve_kernel_us=8.0 / (100 / published.FIGURE_4[8.0] - 1),
        graphics_constant=100 / ideas.percent - 1 - DELAY_US / ideas.mean_us,
        exposed_copies=(of_copies - DELAY_US / copies.mean_copy_us) / longer,
        cable_overhead_bytes=64 * (100 / 8 / published.WRITES_BY_CPU_GB_S - 1),
        gpu_demand_gb_s=demand, proxy_capacity_gb_s=capacity,
        slowdown_per_gpu=(100 / eight_gpus - 100 / one_gpu) / 7)
