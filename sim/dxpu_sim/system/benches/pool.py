"""The manager of a pool as a process, and its commands, give GPUs to one host and the next.

Options of the design come as JSON in ``$DXPU_SYSTEM``: two hosts, and GPUs that forget.
"""

import json
import os
import time
from pathlib import Path

import cocotb

from dxpu_sim.endpoint.driver import GpuDriver
from dxpu_sim.pcie.links import DirectLink, replace_port
from dxpu_sim.pcie.pciehp import enumerate_with_room, find_slots
from dxpu_sim.pcie.ports import RootComplex
from dxpu_sim.system.operate import Operator
from dxpu_sim.system.pool_process import PoolProcess, strap
from dxpu_sim.system.system import SimulatedSystem

OPTIONS = json.loads(os.environ["DXPU_SYSTEM"])
SIZE = 2048


class PooledHost(Operator):
    """A host with hot-plug drivers, which knows nothing of a manager."""

    def __init__(self, system, number):
        super().__init__(system, host=number)
        if number == 0:
            self.rc = system.rc
        else:
            self.rc = RootComplex()
            replace_port(self.rc.make_port(), "downstream",
                         DirectLink(system.mailboxes[system.host_names[number]]))

    async def boot(self):
        """Enumerate the empty switch, and start the drivers of its slots."""
        await enumerate_with_room(self.rc)
        self.slots = find_slots(self.rc)
        for slot in self.slots:
            await slot.start()

    async def found(self, gpu, port):
        """The driver of a GPU whose slot has come up."""
        self.system.checker.mended(self.system.names[gpu])
        await self.slots[port].until(lambda: self.slots[port].has_gpu)
        driver = GpuDriver(self.rc, self.slots[port].device)
        await driver.open(interrupts="msi")
        assert await driver.serial() == self.system.gpus[gpu].serial
        return driver

    def empty(self, port):
        """The slot of a GPU that has gone by agreement is empty."""
        assert not self.slots[port].on and self.slots[port].device is None
        self.routes.present.discard(port)


async def attached(pool, host, number, gpu, port):
    """A command gives a GPU to a host; returns the driver."""
    host.route(gpu, port)
    host.fault(gpu)
    # The host finds the card before the manager has seen that.
    host.routes.present.add(port)
    said = await pool.dxpu("attach", pool.host(number), pool.gpu(gpu), "--wait", "500")
    print(f"pool: dxpu attach: {said}")
    return await host.found(gpu, port)


async def detached(pool, host, number, gpu, port):
    """A command asks a host for a GPU."""
    host.fault(gpu)
    said = await pool.dxpu("detach", pool.host(number), pool.gpu(gpu), "--wait", "500")
    print(f"pool: dxpu detach: {said}")
    host.empty(port)


@cocotb.test()
async def gpus_go_from_host_to_host_by_commands(dut):
    """Found, numbered, given, used, taken away by agreement, given to the other host, who finds
    nothing of the first one; while the manager is killed, GPUs go on."""
    system = SimulatedSystem(dut, OPTIONS, gpu={"forgets": True})
    await strap(system)
    pool, begin = PoolProcess(dut, system, Path.cwd() / "pool"), time.monotonic()
    await pool.start()
    await pool.wait_for(len(system.gpus), len(system.hosts))
    print(f"pool: found after {time.monotonic() - begin:.1f} s")
    hosts = [PooledHost(system, number) for number in range(2)]
    for host in hosts:
        await host.boot()
    secret = system.rng.randbytes(SIZE)
    driver = await attached(pool, hosts[0], 0, 0, 0)
    await driver.write_vram(0, secret)
    assert await driver.read_vram(0, SIZE) == secret
    other = await attached(pool, hosts[1], 1, 1, 0)
    data = system.rng.randbytes(SIZE)
    assert await other.copy_there_and_back(data, 0) == data
    await detached(pool, hosts[0], 0, 0, 0)
    driver = await attached(pool, hosts[1], 1, 0, 1)
    assert await driver.read_vram(0, SIZE) == bytes(SIZE), "the former host's bytes are there"
    print("pool: the second host finds nothing of the first one")
    pool.kill()
    data = system.rng.randbytes(SIZE)
    assert await driver.copy_there_and_back(data, 0) == data
    print("pool: GPUs are used without a manager")
    await pool.start()
    shown = json.loads(await pool.dxpu("gpu", "list", "--json"))
    assert [one["host"] for one in shown if one["state"] == "attached"] == 2 * [pool.host(1)]
    await detached(pool, hosts[1], 1, 0, 1)
    assert await other.copy_there_and_back(data, 0) == data
    print(f"pool: {time.monotonic() - begin:.1f} s")
    pool.kill()
    await system.idle()
    system.checker.finish()
