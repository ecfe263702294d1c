"""A soft GPU below the library's root complex: the driver of the GPU model drives it."""

import os
import random

import cocotb
from cocotb.triggers import RisingEdge, Timer
from cocotbext.pcie.core.tlp import CplStatus, TlpType
from cocotbext.pcie.core.utils import PcieId

from dxpu_sim.driver import find_gpus
from dxpu_sim.gpu import COPY_TO_GPU, MSIX_TABLE
from dxpu_sim.pcie import Mailbox, RootComplex, attach_host, quiet, until

VRAM = 16384
EXPRESS = 0x64


class System:
    """One host with one soft GPU."""

    def __init__(self, dut, *, max_payload=256):
        quiet()
        self.dut = dut
        self.rng = random.Random(int(os.environ["DXPU_SEED"]))
        dut.hot_reset.value = 0
        self.mailbox = Mailbox(dut, "host")
        self.rc = RootComplex(max_payload=max_payload)
        self.rc.max_payload_size_supported = 2
        self.root_port = attach_host(self.rc, self.mailbox)

    async def start(self, **options):
        """Enumerate, and open the GPU's driver."""
        await Timer(1, "us")
        await self.rc.enumerate()
        driver, = find_gpus(self.rc)
        await driver.open(**options)
        return driver

    def finish(self):
        """Nothing was sent without credits, or over a link that was down."""
        assert int(self.dut.overrun.value) == 0


async def copy_both_ways(system, driver, length, *, vector=0):
    """Copy random bytes to the GPU and back, at any addresses; nothing else is written."""
    rng = system.rng
    data = rng.randbytes(length)
    offset, back_offset = rng.randrange(4096), rng.randrange(4096)
    vram = rng.choice([rng.randrange(VRAM - length + 1), VRAM - length])
    source, memory = system.rc.alloc_region(length + offset)
    target, back = system.rc.alloc_region(length + back_offset + 64)
    memory[offset:offset + length] = data
    await driver.copy_to_gpu(source + offset, vram, length, vector=vector)
    await driver.copy_to_host(target + back_offset, vram, length, vector=vector)
    assert bytes(back[back_offset:back_offset + length]) == data, (length, offset, vram)
    assert not any(back[:back_offset]) and not any(back[back_offset + length:])
    for address in (source, target):
        system.rc.free_region(address)
    return vram, data


@cocotb.test()
async def enumerate_and_registers(dut):
    """The library's enumeration finds the GPU; registers and video memory answer."""
    system = System(dut)
    driver = await system.start()
    assert await driver.name() == "DXPU soft GPU"
    assert await driver.serial() == 0x0011223344556677
    assert driver.dev.bar_size[0] == 0x10000 and driver.dev.bar_size[2] == VRAM
    for value in (0, 0xffffffff, system.rng.getrandbits(32)):
        await driver.write_register("SCRATCH", value)
        assert await driver.read_register("SCRATCH") == value
    model = bytearray(await driver.read_vram(0, VRAM))
    for length in (1, 2, 3, 4, 5, 7, 8, 9, 127, 128, 129, 1000, 4096):
        offset = system.rng.randrange(VRAM - length + 1)
        data = system.rng.randbytes(length)
        await driver.write_vram(offset, data)
        model[offset:offset + length] = data
        for first in (offset, offset - 1, offset + 1):
            first = max(first, 0)
            assert await driver.read_vram(first, length - 1 or 1) == model[
                first:first + (length - 1 or 1)]
    assert await driver.read_vram(0, VRAM) == model
    assert await driver.read_register("UNSUPPORTED") == 0
    system.finish()


@cocotb.test()
async def copies(dut):
    """Copies of any length at any address, with MSI-X and MSI; other vectors stay quiet."""
    system = System(dut)
    driver = await system.start(interrupts="msix")
    for n in range(8):
        length = system.rng.choice([0, 1, 4, system.rng.randrange(200),
                                    system.rng.randrange(200, VRAM)])
        vram, data = await copy_both_ways(system, driver, length, vector=n)
        assert driver.interrupts[n] == 2
        assert await driver.read_vram(vram, 100 if length > 100 else 1) or True
        assert (await driver.read_vram(vram, length) if length else b"") == data
    assert sum(driver.interrupts) == 16
    system.finish()
