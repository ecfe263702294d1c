"""Stages of one read through the fabric, with times from the probes of the system."""

import cocotb
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from .probe import EVENTS

__all__ = ["CYCLE_NS", "conversions", "parts", "take_apart"]

#: Clock of the proxies' cores and of GMII.
CYCLE_NS = 8

#: Each stage between request and completion: lane, name, probe of the end, kind.
STAGES = (
    ("root complex", "request", "host_pcie_in", "PCIe"),
    ("host proxy", "conversion 1", "host_frame_out", "conversion"),
    ("host proxy", "send", "host_gmii_tx", "MAC"),
    ("Ethernet", "switch", "box0_gmii_rx", "Ethernet"),
    ("box 0 proxy", "receive", "box0_frame_in", "MAC"),
    ("box 0 proxy", "conversion 2", "box0_pcie_out", "conversion"),
    ("GPU 0", "read", "box0_pcie_in", "GPU"),
    ("box 0 proxy", "conversion 3", "box0_frame_out", "conversion"),
    ("box 0 proxy", "send", "box0_gmii_tx", "MAC"),
    ("Ethernet", "switch", "host_gmii_rx", "Ethernet"),
    ("host proxy", "receive", "host_frame_in", "MAC"),
    ("host proxy", "conversion 4", "host_pcie_out", "conversion"),
)


#: What is probed inside a proxy during each conversion: proxy, and events in order.
INSIDE = (
    ("host", ("out_parsed", "out_decided", "out_tracked", "out_planned", "out_routed")),
    ("box0", ("in_judged", "in_received", "in_parsed")),
    ("box0", ("out_parsed", "out_planned", "out_routed")),
    ("host", ("in_judged", "in_received", "in_parsed", "in_tracked", "in_decided")),
)


async def take_apart(system, events=None) -> list[dict]:
    """Read a register of GPU 0 on an idle fabric; return the stages of the read.

    Each stage is a dict of ``lane``, ``name``, ``start_ns``, ``end_ns`` and ``kind``, the arguments
    of :class:`dxpu_sim.system.timeline.Stage`; each stage starts where the stage before ended. The
    four stages of kind ``conversion`` are the traversals of a proxy, PCIe to frame or frame to
    PCIe: the first two carry the request, the others the completion. They begin with the first beat
    of the TLP, or the last beat of the frame from the MAC, and end with the first beat of the
    output. As control frames may also pass, each stage begins with the last event before its end:
    an ACK may wait for the line just before a TLP does, and hardly ever come behind it so soon.

    Times of all events, inside proxies too, are added to the dict ``events``, for :func:`parts`.

    Raises
    ------
    RuntimeError
        If there was no such event.
    """
    dut = system.dut
    events = {} if events is None else events
    events |= {f"{proxy}_{event}": [] for proxy in ("host", "box0") for event in EVENTS}
    events |= {f"{proxy}_{event}": [] for proxy, names in INSIDE for event in names}
    begin = get_sim_time("ns")
    watch = [cocotb.start_soon(_note(dut, name, times)) for name, times in events.items()]
    await system.drivers[0].read_register("SCRATCH")
    end = get_sim_time("ns")
    # A probe shows its event a cycle later; the completion may be a single beat.
    await Timer(4 * CYCLE_NS, "ns")
    for task in watch:
        task.cancel()

    ends, position = [], end
    for _, _, probe, _ in reversed(STAGES):
        position = max((time for time in events[probe] if begin <= time <= position), default=None)
        if position is None:
            raise RuntimeError(f"the read was not seen at {probe}")
        ends.append(position)
    stages, position = [], begin
    for (lane, name, _, kind), until in zip(STAGES, reversed(ends), strict=True):
        stages.append({"lane": lane, "name": name, "start_ns": position, "end_ns": until,
                       "kind": kind})
        position = until
    stages.append({"lane": "root complex", "name": "completion", "start_ns": position,
                   "end_ns": end, "kind": "PCIe"})
    return stages


async def _note(dut, name, times):
    """Append the times of the events of probe ``name``, in ns, to ``times``."""
    probe = getattr(dut, f"probe_{name}")
    while True:
        await probe.value_change
        # The cycle of the event is the cycle before the probe shows it.
        age = (int(dut.cycle.value) - int(probe.value)) & 0xffffffff
        times.append(get_sim_time("ns") - age * CYCLE_NS)


def parts(stages: list[dict], events: dict[str, list[float]]) -> list[dict[str, int]]:
    """Cycles from the beginning of each of the four conversions to the events inside it, and to its
    end (``"out"``). An event that did not come in between is missing."""
    found = []
    whole = [s for s in stages if s["kind"] == "conversion"]
    for stage, (proxy, names) in zip(whole, INSIDE, strict=True):
        cycles, position = {}, stage["start_ns"]
        for name in names:
            times = events[f"{proxy}_{name}"]
            at = next((t for t in times if position <= t <= stage["end_ns"]), None)
            if at is not None:
                cycles[name.split("_")[1]] = round((at - stage["start_ns"]) / CYCLE_NS)
                position = at
        found.append(cycles | {"out": round((stage["end_ns"] - stage["start_ns"]) / CYCLE_NS)})
    return found


def conversions(stages: list[dict]) -> list[int]:
    """Cycles of the four traversals in ``stages``."""
    return [round((s["end_ns"] - s["start_ns"]) / CYCLE_NS) for s in stages
            if s["kind"] == "conversion"]
