"""Measurements of the whole system for ``dxpu bench``; results go to ``result.json`` of the run."""

import json
import os
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import cocotb
from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import Tlp, TlpType

from dxpu_sim.endpoint.driver import find_gpus
from dxpu_sim.pcie.ports import until
from dxpu_sim.system.operate import Operator
from dxpu_sim.system.setup import wait_for_slot
from dxpu_sim.system.system import SimulatedSystem
from dxpu_sim.system.traversal import (
    CYCLE_NS, Recorder, conversions, parts, stages, take_apart,
)

OPTIONS = json.loads(os.environ.get("DXPU_MEASURE", "{}"))
#: Simulated time without traffic before a measurement.
QUIET_NS = 5_000
#: Reads of each GPU of which the median counts.
READS = 5
#: Under load: bytes of each write, and mean time between reads.
WRITE, READ_NS = 256, 30_000


def write(result):
    Path("result.json").write_text(json.dumps(result))


def captured(system):
    """A context in which all is captured, if that is asked for."""
    return system.capture(OPTIONS["pcap"]) if OPTIONS.get("pcap") else nullcontext()


@cocotb.test()
async def traversal(dut):
    """Cycles of the four traversals of a read, on an idle fabric and under each of the loads."""
    system = SimulatedSystem(dut, OPTIONS["system"])
    with captured(system):
        await system.start()
        await Timer(QUIET_NS, "ns")
        ways = []
        stages = await take_apart(system, ways)
        result = {"conversion_cycles": conversions(stages), "parts": parts(stages, ways),
                  "round_trip_ns": stages[-1]["end_ns"] - stages[0]["start_ns"], "loads": {}}
        for load in OPTIONS["loads"]:
            result["loads"][load] = await loaded(system, load / 100)
    await system.finish()
    write(result)


@cocotb.test()
async def ports(dut):
    """Cycles of the four traversals of a read of a GPU, by its port; one GPU of box 0 for each.

    Each is the median of :data:`READS`, as a read may wait for a frame of the link.
    """
    system = SimulatedSystem(dut, OPTIONS["system"])
    operator = Operator(system)
    await system.prepare()
    for gpu, port in enumerate(OPTIONS["ports"]):
        await operator.commit(gpu, port)
        await wait_for_slot(system.host, port, link=1)
        system.routes.present.add(port)
    await system.rc.enumerate()
    system.drivers = find_gpus(system.rc)
    result = {}
    for port, driver in zip(OPTIONS["ports"], system.drivers, strict=True):
        await driver.open()
        found = []
        for _ in range(READS):
            await Timer(QUIET_NS + system.rng.randrange(QUIET_NS), "ns")
            found.append(conversions(await take_apart(system, driver=driver)))
        result[port] = [median(cycles) for cycles in zip(*found, strict=True)]
    await system.finish()
    write(result)


async def loaded(system, load):
    """Cycles of the traversals of reads among writes of :data:`WRITE` bytes in the same direction.

    The writes come at random, as a Poisson process, with ``load`` of the rate that fills the line:
    first to the GPU, beside the requests, then to the host, beside the completions. The result has
    for each conversion, and each event in it, median and most.
    """
    driver, gpu = system.drivers[0], system.gpus[0].function
    address, _ = system.rc.alloc_region(WRITE)

    async def to_gpu():
        await driver.write_vram(0, bytes(WRITE))

    async def to_host():
        tlp = Tlp()
        tlp.fmt_type = TlpType.MEM_WRITE_64 if address >> 32 else TlpType.MEM_WRITE
        tlp.requester_id = gpu.pcie_id
        tlp.set_addr_be_data(address, bytes(WRITE))
        await gpu.upstream_send(tlp)

    async def repeat(write):
        while True:
            await Timer(round(system.rng.expovariate(load * OPTIONS["fill"] / (8 * WRITE))), "ns")
            await write()

    result = []
    for write in (to_gpu, to_host):
        recorder = Recorder(system)
        await recorder.start()
        writer = cocotb.start_soon(repeat(write))
        for _ in range(OPTIONS["reads"]):
            await Timer(system.rng.randrange(2 * READ_NS), "ns")
            await driver.read_register("SCRATCH")
        writer.cancel()
        await system.idle()
        await recorder.stop()
        found = []
        for number in range(OPTIONS["reads"]):
            ways = recorder.read(number)
            # The first stage, which ends where the first conversion begins, has no length here.
            found.append(parts(stages(ways, ways[0]["host", "pcie_in"]), ways))
        half = slice(2) if write is to_gpu else slice(2, 4)
        result += [{name: {"median": median(cycles), "most": max(cycles)}
                    for name in conversion[0] for cycles in [[each[name] for each in conversion]]}
                   for conversion in [*zip(*found, strict=True)][half]]
    return result


@cocotb.test()
async def wire(dut):
    """Payload bytes per byte time of a saturated line: writes of the host to video memory."""
    system = SimulatedSystem(dut, OPTIONS["system"])
    with captured(system):
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
