"""The whole system: root complex, host proxy, Ethernet, box proxies, GPUs.

All operations are the driver's, through the root complex. Options of the design come as JSON in
``$DXPU_SYSTEM``; they must have two GPUs or more.
"""

import json
import os

import cocotb
from cocotb.triggers import Timer, ValueChange
from cocotbext.pcie.core import MemoryEndpoint, Switch
from cocotbext.pcie.core.tlp import CplStatus, TlpType
from cocotbext.pcie.core.utils import PcieId

from dxpu_model.tlp import KINDS, Tlp
from dxpu_sim.endpoint.driver import find_devices, find_gpus
from dxpu_sim.pcie.tlps import is_message
from dxpu_sim.system.setup import bind, slot_state
from dxpu_sim.system.system import LOSS_COUNTERS, SimulatedSystem

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))


@cocotb.test()
async def empty_switch(dut):
    """Before the first binding the root complex finds the switch and no GPU."""
    system = SimulatedSystem(dut, OPTIONS)
    await Timer(1, "us")
    await system.rc.enumerate()
    assert not find_gpus(system.rc)
    assert len(find_devices(system.rc)) == 2 + system.ports
    await system.finish()


@cocotb.test()
async def registers_and_video_memory(dut):
    """Every GPU is found, returns its own name, and keeps written data."""
    system = SimulatedSystem(dut, OPTIONS)
    await system.start()
    for n, (driver, gpu) in enumerate(zip(system.drivers, system.gpus, strict=True)):
        assert (await driver.serial(), await driver.name()) == (gpu.serial, system.titles[n])
    values = {driver: system.rng.getrandbits(32) for driver in system.drivers}
    for driver, value in values.items():
        await driver.write_register("SCRATCH", value)
    for driver, value in values.items():
        assert await driver.read_register("SCRATCH") == value
    for n, driver in enumerate(system.drivers):
        for length in (1, 2, 3, 5, 128, 700):
            data = system.rng.randbytes(length)
            await driver.write_vram(4 * n + 1, data)
            assert await driver.read_vram(4 * n + 1, length) == data
    await system.finish()


@cocotb.test()
async def copies_of_all_gpus_at_once(dut):
    """Copy engines read and write host memory, all at a time, also with other packing limits."""
    system = SimulatedSystem(dut, OPTIONS)
    await system.start(interrupts="msi")

    async def copy(driver, gpu, length):
        data = system.rng.randbytes(length)
        assert await driver.copy_there_and_back(data, 0) == data
        assert gpu.vram.read(0, len(data)) == data

    share = {}
    name = f"box{len(system.boxes) - 1}"
    for limit in (0, 300, 1500):
        for proxy in (system.host, *system.boxes):
            await proxy.write("control.fabric", packing_limit=limit, ack_delay=125)
        tasks = [cocotb.start_soon(copy(driver, gpu, system.rng.randint(2000, 5000)))
                 for driver, gpu in zip(system.drivers, system.gpus, strict=True)]
        for task in tasks:
            await task
        before = (await system.counters())[name]
        await copy(system.drivers[-1], system.gpus[-1], 4000)
        after = (await system.finish())[name]
        share[limit] = ((after["fabric_tx_tlps"] - before["fabric_tx_tlps"])
                        / (after["fabric_tx_frames"] - before["fabric_tx_frames"]))
    # The writes of a copy wait for the line, so they (in the split form, their data) share frames
    # if allowed. With wide beats almost all writes with credits are in frames of their own already:
    # two frames and four beats wait before a line that is equally slow at all widths. The number of
    # TLPs per frame at these widths is tested in tests/hdl/fabric/send/test_packetizer.py.
    least = 1 if OPTIONS.get("width", 64) > 128 else 1.2
    assert share[0] <= 1 and share[1500] > least * share[0], share


