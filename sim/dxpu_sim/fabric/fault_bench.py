"""The simulation behind ``dxpu faults``: TLPs in both directions over lines with the faults of a
case.

The case comes as JSON in ``$DXPU_FAULTS`` (:class:`dxpu_sim.fabric.cases.Case`, ``tlps``, and
``pcap`` if there shall be a capture of that name). The counts go to ``result.json`` in the run's
folder, even if the run got stuck.
"""

import json
import os
import random
import time
from contextlib import nullcontext
from pathlib import Path

import cocotb
from amaranth.lib.wiring import Out
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from .bad_line import Faults
from .capture import capture_lines
from .fault_design import ENDS, SETTINGS, FaultBench, fault_name, fields
from .flows import CLASSES

#: Interval at which the totals are read.
LOOK_NS = 100_000
#: A run without a TLP for so long is stuck; longer than a session lives without an answer.
PATIENCE_NS = 30_000_000
#: With resets, a run ends when no TLP came for so long after the last TLP was made.
PAUSE_NS = 3_000_000
#: Number of samples of idle lines, and their distance, which is shorter than a frame. By then all
#: delivered frames have been counted.
IDLE, IDLE_NS = 10, 500


async def quiet(dut):
    """Whether nothing is under way, in all of the last samples."""
    for _ in range(IDLE):
        if not int(dut.idle.value):
            return False
        await Timer(IDLE_NS, "ns")
    return bool(int(dut.idle.value))


class Run:
    """One case on the bench."""

    def __init__(self, dut):
        self.dut = dut
        self.case = json.loads(os.environ["DXPU_FAULTS"])
        self.rng = random.Random(int(os.environ["DXPU_SEED"]))
        bench = FaultBench(arq=self.case["arq"])
        self.outputs = [name for name, member in bench.signature.members.items()
                        if member.flow is Out]

    def read(self, name):
        """Value of an output."""
        return int(getattr(self.dut, name).value)

    async def run(self):
        """Send all TLPs, wait for them and for late frames, write down the counts."""
        dut, case, begin = self.dut, self.case, time.perf_counter()
        for name in SETTINGS:
            getattr(dut, name).value = case[name]
        dut.delay.value, dut.fixed.value = case["delay"], case["fixed"]
        dut.hello.value, dut.surplus.value = case["hello"], case["surplus"]
        for end in ENDS:
            for name, _ in fields(Faults):
                getattr(dut, fault_name(end, name)).value = case["faults"].get(name, 0)
            senders = case["senders"]
            getattr(dut, f"{end}_most").value = (case["tlps"] // len(senders)
                                                 if end in senders else 0)
            getattr(dut, f"{end}_pause").value = case["pause"]
            getattr(dut, f"{end}_stall").value = case["stall"]
            getattr(dut, f"{end}_boot").value = 1
        dut.salt.value = self.rng.randrange(1, 1 << 32)
        await Timer(1, "us")  # past the reset
        dut.salt.value = 0
        for end in ENDS:
            getattr(dut, f"{end}_enable").value = 1
        others = [cocotb.start_soon(job()) for job in (self._flap, self._shut, self._reboot)]
        others += [cocotb.start_soon(self._starve(end)) for end in ENDS]
        result = {"stuck": ""}
        try:
            await self._finish(result)
        finally:
            for job in others:
                job.cancel()
            result |= {name: self.read(name) for name in self.outputs}
            result |= {"seconds": time.perf_counter() - begin,
                       "ns": get_sim_time("ns")}
            Path("result.json").write_text(json.dumps(result))

    async def _finish(self, result):
        most = self.case["tlps"] // len(self.case["senders"]) * len(self.case["senders"])
        before, since, reboots = -1, get_sim_time("ns"), self.case["reboot_us"]
        with open("progress.txt", "w", buffering=1) as progress:
            while True:
                await Timer(LOOK_NS, "ns")
                taken = sum(self.read(f"to_{end}_total_tlps") for end in ENDS)
                now = get_sim_time("ns")
                progress.write(f"{taken}\n")
                if taken != before:
                    before, since = taken, now
                made = sum(self.read(f"{end}_made") for end in ENDS)
                # TLPs under way at a reset do not arrive.
                done = made == most and now - since > PAUSE_NS if reboots else taken >= most
                if done and await quiet(self.dut):
                    return
                failed = [end for end in ENDS if self.read(f"{end}_failed")]
                if failed and not reboots or now - since > PATIENCE_NS:
                    result["stuck"] = (f"the session of the {failed[0]} has failed" if failed else
                                       f"nothing arrived for {PATIENCE_NS // 1_000_000} ms")
                    return

    async def _flap(self):
        """Kill paths in turn; each path comes back before the next dies."""
        longest = self.case["flap_us"]
        while longest:
            for path in range(len(self.dut.dead)):
                await Timer(self.rng.randint(longest, 2 * longest), "us")
                self.dut.dead.value = 1 << path
                await Timer(self.rng.randint(longest // 2, longest), "us")
                self.dut.dead.value = 0

    async def _reboot(self):
        """Reset one end; afterwards only its boot counter differs."""
        longest, boots = self.case["reboot_us"], dict.fromkeys(ENDS, 1)
        while longest:
            await Timer(self.rng.randint(longest // 2, 2 * longest), "us")
            end = self.rng.choice(ENDS)
            boots[end] += 1
            getattr(self.dut, f"{end}_reset").value = 1
            getattr(self.dut, f"{end}_boot").value = boots[end]
            await Timer(self.rng.randint(1, 20), "us")
            getattr(self.dut, f"{end}_reset").value = 0

    async def _shut(self):
        """Let an end take no TLPs for a while."""
        longest = self.case["shut_us"]
        while longest:
            end = self.rng.choice(ENDS)
            await Timer(self.rng.randint(1, 2 * longest), "us")
            getattr(self.dut, f"{end}_shut").value = 1
            await Timer(self.rng.randint(1, longest), "us")
            getattr(self.dut, f"{end}_shut").value = 0

    async def _starve(self, end):
        """Let an end take no TLPs of a class from some rows, for a while."""
        cls, longest = self.case["starve"], self.case["starve_us"]
        closed = getattr(self.dut, f"{end}_closed")
        rows = len(closed) // 3
        while cls:
            await Timer(self.rng.randint(1, longest // 2), "us")
            some = self.rng.sample(range(rows), self.rng.randint(1, rows - 1))
            closed.value = sum(1 << 3 * row + list(CLASSES).index(cls) for row in some)
            await Timer(self.rng.randint(longest // 2, longest), "us")
            closed.value = 0


@cocotb.test()
async def campaign(dut):
    """One case of the campaign; the calling program judges the counts."""
    run = Run(dut)
    with capture_lines(dut, run.case["pcap"]) if "pcap" in run.case else nullcontext():
        await run.run()
