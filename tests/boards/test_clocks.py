"""dxpu_boards.clocks: resets begin at once, last, end in step; a cause may come at any time."""

import random

import pytest
from amaranth import *
from amaranth.sim import Simulator

from dxpu_boards.clocks import Clock, Resets, plan
from dxpu_boards.pll import ECP5, PllError
from tests.support.testbench import seed

#: Clock periods in ns; that of ``still`` never comes.
PERIODS = {"oscillator": 10, "fast": 8, "slow": 32}


class Bench:
    """Resets with clocks of any phase, looked at every ns."""

    def __init__(self):
        self.m = Module()
        self.m.submodules.dut = self.dut = Resets(["fast", "slow", "still"])
        self.domains = {name: ClockDomain(name) for name in (*PERIODS, "still")}
        self.m.domains += list(self.domains.values())
        self.counts = [Signal(16), Signal(16)]
        for name, count in zip(("fast", "slow"), self.counts, strict=True):
            self.m.d[name] += count.eq(count + 1)

    def run(self, causes):
        """Levels of all resets at each ns, and the clocks; ``causes`` is what ``cause`` is."""
        rng = random.Random(seed())
        self.trace = []

        async def testbench(ctx):
            for cause in causes:
                ctx.set(self.dut.cause, cause)
                await ctx.delay(1e-9)
                self.trace.append({"cause": cause, "reset": ctx.get(self.dut.reset)} | {
                    name: (ctx.get(domain.rst), ctx.get(domain.clk))
                    for name, domain in self.domains.items()} | {
                    "counts": [ctx.get(count) for count in self.counts]})

        sim = Simulator(self.m)
        for name, period in PERIODS.items():
            # The testbench looks between edges: they come at half a ns.
            sim.add_clock(period * 1e-9, phase=(rng.randrange(period) + 0.5) * 1e-9, domain=name)
        sim.add_testbench(testbench)
        sim.run()
        return self.trace


def pulses(rng, lengths):
    """Causes of those lengths in ns, each long after the one before."""
    causes = []
    for length in lengths:
        causes += [1] * length + [0] * (Resets.CYCLES * PERIODS["oscillator"]
                                        + rng.randrange(200, 400))
    return causes


def test_resets_begin_at_once_and_last():
    rng = random.Random(seed())
    trace = Bench().run(pulses(rng, [100, 1, 3, 1, 17, 40]))
    since = {}
    for n, now in enumerate(trace):
        if now["cause"]:
            since = {}
            assert now["reset"] and all(now[name][0] for name in (*PERIODS, "still")), n
        for name in ("reset", "fast", "slow"):
            level = now[name] if name == "reset" else now[name][0]
            if not level and name not in since:
                # Many cycles of every clock, whatever the length of the cause.
                since[name] = n
                assert all(c["reset"] for c in trace[n - 2300:n - 100]), name
        assert now["still"][0]
    # The last cause is over: all but the domain without a clock work.
    assert not any(trace[-1][name][0] for name in PERIODS) and not trace[-1]["reset"]


@pytest.mark.parametrize("domain", ["fast", "slow"])
def test_resets_end_just_after_an_edge_of_their_clock(domain):
    trace = Bench().run(pulses(random.Random(seed()), [20, 1, 9]))
    ends = 0
    for before, now in zip(trace, trace[1:], strict=False):
        if before[domain][0] and not now[domain][0]:
            ends += 1
            assert (before[domain][1], now[domain][1]) == (0, 1)
    assert ends == 3


def test_a_cause_in_the_middle_of_a_reset_begins_it_anew():
    trace = Bench().run([1] * 5 + [0] * 1500 + [1] + [0] * 3000)
    assert all(now["reset"] for now in trace[:1506 + 2300])
    assert not trace[-1]["reset"]


def test_every_register_is_reset():
    """Counters that run begin again at 0."""
    trace = Bench().run(pulses(random.Random(seed()), [10, 1]))
    running = Resets.CYCLES * PERIODS["oscillator"] + 150
    assert all(trace[running]["counts"]) and not any(trace[-1000]["counts"])
    assert all(trace[-1]["counts"])


def test_plans_of_clocks_are_exact():
    made = plan(ECP5, 100, [Clock("sync", 62.5, margin=0.1), Clock("tx90", 125, phase=90)])
    assert [(s.mhz, s.phase) for s in made.outputs[:2]] == [(62.5, 0), (125, 90)]
    with pytest.raises(PllError, match="no plan for EHXPLLL"):
        plan(ECP5, 100, [Clock("sync", 61.44)])
