"""Root complex and GPU model connected by two mailboxes and queues.

Tests the models of the PCIe side themselves, and measures the cost of simulation.
"""

import os
import random
import time

import cocotb
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId

from dxpu_sim.endpoint.driver import find_gpus
from dxpu_sim.endpoint.gpu import Gpu
from dxpu_sim.pcie.checkers import watch
from dxpu_sim.pcie.links import attach_device, attach_host
from dxpu_sim.pcie.ports import Mailbox, RootComplex, quiet, until


class System:
    """One host, one GPU; without the library's link layer if ``$DXPU_LINK`` is 0."""

    def __init__(self, dut, **gpu):
        link = os.environ.get("DXPU_LINK", "1") == "1"
        quiet()
        self.rng = random.Random(int(os.environ["DXPU_SEED"]))
        self.mailboxes = [Mailbox(dut, "host"), Mailbox(dut, "device")]
        self.checker = watch({"host": self.mailboxes[0], "device": self.mailboxes[1]})
        self.rc = RootComplex()
        self.root_port = attach_host(self.rc, self.mailboxes[0], link=link)
        self.gpu = Gpu(**{"serial": 0x0011223344556677, "name": "GPU behind queues", **gpu})
        attach_device(self.gpu, self.mailboxes[1], link=link)

    async def start(self, **options):
        """Enumerate, and open the GPU's driver."""
        await Timer(1, "us")
        await self.rc.enumerate()
        driver, = find_gpus(self.rc)
        await driver.open(**options)
        return driver

    async def finish(self):
        """Wait until all TLPs have arrived, then check the checkers."""
        await until(lambda: not self.checker.outstanding(), "all TLPs have arrived",
                    timeout_ns=100_000)
        self.checker.finish()


async def copy_both_ways(system, driver, length, vector=0, offset=0):
    """Copy random bytes to the GPU and back, and compare."""
    data = system.rng.randbytes(length)
    source, memory = system.rc.alloc_region(length + offset)
    target, back = system.rc.alloc_region(length + offset)
    memory[offset:offset + length] = data
    await driver.copy_to_gpu(source + offset, 0x1234, length, vector=vector)
    assert system.gpu.vram.read(0x1234, length) == data
    await driver.copy_to_host(target + offset, 0x1234, length, vector=vector)
    assert bytes(back[offset:offset + length]) == data


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
    """Copies with MSI; every register vector raised once."""
    system = System(dut)
    driver = await system.start(interrupts="msi")
    await copy_both_ways(system, driver, 4 << 10, vector=1)
    for vector in range(8):
        await driver.trigger_interrupt(vector)
    assert driver.interrupts == [1, 3, 1, 1, 1, 1, 1, 1]
    await system.finish()


@cocotb.test()
async def gaps_stalls_and_odd_copies(dut):
    """Idle cycles everywhere, each class stalled now and then, completions split at each 64 bytes,
    copies of odd lengths at odd addresses.
    """
    system = System(dut, tags=24, read_size=512)
    driver = await system.start()
    system.rc.split_on_all_rcb = True
    for mailbox in system.mailboxes:
        mailbox.gaps(send=0.3, receive=0.3)

    async def stall():
        while True:
            mailbox, cls = system.rng.choice(system.mailboxes), system.rng.randrange(3)
            mailbox.stall(cls, True)
            await Timer(system.rng.randrange(50, 2000), "ns")
            mailbox.stall(cls, False)

    stalling = cocotb.start_soon(stall())
    for _ in range(8):
        await copy_both_ways(system, driver, system.rng.randrange(1, 9000),
                             offset=system.rng.randrange(64))
    stalling.cancel()
    for mailbox in system.mailboxes:
        mailbox.gaps()
        for cls in range(3):
            mailbox.stall(cls, False)
    await system.finish()


