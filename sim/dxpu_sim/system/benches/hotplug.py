"""GPUs come and go while the host runs: the whole system, below a hot-plug driver.

Options of the design come as JSON in ``$DXPU_SYSTEM``. All traffic is checked at its ends. The root
complex ends the test at an unexpected completion, and at a completion timeout.
"""

import json
import os
from collections import Counter

import cocotb
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time
from cocotbext.pcie.core.caps import PciCapId
from cocotbext.pcie.core.tlp import CplStatus, TlpType

from dxpu_sim.pcie.pciehp import Times
from dxpu_sim.system.hotplug_host import Copier, HotPlugHost, Reader
from dxpu_sim.system.setup import slot_state, wait_for_slot
from dxpu_sim.system.system import SimulatedSystem

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))
#: Number of lives of GPUs in :func:`cycles_on_all_slots`.
CYCLES = int(os.environ.get("DXPU_CYCLES", "8"))

# Bridge Control, and Link and Device Control in the PCI Express capability.
BRIDGE_CONTROL, BRIDGE_RESET = 0x3e, 1 << 6
LINK_CONTROL, LINK_DISABLE = 0x10, 1 << 4
DEVICE_CONTROL, FUNCTION_RESET = 0x08, 1 << 15


async def settle(bench):
    """Wait for the end of all traffic; check that nothing is left over."""
    await bench.system.idle()
    bench.system.checker.finish()


@cocotb.test()
async def managed_bind_and_unbind(dut):
    """A GPU arrives, is used, leaves by agreement, and serves in another slot."""
    bench = HotPlugHost(SimulatedSystem(dut, OPTIONS))
    await bench.boot()
    for port in (0, 1, 0):
        driver = await bench.bind(0, port)
        slot, host = bench.slots[port], bench.system.host
        data = bench.rng.randbytes(1000)
        assert await driver.copy_there_and_back(data, 0) == data
        await bench.system.idle()
        before = slot.interrupts
        await host.write("control.detach", ports=1 << port)
        assert (await slot_state(host, port))["detach"] == 1
        await slot.until(lambda slot=slot: slot.log[-1] == "removed")
        state = await wait_for_slot(host, port, detach=3)
        assert (state["present"], state["link"], state["lost"], state["power"]) == (0, 0, 1, 3)
        await slot.until(lambda slot=slot, before=before: slot.interrupts >= before + 2)
        bench.system.routes.present.discard(port)
        await bench.release(0, port)
        await bench.gone(port)
        assert (await slot_state(host, port))["detach"] == 0
    assert [line for line in bench.slots[0].log if line != "no link"] == [
        "added", "button", "removed", "added", "button", "removed"]
    assert bench.system.gpus[0].resets == 6
    await settle(bench)


@cocotb.test()
async def detach_is_refused_or_taken_back(dut):
    """A cancelled press of the button, and a host that ignores the press, change nothing."""
    bench = HotPlugHost(SimulatedSystem(dut, OPTIONS))
    await bench.boot()
    driver = await bench.bind(0)
    host, slot = bench.system.host, bench.slots[0]
    slot.times = Times(button=200_000)
    await host.write("control.detach_deadline", units=1)
    await host.write("control.detach", ports=1)
    await wait_for_slot(host, 0, detach=4)
    assert slot.log[-1] == "button"
    await host.write("control.press", ports=1)
    await slot.until(lambda: slot.log[-1] == "button: taken back")
    state = await slot_state(host, 0)
    assert (state["present"], state["link"], state["lost"], state["power"]) == (1, 1, 0, 1)
    data = bench.rng.randbytes(500)
    assert await driver.copy_there_and_back(data, 0) == data
    await settle(bench)


