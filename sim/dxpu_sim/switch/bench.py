"""The virtual switch below the library's root complex, with GPU models in its slots.

The library's enumeration must find the tree. The checkers compare every TLP at every port with a
route model written from the specification.
"""

import os
import random

import cocotb
from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import CplStatus, TlpType
from cocotbext.pcie.core.utils import PcieId

from dxpu_sim.endpoint.driver import find_devices, find_gpus
from dxpu_sim.endpoint.gpu import Gpu
from dxpu_sim.pcie.checkers import watch
from dxpu_sim.pcie.links import attach_device, attach_host
from dxpu_sim.pcie.ports import Mailbox, RootComplex, quiet, until
from dxpu_sim.pcie.switch_route import SwitchRoute


class System:
    """One host, the switch, GPUs in the slots of ``slots``."""

    def __init__(self, dut, slots, ports=3):
        quiet()
        self.dut = dut
        self.rng = random.Random(int(os.environ["DXPU_SEED"]))
        boxes = {"host": Mailbox(dut, "host")}
        boxes |= {n: Mailbox(dut, f"device{n}") for n in range(ports)}
        route = SwitchRoute("host", {n: n for n in range(ports)})
        route.present = set(slots)
        self.checker = watch(boxes, route=route, originates=route.originates)
        self.rc = RootComplex()
        self.root_port = attach_host(self.rc, boxes["host"], link=False)
        self.gpus = {n: Gpu(serial=100 + n, name=f"GPU {n}", tags=64) for n in slots}
        for n, gpu in self.gpus.items():
            attach_device(gpu, boxes[n], link=False)
        dut.present.value = sum(1 << n for n in slots)

    async def idle(self):
        """Wait until all TLPs have arrived."""
        await until(lambda: not self.checker.outstanding(), "all TLPs have arrived",
                    timeout_ns=100_000)

    async def finish(self):
        """Wait until all TLPs have arrived, then check checkers and counters."""
        await self.idle()
        self.checker.finish()
        for name in ("blocked", "unexpected0", "unexpected1", "fenced", "malformed"):
            assert int(getattr(self.dut, f"count_{name}").value) == 0, name


@cocotb.test()
async def empty_switch(dut):
    """Enumeration of a switch with empty slots: upstream port and downstream ports."""
    system = System(dut, [])
    await Timer(20, "us")
    await system.rc.enumerate()
    ports = find_devices(system.rc)
    assert len(ports) == 1 + 1 + 3
    await system.finish()


@cocotb.test()
async def three_gpus(dut):
    """Enumeration, registers, interrupts, copies of three GPUs at a time and from GPU to GPU."""
    system = System(dut, [0, 1, 2])
    await Timer(20, "us")
    await system.rc.enumerate()
    assert len(find_devices(system.rc)) == 1 + 1 + 3 + 3
    drivers = find_gpus(system.rc)
    for n, driver in enumerate(drivers):
        await driver.open(interrupts="msi" if n == 1 else "msix")
        assert (await driver.serial(), await driver.name()) == (100 + n, f"GPU {n}")

    async def copy(driver, gpu):
        data = system.rng.randbytes(10_000)
        assert await driver.copy_there_and_back(data, 0) == data
        assert gpu.vram.read(0, len(data)) == data

    tasks = [cocotb.start_soon(copy(driver, system.gpus[n])) for n, driver in enumerate(drivers)]
    for task in tasks:
        await task
    # Peer to peer: the copy engine of GPU 0 writes the video memory of GPU 2, and reads it.
    peer = drivers[2].dev.bar_addr[2]
    await drivers[0].copy_to_host(peer + 0x5000, 0, 3000)
    # The interrupt goes to the host and may arrive before the writes reach the peer.
    await system.idle()
    assert system.gpus[2].vram.read(0x5000, 3000) == system.gpus[0].vram.read(0, 3000)
    await drivers[0].copy_to_gpu(peer + 0x5000, 0x9000, 3000)
    assert system.gpus[0].vram.read(0x9000, 3000) == system.gpus[0].vram.read(0, 3000)
    lanes = {(c.source, c.destination) for c in system.checker.crossings}
    assert lanes == {(a, b) for n in range(3) for a, b in (("host", n), (n, "host"))} | {
        (0, 2), (2, 0)}
    # The switch answers requests without a target.
    inside = drivers[0].dev.bus.bridge.pcie_id.bus
    completion, = await system.rc.request(TlpType.CFG_READ_1, target=PcieId(inside, 9, 0))
    assert completion.status == CplStatus.UR
    await system.finish()


@cocotb.test()
async def empty_slot_between_full_ones(dut):
    """Writes and reads of odd lengths to two GPUs with an empty slot between them."""
    system = System(dut, [0, 2])
    await Timer(20, "us")
    await system.rc.enumerate()
    assert len(find_devices(system.rc)) == 1 + 1 + 3 + 2
    drivers = find_gpus(system.rc)
    assert len(drivers) == 2
    for driver in drivers:
        await driver.open()
        for length in (1, 2, 3, 5, 128, 1000):
            offset = system.rng.randrange(1 << 16)
            data = system.rng.randbytes(length)
            await driver.write_vram(offset, data)
            assert await driver.read_vram(offset, length) == data
    await system.finish()


@cocotb.test()
async def legacy_interrupts(dut):
    """INTx of GPUs reach the host swizzled and folded; each GPU gets its slot's power limit."""
    def codes(messages):
        return [m.last_be << 4 | m.first_be for m in messages]

    dut.present.value = 0
    await Timer(1, "us")  # the links of the test before go down
    system = System(dut, [0, 1, 2])
    await Timer(20, "us")
    await system.rc.enumerate()
    told = system.rc.messages
    for code, expected in ((0x20, [0x20, 0x21, 0x22]), (0x21, [0x23]), (0x24, [0x24]),
                           (0x25, [0x25, 0x26, 0x27])):
        told.clear()
        for gpu in system.gpus.values():
            await gpu.function.message(code, kind=TlpType.MSG_LOCAL)
        await until(lambda n=len(expected): len(told) == n, "wires that change", timeout_ns=50_000)
        await Timer(2, "us")
        assert sorted(codes(told)) == expected
    for gpu in system.gpus.values():
        limit, = gpu.function.messages
        assert codes([limit]) == [0x50] and bytes(limit.data) == bytes([0xF2, 0, 0, 0])
    await system.finish()