@cocotb.test()
async def wrong_accesses(dut):
    """Unsupported requests are answered with UR, bit exact, and do no harm."""
    system = System(dut)
    driver = await system.start()
    registers, vram = (driver.dev.bar_addr[n] for n in (0, 2))
    wrong = [
        (TlpType.MEM_READ, registers + 0x1000, {}, 4, 0),  # no register
        (TlpType.MEM_READ, registers + 0x10, {"first_be": 0b0110}, 2, 0x11),  # part of a register
        (TlpType.MEM_READ, registers, {"length": 4, "last_be": 15}, 16, 0),  # four registers
        (TlpType.MEM_READ_LOCKED, registers, {}, 4, 0),
        (TlpType.MEM_READ_LOCKED_64, vram + 0x40, {"length": 2, "last_be": 1}, 5, 0x40),
        (TlpType.FETCH_ADD, registers + 0x10, {"data": bytes(4)}, 4, 0),
        (TlpType.CAS_64, vram, {"data": bytes(16)}, 4, 0),
        (TlpType.IO_READ, 0x1000, {"port": system.root_port}, 4, 0),
        (TlpType.IO_WRITE, 0x1000, {"port": system.root_port, "data": bytes(4)}, 4, 0),
        (TlpType.CFG_READ_1, 0, {"port": system.root_port, "target": driver.pcie_id}, 4, 0),
        (TlpType.MEM_READ, 0x1000, {"port": system.root_port}, 4, 0),  # outside of the BARs
    ]
    before = await driver.read_register("SCRATCH")
    for kind, address, options, count, lower in wrong:
        completion, = await system.rc.request(kind, address, **options)
        assert completion.status == CplStatus.UR, kind
        assert (completion.byte_count, completion.lower_address) == (count, lower), kind
        assert not completion.data and completion.completer_id == driver.pcie_id
        locked = kind in (TlpType.MEM_READ_LOCKED, TlpType.MEM_READ_LOCKED_64)
        assert completion.fmt_type == (TlpType.CPL_LOCKED if locked else TlpType.CPL)
    for offset, data in ((0x1000, bytes(4)), (0x10, b"a"), (0x00, bytes(4)), (0x10, bytes(16))):
        await driver.dev.bar_window[0].write(offset, data)
    assert await driver.read_register("UNSUPPORTED") == len(wrong) + 4
    assert await driver.read_register("SCRATCH") == before
    await driver.write_register("UNSUPPORTED", 0)
    assert await driver.read_register("UNSUPPORTED") == 0
    # The same bus has no other function.
    bus = driver.pcie_id.bus
    completion, = await system.rc.request(TlpType.CFG_READ_1, target=PcieId(bus, 0, 1))
    assert completion.status == CplStatus.UR and completion.byte_count == 4
    # With Memory Space Enable off the BARs do not answer.
    await driver.dev.config_write_word(0x04, 0x4)
    for kind, address in ((TlpType.MEM_READ, registers), (TlpType.MEM_READ_64, vram)):
        completion, = await system.rc.request(kind, address)
        assert completion.status == CplStatus.UR
    await driver.dev.config_write_word(0x04, 0x6)
    # Without Bus Master Enable the copy engine fails its command, and no TLP leaves the GPU.
    await driver.dev.config_write_word(0x04, 0x2)
    sent = system.mailboxes[1].tlps_sent
    await driver.write_register("DOORBELL", 1)
    await Timer(5, "us")
    assert system.mailboxes[1].tlps_sent == sent
    assert await driver.read_register("ERROR") == 1
    await driver.dev.config_write_word(0x04, 0x6)
    await system.finish()


@cocotb.test()
async def messages(dut):
    """Messages in both directions."""
    system = System(dut)
    driver = await system.start()
    for code in (0x20, 0x24, 0x18, 0x31):  # INTx, PME, an error
        await system.gpu.function.message(code)
    await until(lambda: len(system.rc.messages) == 4, "messages to the host", timeout_ns=50_000)
    assert [m.last_be << 4 | m.first_be for m in system.rc.messages] == [0x20, 0x24, 0x18, 0x31]
    assert all(m.requester_id == driver.pcie_id for m in system.rc.messages)
    down = Tlp()
    down.fmt_type = TlpType.MSG_DATA_LOCAL
    down.first_be, down.last_be = 0, 5  # Set_Slot_Power_Limit
    down.set_data(b"\x19\0\0\0")
    await system.root_port.downstream_port.send(down)
    await until(lambda: system.gpu.function.messages, "a message to the GPU", timeout_ns=50_000)
    message, = system.gpu.function.messages
    assert (message.last_be, bytes(message.data)) == (5, b"\x19\0\0\0")
    await system.finish()
