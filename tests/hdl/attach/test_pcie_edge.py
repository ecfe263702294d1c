"""dxpu.attach.edge: TLPs between a proxy and a data link layer with clock and life of its own."""

import inspect
import random
import sys

import pytest
from amaranth import *
from amaranth.sim import Simulator
from dxpu.attach import PcieEdge, edge as edge_module
from dxpu.attach.edge_far import Far
from dxpu.attach.edge_near import Near
from dxpu_tools.collection import undisturbed
from tests.support.edge_bench import Bench, Plan
from tests.support.testbench import seed, simulate
from tests.support.widths import some_widths

#: Periods in ns of both clocks, and the phase of the second one.
CLOCKS = [(16, 16, 5), (16, 8, 3), (16, 40, 1), (16, 15.7, 0), (16, 16, 0), (8, 16, 0)]
SOME_CLOCKS = [pytest.param(c, marks=() if n < 3 else pytest.mark.long)
               for n, c in enumerate(CLOCKS)]


def share(rng):
    return rng.choice([1, 0.8, 0.3])


def steady(rng, clocks, link_width=32):
    """One life, random gaps and stops on all sides."""
    bench = Bench(rng, 64, link_width, Plan(0.8, 0.7, 0.8, 0.6, bad=0.1), clocks)
    bench.run(bench.tlps(60), bench.tlps(60))
    assert bench.life == 1 and not bench.early
    return bench


@pytest.mark.parametrize("clocks", SOME_CLOCKS)
@pytest.mark.parametrize("link_width", some_widths(32, of=(32, 64)))
def test_tlps_pass_both_ways(link_width, clocks):
    """None is lost, cut or out of order, and no credit is lost."""
    bench = steady(random.Random(seed()), clocks, link_width)
    assert len(bench.whole) > 40 and sum(map(len, bench.dll_got.values())) == 60


def lives(rng, clocks, link_width=32, count=150):
    """Links that go down by themselves and by PERST#, in the middle of everything."""
    plan = Plan(share(rng), share(rng), share(rng), share(rng), share(rng) / 4, bad=0.05,
                lives=tuple(rng.choice([1, 2, 5, 20, 60, 150]) for _ in range(12)),
                perst=tuple((rng.randrange(500, 4000), rng.choice([3, 20, 60, 300, 2000]))
                            for _ in range(12)))
    bench = Bench(rng, 64, link_width, plan, clocks)
    bench.run(bench.tlps(count), bench.tlps(count), limit_us=900)
    return bench


@pytest.mark.parametrize("clocks", SOME_CLOCKS[:1])
@pytest.mark.parametrize("link_width", some_widths(32, of=(32, 64)))
def test_links_go_down_in_the_middle_of_everything(link_width, clocks):
    """No TLP of an old life comes in a new one, none is cut, and everything goes on."""
    rng = random.Random(seed())
    bench = lives(rng, clocks, link_width=link_width)
    assert bench.life > 8 and bench.cut > 3 and bench.refused > 10
    assert len(bench.whole) > 50 and sum(map(len, bench.dll_got.values())) > 30


def short_lives(rng):
    """Without PERST#; the DLL sends at once, by a clock that is faster than its partner's, and is
    gone again before that can see it. Nothing may come before the proxy sees it up."""
    lives = (4, 5, 6, 8, 10, 40) * 2
    bench = Bench(rng, 64, 32, Plan(drain=0.03, lives=lives), (40, 4, 1))
    bench.run(bench.tlps(40), bench.tlps(60, largest=2))
    assert not bench.early
    return bench


def test_the_proxy_sees_every_life_before_its_tlps():
    bench = short_lives(random.Random(seed()))
    assert bench.life == 13 and len(bench.whole) > 40


