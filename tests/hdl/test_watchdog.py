"""dxpu.watchdog: a device whose core is dead is reset, again and again; one that lives is never."""

import pytest
from amaranth import *
from amaranth.lib.cdc import FFSynchronizer
from amaranth.sim import Simulator

from dxpu.proxy.box import BoxProxy
from dxpu.proxy.registers import CONTROL_BASE, IDENTITY
from dxpu.watchdog import Watchdog, WatchdogProbe
from dxpu_boards.clocks import Resets

#: Periods in ns of the watchdog's clock and of the core's.
OSCILLATOR, CORE = 10, 16
CYCLES = 500
#: Of the oscillator: how long everything is reset.
RESET = Resets.CYCLES + 4
RIGHT, WRONG, ERROR, NEVER, DEAF = range(5)


async def wait(ctx, cycles):
    """So many periods of the oscillator, in reset or not."""
    await ctx.delay(cycles * OSCILLATOR * 1e-9)


class Bench:
    """A probe in a core, a watchdog, and resets of both, in simulation.

    ``core`` is how the register bus answers: as one of the constants above, which may change.
    """

    def __init__(self, *, cycles=CYCLES, interval=20):
        self.m = m = Module()
        m.submodules.resets = self.resets = Resets(["sync"])
        m.submodules.dog = self.dog = DomainRenamer("oscillator")(Watchdog(cycles=cycles))
        m.submodules.probe = self.probe = WatchdogProbe(address=8, expected=0xABC,
                                                        interval=interval)
        self.cause, self.enable, self.seen = Signal(), Signal(init=1), Signal(8)
        m.submodules.count = FFSynchronizer(self.dog.count, self.seen)
        self.sync = m.domains.sync = ClockDomain("sync")
        m.domains.oscillator = ClockDomain("oscillator")
        self.runs, self.gated = Signal(init=1), ClockDomain("clock")
        m.domains += self.gated
        # A clock that can be stopped.
        m.d.comb += [
            ClockSignal("sync").eq(ClockSignal("clock") & self.runs),
            self.resets.cause.eq(self.cause | self.dog.bite),
            self.dog.heartbeat.eq(self.probe.heartbeat), self.dog.enable.eq(self.enable)]
        self.core, self.requests = RIGHT, []

    def run(self, *testbenches, core_ns=CORE):
        """Simulate until the testbenches end."""
        sim = Simulator(self.m)
        sim.add_clock(OSCILLATOR * 1e-9, domain="oscillator")
        sim.add_clock(core_ns * 1e-9, domain="clock")
        sim.add_process(self._answer)
        #: Cycles of the oscillator at which the watchdog bit.
        self.bites = []
        sim.add_testbench(self._watch, background=True)
        for testbench in testbenches:
            sim.add_testbench(testbench)
        sim.run()

    async def _answer(self, ctx):
        """The register bus: takes a request, answers two cycles later."""
        bus, waits = self.probe.bus, None
        ctx.set(bus.request.ready, 1)
        async for edge, reset, valid, request, taken in ctx.tick().sample(
                bus.request.valid, bus.request.p, bus.response.ready):
            if reset or not edge:
                waits = None
                ctx.set(bus.response.valid, 0)
            elif waits is None and valid and self.core != DEAF:
                self.requests.append((request.address, request.write))
                waits = 2 if self.core != NEVER else -1
            elif waits and waits > 0:
                waits -= 1
                ctx.set(bus.response.valid, waits == 0)
                ctx.set(bus.response.p.data, 0xABD if self.core == WRONG else 0xABC)
                ctx.set(bus.response.p.error, self.core == ERROR)
            elif waits == 0 and taken:
                waits = None
                ctx.set(bus.response.valid, 0)
            ctx.set(bus.request.ready, waits is None and self.core != DEAF)

    async def _watch(self, ctx):
        cycle = 0
        async for _, _, bite in ctx.tick("oscillator").sample(self.dog.bite):
            if bite:
                assert not self.bites or cycle - self.bites[-1] > 1, "longer than a cycle"
                self.bites.append(cycle)
            cycle += 1

    def state(self, ctx):
        """Count as the core sees it, and whether the last reset was the watchdog's."""
        return ctx.get(self.seen), ctx.get(self.dog.last)


def test_a_core_that_lives_is_never_reset():
    bench = Bench()

    async def testbench(ctx):
        await wait(ctx, 20 * CYCLES)
        assert not ctx.get(bench.resets.reset)
        assert bench.state(ctx) == (0, 0)

    bench.run(testbench)
    assert not bench.bites
    assert len(bench.requests) > 200 and set(bench.requests) == {(8, 0)}


