"""A soft GPU below the library's root complex, used by the driver of the GPU model."""

import os
import random

import cocotb
from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType

from dxpu_sim.pcie.links import attach_host
from dxpu_sim.pcie.ports import Mailbox, RootComplex, quiet, until

from .driver import DriverError, find_gpus
from .gpu import MSIX_TABLE

VRAM = 16384
#: Time in which the GPU forgets all.
WIPE_NS = VRAM // 4 * 8
#: Offsets in configuration space.
COMMAND, BARS, MSI, MSIX, EXPRESS = 0x04, (0x10, 0x18, 0x1c), 0x48, 0x58, 0x64
DEVICE_CONTROL, DEVICE_STATUS = EXPRESS + 8, EXPRESS + 10
#: Initial credits of the GPU: TLPs and units of 16 bytes, for each class.
PLENTY = ((8, 64), (8, 16), (8, 64))


def give_credits(dut, credits=PLENTY):
    """Set the GPU's initial credits, before any TLP has left the queues of the port."""
    for n, (headers, units) in enumerate(credits):
        getattr(dut, f"headers{n}").value = headers
        getattr(dut, f"units{n}").value = units


class System:
    """One host with one soft GPU."""

    def __init__(self, dut, *, max_payload=256, credits=PLENTY):
        quiet()
        self.dut = dut
        self.rng = random.Random(int(os.environ["DXPU_SEED"]))
        dut.hot_reset.value = 0
        give_credits(dut, credits)
        self.mailbox = Mailbox(dut, "host")
        self.rc = RootComplex(max_payload=max_payload)
        self.root_port = attach_host(self.rc, self.mailbox)

    async def start(self, *, interrupts="msix"):
        """Enumerate, and open the GPU's driver."""
        await Timer(1, "us")
        await self.hot_reset()
        await self.rc.enumerate()
        driver, = find_gpus(self.rc)
        await driver.open(interrupts=interrupts)
        return driver

    async def hot_reset(self, cycles=20):
        """Reset the GPU, as at the end of a life."""
        self.dut.hot_reset.value = 1
        await until(lambda: not int(self.dut.link.value), "link down", timeout_ns=20_000,
                    poll_ns=8)
        await Timer(8 * cycles, "ns")
        self.dut.hot_reset.value = 0
        await until(lambda: int(self.dut.link.value), "link up", timeout_ns=1000 + WIPE_NS,
                    poll_ns=8)

    async def saved(self, dev):
        """Registers that an operating system saves before it resets a function."""
        return [(n, await dev.config_read_dword(n)) for n in (
            *BARS, DEVICE_CONTROL, *range(MSI + 4, MSI + 16, 4), MSI, MSIX, COMMAND)]

    async def restore(self, dev, saved):
        """Write saved registers back."""
        for register, value in saved:
            await dev.config_write_dword(register, value & 0xffff if register in (
                COMMAND, DEVICE_CONTROL) else value)

    async def copy_both_ways(self, driver, length, *, vector=0):
        """Copy random bytes to the GPU and back, at random addresses; no other byte may change."""
        rng = self.rng
        data = rng.randbytes(length)
        offset, back_offset = rng.randrange(4096), rng.randrange(4096)
        vram = rng.choice([rng.randrange(VRAM - length + 1), VRAM - length])
        source, memory = self.rc.alloc_region(length + offset)
        target, back = self.rc.alloc_region(length + back_offset + 64)
        memory[offset:offset + length] = data
        await driver.copy_to_gpu(source + offset, vram, length, vector=vector)
        await driver.copy_to_host(target + back_offset, vram, length, vector=vector)
        assert bytes(back[back_offset:back_offset + length]) == data, (length, offset, vram)
        assert not any(back[:back_offset]) and not any(back[back_offset + length:])
        for address in (source, target):
            self.rc.free_region(address)

    def finish(self):
        """Check that no TLP was sent without credits, or over a link in the state down."""
        assert int(self.dut.overrun.value) == 0


@cocotb.test()
async def enumerate_and_registers(dut):
    """The library's enumeration finds the GPU; registers and video memory answer."""
    system = System(dut)
    driver = await system.start()
    assert await driver.name() == "GPU in hardware"
    assert await driver.serial() == 0x0011223344556677
    assert driver.dev.bar_size[0] == 0x10000 and driver.dev.bar_size[2] == VRAM
    for value in (0, 0xffffffff, system.rng.getrandbits(32)):
        await driver.write_register("SCRATCH", value)
        assert await driver.read_register("SCRATCH") == value
    model = bytearray(await driver.read_vram(0, VRAM))
    for length in (1, 2, 3, 4, 5, 7, 8, 9, 127, 128, 129, 1000, 4096):
        offset = system.rng.randrange(1, VRAM - length + 1)
        data = system.rng.randbytes(length)
        await driver.write_vram(offset, data)
        model[offset:offset + length] = data
        for first in (offset - 1, offset, offset + 1):
            assert await driver.read_vram(first, length) == model[first:first + length][:length]
    assert await driver.read_vram(0, VRAM) == model
    assert await driver.read_register("UNSUPPORTED") == 0
    system.finish()


