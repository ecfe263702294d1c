"""Sessions that are lost while GPUs are in use, and open again by themselves: the whole system.

Timers are scaled: quiet time, retransmission, polls. Options of the design come as JSON in
``$DXPU_SYSTEM``; all GPUs of the first box are used.
"""

import json
import os

import cocotb
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time
from cocotbext.pcie.core.tlp import CplStatus

from dxpu_sim.hotplug_host import Copier, HotPlugHost, Reader
from dxpu_sim.setup import wait_for_session, wait_for_slot
from dxpu_sim.system import SimulatedSystem

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))
#: First waits in units of 64 cycles: 31 us instead of 250 us; quiet for 51 us instead of 100 ms.
WAIT, QUIET = 60, 100
#: A host waits for a completion for 10 ms at least.
COMPLETION_NS = 10_000_000


class Run:
    """A host with GPUs at work behind sessions that were opened by HELLO."""

    def __init__(self, dut):
        self.dut = dut
        self.bench = HotPlugHost(SimulatedSystem(dut, OPTIONS))
        self.system = self.bench.system
        self.system.rc.timeout_ns = 2 * COMPLETION_NS
        self.box = self.system.boxes[0]
        self.gpus = [n for n, (box, _) in enumerate(self.system.slots) if box == 0]

    async def begin(self):
        await self.bench.boot(retry_wait=WAIT, hello=dict(boot=1, wait=WAIT, quiet=QUIET))
        for proxy in (self.system.host, self.box):
            assert await wait_for_session(proxy, 0) == {"phase": 6, "boot": 1}
        drivers = [await self.bench.bind(gpu) for gpu in self.gpus]
        self.copiers = [Copier(self.bench, driver) for driver in drivers]
        self.readers = [Reader(self.bench, driver) for driver in drivers]
        for copier in self.copiers:
            await copier.begun.wait()
        await Timer(self.bench.rng.randint(0, 60_000), "ns")

    async def lost(self):
        """The host sees all slots empty; how long that took."""
        begin = get_sim_time("ns")
        for copier, gpu in zip(self.copiers, self.gpus, strict=True):
            copier.lost = True
            self.bench.fault(gpu)
        for gpu in self.gpus:
            await wait_for_slot(self.system.host, gpu, timeout_us=12_000, link=0, present=0, lost=1)
        took = get_sim_time("ns") - begin
        assert took < COMPLETION_NS, took
        for reader in self.readers:
            await Timer(5, "us")
            await reader.stop()
            assert reader.statuses[-1] == CplStatus.UR
        for copier, gpu in zip(self.copiers, self.gpus, strict=True):
            copier.task.cancel()
            await self.bench.gone(gpu)
        return took

    async def come_back(self):
        """The session opens by itself; the manager binds the GPUs again, and they work."""
        for proxy in (self.system.host, self.box):
            await wait_for_session(proxy, 0, timeout_us=3000)
        for gpu in self.gpus:
            assert (await wait_for_slot(self.system.host, gpu, lost=1))["present"] == 0
            await self.bench.release(gpu)
            driver = await self.bench.bind(gpu)
            data = self.bench.rng.randbytes(1500)
            assert await driver.copy_there_and_back(data, 0) == data
        await self.system.idle()
        self.system.checker.finish()
        counters = await self.system.counters()
        for name in ("host", "box0"):
            totals = counters[name]
            assert totals["fabric_session_opened"] >= 2 and totals["fabric_session_lost"] >= 1
            assert totals["fabric_session_rebooted"] == 0
        return counters


@cocotb.test()
async def an_ethernet_that_dies_and_comes_back(dut):
    """No frame passes, in the middle of copies: slots go, requests end in UR; then all is well."""
    run = Run(dut)
    await run.begin()
    dut.dead.value = (1 << len(dut.dead)) - 1
    await run.lost()
    # Both ends find out; the box resets its GPUs.
    await wait_for_session(run.box, 0, open=False, timeout_us=3000)
    dut.dead.value = 0
    await run.come_back()


@cocotb.test()
async def a_box_that_forgets_its_sessions(dut):
    """As after a reset of its fabric side, it knows no tag any more: nothing of the host fits."""
    run = Run(dut)
    await run.begin()
    await run.box.write("control.session[0].open", strobe=1)
    await run.lost()
    counters = await run.come_back()
    assert counters["box0"]["fabric_link_wrong_tag"] > 0
