"""The host is reset or loses its power, at any moment of any traffic, and boots again.

For the host proxy this is a link to the root complex that goes down and comes up (PCIe Base 5.0,
6.6.1). All traffic is checked at its ends, also across the break: once a link has come up, no older
TLP may arrive at its end.

Options of the design come as JSON in ``$DXPU_SYSTEM``, the number of reboots in ``$DXPU_REBOOTS``.
"""

import json
import os
from collections import Counter

import cocotb
from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import CplStatus, TlpType
from cocotbext.pcie.core.utils import PcieId

from dxpu.switch.config.fields import STICKY
from dxpu.switch.config.port_map import DOWNSTREAM, UPSTREAM, function_map
from dxpu_sim.pcie.checkers import CheckFailed
from dxpu_sim.system.hotplug_host import Copier, HotPlugHost, Reader
from dxpu_sim.system.setup import slot_state, wait_for_slot
from dxpu_sim.system.system import TRAFFIC_COUNTERS, SimulatedSystem

from .hotplug import BRIDGE_CONTROL, BRIDGE_RESET

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))
REBOOTS = int(os.environ.get("DXPU_REBOOTS", "8"))

#: Counters of TLPs, requests, events and credits that end with a life, besides the counters of
#: normal traffic: TLPs dropped before and behind the fabric, requests answered in place of a GPU,
#: late events and credits.
ENDS = ("tracking_closed", "tracking_fenced", "tracking_answered", "switch_fenced",
        "switch_unclaimed0", "switch_unexpected0", "switch_unsupported1", "switch_unclaimed1",
        "fabric_tx_unroutable", "fabric_tx_unbound", "fabric_rx_unbound", "to_slots_dropped",
        "link_ignored", "binding_refused", "fabric_tx_refused")


class Operator:
    """Operations under way at a GPU when the host goes down."""

    #: Operations by the former state of the slot; operations of software end with the host.
    FULL = ("nothing", "nothing", "release", "detach", "pull", "reset", "bridge_reset")
    EMPTY = ("nothing", "bind", "bind")

    def __init__(self, bench):
        self.bench, self.host = bench, bench.system.host

    async def nothing(self, gpu):
        """Leave the slot unchanged."""

    async def bind(self, gpu):
        """Bind the row to an empty slot."""
        await self.bench.commit(gpu, gpu)

    async def release(self, gpu):
        """Release the row by force."""
        await self.bench.release(gpu)

    async def detach(self, gpu):
        """Ask the operating system to release the GPU."""
        await self.host.write("control.detach", ports=1 << gpu)

    async def pull(self, gpu):
        """Pull the GPU."""
        await self.bench.pull(gpu)

    async def reset(self, gpu):
        """Reset the slot, as a manager."""
        self.bench.fault(gpu)
        await self.host.write("control.reset", ports=1 << gpu)

    async def bridge_reset(self, gpu):
        """Set Secondary Bus Reset, as an operating system that ends before clearing it."""
        self.bench.fault(gpu)
        port = self.bench.slots[gpu].port
        control = await port.config_read_word(BRIDGE_CONTROL)
        await port.config_write_word(BRIDGE_CONTROL, control | BRIDGE_RESET)


async def copy_to_peer(rng, driver, peer):
    """Copy from GPU to GPU, for ever."""
    while True:
        await driver.copy_to_host(peer.dev.bar_addr[2] + 4 * rng.randrange(1 << 16), 0,
                                  rng.randint(1, 1500))


async def write_registers(driver):
    """Write a register whose reset value is 0, for ever."""
    value = 0
    while True:
        value += 1
        await driver.write_register("SCRATCH", value)
        await Timer(700, "ns")


