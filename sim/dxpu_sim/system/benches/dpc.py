"""Downstream Port Containment in the whole system, below drivers of hot-plug and of containment.

Options of the design come as JSON in ``$DXPU_SYSTEM``; they must have ``dpc`` and two GPUs or more.
"""

import json
import os

import cocotb
from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import CplStatus

from dxpu.tlp.types import MessageCode
from dxpu_sim.system.dpc import Containment
from dxpu_sim.system.hotplug_host import Copier, HotPlugHost, Reader
from dxpu_sim.system.setup import wait_for_slot
from dxpu_sim.system.system import SimulatedSystem

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))
SURPRISE_DOWN = 1 << 5


async def boot(dut, *, refuse):
    """A host with the drivers of all slots."""
    bench = HotPlugHost(SimulatedSystem(dut, OPTIONS))
    await bench.boot()
    drivers = [Containment(slot, refuse=refuse) for slot in bench.slots]
    for driver in drivers:
        await driver.start()
    return bench, drivers


async def finish(bench, drivers, others):
    """Check that the other slots noticed nothing, and that nothing is left over."""
    for other in others:
        before = other.rounds
        while other.rounds == before:
            await Timer(5, "us")
        await other.stop()
    await bench.system.idle()
    bench.system.checker.finish()
    assert not any(driver.log for driver in drivers[1:])
    counters = (await bench.system.counters())["host"]
    assert not counters["tracking_expired"] and not counters["tracking_irregular"]


async def pulled(dut, *, refuse):
    """A GPU is pulled in the middle of a copy; then another GPU is bound to the slot."""
    bench, drivers = await boot(dut, refuse=refuse)
    status = CplStatus.UR if refuse else CplStatus.CA
    others = [Copier(bench, await bench.bind(1))]
    for round in range(2):
        driver = await bench.bind(0)
        copier, reader = Copier(bench, driver), Reader(bench, driver)
        await copier.begun.wait()
        await Timer(bench.rng.randint(0, 60_000), "ns")
        copier.lost = True
        await bench.pull(0)
        state = await bench.gone(0)
        await bench.slots[0].until(lambda n=round: len(drivers[0].recovered) > n)
        await reader.stop((CplStatus.SC, CplStatus.CA, CplStatus.UR))
        copier.task.cancel()
        # The first failed read has the status of Completion Control; later the slot is just empty.
        assert next(s for s in reader.statuses if s != CplStatus.SC) == status
        assert (CplStatus.CA in reader.statuses) != refuse
        assert drivers[0].log[round:] == [(0, 0, 0, SURPRISE_DOWN)]
        assert drivers[0].recovered[round:] == [False]
        assert state["present"] == 0
        await bench.release(0)
        await bench.put_back(0)
        await bench.gone(0)
    # A managed detach is no surprise.
    driver = await bench.bind(0)
    data = bench.rng.randbytes(700)
    assert await driver.copy_there_and_back(data, 0) == data
    await bench.system.idle()
    await bench.system.host.write("control.detach", ports=1)
    await wait_for_slot(bench.system.host, 0, detach=3)
    bench.system.routes.present.discard(0)
    await bench.release(0)
    await bench.gone(0)
    await Timer(20, "us")
    assert len(drivers[0].log) == 2
    await finish(bench, drivers, others)


@cocotb.test()
async def pulled_with_completer_abort(dut):
    await pulled(dut, refuse=False)


@cocotb.test()
async def pulled_with_unsupported_request(dut):
    await pulled(dut, refuse=True)


@cocotb.test()
async def a_contained_gpu_recovers(dut):
    """ERR_FATAL of a GPU, then software: the GPU is reset, and the host can use the GPU again."""
    bench, drivers = await boot(dut, refuse=False)
    system, slot = bench.system, bench.slots[0]
    others = [Copier(bench, await bench.bind(1))]
    driver = await bench.bind(0)
    for round, how in enumerate(("message", "software")):
        copier = Copier(bench, driver)
        await copier.begun.wait()
        await Timer(bench.rng.randint(0, 40_000), "ns")
        resets, heard = system.gpus[0].resets, len(system.rc.messages)
        copier.lost = True
        bench.fault(0)
        if how == "message":
            await system.gpus[0].function.message(MessageCode.ERR_FATAL.value)
            expected = (2, 0, int(driver.dev.pcie_id), 0)
        else:
            await drivers[0].trigger()
            expected = (3, 1, 0, 0)
        await slot.until(lambda n=round: slot.log.count("gone") > n)
        await wait_for_slot(system.host, 0, link=1)
        copier.task.cancel()
        system.checker.mended(system.names[0])
        await slot.until(lambda n=round: slot.log.count("added") > n + 1)
        assert drivers[0].log[round:] == [expected] and drivers[0].recovered[round:] == [True]
        assert system.gpus[0].resets == resets + 1
        # The message itself ended in the port.
        assert not [m for m in system.rc.messages[heard:]
                    if m.first_be | m.last_be << 4 == MessageCode.ERR_FATAL.value]
        driver = await bench.open(0, 0)
        data = bench.rng.randbytes(500)
        assert await driver.copy_there_and_back(data, 0) == data
    await finish(bench, drivers, others)