@cocotb.test()
async def surprise_removal_under_traffic(dut):
    """A GPU is pulled in the middle of traffic: its requests end in UR, other slots notice
    nothing."""
    bench = HotPlugHost(SimulatedSystem(dut, OPTIONS))
    await bench.boot()
    system = bench.system
    others = [Copier(bench, await bench.bind(n)) for n in range(1, len(system.gpus))]
    for how in ("release", "pull", "release"):
        driver = await bench.bind(0)
        copier, reader = Copier(bench, driver), Reader(bench, driver)
        await copier.begun.wait()
        await Timer(bench.rng.randint(0, 60_000), "ns")
        rounds = [other.rounds for other in others]
        copier.lost = True
        begin = get_sim_time("ns")
        await (bench.release(0) if how == "release" else bench.pull(0))
        state = await bench.gone(0)
        await Timer(20, "us")
        await reader.stop()
        assert reader.statuses[-1] == CplStatus.UR
        assert reader.first_ur_ns is not None and reader.first_ur_ns >= begin
        copier.task.cancel()
        assert state["present"] == 0
        for other, before in zip(others, rounds, strict=True):
            while other.rounds == before:
                await Timer(5, "us")
        if how == "pull":
            await bench.release(0)
            await bench.put_back(0)
            await bench.gone(0)
    for other in others:
        await other.stop()
    driver = await bench.bind(0)
    data = bench.rng.randbytes(700)
    assert await driver.copy_there_and_back(data, 0) == data
    await settle(bench)


@cocotb.test()
async def resets_under_traffic(dut):
    """Secondary Bus Reset and Link Disable reset the GPU, without remains of its former life."""
    bench = HotPlugHost(SimulatedSystem(dut, OPTIONS))
    await bench.boot()
    system, slot = bench.system, bench.slots[0]
    other = Copier(bench, await bench.bind(1))
    driver = await bench.bind(0)
    for round, what in enumerate(("reset", "disable", "manager")):
        copier = Copier(bench, driver)
        await copier.begun.wait()
        await Timer(bench.rng.randint(0, 40_000), "ns")
        resets = system.gpus[0].resets
        copier.lost = True
        bench.fault(0)
        if what == "reset":
            control = await slot.port.config_read_word(BRIDGE_CONTROL)
            for value in (control | BRIDGE_RESET, control):
                await slot.port.config_write_word(BRIDGE_CONTROL, value)
                await Timer(2, "us")
        elif what == "disable":
            for value in (LINK_DISABLE, 0):
                await slot.port.capability_write_word(PciCapId.EXP, LINK_CONTROL, value)
                await Timer(2, "us")
        else:
            await system.host.write("control.reset", ports=1)
        await slot.until(lambda n=round: slot.log.count("gone") > n)
        await wait_for_slot(system.host, 0, link=1)
        copier.task.cancel()
        assert system.gpus[0].resets == resets + 1, what
        system.checker.mended(system.names[0])
        await slot.until(lambda n=round: slot.log.count("added") > n + 1)
        driver = await bench.open(0, 0)
        data = bench.rng.randbytes(500)
        assert await driver.copy_there_and_back(data, 0) == data
    assert slot.log == ["added", *["gone", "added"] * 3]
    await other.stop()
    await settle(bench)


