"""The simulation behind ``dxpu demo``: boot, use and measure GPUs behind a fabric.

Options come as JSON in ``$DXPU_DEMO`` (:class:`dxpu_cli.commands.demo.Options`). The outcome goes
to ``result.json`` in the run's folder, even after a failure.
"""

import json
import os
import time
from contextlib import ExitStack
from pathlib import Path

import cocotb
from cocotb.triggers import First, Timer
from cocotb.utils import get_sim_time

from dxpu_sim.endpoint.driver import find_gpus
from dxpu_sim.endpoint.gpu import DEVICE_ID, VENDOR_ID
from dxpu_sim.pcie import lspci
from dxpu_sim.run.steps import Steps
from dxpu_sim.run.trace import Trace
from dxpu_sim.system.hotplug_host import Copier, HotPlugHost, Reader
from dxpu_sim.system.system import SimulatedSystem
from dxpu_sim.system.traversal import CYCLE_NS, conversions, take_apart

#: Checks, in the order of the run.
CHECKS = ("empty_slots", "hot_plug", "tree", "names", "registers", "video_memory", "interrupts",
          "round_trip", "copy_to_gpu", "copy_to_host", "copies_together", "tlps_exact",
          "fabric_lossless", "counters_clean", "bad_fabric", "dead_path", "surprise_removal",
          "slot_clean", "others_unharmed")

#: Steps, in the order of the run. All need the first one, and those behind the second one need it.
STEPS = ("boot", "use", "measure_round_trip", "copy", "copy_together", "finish",
         "copy_through_a_bad_fabric", "pull")

#: Simulated time without traffic before a measurement.
QUIET_NS = 5_000
#: Share of frames lost on the bad fabric.
LOSS = 0.01
#: First wait for an acknowledgement on the bad fabric, in units of 64 cycles: 20 us instead of
#: 250 us, so that the simulation soon gives up a path.
RETRY_WAIT = 40


