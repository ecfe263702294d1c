"""Root complex and three GPUs around the library's own switch model, with all checkers on.

Without hardware. This bench is the reference of the differential test: route model and checkers
must agree with an independent switch before they judge the virtual switch.
"""

import os
import random

import cocotb
from cocotb.triggers import Timer
from cocotbext.pcie.core import Switch
from cocotbext.pcie.core.tlp import CplStatus, TlpType
from cocotbext.pcie.core.utils import PcieId

from dxpu_sim.endpoint.driver import find_devices, find_gpus
from dxpu_sim.endpoint.gpu import Gpu
from dxpu_sim.pcie import lspci
from dxpu_sim.pcie.checkers import watch
from dxpu_sim.pcie.model_switch import Wire
from dxpu_sim.pcie.links import DirectPort, attach_device, attach_host, replace_port
from dxpu_sim.pcie.ports import RootComplex, quiet, until
from dxpu_sim.pcie.switch_route import SwitchRoute


class System:
    """One host, the library's switch, three GPUs."""

    def __init__(self):
        quiet()
        self.rng = random.Random(int(os.environ["DXPU_SEED"]))
        self.rc = RootComplex()
        self.switch = Switch()
        self.gpus = [Gpu(serial=100 + n, name=f"GPU {n}", tags=64) for n in range(3)]
        wires = {name: Wire() for name in ("host", 0, 1, 2)}
        # Device numbers of the downstream ports start at 1 in this model.
        route = SwitchRoute("host", {n + 1: n for n in range(3)})
        self.checker = watch(wires, route=route, originates=route.originates, exact=False)
        self.root_port = attach_host(self.rc, wires["host"], link=False)
        replace_port(self.switch.upstream_bridge, "upstream", DirectPort(wires["host"].other))
        for n, gpu in enumerate(self.gpus):
            bridge = self.switch.make_port()
            replace_port(bridge, "downstream", DirectPort(wires[n].other))
            attach_device(gpu, wires[n], link=False)

    async def idle(self):
        """Wait until all TLPs have arrived."""
        await until(lambda: not self.checker.outstanding(), "all TLPs have arrived",
                    timeout_ns=100_000)

    async def finish(self):
        """Wait until all TLPs have arrived, then check the checkers."""
        await self.idle()
        self.checker.finish()


@cocotb.test()
async def three_gpus(dut):
    """Enumeration, registers, and copies of three GPUs at a time; also from GPU to GPU."""
    system = System()
    await Timer(1, "us")
    await system.rc.enumerate()
    assert len(find_devices(system.rc)) == 1 + 1 + 3 + 3
    drivers = find_gpus(system.rc)
    numbers = {d.pcie_id: n for n, d in enumerate(drivers)}
    assert lspci.tree(system.rc.host_bridge.bus, lambda d: f"GPU {numbers[d.pcie_id]}") == (
        "-[0000:00]---01.0-[01-05]----00.0-[02-05]--+-01.0-[03]----00.0  GPU 0\n"
        "                                           +-02.0-[04]----00.0  GPU 1\n"
        "                                           \\-03.0-[05]----00.0  GPU 2")
    for n, driver in enumerate(drivers):
        await driver.open(interrupts="msi" if n == 1 else "msix")
        assert (await driver.serial(), await driver.name()) == (100 + n, f"GPU {n}")

    async def copy(driver, gpu):
        data = system.rng.randbytes(10_000)
        assert await driver.copy_there_and_back(data, 0) == data
        assert gpu.vram.read(0, len(data)) == data

    tasks = [cocotb.start_soon(copy(*pair)) for pair in zip(drivers, system.gpus, strict=True)]
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
    before = sum(system.checker.originated.values())
    completion, = await system.rc.request(TlpType.CFG_READ_1, target=PcieId(
        drivers[0].dev.bus.bridge.pcie_id.bus, 9, 0))
    assert completion.status == CplStatus.UR
    assert sum(system.checker.originated.values()) == before + 1
    await system.finish()
