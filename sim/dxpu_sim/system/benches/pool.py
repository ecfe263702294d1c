"""The manager of a pool as a process, and its commands, give GPUs to one host and the next.

``$DXPU_POOL`` has, as JSON: options of the design (``system``: two hosts, and a box with two GPUs
that forget), whether the manager has an interface (``veth``) or else a socket, and the ``patience``
with each command. The outcome goes to ``result.json``, even after a failure.
"""

import json
import os
import time
from pathlib import Path

import cocotb

from dxpu_sim.endpoint.driver import find_gpus
from dxpu_sim.run.steps import Steps
from dxpu_sim.system.pool_process import PoolProcess, strap
from dxpu_sim.system.pooled_host import PooledHost
from dxpu_sim.system.system import SimulatedSystem

GIVEN = json.loads(os.environ["DXPU_POOL"])
SIZE = 2048
#: Checks, in the order of the run.
CHECKS = ("manager_finds_nodes", "hosts_without_gpus", "attach", "gpu_used", "attach_to_another",
          "detach", "given_to_another", "nothing_of_the_first", "without_a_manager",
          "manager_again")


class PoolRun:
    """One run; ``result`` grows during the run."""

    def __init__(self, dut):
        self.system = SimulatedSystem(dut, GIVEN["system"], gpu={"forgets": True})
        self.pool = PoolProcess(dut, self.system, Path.cwd() / "pool", veth=GIVEN["veth"],
                                patience=GIVEN["patience"])
        self.hosts = [PooledHost(self.system, number, self.pool) for number in range(2)]
        self.result = {"checks": dict.fromkeys(CHECKS, False), "error": None}
        steps = Steps(Path.cwd())
        self.step, self.detail = steps.step, steps.detail

    def hold(self, name, condition=True, text=""):
        """Record that check ``name`` held; otherwise end the run."""
        if not condition:
            raise AssertionError(f"{name}: {text}")
        self.result["checks"][name] = True

    async def run(self):
        """Found, numbered, given, used, taken away by agreement, given to the other host, who finds
        nothing of the first one; while the manager is killed, GPUs go on."""
        await self.find()
        first, second = self.hosts
        driver = await self.attach("attach", first, 0, 0)
        secret = await self.use(driver, first)
        other = await self.attach("attach_to_another", second, 1, 0)
        await self.detach("detach", first, 0, 0)
        driver = await self.attach("given_to_another", second, 0, 1)
        await self.look_for(secret, driver, second)
        await self.go_on_without(driver, other, second)
        await self.system.idle()
        self.system.checker.finish()

    async def find(self):
        """The manager is there when nodes get their power; hosts boot meanwhile."""
        system, pool = self.system, self.pool
        self.step("dxpu manager run")
        await strap(system)
        await pool.start(first=True)
        self.detail(f"a process of its own {'on a veth' if GIVEN['veth'] else 'at a UNIX socket'}")
        self.step("Two hosts boot")
        for host in self.hosts:
            await host.boot()
        self.hold("hosts_without_gpus", not any(find_gpus(host.rc) for host in self.hosts),
                  "a host has a GPU before any was attached")
        self.detail("each enumerates a switch with empty slots")
        self.step("The manager finds the nodes")
        await pool.wait_for(len(system.gpus), len(system.hosts))
        numbers = [(await proxy.read("control.node"))["number"]
                   for proxy in (*system.hosts, *system.boxes)]
        self.hold("manager_finds_nodes", len(set(numbers) - {0xFFF}) == len(numbers),
                  f"the nodes have the numbers {numbers}")
        self.detail(f"{len(system.hosts)} hosts and a box have numbers "
                    f"{', '.join(f'{number:#05x}' for number in numbers)}; "
                    f"{len(system.gpus)} GPUs are free")

    async def attach(self, check, host, gpu, port):
        """A command gives a GPU to a host, which finds and opens it; returns the driver."""
        self.step(f"dxpu attach {host.name} {self.pool.gpu(gpu)}")
        driver = await host.attach(gpu, port)
        found = [one.pcie_id for one in find_gpus(host.rc)]
        self.hold(check, driver.pcie_id in found, f"{host.name} enumerates {found}")
        self.detail(f"enumerated at {driver.pcie_id}, and opened: serial number "
                    f"{await driver.serial():016x}")
        return driver

    async def use(self, driver, host):
        """The host's driver uses a GPU, and leaves something in its memory."""
        self.step(f"{host.name} uses the GPU at {driver.pcie_id}")
        data, secret = (self.system.rng.randbytes(SIZE) for _ in range(2))
        same = await driver.copy_there_and_back(data, SIZE) == data
        await driver.write_vram(0, secret)
        self.hold("gpu_used", same and await driver.read_vram(0, SIZE) == secret,
                  "what came back is something else")
        self.detail(f"its DMA copies {SIZE:,} bytes there and back; {SIZE:,} stay in its memory")
        return secret

    async def detach(self, check, host, gpu, port):
        """A command asks a host for a GPU."""
        self.step(f"dxpu detach {host.name} {self.pool.gpu(gpu)}")
        where = host.slots[port].device.pcie_id
        await host.detach(gpu, port)
        self.hold(check, where not in [one.pcie_id for one in find_gpus(host.rc)],
                  f"{host.name} still has {where}")
        self.detail(f"button pressed, driver lets go, no device at {where} any more")

    async def look_for(self, secret, driver, host):
        """The next host reads the memory of a GPU."""
        self.step(f"{host.name} reads the memory of that GPU")
        found = await driver.read_vram(0, len(secret))
        self.hold("nothing_of_the_first", found == bytes(len(secret)),
                  f"{sum(map(bool, found))} of {len(found)} bytes are not zero")
        self.detail(f"{len(found):,} of {len(found):,} bytes are zero: nothing of "
                    f"{self.hosts[0].name}")

    async def go_on_without(self, driver, other, host):
        """The manager is killed, and comes again."""
        self.step("The manager is killed")
        self.pool.kill()
        for each in (driver, other):
            data = self.system.rng.randbytes(SIZE)
            self.hold("without_a_manager", await each.copy_there_and_back(data, 0) == data,
                      f"the GPU at {each.pcie_id} does not copy")
        self.detail(f"both GPUs of {host.name} copy {SIZE:,} bytes there and back")
        self.step("dxpu manager run, once more")
        await self.pool.start()
        shown = json.loads(await self.pool.dxpu("gpu", "list", "--json"))
        owners = [one["host"] for one in shown if one["state"] == "attached"]
        self.hold("manager_again", owners == 2 * [host.name], f"GPUs are attached to {owners}")
        self.detail(f"it has found that {host.name} has both GPUs")
        await self.detach("detach", host, 0, 1)
        self.pool.kill()

    def write(self, seconds):
        """Write the results so far to ``result.json``."""
        Path("result.json").write_text(json.dumps(self.result | {"seconds": seconds}))


@cocotb.test()
async def gpus_go_from_host_to_host_by_commands(dut):
    """The pool of ``dxpu demo``."""
    begin, this = time.monotonic(), PoolRun(dut)
    try:
        await this.run()
    except BaseException as error:
        this.result["error"] = f"{type(error).__name__}: {error}"
        raise
    finally:
        this.write(time.monotonic() - begin)