@cocotb.test()
async def copies(dut):
    """Copies of any length at any address; each copy raises its vector by MSI-X."""
    system = System(dut)
    driver = await system.start()
    lengths = [0, 1, 3, 4, 129, VRAM, system.rng.randrange(2000), system.rng.randrange(6000)]
    for vector, length in enumerate(lengths):
        await system.copy_both_ways(driver, length, vector=vector)
        assert driver.interrupts[vector] == 2
    assert sum(driver.interrupts) == 2 * len(lengths)
    system.finish()


@cocotb.test()
async def msi_and_settings(dut):
    """Vectors by MSI; reads of any size and number, payloads of any size, completions in pieces."""
    system = System(dut, max_payload=512)
    driver = await system.start(interrupts="msi")
    rc, dev, rng = system.rc, driver.dev, system.rng
    for vector in range(8):
        await driver.trigger_interrupt(vector)
    assert driver.interrupts == [1] * 8
    for code in (0, 1, 2, 5):
        control = await dev.config_read_word(DEVICE_CONTROL)
        await dev.config_write_word(DEVICE_CONTROL, control & ~0x70e0 | code << 5
                                    | rng.randrange(6) << 12)
        rc.max_payload_size = min(code, 2)
        rc.split_on_all_rcb = bool(code & 1)
        await driver.write_register("READ_SIZE", 4 << rng.randrange(11))
        await driver.write_register("TAGS", rng.randrange(1, 9))
        for length in (300, rng.randrange(1, 3000)):
            await system.copy_both_ways(driver, length, vector=code)
    # Fewer vectors enabled than implemented.
    control = await dev.config_read_word(MSI + 2)
    await dev.config_write_word(MSI + 2, control & ~0x70 | 1 << 4)
    before = list(driver.interrupts)
    await driver.write_register("INTERRUPT", 6)
    await driver.wait_interrupt(0, before[0])
    assert driver.interrupts == [before[0] + 1, *before[1:]]
    system.finish()


@cocotb.test()
async def few_credits(dut):
    """Credits for one TLP of each class, idle cycles everywhere, stalled classes."""
    system = System(dut, credits=((1, 32), (1, 0), (1, 32)))
    driver = await system.start()
    driver.timeout_ns = 3_000_000
    system.mailbox.gaps(send=0.3, receive=0.3)

    async def stall():
        while True:
            cls = system.rng.randrange(3)
            system.mailbox.stall(cls, True)
            await Timer(system.rng.randrange(50, 2000), "ns")
            system.mailbox.stall(cls, False)

    stalling = cocotb.start_soon(stall())
    for _ in range(3):
        await system.copy_both_ways(driver, system.rng.randrange(1, 2500))
        offset = system.rng.randrange(VRAM - 600)
        data = system.rng.randbytes(600)
        await driver.write_vram(offset, data)
        assert await driver.read_vram(offset, 600) == data
    stalling.cancel()
    system.finish()


