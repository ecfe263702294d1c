"""Closed forms: share of speed kept by a GPU when each kernel waits for a round trip.

Delays and durations are in us. ``delay_us`` is added by the fabric: round trip behind the proxy
less the round trip of a native GPU.
"""

from .errors import not_negative, positive, share

__all__ = ["copy_slowdown", "kernel_slowdown", "longest_delay_us", "round_trips_of", "share_kept"]


def share_kept(*slowdowns: float) -> float:
    """Share of the native speed, in (0, 1]: 1 / (1 + all slowdowns).

    A slowdown is added time as a share of the native time; slowdowns add up, as no slowdown hides
    another here.
    """
    return 1 / (1 + sum(not_negative("slowdown", each) for each in slowdowns))


def kernel_slowdown(delay_us: float, mean_kernel_us: float, round_trips: float = 1,
                    busy: float = 1) -> float:
    """Slowdown by kernels: round trips x delay / mean duration x share of time with a kernel.

    Parameters
    ----------
    delay_us : float
        Time added to each round trip.
    mean_kernel_us : float
        Mean duration of a kernel.
    round_trips : float
        Round trips before a kernel: 1 is the rule of the paper (section 3.4), less if
        commands are fetched ahead, more if the host synchronises.
    busy : float
        Share of native time with a running kernel; gaps of a GPU waiting for the CPU hide nothing
        here, and count as native time.
    """
    return (not_negative("round_trips", round_trips) * not_negative("delay_us", delay_us)
            / positive("mean_kernel_us", mean_kernel_us) * share("busy", busy))


def copy_slowdown(copy_share: float, bandwidth_ratio: float, delay_us: float,
                  mean_copy_us: float, exposed: float = 1) -> float:
    """Slowdown by copies from host to GPU: lower bandwidth, and a round trip for each copy.

    Parameters
    ----------
    copy_share : float
        Share of native time for copies.
    bandwidth_ratio : float
        Native bandwidth divided by the bandwidth behind the proxy; at least 1.
    delay_us : float
        Time added to each round trip.
    mean_copy_us : float
        Mean duration of a native copy.
    exposed : float
        Share of the longer transfer without a running kernel: 1 without overlap.
    """
    longer = max(0.0, positive("bandwidth_ratio", bandwidth_ratio) - 1)
    latency = not_negative("delay_us", delay_us) / positive("mean_copy_us", mean_copy_us)
    return share("copy_share", copy_share) * (share("exposed", exposed) * longer + latency)


def round_trips_of(kept: float, delay_us: float, mean_kernel_us: float) -> float:
    """Round trips for each kernel implied by a measured share; inverse of the forms above."""
    return ((1 / positive("kept", kept) - 1) * positive("mean_kernel_us", mean_kernel_us)
            / positive("delay_us", delay_us))


def longest_delay_us(least_share: float, slowdown_at: float, delay_us: float) -> float:
    """Delay for keeping ``least_share`` of the speed, if ``slowdown_at`` is the slowdown at
    ``delay_us`` and slowdowns grow with delay; infinite if nothing slows down."""
    budget = 1 / positive("least_share", share("least_share", least_share)) - 1
    if slowdown_at == 0:
        return float("inf")
    return budget / positive("slowdown_at", slowdown_at) * positive("delay_us", delay_us)