@pytest.mark.parametrize("core", [WRONG, ERROR, NEVER, DEAF])
def test_a_core_that_does_not_answer_rightly_is_reset_and_counted(core):
    bench = Bench()

    async def testbench(ctx):
        await wait(ctx, 3 * CYCLES)
        assert not bench.bites
        bench.core = core
        await wait(ctx, CYCLES + 60)
        assert len(bench.bites) == 1
        assert ctx.get(bench.resets.reset) and ctx.get(bench.sync.rst)
        # The core is well again after its reset.
        bench.core = RIGHT
        await wait(ctx, RESET + 10 * CYCLES)
        assert bench.state(ctx) == (1, 1)

    bench.run(testbench)
    assert len(bench.bites) == 1


def test_a_core_whose_clock_stands_is_reset():
    bench = Bench()

    async def testbench(ctx):
        await wait(ctx, CYCLES)
        ctx.set(bench.runs, 0)
        await wait(ctx, CYCLES + 60)
        assert len(bench.bites) == 1

    bench.run(testbench)


def test_it_waits_as_long_as_it_says():
    """From the last turn of the heartbeat, with two or three cycles to cross."""
    dog, m = Watchdog(cycles=CYCLES), Module()
    m.submodules.dog = dog
    m.domains.sync = ClockDomain(reset_less=False)

    async def testbench(ctx):
        ctx.set(dog.enable, 1)
        ctx.set(dog.heartbeat, 1)
        for cycle in range(1, CYCLES + 10):
            await ctx.tick()
            if ctx.get(dog.bite):
                assert cycle - CYCLES in (2, 3)
                break
        else:
            raise AssertionError("no bite")
        assert ctx.get(dog.count) == 1

    sim = Simulator(m)
    sim.add_clock(1e-8)
    sim.add_testbench(testbench)
    sim.run()


def test_a_core_that_stays_dead_is_reset_again_and_again():
    bench = Bench()
    bench.core = NEVER

    async def testbench(ctx):
        while ctx.get(bench.dog.count) != 5:
            await wait(ctx, 1)

    bench.run(testbench)
    pauses = [b - a for a, b in zip(bench.bites, bench.bites[1:], strict=False)]
    assert len(pauses) >= 3 and all(CYCLES <= pause <= CYCLES + 8 for pause in pauses)


def test_it_can_be_switched_off_and_on():
    bench = Bench()
    bench.core = NEVER

    async def testbench(ctx):
        ctx.set(bench.enable, 0)
        await wait(ctx, 10 * CYCLES)
        assert not bench.bites
        # The wait begins when it is switched on.
        ctx.set(bench.enable, 1)
        await wait(ctx, CYCLES - 10)
        assert not bench.bites
        await wait(ctx, 20)
        assert len(bench.bites) == 1

    bench.run(testbench)


def test_other_resets_leave_the_count_and_change_the_cause():
    bench = Bench()

    async def testbench(ctx):
        bench.core = NEVER
        while not bench.bites:
            await wait(ctx, 1)
        bench.core = RIGHT
        await wait(ctx, RESET + 100)
        assert bench.state(ctx) == (1, 1)
        # A button, for less than a cycle.
        await ctx.delay(3e-9)
        ctx.set(bench.cause, 1)
        await ctx.delay(2e-9)
        ctx.set(bench.cause, 0)
        await wait(ctx, RESET + 100)
        assert bench.state(ctx) == (1, 0)
        # And for longer than the watchdog waits.
        ctx.set(bench.cause, 1)
        await wait(ctx, 5 * CYCLES)
        ctx.set(bench.cause, 0)
        await wait(ctx, RESET + 100)
        assert bench.state(ctx) == (1, 0)
        bench.core = NEVER
        await wait(ctx, CYCLES + 60)
        bench.core = RIGHT
        await wait(ctx, RESET + 100)
        assert bench.state(ctx) == (2, 1)

    bench.run(testbench)
    assert len(bench.bites) == 2


def test_the_count_stays_at_the_top():
    bench = Bench(cycles=4)
    bench.core = NEVER

    async def testbench(ctx):
        before = 0
        while len(bench.bites) < 300:
            await wait(ctx, 1)
            count = ctx.get(bench.dog.count)
            assert count in (before, before + 1)
            before = count
        assert count == 255

    bench.run(testbench)


@pytest.mark.parametrize("core_ns", [4, 16, 64])
def test_the_core_sees_whole_counts(core_ns):
    """Whatever the clocks: out of reset the core sees the count, not a mixture of two."""
    bench = Bench()
    bench.core = NEVER

    async def testbench(ctx):
        async for _, reset, seen in ctx.tick().sample(bench.seen):
            if not reset:
                assert seen == ctx.get(bench.dog.count)
            if seen == 3:
                break

    bench.run(testbench, core_ns=core_ns)


def test_what_boards_read():
    box = BoxProxy(64, slots=1, paths=1, peers=1, streams=1)
    assert box.registers.address("control.identity") == CONTROL_BASE
    assert box.registers.find("control.identity")[0].register.reset == IDENTITY


def test_arguments():
    with pytest.raises(ValueError, match="interval must be a positive integer, not 0"):
        WatchdogProbe(address=0, expected=0, interval=0)
    with pytest.raises(ValueError, match="cycles must be an integer of at least 4, not 3"):
        Watchdog(cycles=3)