@cocotb.test()
async def wrong_accesses(dut):
    """Unsupported requests are answered with UR, bit exact, and do no harm."""
    system = System(dut)
    driver = await system.start()
    registers, vram = (driver.dev.bar_addr[n] for n in (0, 2))
    wrong = [
        (TlpType.MEM_READ, registers + 0x1000, {}, 4, 0),  # no register
        (TlpType.MEM_READ, registers + 0x64, {"length": 2, "last_be": 15}, 8, 0x64),  # no registers
        (TlpType.MEM_READ, registers + 0x60, {"length": 2, "last_be": 15}, 8, 0x60),
        (TlpType.MEM_READ, registers + 0x10, {"first_be": 0b0110}, 2, 0x11),  # part of a register
        (TlpType.MEM_READ, registers, {"length": 4, "last_be": 15}, 16, 0),  # four registers
        (TlpType.MEM_READ_LOCKED, registers, {}, 4, 0),
        (TlpType.MEM_READ_LOCKED_64, vram + 0x40, {"length": 2, "last_be": 1}, 5, 0x40),
        (TlpType.FETCH_ADD, registers + 0x10, {"data": bytes(4)}, 4, 0),
        (TlpType.CAS_64, vram, {"data": bytes(16)}, 8, 0),
        (TlpType.IO_READ, 0x1000, {"port": system.root_port}, 4, 0),
        (TlpType.IO_WRITE, 0x1000, {"port": system.root_port, "data": bytes(4)}, 4, 0),
        (TlpType.CFG_READ_1, 0, {"port": system.root_port, "target": driver.pcie_id}, 4, 0),
        (TlpType.MEM_READ, 0x1000, {"port": system.root_port}, 4, 0),  # outside of the BARs
        (TlpType.MEM_READ_64, vram + VRAM, {"port": system.root_port}, 4, 0),
    ]
    before = await driver.read_register("SCRATCH")
    for kind, address, options, count, lower in wrong:
        completion, = await system.rc.request(kind, address, **options)
        assert completion.status == CplStatus.UR, kind
        assert (completion.byte_count, completion.lower_address) == (count, lower), kind
        assert not completion.data and completion.completer_id == driver.pcie_id
        locked = kind in (TlpType.MEM_READ_LOCKED, TlpType.MEM_READ_LOCKED_64)
        assert completion.fmt_type == (TlpType.CPL_LOCKED if locked else TlpType.CPL)
    writes = ((0x1000, bytes(4)), (0x10, b"a"), (0x00, bytes(4)), (0x10, bytes(16)),
              (0x24, b"\x30\0\0\0"), (0x48, b"\x03\0\0\0"), (0x60, b"\x08\0\0\0"))
    for offset, data in writes:
        await driver.dev.bar_window[0].write(offset, data)
    assert await driver.read_register("UNSUPPORTED") == len(wrong) + len(writes)
    assert await driver.read_register("SCRATCH") == before
    assert await driver.dev.config_read_word(DEVICE_STATUS) & 0xb == 0b1011
    await driver.dev.config_write_word(DEVICE_STATUS, 0xf)
    assert await driver.dev.config_read_word(DEVICE_STATUS) == 0
    await driver.write_register("UNSUPPORTED", 0)
    assert await driver.read_register("UNSUPPORTED") == 0
    # With Memory Space Enable off, or in D3hot, the BARs do not answer.
    for register, off, on in ((COMMAND, 0x4, 0x6), (0x44, 3, 0)):
        await driver.dev.config_write_word(register, off)
        for kind, address in ((TlpType.MEM_READ, registers), (TlpType.MEM_READ_64, vram)):
            completion, = await system.rc.request(kind, address)
            assert completion.status == CplStatus.UR
        await driver.dev.config_write_word(register, on)
    # Without Bus Master Enable the copy engine fails its command, and no TLP leaves the GPU.
    await driver.dev.config_write_word(COMMAND, 0x2)
    received = system.mailbox.tlps_received
    await driver.write_register("INTERRUPT", 3)
    await driver.write_register("DOORBELL", 1)
    await Timer(5, "us")
    assert system.mailbox.tlps_received == received
    assert await driver.read_register("ERROR") == 1
    assert await driver.read_register("STATUS") == 2
    await driver.dev.config_write_word(COMMAND, 0x6)
    await driver.wait_interrupt(3, 0)  # the interrupt was only delayed
    await driver.write_register("ERROR", 0)
    assert await driver.read_register("STATUS") == 0
    system.finish()


@cocotb.test()
async def masked_vectors(dut):
    """A masked vector stays pending, and is sent when unmasked."""
    system = System(dut)
    driver = await system.start()
    window = driver.dev.bar_window[0]
    table = [await window.read_dword(MSIX_TABLE + 4 * n) for n in range(32)]
    assert [table[n] for n in range(3, 32, 4)] == [0] * 8
    await window.write_dword(MSIX_TABLE + 16 * 5 + 12, 1)
    assert await window.read_dword(MSIX_TABLE + 16 * 5 + 12) == 1
    await driver.write_register("INTERRUPT", 5)
    await driver.trigger_interrupt(2)
    assert driver.interrupts[5] == 0 and await window.read_dword(0xc000) == 1 << 5
    await window.write_dword(MSIX_TABLE + 16 * 5 + 12, 0)
    await driver.wait_interrupt(5, 0)
    assert await window.read_dword(0xc000) == 0 and await window.read_dword(0xc004) == 0
    # All vectors, by the Function Mask.
    control = await driver.dev.config_read_word(MSIX + 2)
    await driver.dev.config_write_word(MSIX + 2, control | 1 << 14)
    for vector in range(8):
        await driver.write_register("INTERRUPT", vector)
    await Timer(2, "us")
    assert sum(driver.interrupts) == 2
    await driver.dev.config_write_word(MSIX + 2, control)
    await until(lambda: sum(driver.interrupts) == 10, "all vectors", timeout_ns=20_000)
    assert driver.interrupts == [1, 1, 2, 1, 1, 2, 1, 1]
    system.finish()