@pytest.mark.parametrize("which, right, wrong", [
    (Near, "keep.eq(Mux(in_tlp, decided, up & source.valid))", "keep.eq(up & source.valid)"),
    (Near, "sink.ready & allowed, 1", "allowed, 1"),
    *(pytest.param(*mutant, marks=pytest.mark.long) for mutant in (
        (Near, "allowed.eq(~offered & (older_left == 0))", "allowed.eq(1)"),
        (Far, "abort.eq(in_tlp & ~passing)", "abort.eq(0)"),
        (Far, "(quiet == self.QUIET - 1))", "1)"),
        (Far, "~ending & link.link_up, can_begin", "~ending, can_begin"),
        (Far, "self.near_busy & (ending", "(ending"))),
])
def test_mutants_are_found(which, right, wrong, monkeypatch):
    """TLPs cut, beats lost; a way around posted requests; TLPs without an end; old TLPs in a new
    life; lives that one side does not see."""
    source = undisturbed(inspect.getsource, which)
    assert source.count(right) == 1
    module = sys.modules[which.__module__]
    space = dict(vars(module))
    exec(source.replace(right, wrong), space)
    monkeypatch.setattr(edge_module, which.__name__, space[which.__name__])
    with pytest.raises(AssertionError):
        for n in range(4):
            rng = random.Random(seed() + n)
            steady(rng, CLOCKS[n % 3])
            short_lives(rng)
            lives(rng, CLOCKS[n % 3], count=80)


@pytest.mark.parametrize("link_width, cycles", [(64, 1), (32, 2)])
def test_full_rate(link_width, cycles):
    """A beat per cycle on the narrower side, both ways, once it flows."""
    rng = random.Random(seed())
    tlps = [("p", n.to_bytes(4, "little") + rng.randbytes(60)) for n in range(24)]
    bench = Bench(rng, 64, link_width, Plan())
    bench.watch = (12, 20)
    bench.run(tlps, tlps)
    assert bench.paces == {"rx": 8 * 8 * cycles, "tx": 8 * 8 * cycles}


def test_perst_without_the_clock_of_the_dll():
    """The proxy sees it within four cycles; the DLL is told when its clock is back, and the link
    comes up again no sooner than the proxy is done."""
    edge, running, log = PcieEdge(64, link_width=32, settle=64), [True], []
    m = Module()
    m.domains.pcie = far = ClockDomain()
    m.submodules.edge = edge

    async def clock(ctx):
        high = 0
        while True:
            await ctx.delay(5e-9)
            high = running[0] and not high
            ctx.set(far.clk, high)

    async def dll(ctx):
        while True:
            await ctx.delay(1e-9)
            ctx.set(edge.link.link_up, ctx.get(edge.ready))

    async def scenario(ctx):
        await ctx.tick().until(edge.port.link_up)
        running[0] = False
        await ctx.tick().repeat(5)
        ctx.set(edge.perst, 1)
        await ctx.tick().repeat(4)
        assert not ctx.get(edge.port.link_up) and ctx.get(edge.perst_sync)
        assert not ctx.get(edge.reset)
        running[0] = True
        await ctx.tick().repeat(10)
        assert ctx.get(edge.reset) and not ctx.get(edge.ready)
        await ctx.tick().repeat(200)
        assert ctx.get(edge.reset) and not ctx.get(edge.ready)
        ctx.set(edge.perst, 0)
        await ctx.tick().repeat(64)
        assert not ctx.get(edge.reset) and not ctx.get(edge.ready)
        await ctx.tick().repeat(30)
        assert ctx.get(edge.port.link_up)
        log.append("up")

    simulate(m, scenario, background=[clock, dll])
    assert log


def test_a_short_perst_that_only_the_proxy_sees_takes_the_link_down():
    """Within the time between two edges of a slow DLL; it is told to take the link down."""
    edge, seen = PcieEdge(64, link_width=32, settle=64), []
    sim = Simulator(edge)
    sim.add_clock(16e-9)
    sim.add_clock(400e-9, phase=1e-9, domain="pcie")

    async def dll(ctx):
        async for _, _, ready, reset in ctx.tick("pcie").sample(edge.ready, edge.reset):
            seen.append(reset)
            ctx.set(edge.link.link_up, ready)

    async def scenario(ctx):
        await ctx.tick().until(edge.port.link_up)
        await ctx.tick("pcie").repeat(8)
        await ctx.delay(50e-9)
        ctx.set(edge.perst, 1)
        await ctx.delay(100e-9)
        ctx.set(edge.perst, 0)
        await ctx.tick("pcie").repeat(3)
        assert not ctx.get(edge.port.link_up)
        assert any(seen)
        await ctx.tick().until(edge.port.link_up)

    sim.add_testbench(dll, background=True)
    sim.add_testbench(scenario)
    sim.run()


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="link_width must be 32 or 64, not 128"):
        PcieEdge(64, link_width=128, settle=64)
    with pytest.raises(ValueError, match="settle must be an integer of at least 32, not 8"):
        PcieEdge(64, link_width=32, settle=8)