@cocotb.test()
async def gpu_to_gpu(dut):
    """The copy engine of one GPU writes and reads the video memory of another."""
    system = SimulatedSystem(dut, OPTIONS)
    await system.start()
    first, last = system.drivers[0], system.drivers[-1]
    data = system.rng.randbytes(3000)
    system.gpus[0].vram.write(0, data)
    peer = last.dev.bar_addr[2]
    await first.copy_to_host(peer + 0x5000, 0, len(data))
    # The interrupt goes to the host and may arrive before the writes reach the peer.
    await system.idle()
    assert system.gpus[-1].vram.read(0x5000, len(data)) == data
    await first.copy_to_gpu(peer + 0x5000, 0x9000, len(data))
    assert system.gpus[0].vram.read(0x9000, len(data)) == data
    ends = {(c.source, c.destination) for c in system.checker.crossings}
    assert {("gpu0", system.names[-1]), (system.names[-1], "gpu0")} <= ends
    await system.finish()


async def raise_all_vectors(dut, kind):
    system = SimulatedSystem(dut, OPTIONS)
    await system.start(interrupts=kind)
    for driver in system.drivers:
        before = list(driver.interrupts)
        for vector in range(len(before)):
            await driver.trigger_interrupt(vector)
            before[vector] += 1
            assert driver.interrupts == before
    await system.finish()


@cocotb.test()
async def msi(dut):
    """Every vector arrives once for each time it is raised."""
    await raise_all_vectors(dut, "msi")


@cocotb.test()
async def msix(dut):
    """Every vector arrives once for each time it is raised."""
    await raise_all_vectors(dut, "msix")


@cocotb.test()
async def wrong_accesses_are_unsupported(dut):
    """Unclaimed requests are completed as Unsupported Request, by the switch or the GPU."""
    system = SimulatedSystem(dut, OPTIONS)
    await system.start()
    driver = system.drivers[0]
    inside = driver.dev.bus.bridge.pcie_id.bus
    for target in (PcieId(inside, 31, 0), PcieId(driver.pcie_id.bus, 3, 0),
                   PcieId(driver.pcie_id.bus, 0, 7)):
        completion, = await system.rc.request(TlpType.CFG_READ_1, target=target)
        assert completion.status == CplStatus.UR, target
    # The doorbell page beyond the registers, and a read of registers in odd bytes.
    completion, = await system.rc.request(TlpType.MEM_READ, driver.dev.bar_addr[0] + 0x10,
                                          first_be=0b0110)
    assert completion.status == CplStatus.UR
    assert await driver.serial() == system.gpus[0].serial
    await system.finish()


@cocotb.test()
async def malformed_tlps_are_errors_of_the_port_they_came_to(dut):
    """A GPU sends malformed TLPs, found by its box or by the host.

    The GPU's port, and no other, reports Malformed TLP with the header; well-formed TLPs pass as
    before.
    """
    status, log = 0x104, 0x11C  # AER registers
    system = SimulatedSystem(dut, OPTIONS)
    await system.start()
    driver, other = system.drivers[:2]
    requester = int(driver.pcie_id)
    write = {"address": 0x1000_0000, "requester_id": requester, "last_be": 15}
    long = system.rc.max_payload_size  # code of the limit; a dword more is malformed
    for tlp in (
            # Byte enables of two dwords that are not contiguous.
            Tlp(*KINDS["MWr32"], **write, length=3, first_be=5, payload=bytes(12)),
            Tlp(*KINDS["MWr64"], **write, length=(32 << long) + 1, first_be=15,
                payload=bytes((128 << long) + 4))):
        system.checker.fault("gpu0")
        await system.mailboxes["gpu0"].send(raw := tlp.pack())
        await Timer(30, "us")
        system.checker.mended("gpu0")
        assert await port_of(driver).config_read_dword(status) == 1 << 18
        header = [await port_of(driver).config_read_dword(log + 4 * n) for n in range(4)]
        words = [int.from_bytes(raw[4 * n:4 * n + 4], "big") for n in range(4)]
        assert header == [*words[:3], words[3] if tlp.fmt & 1 else 0]
        assert not await port_of(other).config_read_dword(status)
        await port_of(driver).config_write_dword(status, 1 << 18)
        data = system.rng.randbytes(700)
        assert await driver.copy_there_and_back(data, 0) == data
        await Timer(20, "us")  # a box reports one TLP after the other
    counters = await system.finish(allow=("from_slots_malformed", "tlp_malformed"))
    assert (counters["box0"]["from_slots_malformed"], counters["host"]["tlp_malformed"]) == (1, 1)


