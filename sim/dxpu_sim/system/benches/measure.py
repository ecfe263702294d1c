"""Measurements of the whole system for ``dxpu bench``; results go to ``result.json`` of the run."""

import json
import os
from pathlib import Path

import cocotb
from cocotb.triggers import Timer

from dxpu_sim.pcie.ports import until
from dxpu_sim.system.system import SimulatedSystem
from dxpu_sim.system.traversal import CYCLE_NS, conversions, parts, take_apart

OPTIONS = json.loads(os.environ.get("DXPU_MEASURE", "{}"))
#: Simulated time without traffic before a measurement.
QUIET_NS = 5_000


def write(result):
    Path("result.json").write_text(json.dumps(result))


@cocotb.test()
async def traversal(dut):
    """Cycles of the four traversals of a read on an idle fabric."""
    system = SimulatedSystem(dut, OPTIONS["system"])
    await system.start()
    await Timer(QUIET_NS, "ns")
    events = {}
    stages = await take_apart(system, events)
    await system.finish()
    write({"conversion_cycles": conversions(stages), "parts": parts(stages, events),
           "round_trip_ns": stages[-1]["end_ns"] - stages[0]["start_ns"]})


@cocotb.test()
async def wire(dut):
    """Payload bytes per byte time of a saturated line: writes of the host to video memory."""
    system = SimulatedSystem(dut, OPTIONS["system"])
    await system.start()
    driver, received = system.drivers[0], system.mailboxes["gpu0"].received
    result = {}
    for size in OPTIONS["sizes"]:
        for limit in OPTIONS["limits"]:
            for proxy in (system.host, *system.boxes):
                await proxy.write("control.fabric", packing_limit=limit, ack_delay=125)
            await Timer(QUIET_NS, "ns")
            arrivals = []

            def note(record, arrivals=arrivals):
                arrivals.append(record.first_cycle)

            received.append(note)
            for n in range(OPTIONS["writes"]):
                await driver.write_vram(size * n, bytes(size))
            await until(lambda arrivals=arrivals: len(arrivals) == OPTIONS["writes"],
                        "all writes have arrived", timeout_ns=10_000_000)
            received.remove(note)
            result[f"{size} {limit}"] = slope(arrivals) * size
    await system.finish()
    write(result)


def slope(arrivals):
    """TLPs per byte time in the steady state: least squares over the middle of the arrivals."""
    x = arrivals[len(arrivals) // 4:-len(arrivals) // 8]
    mean_x, mean_n = sum(x) / len(x), (len(x) - 1) / 2
    return (sum((t - mean_x) * (n - mean_n) for n, t in enumerate(x))
            / sum((t - mean_x) ** 2 for t in x)) * CYCLE_NS / 8
