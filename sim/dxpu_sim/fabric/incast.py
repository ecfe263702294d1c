"""Judgement of a run of an incast case: each TLP once; fair shares of the line to the box."""

from dataclasses import dataclass

__all__ = ["Shares", "problems", "shares"]


@dataclass(frozen=True)
class Shares:
    """Shares of the hosts until the first host was done.

    ``goodput``: payload as a part of the capacity of the line to the box. ``least``, ``most``:
    smallest and largest share of a host, relative to an equal share. ``waited``: maximum of bytes
    waiting for that line. ``dropped``: frames without room there, in the whole run.
    """

    goodput: float
    least: float
    most: float
    waited: int
    dropped: int


def shares(case, result: dict) -> Shares:
    """The :class:`Shares` of a run; only for cases with ``fixed``, whose TLPs have a known size."""
    came = [result[f"share{n}"] for n in range(case.hosts)]
    cycles = result["first_done"] - result["started"]
    fair = sum(came) / case.hosts or 1
    return Shares(4 * case.fixed * sum(came) / max(cycles, 1), min(came) / fair, max(came) / fair,
                  result["box_port_peak"], result["box_port_tx_overflow"])


def problems(case, result: dict, fates: tuple[str, ...]) -> list[str]:
    """Frames that do not add up; ``fates`` are counters of an engine, one per received frame."""
    if result["stuck"]:
        return []
    found = []
    for end, peer in (("box", "host"), ("host", "box")):
        sums = {
            "sent and taken by the switch":
                (result[f"{peer}_tx_frames"], result[f"{peer}_port_rx_frames"]),
            "taken by the switch and delivered or dropped":
                (result[f"{peer}_port_rx_frames"],
                 result[f"{end}_port_tx_frames"] + result[f"{end}_port_tx_overflow"]),
            "delivered and counted by cause":
                (result[f"{end}_port_tx_frames"],
                 sum(result[f"{end}_{name}"] for name in (*fates, "rx_overflow0",
                                                          "rx_overflow"))),
        }
        found += [f"frames to the {end} {what}: {a:,}, {b:,}"
                  for what, (a, b) in sums.items() if a != b]
    if result["box_port_rx_bad"] or result["host_port_rx_bad"]:
        found.append("the switch saw bad frames")
    part = shares(case, result)
    if part.goodput < case.least_goodput or part.least < case.least_share:
        found.append(f"goodput {part.goodput:.1%}, least share {part.least:.1%}, not "
                     f"{case.least_goodput:.0%} and {case.least_share:.0%}")
    if part.dropped and not case.drops:
        found.append(f"{part.dropped:,} frames dropped by the switch")
    return found
