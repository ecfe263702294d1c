"""Root complex and GPU model through two mailboxes with nothing but queues between.

Tests the PCIe-side models themselves, and measures what the simulation costs.
"""

import os
import random
import time

import cocotb
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from dxpu_sim.checkers import watch
from dxpu_sim.driver import find_gpus
from dxpu_sim.gpu import Gpu
from dxpu_sim.pcie import DutPort, Mailbox, RootComplex, quiet, until


class System:
    """One host, one GPU."""

    def __init__(self, dut, **gpu):
        quiet()
        self.rng = random.Random(int(os.environ["DXPU_SEED"]))
        self.mailboxes = [Mailbox(dut, "host"), Mailbox(dut, "device")]
        self.checker = watch({"host": self.mailboxes[0], "device": self.mailboxes[1]})
        self.rc = RootComplex()
        self.rc.make_port().connect(DutPort(self.mailboxes[0]))
        self.gpu = Gpu(**{"serial": 0x0011223344556677, "name": "GPU behind queues", **gpu})
        DutPort(self.mailboxes[1]).connect(self.gpu.upstream_port)

    async def start(self, **options):
        """Enumerate, and open the GPU's driver."""
        await Timer(1, "us")
        await self.rc.enumerate()
        driver, = find_gpus(self.rc)
        await driver.open(**options)
        return driver

    async def finish(self):
        """Let everything arrive, and ask the checkers."""
        await until(lambda: not self.checker.outstanding(), "all TLPs have arrived",
                    timeout_ns=100_000)
        self.checker.finish()


async def copy_both_ways(system, driver, length, vector=0):
    """Copy random bytes to the GPU and back, and compare."""
    data = system.rng.randbytes(length)
    source, memory = system.rc.alloc_region(length)
    target, back = system.rc.alloc_region(length)
    memory[:length] = data
    await driver.copy_to_gpu(source, 0x1234, length, vector=vector)
    assert system.gpu.vram.read(0x1234, length) == data
    await driver.copy_to_host(target, 0x1234, length, vector=vector)
    assert bytes(back[:length]) == data


@cocotb.test()
async def enumerate_and_registers(dut):
    """The library's enumeration finds the GPU; registers and video memory answer."""
    system = System(dut)
    driver = await system.start()
    assert await driver.name() == "GPU behind queues"
    assert await driver.serial() == 0x0011223344556677
    for value in (0, 0xffffffff, system.rng.getrandbits(32)):
        await driver.write_register("SCRATCH", value)
        assert await driver.read_register("SCRATCH") == value
    for length in (1, 2, 3, 4, 5, 127, 128, 129, 1000, 5000):
        offset = system.rng.randrange(1 << 20)
        data = system.rng.randbytes(length)
        await driver.write_vram(offset, data)
        assert await driver.read_vram(offset, length) == data, (offset, length)
    await system.finish()


@cocotb.test()
async def copy_with_msix(dut):
    """64 KiB each way by the copy engine, completion by MSI-X, with many reads in flight."""
    system = System(dut)
    driver = await system.start(interrupts="msix")
    start, begin = time.perf_counter(), get_sim_time("ns")
    before = sum(m.tlps_sent for m in system.mailboxes)
    await copy_both_ways(system, driver, 64 << 10, vector=3)
    seconds = time.perf_counter() - start
    assert system.gpu.function.most_reads == 140
    assert driver.interrupts[3] == 2 and sum(driver.interrupts) == 2
    cycles = (get_sim_time("ns") - begin) / 8
    tlps = sum(m.tlps_sent for m in system.mailboxes) - before
    print(f"passthrough: {tlps} TLPs, {tlps / seconds:.0f} TLPs/s, "
          f"{cycles / seconds:.0f} cycles/s")
    await system.finish()


@cocotb.test()
async def copy_with_msi(dut):
    """The same by MSI, with every register vector raised once."""
    system = System(dut)
    driver = await system.start(interrupts="msi")
    await copy_both_ways(system, driver, 4 << 10, vector=1)
    for vector in range(8):
        await driver.trigger_interrupt(vector)
    assert driver.interrupts == [1, 3, 1, 1, 1, 1, 1, 1]
    await system.finish()
