"""What a run of an incast case shows: each TLP once; how the hosts share the line to the box."""

from dataclasses import dataclass

__all__ = ["Shares", "problems", "shares"]


@dataclass(frozen=True)
class Shares:
    """How the hosts got on until the first of them was done.

    ``goodput`` is payload as a part of what the line to the box carries in all, ``least`` and
    ``most`` are what single hosts got as parts of an equal share, ``waited`` is the most bytes that
    waited for that line, ``dropped`` the frames that found no room there in the whole run.
    """

    goodput: float
    least: float
    most: float
    waited: int
    dropped: int


def shares(case, result: dict) -> Shares:
    """See :class:`Shares`; TLPs of a case without ``fixed`` have no size to be told here."""
    came = [result[f"share{n}"] for n in range(case.hosts)]
    cycles = result["first_done"] - result["started"]
    fair = sum(came) / case.hosts or 1
    return Shares(4 * case.fixed * sum(came) / max(cycles, 1), min(came) / fair, max(came) / fair,
                  result["box_port_peak"], result["box_port_tx_overflow"])


def problems(case, result: dict, fates: tuple[str, ...]) -> list[str]:
    """What does not add up of the frames; ``fates`` are the counters of an engine that each stand
    for one received frame."""
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