class Machine:
    """A host that reboots, with GPU n in slot n."""

    def __init__(self, dut):
        self.bench = HotPlugHost(SimulatedSystem(dut, OPTIONS))
        self.system, self.rng = self.bench.system, self.bench.rng
        self.operator = Operator(self.bench)
        self.count = len(self.system.gpus)
        #: GPUs bound, in their boxes, and not lost.
        self.bound = set()
        self.drivers = {}
        self.under_way = Counter()

    async def boot(self):
        """Switch everything on, bind all GPUs, and check them."""
        await self.bench.boot()
        for gpu in range(self.count):
            await self.bench.commit(gpu, gpu)
            self.bound.add(gpu)
        await self.all_work([0] * self.count)

    def traffic(self):
        """Start copies to the host, or from GPU to GPU, and register accesses all the time."""
        tasks = []
        for gpu, driver in sorted(self.drivers.items()):
            others = [other for n, other in self.drivers.items() if n != gpu]
            if others and self.rng.random() < 0.3:
                tasks.append(cocotb.start_soon(
                    copy_to_peer(self.rng, driver, self.rng.choice(others))))
            else:
                tasks.append(Copier(self.bench, driver).task)
            tasks.append(cocotb.start_soon(write_registers(driver)))
            tasks += [Reader(self.bench, driver).task for _ in range(2)]
        return tasks

    async def break_down(self, down_ns):
        """Switch the host off for a while, during traffic and an operation at each slot.

        Returns the operations, and the number of resets of each GPU before.
        """
        rng, system = self.rng, self.system
        tasks = self.traffic()
        await Timer(rng.randint(1, 30_000), "ns")
        resets = [gpu.resets for gpu in system.gpus]
        chosen = [rng.choice(Operator.FULL if gpu in self.bound else Operator.EMPTY)
                  for gpu in range(self.count)]
        self.under_way.update(chosen)

        async def operate(gpu, what):
            await Timer(rng.randint(1, 10_000), "ns")
            if what != "bridge_reset" or system.host_link.up:
                await getattr(self.operator, what)(gpu)

        operations = [cocotb.start_soon(operate(gpu, what)) for gpu, what in enumerate(chosen)]
        await Timer(rng.randint(1, 15_000), "ns")
        cocotb.log.info("off for %d ns: %s", down_ns, chosen)
        for gpu in self.bound:
            if chosen[gpu] == "nothing":
                resets[gpu] = system.gpus[gpu].resets
        system.power_off()
        for task in tasks:
            task.cancel()
        await Timer(down_ns, "ns")
        for what, operation in zip(chosen, operations, strict=True):
            if what == "bridge_reset":
                operation.cancel()
            else:
                await operation
        await system.power_on()
        self.drivers.clear()
        return chosen, resets

    async def functions_are_reset(self):
        """Check the reset values of every writable bit of the upstream port, and of some registers
        of each downstream port. (This kind of reset spares sticky bits, 7.4.)
        """
        async def access(kind, function, register, **data):
            target = PcieId(2, function - 1, 0) if function else PcieId(1, 0, 0)
            completion, = await self.system.rc.request(
                kind, 4 * register, target=target, port=self.system.root_port, **data)
            assert completion.status == CplStatus.SC, (function, register)
            return int.from_bytes(completion.get_data(), "little")

        for function in range(self.system.ports + 1):
            fmap = function_map(DOWNSTREAM if function else UPSTREAM)
            reset = fmap.reset_image()
            masks = {n: mask for n, mask in enumerate(fmap.access_image("RW"))
                     if mask and n not in STICKY}
            picked = {fmap.dword(name) for name in ("Command", "Bridge Control")}
            if function:
                picked |= {fmap.dword("Slot Control"), *self.rng.sample(sorted(masks), 3)}
            else:
                picked |= set(masks)
            kind = TlpType.CFG_READ_1 if function else TlpType.CFG_READ_0
            for n in sorted(picked):
                value = await access(kind, function, n) & masks[n]
                if value != reset[n] & masks[n]:
                    raise CheckFailed(f"function {function}: dword {n:#x} is {value:#x}, not "
                                      f"{reset[n] & masks[n]:#x}")
            if not function:
                # So that the other functions can be reached.
                await access(TlpType.CFG_WRITE_0, 0, fmap.dword("Primary Bus Number"),
                             data=(1 | 2 << 8 | 2 << 16).to_bytes(4, "little"))

    async def recover(self, chosen, resets):
        """Boot the host; all bound GPUs must be there again, reset and working."""
        bench, host = self.bench, self.system.host
        for gpu, what in enumerate(chosen):
            if what in ("release", "detach", "pull"):
                self.bound.discard(gpu)
            elif what == "bind":
                self.bound.add(gpu)
            if what == "detach":
                # A port after a reset shows the power indicator off.
                await wait_for_slot(host, gpu, detach=3)
        if self.rng.random() < 0.5:
            for gpu in sorted(self.bound):
                await wait_for_slot(host, gpu, link=1)
        await self.functions_are_reset()
        self.system.routes.present = set(self.bound)
        await bench.start()
        await self.all_work(resets)
        for gpu in set(range(self.count)) - self.bound:
            state = await slot_state(host, gpu)
            assert (state["present"], state["link"]) == (0, 0), (gpu, state)
            assert bench.slots[gpu].device is None
        for gpu, what in enumerate(chosen):
            if what == "pull":
                await bench.put_back(gpu)
                await self.works(gpu, resets[gpu])
                self.bound.add(gpu)
            elif what == "detach":
                await bench.release(gpu)
                await bench.gone(gpu)

    async def all_work(self, resets):
        """Check that all bound GPUs work."""
        tasks = [cocotb.start_soon(self.works(gpu, resets[gpu])) for gpu in sorted(self.bound)]
        for task in tasks:
            await task

    async def works(self, gpu, resets):
        """Wait for the GPU in its slot; it must have been reset more than ``resets`` times, and
        copy."""
        await self.bench.up(gpu, gpu)
        assert self.system.gpus[gpu].resets > resets, f"GPU {gpu} was not reset"
        self.drivers[gpu] = driver = await self.bench.open(gpu, gpu)
        assert await driver.read_register("SCRATCH") == 0
        data = self.rng.randbytes(1000)
        assert await driver.copy_there_and_back(data, 4 * gpu) == data
        assert await driver.read_register("SCRATCH") == 0

    async def finish(self):
        """Check that everything has arrived, and that no counter shows a loss."""
        await self.system.idle()
        self.system.checker.finish()
        counters = await self.system.counters()
        bad = [f"{proxy}.{name} = {total}" for proxy, totals in counters.items()
               for name, total in totals.items()
               if total and not name.endswith((*TRAFFIC_COUNTERS, *ENDS))]
        if bad:
            raise CheckFailed("counters that should be zero: " + ", ".join(bad))
        return counters


@cocotb.test()
async def reboots_under_traffic(dut):
    """The host goes down in the middle of everything, again and again."""
    machine = Machine(dut)
    await machine.boot()
    for _ in range(REBOOTS):
        down = machine.rng.choice([20_000, 64_000])
        await machine.recover(*await machine.break_down(down))
    counters = await machine.finish()
    print(f"reboot: {REBOOTS} reboots, {dict(machine.under_way)}")
    print("reboot:", {f"{proxy}.{name}": total for proxy, totals in counters.items()
                      for name, total in totals.items() if total})
