"""Sessions that are lost while GPUs are in use, and open again by themselves: the whole system.

Options of the design come as JSON in ``$DXPU_SYSTEM``; all GPUs of the first box are used. Timers
of retransmission and polls are an eighth of the default, or the default with
``$DXPU_TIMERS=default``; the quiet time after a loss is always scaled.
"""

import json
import os

import cocotb
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time
from cocotbext.pcie.core.tlp import CplStatus

from dxpu_sim.system.hotplug_host import Copier, HotPlugHost, Reader
from dxpu_sim.system.setup import wait_for_session, wait_for_slot
from dxpu_sim.system.system import SimulatedSystem

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))
#: First waits in units of 64 cycles: 250 us, or 31 us; quiet for 51 us instead of 100 ms.
WAIT = 488 if os.environ.get("DXPU_TIMERS") == "default" else 60
QUIET = 100
#: Longest time until both ends have noticed a loss, and until the session is open again; us.
PATIENCE = 50 * WAIT
#: The shortest completion timeout of hosts: 10 ms.
COMPLETION_NS = 10_000_000


class Run:
    """A host with GPUs at work behind sessions opened by HELLO."""

    def __init__(self, dut):
        self.dut = dut
        self.bench = HotPlugHost(SimulatedSystem(dut, OPTIONS),
                                 paths=(1 << OPTIONS.get("paths", 1)) - 1)
        self.system = self.bench.system
        self.system.rc.timeout_ns = 2 * COMPLETION_NS
        self.copiers, self.readers = [], []
        self.box = self.system.boxes[0]
        self.gpus = [n for n, (box, _) in enumerate(self.system.slots) if box == 0]

    async def begin(self, *, busy=True):
        await self.bench.boot(retry_wait=WAIT, hello=dict(boot=1, wait=WAIT, quiet=QUIET))
        for proxy in (self.system.host, self.box):
            assert await wait_for_session(proxy, 0) == {"phase": 6, "boot": 1}
        drivers = [await self.bench.bind(gpu) for gpu in self.gpus]
        if not busy:
            await Timer(20, "us")
            return
        self.copiers = [Copier(self.bench, driver) for driver in drivers]
        self.readers = [Reader(self.bench, driver) for driver in drivers]
        for copier in self.copiers:
            await copier.begun.wait()
        await Timer(self.bench.rng.randint(0, 60_000), "ns")

    async def lost(self):
        """Wait until the host sees all slots empty; print the time."""
        begin = get_sim_time("ns")
        for copier in self.copiers:
            copier.lost = True
        for gpu in self.gpus:
            self.bench.fault(gpu)
        for gpu in self.gpus:
            await wait_for_slot(self.system.host, gpu, timeout_us=12_000, link=0, present=0, lost=1)
        took = get_sim_time("ns") - begin
        assert took < COMPLETION_NS, took
        for reader in self.readers:
            await Timer(5, "us")
            await reader.stop()
            assert reader.statuses[-1] == CplStatus.UR
        for copier in self.copiers:
            copier.task.cancel()
        for gpu in self.gpus:
            await self.bench.gone(gpu)
        print(f"sessions: the host sees empty slots after {took / 1e6:.2f} ms")

    async def come_back(self):
        """The session opens by itself; the manager binds the GPUs again; check the GPUs."""
        for proxy in (self.system.host, self.box):
            await wait_for_session(proxy, 0, timeout_us=PATIENCE)
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
    """No frame passes, in the middle of copies: slots go, requests end in UR; later all works
    again."""
    run = Run(dut)
    await run.begin()
    dut.dead.value = (1 << len(dut.dead)) - 1
    await run.lost()
    # Both ends notice; the box resets its GPUs.
    await wait_for_session(run.box, 0, open=False, timeout_us=PATIENCE)
    dut.dead.value = 0
    await run.come_back()


@cocotb.test()
async def an_ethernet_that_dies_while_nobody_speaks(dut):
    """No frame passes, without traffic: polls of the sessions notice, and the slots go as well."""
    run = Run(dut)
    await run.begin(busy=False)
    dut.dead.value = (1 << len(dut.dead)) - 1
    await run.lost()
    await wait_for_session(run.box, 0, open=False, timeout_us=PATIENCE)
    dut.dead.value = 0
    await run.come_back()


@cocotb.test()
async def a_box_that_forgets_its_sessions(dut):
    """The box no longer accepts the host's tag, but announces the loss by a FENCE."""
    run = Run(dut)
    await run.begin()
    await run.box.write("control.session[0].open", strobe=1)
    await run.lost()
    await run.come_back()