@cocotb.test()
async def function_level_reset_is_passed_through(dut):
    """A Function Level Reset concerns the GPU alone: its slot sees no event.

    The GPU works again once its configuration is restored. The GPU itself answers reads behind the
    reset.
    """
    bench = HotPlugHost(SimulatedSystem(dut, OPTIONS))
    await bench.boot()
    system, slot = bench.system, bench.slots[0]
    other = Copier(bench, await bench.bind(1))
    driver = await bench.bind(0)
    await driver.copy_there_and_back(bench.rng.randbytes(500), 0)
    await driver.write_register("SCRATCH", 0x600dcafe)
    assert await driver.read_register("SCRATCH") == 0x600dcafe
    dev, interrupts, events = driver.dev, slot.interrupts, list(slot.log)
    saved = {n: await dev.config_read_dword(n) for n in (0x04, *range(0x10, 0x28, 4))}
    control = await dev.capability_read_word(PciCapId.EXP, DEVICE_CONTROL)
    await dev.capability_write_word(PciCapId.EXP, DEVICE_CONTROL, control | FUNCTION_RESET)
    await Timer(1, "us")
    assert (system.gpus[0].function_resets, system.gpus[0].resets) == (1, 1)
    # The GPU's BARs are 0 now, so reads at their former addresses end in UR.
    completion, = await system.rc.request(TlpType.MEM_READ, dev.bar_addr[0])
    assert completion.status == CplStatus.UR
    assert completion.completer_id == dev.pcie_id
    for register in sorted(saved, reverse=True):
        await dev.config_write_dword(register, saved[register])
    assert await driver.read_register("SCRATCH") == 0
    data = bench.rng.randbytes(500)
    await driver.write_vram(3, data)
    assert await driver.read_vram(3, len(data)) == data
    assert (slot.interrupts, slot.log) == (interrupts, events)
    await other.stop()
    await settle(bench)


@cocotb.test()
async def deadline_costs_the_slot_its_card(dut):
    """A GPU that does not answer is lost after the deadline; the request ends in UR."""
    bench = HotPlugHost(SimulatedSystem(dut, OPTIONS))
    await bench.boot()
    system = bench.system
    await system.host.write("control.request_deadline", cycles=8192)
    driver = await bench.bind(0)
    other = Copier(bench, await bench.bind(1))
    system.mailboxes[system.names[0]].stall(1, True)
    bench.fault(0)
    begin = get_sim_time("ns")
    completion, = await system.rc.request(TlpType.MEM_READ, driver.dev.bar_addr[0])
    assert completion.status == CplStatus.UR
    took = get_sim_time("ns") - begin
    assert took > 8192 * 4, took
    state = await bench.gone(0)
    assert (state["present"], state["lost"]) == (0, 1)
    counters = (await system.counters())["host"]
    assert counters["tracking_expired"] == counters["tracking_answered"] == 1
    await other.stop()
    # Only another binding brings the GPU back.
    system.mailboxes[system.names[0]].stall(1, False)
    await bench.release(0)
    await bench.gone(0)
    driver = await bench.bind(0)
    assert await driver.serial() == system.gpus[0].serial
    await settle(bench)


@cocotb.test()
async def cycles_on_all_slots(dut):
    """Every slot independently: bind, copy for a while, leave by agreement or by surprise."""
    bench = HotPlugHost(SimulatedSystem(dut, OPTIONS))
    await bench.boot()
    host, rng, ends = bench.system.host, bench.rng, Counter()

    async def leave(gpu, copier):
        """Leave in a random way; copies must be correct until then."""
        how = rng.choice(("detach", "release", "pull"))
        ends[how] += 1
        if how == "detach":
            await copier.stop()
            await host.write("control.detach", ports=1 << gpu)
            await wait_for_slot(host, gpu, detach=3)
            bench.system.routes.present.discard(gpu)
            await bench.release(gpu)
        else:
            copier.lost = True
            await (bench.release(gpu) if how == "release" else bench.pull(gpu))
            await bench.gone(gpu)
            copier.task.cancel()
            if how == "pull":
                await bench.release(gpu)
                await bench.put_back(gpu)
        await bench.gone(gpu)

    async def lives(gpu):
        while ends.total() < CYCLES:
            copier = Copier(bench, await bench.bind(gpu))
            await Timer(rng.randint(0, 150_000), "ns")
            await leave(gpu, copier)
            rounds[gpu] += copier.rounds

    rounds = [0] * len(bench.system.gpus)
    tasks = [cocotb.start_soon(lives(gpu)) for gpu in range(len(rounds))]
    for task in tasks:
        await task
    cocotb.log.info("%s, whole copies %s", dict(ends), rounds)
    await settle(bench)
    counters = (await bench.system.counters())["host"]
    assert not counters["tracking_expired"] and not counters["tracking_irregular"]
