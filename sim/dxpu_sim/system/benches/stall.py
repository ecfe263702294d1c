"""Slots that take no TLPs of a class: effect on other slots, and time limit.

Options of the design come as JSON in ``$DXPU_SYSTEM``; they must have two GPUs or more.
"""

import json
import os

import cocotb
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from dxpu_sim.system.setup import slot_state
from dxpu_sim.system.system import SimulatedSystem

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))
P, NP, CPL = range(3)
#: Limit of a stall: 5 ms, up to half as much again, as the box measures in coarse intervals.
STALL_US = 5_000, 8_000


async def work(system):
    """Traffic of GPU 0, in both directions and of all classes; returns its duration in ns."""
    driver, start = system.drivers[0], get_sim_time("ns")
    for n in range(6):
        data = system.rng.randbytes(1000)
        await driver.write_vram(1000 * n, data)
        assert await driver.read_vram(1000 * n, len(data)) == data
    data = system.rng.randbytes(6000)
    assert await driver.copy_there_and_back(data, 0) == data
    return get_sim_time("ns") - start


async def stalled(dut, cls, begin):
    """TLPs caused by ``begin`` at GPU 1 wait in class ``cls``; GPU 0 must not notice."""
    system = SimulatedSystem(dut, OPTIONS)
    await system.start()
    await work(system)
    alone = await work(system)
    # Longer than the stall of GPU 1, and shorter than the deadline of requests.
    system.rc.timeout_ns = system.drivers[1].timeout_ns = 8_000_000
    system.links[1].hold(cls)
    tasks = [cocotb.start_soon(task) for task in begin(system)]
    await Timer(100, "us")
    beside = await work(system)
    assert not any(task.done() for task in tasks)
    assert alone >= 0.95 * beside, (alone, beside)
    system.links[1].hold(cls, False)
    for task in tasks:
        await task
    await system.finish()


@cocotb.test()
async def reads_that_are_not_taken(dut):
    """More reads than the slot has credits for."""
    def begin(system):
        async def read(n):
            data = system.rng.randbytes(16)
            system.gpus[1].vram.write(16 * n, data)
            assert await system.drivers[1].read_vram(16 * n, 16) == data
        return [read(n) for n in range(20)]

    await stalled(dut, NP, begin)


@cocotb.test()
async def writes_that_are_not_taken(dut):
    """Writes within the box's room, and a read behind them."""
    def begin(system):
        async def write():
            data = system.rng.randbytes(3000)
            await system.drivers[1].write_vram(0, data)
            assert await system.drivers[1].read_vram(0, len(data)) == data
        return [write()]

    await stalled(dut, P, begin)


@cocotb.test()
async def completions_that_are_not_taken(dut):
    """The GPU reads host memory, and does not take the data."""
    def begin(system):
        async def copy():
            data = system.rng.randbytes(2000)
            assert await system.drivers[1].copy_there_and_back(data, 0) == data
        return [copy()]

    await stalled(dut, CPL, begin)


@cocotb.test()
async def a_slot_that_takes_no_posted_tlp_loses_its_card(dut):
    """More writes than the box has room for: they hold back the host's writes, for 5 ms."""
    system = SimulatedSystem(dut, OPTIONS)
    system.mailboxes["host"].patience_ns = 20_000_000
    await system.start()
    await work(system)
    system.checker.fault("gpu1")
    system.links[1].hold(P)
    start = get_sim_time("us")
    for n in range(100):
        await system.drivers[1].write_vram(256 * n, bytes(256))
    state = await slot_state(system.host, 1)
    assert state["link"] == 1
    while not (await slot_state(system.host, 1))["lost"]:
        await Timer(20, "us")
        assert get_sim_time("us") - start < STALL_US[1]
    assert get_sim_time("us") - start >= STALL_US[0]
    state = await slot_state(system.host, 1)
    assert (state["present"], state["link"]) == (0, 0)
    await work(system)
    counters = await system.host.counters()
    assert counters["fabric_tx_waited"] and counters["fabric_tx_unroutable"]
    assert counters["pool_overflow"] == 0