@cocotb.test()
async def resets(dut):
    """Hot resets and Function Level Resets in the middle of copies, then a correct copy.

    The state is as after power-up, except for Max_Payload_Size after a Function Level Reset: video
    memory and MSI-X table, too, have nothing that an earlier user has left (6.6.2).
    """
    system = System(dut)
    driver = await system.start()
    dev, rng = driver.dev, system.rng
    saved = await system.saved(dev)
    source, _ = system.rc.alloc_region(VRAM)
    table = driver.dev.bar_window[0]
    vectors = [await table.read_dword(MSIX_TABLE + 4 * k) for k in range(32)]
    assert vectors[0] and vectors[3] == 0
    for n in range(8):
        await driver.write_register("SCRATCH", 5)
        secret = rng.randbytes(64)
        await driver.write_vram(VRAM - 64, secret)
        assert await driver.read_vram(VRAM - 64, 64) == secret
        copy = cocotb.start_soon((driver.copy_to_gpu, driver.copy_to_host)[n & 1](source, 0, VRAM))
        await Timer(rng.randrange(1000, 20_000), "ns")
        assert not copy.done()
        copy.cancel()
        function = n in (2, 5, 7)
        if function:
            await dev.config_write_word(DEVICE_CONTROL, 1 << 15 | 2 << 12 | 1 << 5)
        else:
            await system.hot_reset()
        await Timer(2000 + WIPE_NS, "ns")  # completions of the old life arrive; all is wiped
        assert await dev.config_read_word(COMMAND) == 0
        assert await dev.config_read_word(DEVICE_CONTROL) == 2 << 12 | function << 5
        await system.restore(dev, saved)
        assert [await driver.read_register(r) for r in (
            "SCRATCH", "HEAD", "DOORBELL", "STATUS", "RING_LOW", "FENCE_LOW")] == [0] * 6
        assert not any(await driver.read_vram(0, VRAM))
        assert [await table.read_dword(MSIX_TABLE + 4 * k) for k in range(32)] == [0, 0, 0, 1] * 8
        await reopen(driver, vectors)
        await system.copy_both_ways(driver, rng.randrange(1, 2000))
    system.finish()


async def reopen(driver, vectors):
    """Repeat the driver's set-up after a reset: ring, fence and the MSI-X table."""
    window = driver.dev.bar_window[0]
    for n, word in enumerate(vectors):
        await window.write_dword(MSIX_TABLE + 4 * n, word)
    for name, value in (("RING_LOW", driver._ring), ("RING_SIZE", driver.RING_COMMANDS),
                        ("FENCE_LOW", driver._fence)):
        await driver.write_register(name, value)
    driver._queued = 0


@cocotb.test()
async def messages(dut):
    """PME_Turn_Off is acknowledged; Set_Slot_Power_Limit is accepted; others are unsupported."""
    system = System(dut)
    driver = await system.start()
    for code, length in ((0x50, 1), (0x19, 0), (0x7f, 0), (0x12, 0)):
        down = Tlp()
        down.fmt_type = TlpType.MSG_DATA_LOCAL if length else TlpType.MSG_BCAST
        down.first_be, down.last_be = code & 15, code >> 4
        if length:
            down.set_data(bytes(4 * length))
        await system.root_port.downstream_port.send(down)
    await until(lambda: system.rc.messages, "PME_TO_Ack", timeout_ns=20_000)
    message, = system.rc.messages
    assert message.last_be << 4 | message.first_be == 0x1b and message.type == 0x15
    assert message.requester_id == driver.pcie_id
    assert await driver.read_register("UNSUPPORTED") == 1
    system.finish()


@cocotb.test()
async def failed_copies(dut):
    """Copies from unmapped addresses and invalid commands fail; the next copy succeeds."""
    system = System(dut)
    driver = await system.start()
    await system.copy_both_ways(driver, 100)
    nowhere = 0x7f00_0000_0000
    source, _ = system.rc.alloc_region(VRAM)
    wrong = [(1, nowhere, 0, 1000), (3, source, 0, 4), (1, source, VRAM - 3, 4),
             (2, source, 1 << 32, 4), (1, source, 0, VRAM + 1), (2, source, 0, 1 << 31)]
    for n, (opcode, host, vram, length) in enumerate(wrong):
        try:
            await driver.copy(opcode, host, vram, length)
        except DriverError as error:
            assert "failed" in str(error)
        else:
            raise AssertionError((opcode, host, vram, length))
        assert await driver.read_register("ERROR") == 1, n
        await driver.write_register("ERROR", 0)
        await system.copy_both_ways(driver, 100)
    assert await driver.dev.config_read_word(0x06) >> 12 == 0b0010  # Received Master Abort
    system.finish()
