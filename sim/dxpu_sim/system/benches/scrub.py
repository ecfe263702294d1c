"""A GPU between two hosts: what the first one has left in its memory.

Options of the design come as JSON in ``$DXPU_SYSTEM``. A GPU forgets in each reset, or it keeps
all, and the box waits until somebody has wiped it.
"""

import json
import os

import cocotb
from cocotb.triggers import Timer

from dxpu_sim.system.hotplug_host import HotPlugHost
from dxpu_sim.system.setup import slot_state
from dxpu_sim.system.system import SimulatedSystem

OPTIONS = json.loads(os.environ["DXPU_SYSTEM"])
SIZE = 4096


class Tenancy:
    """Tenants of a GPU, one after the other, at one host."""

    def __init__(self, dut, *, keeps=False):
        dut.keeps.value = keeps
        self.system = SimulatedSystem(dut, OPTIONS, gpu={"forgets": not keeps})
        self.bench, self.box = HotPlugHost(self.system), self.system.boxes[0]
        self.secret = self.system.rng.randbytes(SIZE)

    async def leave(self):
        """The binding ends."""
        await self.bench.release(0)
        await self.bench.gone(0)

    async def waits(self):
        """A binding is made, and does not open; it goes on waiting."""
        await self.bench.commit(0, 0)
        await Timer(200, "us")
        state = await slot_state(self.system.host, 0)
        assert (state["present"], state["link"]) == (0, 0)

    async def enters(self):
        """The binding that waits opens; returns the driver, and what it finds."""
        await self.bench.up(0, 0)
        driver = await self.bench.open(0, 0)
        return driver, await driver.read_vram(0, SIZE)

    async def dirty(self):
        """Whether the box says that the GPU is dirty."""
        return (await self.box.read("control.dirty"))["slots"]


async def first(tenancy):
    """The first tenant writes what is nobody else's business, and goes."""
    driver = await tenancy.bench.bind(0)
    await driver.write_vram(0, tenancy.secret)
    assert await driver.read_vram(0, SIZE) == tenancy.secret
    await tenancy.leave()


@cocotb.test()
async def a_gpu_that_forgets_is_free_at_once(dut):
    """Nothing waits, nothing is dirty, and nothing is found."""
    tenancy = Tenancy(dut)
    await tenancy.bench.boot()
    for _ in range(2):
        await first(tenancy)
        assert not await tenancy.dirty()
    await tenancy.bench.commit(0, 0)
    _, found = await tenancy.enters()
    assert found == bytes(SIZE)


@cocotb.test()
async def a_gpu_that_keeps_all_waits_until_it_is_wiped(dut):
    """After a reset of the box, as nobody knows what was before, and after each tenant; the
    maintainer comes to it, wipes it and says so. A slot that need not be held shows what would be
    found."""
    tenancy = Tenancy(dut, keeps=True)
    await tenancy.bench.boot()
    box, host = tenancy.box, tenancy.system.host
    assert await tenancy.dirty()
    await tenancy.waits()
    await box.write("control.dirty", slots=1)
    await tenancy.enters()
    await tenancy.leave()
    await box.write("control.dirty", slots=1)
    await first(tenancy)
    assert await tenancy.dirty()

    # The maintainer, who waits like everybody before he is named.
    await tenancy.waits()
    await box.write("control.scrub", hold=1, maintainer=host.node)
    driver, found = await tenancy.enters()
    assert found == tenancy.secret and await tenancy.dirty()
    await driver.write_vram(0, bytes(SIZE))
    assert await driver.read_vram(0, SIZE) == bytes(SIZE)
    await box.write("control.dirty", slots=1)
    await tenancy.leave()
    await box.write("control.scrub", hold=1, maintainer=0)
    assert not await tenancy.dirty()

    await tenancy.bench.commit(0, 0)
    driver, found = await tenancy.enters()
    assert found == bytes(SIZE)
    await driver.write_vram(0, tenancy.secret)
    assert await driver.read_vram(0, SIZE) == tenancy.secret
    # A reset within the binding is its own business.
    await host.write("control.reset", ports=1)
    _, found = await tenancy.enters()
    assert found == tenancy.secret
    await tenancy.leave()

    await box.write("control.scrub", hold=0)
    await tenancy.bench.commit(0, 0)
    _, found = await tenancy.enters()
    assert found == tenancy.secret
