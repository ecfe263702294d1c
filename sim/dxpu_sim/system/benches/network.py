"""A system whose manager is a program on an Ethernet interface of Linux.

Options of the design come as JSON in ``$DXPU_SYSTEM``. Nothing but the program touches a register
of the proxies.
"""

import json
import os
import time
from pathlib import Path

import cocotb
from cocotb.utils import get_sim_time

from dxpu_sim.endpoint.driver import find_gpus
from dxpu_sim.system.network import PROGRAM, ManagerProcess
from dxpu_sim.system.operate import FrameOperator
from dxpu_sim.system.system import SimulatedSystem

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))


@cocotb.test()
async def gpus_are_used_after_a_program_has_set_all_up(dut):
    """The host enumerates every GPU, reads its registers, and copies."""
    system = SimulatedSystem(dut, OPTIONS)
    begin, begin_ns = time.monotonic(), get_sim_time("ns")
    manager = ManagerProcess(dut, PROGRAM, Path.cwd())
    operator = FrameOperator(system, manager)
    await operator.set_up()
    for gpu in range(len(system.gpus)):
        await operator.commit(gpu, gpu)
    print("managed_network: stranger:", await manager.say("stranger"))
    print("managed_network: bindings:", await manager.say("bindings"))
    took, cycles = time.monotonic() - begin, int(get_sim_time("ns") - begin_ns) // 8
    manager.end()
    print(f"managed_network: {took:.1f} s, {cycles:,} cycles, {cycles / took:,.0f} cycles a second")
    await system.rc.enumerate()
    drivers = find_gpus(system.rc)
    assert len(drivers) == len(system.gpus)
    for n, driver in enumerate(drivers):
        await driver.open()  # reads identity and serial number in BAR 0
        data = system.rng.randbytes(1500)
        assert await driver.copy_there_and_back(data, 0) == data
        print(f"managed_network: GPU {n} in use")
    await system.idle()
    system.checker.finish()