class Demo:
    """One run; ``result`` grows during the run."""

    def __init__(self, dut):
        self.options = json.loads(os.environ["DXPU_DEMO"])
        self.folder = Path.cwd()
        self.dut = dut
        self.system = SimulatedSystem(dut, self.options["system"])
        self.host = HotPlugHost(self.system, paths=(1 << len(dut.dead)) - 1)
        self.rng = self.system.rng
        self.result = {"checks": dict.fromkeys(CHECKS, False), "error": None}
        steps = Steps(self.folder)
        self.step, self.detail = steps.step, steps.detail
        self._probes = {}
        self.trace = None
        self._begin = time.perf_counter()
        cocotb.start_soon(self._tick())

    async def _tick(self):
        while True:
            await Timer(20, "us")
            tlps = sum(m.tlps_sent for m in self.system.mailboxes.values())
            self.detail(f"{get_sim_time('us'):,.0f} us simulated, {tlps:,} TLPs")

    def hold(self, name, condition=True, text=""):
        """Record that check ``name`` held; otherwise end the run."""
        if not condition:
            raise AssertionError(f"{name}: {text}")
        self.result["checks"][name] = True

    # Steps.

    async def run(self):
        """Run all steps, or those asked for, in order; or up to the end of the window."""
        steps = cocotb.start_soon(self._run_steps(self.options.get("steps") or STEPS))
        if window := self.options.get("window_ns"):
            await First(steps, cocotb.start_soon(self._trace_window(*window)))
        else:
            await steps

    async def _run_steps(self, steps):
        for step in steps:
            await getattr(self, step)()

    async def _trace_window(self, begin, end):
        """Trace from ``begin`` to ``end``, in ns."""
        await Timer(begin, "ns")
        self._start_trace()
        await Timer(end - begin, "ns")

    async def boot(self):
        """The host boots with empty slots; then the manager binds GPUs, one after the other."""
        system = self.system
        if self.options["wave"] == "all":
            self._start_trace()
        self.step("Booting the host with empty slots")
        await self.host.boot()
        self.hold("empty_slots", not find_gpus(system.rc), "there is a GPU before any was bound")
        waits = []
        for n, name in enumerate(system.names):
            self.step(f"GPU {n} arrives")
            first = []
            system.mailboxes[name].received.append(
                lambda _, first=first: first.append(get_sim_time("ns")))
            await self.host.arrive(n, n)
            waits.append(first[0] - self.host.committed_ns)
            self.detail(f"first configuration request {waits[-1]:,.0f} ns after its binding")
        self.result["bind_to_first_config_ns"] = max(waits)
        self.hold("hot_plug", all(slot.log == ["added"] for slot in self.host.slots[:len(waits)]),
                  f"{[slot.log for slot in self.host.slots]}")
        system.drivers = find_gpus(system.rc)
        self.result["tree"] = lspci.tree(system.rc.host_bridge.bus, self._name)
        self.hold("tree", len(system.drivers) == len(system.gpus),
                  f"{len(system.drivers)} of {len(system.gpus)} GPUs were found")

    def _name(self, device):
        if (device.vendor_id, device.device_id) != (VENDOR_ID, DEVICE_ID):
            return lspci.describe(device)
        size = device.bar_size[2] >> 20
        box, slot = self.system.slots[[d.dev for d in self.system.drivers].index(device)]
        return f"{lspci.describe(device)} {size} MiB, box {box} slot {slot}"

    async def use(self):
        """Drivers open their GPUs and use all of their functions."""
        system = self.system
        self.step("Opening drivers")
        for n, driver in enumerate(system.drivers):
            await driver.open(interrupts="msi" if n % 2 else "msix")
        self.result["gpus"] = []
        for n, (driver, gpu) in enumerate(zip(system.drivers, system.gpus, strict=True)):
            box, slot = system.slots[n]
            name, serial = await driver.name(), await driver.serial()
            self.result["gpus"].append({
                "name": name, "serial": f"{serial:016x}", "address": str(driver.pcie_id),
                "box": box, "slot": slot, "vram_MiB": gpu.vram.size >> 20,
                "interrupts": "MSI" if n % 2 else "MSI-X"})
            if (name, serial) != (system.titles[n], gpu.serial):
                raise AssertionError(f"names: GPU {n} says {name!r}, {serial:#x}")
        self.hold("names")

        self.step("Writing and reading registers")
        values = {driver: self.rng.getrandbits(32) for driver in system.drivers}
        for driver, value in values.items():
            await driver.write_register("SCRATCH", value)
        # Read only after all writes: each GPU must have its own register.
        for driver, value in values.items():
            read = await driver.read_register("SCRATCH")
            self._same("registers", driver, read, value)
        self.hold("registers")

        self.step("Writing and reading video memory")
        for driver in system.drivers:
            for length in (1, 4, 7, 64, 300):
                offset, data = self.rng.randrange(1 << 20), self.rng.randbytes(length)
                await driver.write_vram(offset, data)
                self._same("video_memory", driver, await driver.read_vram(offset, length), data)
        self.hold("video_memory")

        self.step("Taking interrupts")
        if self.options["wave"] == "on":
            self._start_trace()
        for driver in system.drivers:
            vector = self.rng.randrange(len(driver.interrupts))
            before = list(driver.interrupts)
            await driver.trigger_interrupt(vector)
            before[vector] += 1
            self._same("interrupts", driver, driver.interrupts, before)
        self.hold("interrupts")

    @staticmethod
    def _same(check, driver, found, expected):
        if found != expected:
            raise AssertionError(f"{check}: GPU {driver.pcie_id}: {found!r}, not {expected!r}")

    def _start_trace(self):
        self.trace = Trace(self.folder / self.options["wave_file"])
        self.trace.start()
        self._trace_ns = get_sim_time("ns")
        self.result["wave_from_ns"] = self._trace_ns

    async def _stop_trace_later(self, ns):
        await Timer(ns, "ns")
        self._stop_trace()

    def _stop_trace(self):
        if self.trace:
            self.trace.stop()
            self.result["wave_to_ns"] = get_sim_time("ns")
            self.trace = None

    async def measure_round_trip(self):
        """Reads of four bytes on an idle fabric; the last read is split into stages."""
        self.step("Measuring the round trip of a read")
        driver, samples = self.system.drivers[0], []
        for _ in range(self.options["reads"]):
            await Timer(QUIET_NS, "ns")
            begin = get_sim_time("ns")
            await driver.read_register("SCRATCH")
            samples.append(get_sim_time("ns") - begin)
        half = self.options["wave_cycles"] // 2 * CYCLE_NS
        if self.options["wave"] == "on":
            elapsed = get_sim_time("ns") - self._trace_ns
            await Timer(max(QUIET_NS, half - elapsed), "ns")
            cocotb.start_soon(self._stop_trace_later(half))
        else:
            await Timer(QUIET_NS, "ns")
        stages = await take_apart(self.system)
        total = stages[-1]["end_ns"] - stages[0]["start_ns"]
        samples.append(total)
        cycles = conversions(stages)
        self.result |= {
            "round_trip_ns": total,
            "round_trip_samples_ns": {"reads": len(samples), "min": min(samples),
                                      "mean": sum(samples) / len(samples), "max": max(samples)},
            "stages": stages,
            "conversion_cycles": cycles,
        }
        # Whole stages, in order, without gaps.
        gaps = [b["start_ns"] - a["end_ns"] for a, b in zip(stages, stages[1:], strict=False)]
        self.hold("round_trip", len(cycles) == 4 and not any(gaps)
                  and all(s["end_ns"] >= s["start_ns"] for s in stages),
                  f"the stages of the read do not follow each other: {stages}")

    async def copy(self):
        """One large copy in each direction, timed."""
        size = self.options["size"]
        driver, gpu = self.system.drivers[0], self.system.gpus[0]
        data = self.rng.randbytes(size)
        source, memory = self.system.rc.alloc_region(size)
        target, back = self.system.rc.alloc_region(size)
        memory[:size] = data
        vram = self.rng.randrange(1 << 19)
        await Timer(QUIET_NS, "ns")
        self.step(f"Copying {size:,} bytes from host to GPU")
        begin = get_sim_time("ns")
        await driver.copy_to_gpu(source, vram, size)
        self.result["h2d_MBps"] = size / (get_sim_time("ns") - begin) * 1e3
        self.hold("copy_to_gpu", gpu.vram.read(vram, size) == data, "video memory differs")
        await Timer(QUIET_NS, "ns")
        self.step(f"Copying {size:,} bytes from GPU to host")
        begin = get_sim_time("ns")
        await driver.copy_to_host(target, vram, size)
        self.result["d2h_MBps"] = size / (get_sim_time("ns") - begin) * 1e3
        self.hold("copy_to_host", bytes(back[:size]) == data, "host memory differs")

    async def copy_together(self):
        """All GPUs copy at the same time, each with different data."""
        size = min(self.options["size"], 4096)
        self.step(f"All GPUs copying {size:,} bytes each way at once")
        failed = await self._copy_all(size)
        self.hold("copies_together", not failed, f"host memory differs: {', '.join(failed)}")

    async def _copy_all(self, size):
        """All GPUs copy there and back; returns the GPUs whose data came back wrong."""
        failed = []

        async def both_ways(driver):
            data = self.rng.randbytes(size)
            vram = self.rng.randrange(1 << 19)
            if await driver.copy_there_and_back(data, vram, vector=1) != data:
                failed.append(str(driver.pcie_id))

        tasks = [cocotb.start_soon(both_ways(driver)) for driver in self.system.drivers]
        for task in tasks:
            await task
        return failed

    async def finish(self):
        """Check that nothing is left over, lost or counted as wrong."""
        self.step("Checking every TLP and counter")
        await self.system.idle()
        self.system.checker.finish()
        self.hold("tlps_exact")

        def total(name):
            return sum(c[name] for c in counters.values())

        # Credits are told again every half a millisecond: such a frame may be under way while
        # counters are read.
        for _ in range(5):
            counters = await self.system.counters()
            if total("fabric_rx_frames") == total("fabric_tx_frames"):
                break
        self.result["counters"] = counters
        self.result |= {"frames": total("fabric_tx_frames"), "tlps": total("fabric_tx_tlps")}
        self.hold("fabric_lossless",
                  total("fabric_rx_tlps") == total("fabric_tx_tlps") > 0
                  and total("fabric_rx_frames") == total("fabric_tx_frames"),
                  f"{counters}")
        await self.system.finish()
        self.hold("counters_clean")

    async def copy_through_a_bad_fabric(self):
        """Frames get lost; then the path in use dies in the middle of copies."""
        system, size = self.system, min(self.options["size"], 2048)
        proxies = (system.host, *system.boxes)
        before = await system.counters()
        system.rc.timeout_ns = 10_000_000  # the shortest timeout of real hosts
        for proxy in proxies:
            await proxy.write("control.retry", wait=RETRY_WAIT)
        self.step(f"The same with {LOSS:.0%} of all frames lost, and path 0 dying")
        self.dut.loss.value = round(LOSS * 65536)
        failed = await self._copy_all(size)
        copies = cocotb.start_soon(self._copy_all(size))
        await Timer(self.rng.randint(10_000, 30_000), "ns")
        self.dut.dead.value = 1
        failed += await copies
        await system.idle()
        system.checker.finish()
        counters = await system.counters()

        def rise(name):
            return sum(counters[p][name] - before[p][name] for p in counters)

        lost = int(self.dut.lost.value)
        self.result |= {"frames_lost": lost, "frames_sent_again": rise("fabric_tx_repeated")}
        self.detail(f"{lost} frames lost, {self.result['frames_sent_again']} sent again")
        self.hold("bad_fabric", not failed and lost and self.result["frames_sent_again"]
                  and rise("fabric_rx_tlps") == rise("fabric_tx_tlps"),
                  f"{lost} frames lost, wrong data: {failed}")
        paths = [(await proxy.read(f"control.session[{proxy.session(n)}].state"))["path"]
                 for proxy in proxies for n in range(len(system.boxes) if proxy is system.host
                                                     else 1)]
        self.hold("dead_path", all(paths) and rise("mac1_tx_good") > 0,
                  f"the sessions are on paths {paths}")
        self.dut.loss.value = self.dut.dead.value = 0

    async def pull(self):
        """Pull the last GPU in the middle of a copy."""
        system, lost = self.system, len(self.system.gpus) - 1
        slot, state = self.host.slots[lost], {}
        self.step(f"Somebody pulls GPU {lost} while it copies")
        copier = Copier(self.host, system.drivers[lost])
        reader = Reader(self.host, system.drivers[lost])
        await copier.begun.wait()
        await Timer(self.rng.randint(10_000, 30_000), "ns")
        rounds = copier.rounds
        copier.lost = True
        begin = get_sim_time("ns")
        await self.host.pull(lost)
        state = await self.host.gone(lost)
        await Timer(QUIET_NS, "ns")
        await reader.stop()
        copier.task.cancel()
        self.hold("surprise_removal", copier.rounds == rounds and reader.first_ur_ns is not None,
                  "the GPU went on copying, or its reads were not answered with UR")
        self.result["loss_to_ur_ns"] = reader.first_ur_ns - begin
        self.detail(f"first Unsupported Request {self.result['loss_to_ur_ns']:,.0f} ns later")
        # Hot-plug software that looks while the link is down and presence is not yet gone tries to
        # bring the slot up again, and finds no link.
        ends = [line for line in slot.log if line != "no link"]
        self.hold("slot_clean", ends[-1] == "gone" and not state["present"]
                  and len(find_gpus(system.rc)) == lost, f"{slot.log}, {state}")
        for driver in system.drivers[:lost]:
            data = self.rng.randbytes(1000)
            self._same("others_unharmed", driver, await driver.copy_there_and_back(data, 0), data)
        await system.idle()
        system.checker.finish()
        self.hold("others_unharmed")

    def write(self):
        """Write the results so far to ``result.json``."""
        self._stop_trace()
        seconds = time.perf_counter() - self._begin
        cycles = get_sim_time("ns") / CYCLE_NS
        self.result |= {
            "cycles": round(cycles), "seconds": seconds,
            "simulated_cycles_per_s": cycles / seconds,
            "pcie_tlps": sum(m.tlps_sent for m in self.system.mailboxes.values()),
        }
        (self.folder / "result.json").write_text(json.dumps(self.result))


@cocotb.test()
async def demo(dut):
    """The run of ``dxpu demo``."""
    this = Demo(dut)
    with ExitStack() as stack:
        stack.callback(this.write)
        if this.options["pcap"]:
            stack.enter_context(this.system.capture(this.folder / this.options["pcap"]))
        try:
            await this.run()
        except BaseException as error:
            this.result["error"] = f"{type(error).__name__}: {error}"
            raise
