"""The whole system: root complex, host proxy, Ethernet, box proxies, GPUs."""

import json
import os

import cocotb
from cocotb.triggers import Timer

from dxpu_sim.system import SimulatedSystem

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))


@cocotb.test()
async def enumeration_of_an_empty_switch(dut):
    """Before anything is bound the root complex finds the switch and no GPU."""
    system = SimulatedSystem(dut, OPTIONS)
    await Timer(1, "us")
    await system.rc.enumerate()
    print(system.rc.host_bridge.bus.to_str() if hasattr(system.rc.host_bridge.bus, "to_str")
          else "")
    await system.finish()


@cocotb.test()
async def registers_and_video_memory(dut):
    """Every GPU is found and answers at its own place."""
    system = SimulatedSystem(dut, OPTIONS)
    await system.start()
    for n, driver in enumerate(system.drivers):
        assert await driver.serial() == system.gpus[n].serial
        value = system.rng.getrandbits(32)
        await driver.write_register("SCRATCH", value)
        assert await driver.read_register("SCRATCH") == value
        data = system.rng.randbytes(300)
        await driver.write_vram(4 * n + 1, data)
        assert await driver.read_vram(4 * n + 1, len(data)) == data
    await system.finish()
