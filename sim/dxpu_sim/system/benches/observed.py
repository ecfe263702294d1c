"""What a host proxy measures of the round trips of requests, beside what its host sees.

Options of the design come as JSON in ``$DXPU_SYSTEM``.
"""

import json
import os

import cocotb
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from dxpu.observe import BINS
from dxpu_sim.system.hotplug_host import HotPlugHost
from dxpu_sim.system.system import SimulatedSystem

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))
#: Reads that are measured; cycles of a read outside the tracker, at most: in the root complex, in
#: front of the tracker, and behind it.
READS, AROUND = 30, 120
CYCLE_NS = 8


class Observed:
    """A host with a GPU, and its histogram."""

    def __init__(self, dut):
        self.system = SimulatedSystem(dut, OPTIONS)
        self.bench = HotPlugHost(self.system)

    async def word(self, name):
        """A register of the GPU's port."""
        return (await self.system.host.read(f"observe.round_trip[0].{name}"))["value"]

    async def histogram(self):
        """Bins, and the sum in cycles."""
        unit = (await self.system.host.read("observe.unit"))["value"]
        total = await self.word("sum_high") << 32 | await self.word("sum_low")
        return [await self.word(f"bin{n}") for n in range(BINS)], total * unit

    async def missed(self):
        """Round trips that are in no histogram."""
        await Timer(2, "us")
        return (await self.system.host.read("counters.round_trip_missed"))["count"]


@cocotb.test()
async def reads_are_in_the_histogram(dut):
    """Each is there once, in the bin of what its host has seen of it, and the sum is theirs."""
    observed = Observed(dut)
    await observed.bench.boot()
    driver = await observed.bench.bind(0)
    bins, total = await observed.histogram()
    await observed.system.host.write("observe.round_trip[0].longest", value=0)
    seen = []
    for _ in range(READS):
        begin = get_sim_time("ns")
        await driver.read_register("MAGIC")
        seen.append(round((get_sim_time("ns") - begin) / CYCLE_NS))
        await Timer(observed.system.rng.randrange(500), "ns")
    found, sum_of_all = await observed.histogram()
    print(f"observed: the host has seen {sorted(seen)}; sum {sum_of_all - total} of {sum(seen)}")
    assert sum(found) - sum(bins) == READS
    assert 0 < sum(seen) - (sum_of_all - total) < READS * AROUND
    longest = await observed.word("longest") * 16
    assert max(seen) - AROUND < longest + 16 and longest < max(seen)
    least, most = min(seen) - AROUND, max(seen)
    for n in range(BINS):
        if found[n] != bins[n]:
            assert 16 << n < most and 32 << n > least, (n, found, bins)
    assert not await observed.missed()