def port_of(driver):
    """The downstream port above a GPU."""
    return driver.dev.bus.bridge


@cocotb.test()
async def spoiled_frames_are_dropped_counted_and_sent_again(dut):
    """A frame with a wrong bit only raises counters, and is sent again."""
    system = SimulatedSystem(dut, OPTIONS)
    await system.start()
    await system.finish()
    driver, gpu = system.drivers[0], system.gpus[0]
    clean = (await system.counters())["box0"]
    rounds, hits = 0, 0
    while hits < 6:
        rounds += 1
        await Timer(10, "us")  # until no acknowledgement is under way
        old, data = system.rng.randbytes(16), system.rng.randbytes(16)
        gpu.vram.write(0x100, old)
        cocotb.start_soon(driver.write_vram(0x100, data))
        await ValueChange(dut.probe_box0_gmii_rx)
        await Timer(8 * system.rng.randint(10, 70), "ns")
        dut.spoil.value = 0b10
        await Timer(8, "ns")
        dut.spoil.value = 0
        await Timer(5, "us")
        if gpu.vram.read(0x100, 16) == data:
            continue  # the spoiled frame carried limits, which come at any time
        hits += 1
        assert gpu.vram.read(0x100, 16) == old
        # The next frame shows the gap, or the missing acknowledgement does.
        if system.rng.getrandbits(1):
            assert await driver.read_vram(0x100, 16) == data
        else:
            await system.idle(400_000)
            assert gpu.vram.read(0x100, 16) == data
    counters = (await system.finish(allow=(*LOSS_COUNTERS, "mac0_rx_bad_fcs")))["box0"]
    assert counters["mac0_rx_bad_fcs"] == rounds <= 2 * hits
    assert counters["fabric_rx_refused"] == counters["fabric_link_gap"] <= hits
    assert counters["fabric_rx_tlps"] - clean["fabric_rx_tlps"] >= rounds


#: First waits for an acknowledgement, in units of 64 cycles, instead of 250 us. 31 us: a path is
#: given up soon. 164 us: not less than a full replay memory takes to leave.
SHORT_WAIT, LONG_WAIT = 60, 320
#: The shortest completion timeout of hosts: 10 ms.
COMPLETION_NS = 10_000_000


async def copy_all(system, length):
    """Copy with all GPUs at once, and check each copy at its end."""
    async def copy(driver, gpu):
        data = system.rng.randbytes(length)
        assert await driver.copy_there_and_back(data, 0) == data
        assert gpu.vram.read(0, len(data)) == data

    tasks = [cocotb.start_soon(copy(driver, gpu))
             for driver, gpu in zip(system.drivers, system.gpus, strict=True)]
    for task in tasks:
        await task


@cocotb.test()
async def an_ethernet_that_loses_frames_costs_time_and_nothing_else(dut):
    """From the bindings on, 2 % of all frames are lost, including acknowledgements."""
    system = SimulatedSystem(dut, OPTIONS)
    dut.loss.value = 65536 * 2 // 100
    system.rc.timeout_ns = COMPLETION_NS
    await system.start(retry_wait=LONG_WAIT)
    await copy_all(system, 6000)
    counters = await system.finish(allow=LOSS_COUNTERS)
    lost = int(dut.lost.value)
    repeated = sum(totals["fabric_tx_repeated"] for totals in counters.values())
    system.dut._log.info("%d frames lost, %d sent again", lost, repeated)
    assert lost >= 5 and repeated >= 5


