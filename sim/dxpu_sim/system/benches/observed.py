"""What proxies measure, beside what a host, and who watches their ports, can see.

Options of the design come as JSON in ``$DXPU_SYSTEM``.
"""

import json
import os

import cocotb
from cocotb.triggers import Timer
from cocotb.utils import get_sim_time

from dxpu.observe import BINS, EventKind
from dxpu.observe.log import TIME_UNIT
from dxpu_model.event_log import DEPTH, Event, still_there
from dxpu_sim.system.hotplug_host import HotPlugHost
from dxpu_sim.system.system import SimulatedSystem

OPTIONS = json.loads(os.environ.get("DXPU_SYSTEM", "{}"))
#: Reads that are measured; cycles of a read outside the tracker, at most: in the root complex, in
#: front of the tracker, and behind it.
READS, AROUND = 30, 120
CYCLE_NS = 8
#: Phase of an open session.
OPEN = 6
#: Cycles of a read through the four stages, in the order of the proxies: at least, at most.
STAGES = ((27, 19, 15, 9), (32, 24, 20, 14))


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

    @property
    def proxies(self):
        """Host and box."""
        return self.system.host, self.system.boxes[0]

    async def stage(self, proxy, name):
        """Bins, sum in cycles, and longest time of a stage of the first row."""
        async def word(what):
            return (await proxy.read(f"stages.{name}[0].{what}"))["value"]

        return ([await word(f"bin{n}") for n in range(BINS)],
                await word("sum_high") << 32 | await word("sum_low"), await word("longest"))

    async def events(self, proxy):
        """The events of a proxy that were there all the time, oldest first."""
        async def recorded():
            return (await proxy.read("observe.recorded"))["count"]

        before, found = await recorded(), {}
        for n in range(max(0, before - DEPTH), before):
            entry = f"observe.event[{n % DEPTH}]"
            low, what = (await proxy.read(f"{entry}.time"), await proxy.read(f"{entry}.what"))
            found[n] = Event(n, low["low"] | what["high"] << 32, what["kind"], what["argument"])
        return [found[n] for n in still_there(before, await recorded())]

    def counter(self, proxy, event):
        """Name of the counter of an event."""
        return proxy.map.blocks["counters"][1].placed[event.argument].path


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


@cocotb.test()
async def stages_are_those_of_an_idle_fabric(dut):
    """Each read passes four stages, in about the cycles of `dxpu bench traversal`."""
    observed = Observed(dut)
    await observed.bench.boot()
    driver = await observed.bench.bind(0)
    stages = [(proxy, name) for proxy in observed.proxies for name in ("send", "receive")]
    before = [await observed.stage(*stage) for stage in stages]
    for _ in range(READS):
        await driver.read_register("MAGIC")
    after = [await observed.stage(*stage) for stage in stages]
    means = []
    for (old, old_sum, _), (new, new_sum, longest) in zip(before, after, strict=True):
        bins = [b - a for a, b in zip(old, new, strict=True)]
        assert sum(bins) == READS, bins
        means.append((new_sum - old_sum) / READS)
        first = next(n for n in range(BINS) if bins[n])
        assert (1 << first if first else 0) <= means[-1] <= longest
    print(f"observed: means of host to fabric, fabric to host, GPU to fabric, fabric to GPU: "
          f"{means}")
    for mean, least, most in zip(means, *STAGES, strict=True):
        assert least <= mean <= most, means
    for proxy, name in stages:
        assert not (await proxy.read(f"counters.{name}_given_up"))["count"]


@cocotb.test()
async def what_happens_is_in_the_log(dut):
    """Link, bind, write, resend, interrupt, session, a lost card; a resend has its time."""
    observed = Observed(dut)
    system = observed.system
    await observed.bench.boot()
    driver = await observed.bench.bind(0)
    host, _ = observed.proxies
    begin = get_sim_time("ns")
    for proxy in observed.proxies:
        await proxy.write("control.retry", wait=60)
    system.dut.loss.value = 0x0800
    for _ in range(60):
        await driver.read_register("MAGIC")
    system.dut.loss.value = 0
    end = get_sim_time("ns")
    cycle = int(system.dut.cycle.value)
    # The session ends, with the card, and is opened by HELLO.
    for proxy, opener in zip(observed.proxies, (1, 2), strict=True):
        await proxy.write("control.boot", counter=1)
        await proxy.write("control.hello", wait=60)
        await proxy.write("control.quiet", time=100)
        await proxy.write("control.session[0].mode", opener=opener)
    for _ in range(200):
        await Timer(5, "us")
        if all([(await proxy.read("control.session[0].hello"))["phase"] == OPEN
                for proxy in observed.proxies]):
            break
    found, resent = [], []
    for proxy in observed.proxies:
        events = await observed.events(proxy)
        found.append(events)
        assert [event.number for event in events] == list(range(len(events)))
        assert [event.time for event in events] == sorted(event.time for event in events)
        kinds = {event.kind for event in events}
        assert kinds >= {EventKind.WRITTEN, EventKind.BOUND, EventKind.OPENED,
                         EventKind.LINK_UP}, kinds
        assert (EventKind.FENCED in kinds) == (proxy is host), kinds
        assert not (await proxy.read("observe.log"))["lost"]
        counted = [(observed.counter(proxy, event), event) for event in events
                   if event.kind == EventKind.COUNTED]
        names = [name for name, _ in counted]
        assert len(set(names)) == len(names), names  # each once in a period
        assert ("switch_interrupt" in names) == (proxy is host), names
        resent += [event for name, event in counted if name == "fabric_tx_repeated"]
    assert resent
    for event in resent:
        ago = (cycle - event.time * TIME_UNIT) * CYCLE_NS
        assert begin - 200 < end - ago < end, (begin, end, ago)
    assert next(event for event in found[1] if event.kind == EventKind.BOUND).argument == 0
    print(f"observed: {len(found[0])} events of the host, {len(found[1])} of the box")


@cocotb.test()
async def marks_rise_and_are_cleared(dut):
    """Frames that are not acknowledged stay in the replay memory, and are in its mark."""
    observed = Observed(dut)
    await observed.bench.boot()
    driver = await observed.bench.bind(0)
    host, _ = observed.proxies
    await host.write("observe.mark_replay", now=0)
    assert (await host.read("observe.mark_replay"))["most"] <= 2
    reads = [cocotb.start_soon(driver.read_register("MAGIC")) for _ in range(4)]
    for read in reads:
        await read
    for name, least in (("replay", 1), ("requests", 2)):
        mark = await host.read(f"observe.mark_{name}")
        assert mark["most"] >= least and mark["most"] >= mark["now"], (name, mark)
    await Timer(20, "us")
    mark = await host.read("observe.mark_requests")
    assert mark["now"] == 0, mark
    await host.write("observe.mark_requests", now=0)
    assert (await host.read("observe.mark_requests"))["most"] == 0