@cocotb.test()
async def a_path_that_dies_is_left_for_the_other(dut):
    """Path 0 dies in the middle of copies; path 1 takes over."""
    system = SimulatedSystem(dut, OPTIONS)
    system.rc.timeout_ns = COMPLETION_NS
    await system.start(paths=0b11, retry_wait=SHORT_WAIT)  # given up after 460 us
    before = await system.counters()
    assert not any(totals["mac1_tx_good"] for totals in before.values())
    copies = cocotb.start_soon(copy_all(system, 6000))
    await Timer(system.rng.randint(10, 60), "us")
    dut.dead.value = 0b01
    await copies
    counters = await system.finish(allow=LOSS_COUNTERS)
    for name, totals in counters.items():
        assert totals["mac1_tx_good"] > 10, name
        assert totals["fabric_retry_timeout"] >= 4, name
    for proxy in (system.host, *system.boxes):
        assert (await proxy.read("control.session[0].state"))["path"] == 1


@cocotb.test()
async def bound_rows_take_another_path_and_no_gpu_notices(dut):
    """In the middle of copies all rows change from path 0 to path 1, and back, and later to both,
    under the same generation: no card goes, no frame is lost for good, and a session that has left
    no path looks from path 0 on."""
    system = SimulatedSystem(dut, OPTIONS)
    await system.start(retry_wait=LONG_WAIT)
    host, last = system.host, 100
    sent = [{}, {}]

    async def take(paths):
        nonlocal last
        for port, (b, slot) in enumerate(system.slots):
            last += 1
            await bind(host, port, system.boxes[b], slot, generation=1, operation_id=last,
                       paths=paths)

    async def grown():
        """Whether frames have left by each path since the last time, at any proxy."""
        counters = await system.counters()
        now = [{name: totals[f"mac{path}_tx_good"] for name, totals in counters.items()}
               for path in range(2)]
        grown = [{name: now[path][name] - sent[path].get(name, 0) for name in now[path]}
                 for path in range(2)]
        sent[:] = now
        return grown

    await grown()
    for paths, by in ((0b10, 1), (0b01, 0), (0b11, 0)):
        copies = cocotb.start_soon(copy_all(system, 6000))
        await Timer(system.rng.randint(10, 60), "us")
        await take(paths)
        await copies
        await grown()
        await copy_all(system, 3000)
        there = await grown()
        assert all(count > 10 for count in there[by].values()), (paths, there)
        assert not any(there[1 - by].values()), (paths, there)
        for port in range(len(system.slots)):
            state = await slot_state(host, port)
            assert state["link"] and state["present"] and not state["lost"], (paths, port, state)
    for proxy in (host, *system.boxes):
        assert (await proxy.read("control.session[0].state"))["path"] == 0
    await system.finish(allow=LOSS_COUNTERS)


AUDIO = 0xaad0


def with_audio(gpu):
    """A card with a second function of 64 KiB."""
    audio = MemoryEndpoint()
    audio.vendor_id, audio.device_id, audio.class_code = 0x1234, AUDIO, 0x040300
    audio.add_mem_region(1 << 16)
    gpu.append_function(audio)
    return gpu.upstream_port


def below_a_switch(gpu):
    """A card with a switch, and the GPU below the switch."""
    switch = Switch()
    switch.make_port().connect(gpu.upstream_port)
    port = switch.upstream_bridge.upstream_port
    route = port.rx_handler

    async def receive(tlp):
        if is_message(tlp):  # the library's switch cannot route messages
            tlp.release_fc()
        else:
            await route(tlp)

    port.rx_handler = receive
    return port


@cocotb.test()
async def functions_and_switches_behind_slots(dut):
    """A card of two functions, and a card with a switch: more bus numbers than the slot's own."""
    system = SimulatedSystem(dut, OPTIONS, behind={0: with_audio, 1: below_a_switch})
    await system.start()
    buses = [driver.pcie_id.bus for driver in system.drivers]
    assert buses[:2] == [buses[0], buses[0] + 3], "the switch in the card takes two buses more"
    audio, = find_devices(system.rc, device=AUDIO)
    assert audio.pcie_id == PcieId(buses[0], 0, 1)
    await audio.enable_device()
    data = system.rng.randbytes(200)
    await audio.bar_window[0].write(0x300, data)
    assert await audio.bar_window[0].read(0x300, len(data)) == data
    for driver in system.drivers:
        data = system.rng.randbytes(1500)
        assert await driver.copy_there_and_back(data, 0) == data
    await system.finish()
