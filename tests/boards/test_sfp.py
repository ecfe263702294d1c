# amaranth: UnusedElaboratable=no
"""dxpu_boards.sfp: the port of an SFP cage, with a stand-in for the vendor's core; what the tools
are told of that core."""

import random
import re
from types import SimpleNamespace

import pytest
from amaranth import *
from amaranth.hdl import Fragment
from amaranth.lib import io
from amaranth.sim import Simulator
from dxpu.ethernet import PhyState
from dxpu_boards import sfp
from dxpu_boards.build import write_sources
from dxpu_boards.registry import BOARDS
from tests.support.board_standin import StandIn
from tests.support.testbench import seed

ALINX = BOARDS["alinx-ax7325b"]


class Core(sfp.PcsPma):
    """Its members alone: a test drives what comes out."""

    def elaborate(self, platform):
        return Module()


class Platform:
    """A cage and a reference clock, of pins that a test drives."""

    def __init__(self):
        self.cage = SimpleNamespace(loss=io.SimulationPort("i", 1), tx=None, rx=None,
                                    tx_dis=io.SimulationPort("o", 1))

    def request(self, name, number, dir):
        return {("sfp", 0): self.cage, ("clk_sfp_125", 0): None}[name, number]


class Bench(Elaboratable):
    """The port, and a count in each domain that it makes."""

    def __init__(self):
        self.cores = []
        self.port = sfp.SfpPorts(ALINX, hz=100e6, core=self.core)
        self.counts = {"tx": Signal(16), "rx0": Signal(16)}

    def core(self, *pins):
        self.cores.append(Core(*pins))
        return self.cores[0]

    def elaborate(self, platform):
        m = Module()
        m.domains += [*self.port.domains(), ClockDomain("sync"), ClockDomain("oscillator")]
        m.submodules.port = self.port
        for domain, count in self.counts.items():
            m.d[domain] += count.eq(count + 1)
        return m


def run(testbench):
    """``testbench(ctx, bench, core, cage)``; ``sync`` has 10 ns, the core's clock 8 ns."""
    platform, bench = Platform(), Bench()
    sim = Simulator(Fragment.get(bench, platform))
    sim.add_clock(10e-9)
    sim.add_clock(5e-9, domain="oscillator")
    core, = bench.cores

    async def clock(ctx):
        while True:
            await ctx.delay(4e-9)
            ctx.set(core.clock, not ctx.get(core.clock))

    async def process(ctx):
        await testbench(ctx, bench, core, platform.cage)

    sim.add_testbench(clock, background=True)
    sim.add_testbench(process)
    sim.run()


def test_link_and_clock_are_those_of_the_core():
    async def testbench(ctx, bench, core, cage):
        state = bench.port.state[0]
        for locked, link in ((0, 0), (1, 0), (1, 1), (1, 0)):
            ctx.set(core.locked, locked)
            ctx.set(core.link, link)
            await ctx.tick().repeat(4)
            assert (ctx.get(state.clock), ctx.get(state.link)) == (locked, link)
            assert ctx.get(state.step) == (PhyState.POLL if link else PhyState.SEARCH)
            assert not ctx.get(state.missing | state.unknown | state.refused)

    run(testbench)


def test_both_domains_have_the_cores_clock_and_wait_until_it_is_good():
    async def testbench(ctx, bench, core, cage):
        port, counts = bench.port, bench.counts.values()
        await ctx.tick().repeat(10)
        assert [ctx.get(count) for count in counts] == [0, 0]
        ctx.set(core.locked, 1)
        await ctx.tick().repeat(80)  # 800 ns, 100 cycles, less those of the reset
        assert all(95 <= ctx.get(count) <= 100 for count in counts)
        ctx.set(port.reset, 1)
        await ctx.delay(1e-10)
        assert ctx.get(core.reset)
        await ctx.tick().repeat(2)
        assert [ctx.get(count) for count in counts] == [0, 0]
        ctx.set(port.reset, 0)
        await ctx.tick().repeat(8)
        assert all(ctx.get(count) for count in counts) and not ctx.get(core.reset)

    run(testbench)


def test_gmii_and_cage_are_wired_one_to_one():
    rng = random.Random(seed())

    async def testbench(ctx, bench, core, cage):
        gmii = bench.port.gmii[0]
        for _ in range(50):
            data = [rng.randrange(1 << 10) for _ in range(2)]
            there, back = ((value & 255, value >> 8 & 1, value >> 9) for value in data)
            for signal, value in zip((gmii.tx.txd, gmii.tx.tx_en, gmii.tx.tx_er), there,
                                     strict=True):
                ctx.set(signal, value)
            for signal, value in zip((core.rxd, core.rx_dv, core.rx_er), back, strict=True):
                ctx.set(signal, value)
            dark = rng.randrange(2)
            ctx.set(cage.loss.i, dark)
            await ctx.tick()
            assert tuple(ctx.get(s) for s in (core.txd, core.tx_en, core.tx_er)) == there
            assert tuple(ctx.get(s) for s in (gmii.rx.rxd, gmii.rx.rx_dv, gmii.rx.rx_er)) == back
            assert ctx.get(core.signal) == (not dark) and not ctx.get(cage.tx_dis.o)

    run(testbench)


def test_a_restart_is_one_rise_for_the_core():
    async def testbench(ctx, bench, core, cage):
        ctx.set(core.locked, 1)
        await ctx.tick().repeat(10)
        ctx.set(bench.port.restart, 1)
        await ctx.tick()
        ctx.set(bench.port.restart, 0)
        seen = [ctx.get(core.restart)]
        for _ in range(10):
            await ctx.tick("tx")
            seen.append(ctx.get(core.restart))
        assert sum(b and not a for a, b in zip(seen, seen[1:], strict=False)) == 1

    run(testbench)


class Port(StandIn):
    """With the cage of the board, whose domains count too."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        m.submodules.ethernet = port = sfp.SfpPorts(self.board, hz=125e6)
        m.domains += port.domains()
        for domain in ("tx", "rx0"):
            count = Signal(8, name=f"count_{domain}")
            m.d[domain] += count.eq(count + 1)
            m.d.comb += port.gmii[0].tx.txd.eq(count)
        return m


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    write_sources(ALINX, Port(ALINX), folder)
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_the_vendors_tools_make_the_core_before_they_need_it(sources):
    script = sources["top.tcl"]
    create, synth = script.index("create_ip"), script.index("synth_design")
    assert script.index("create_project") < create < script.index("synth_ip") < synth
    name, = re.findall(r"-module_name (\w+)", script)
    assert sources["top.v"].count(f"  {name} {name} (") == 1
    # Every continued line has one after it, and braces and brackets are even.
    assert script.count("[") == script.count("]") and script.count("{") == script.count("}")
    assert not re.search(r"\\\s*\n\s*\n", script)


def test_the_transceiver_has_its_pins_and_its_clock(sources):
    pins = dict(re.findall(r'set_property LOC (\S+) \[get_ports "(?:sfp_0|clk_sfp)_(\S+)"',
                           sources["top.xdc"]))
    assert set(pins) == {"K2", "K1", "K6", "K5", "R28", "T28", "C8", "C7"}
    # The pads of transceivers have no I/O standard.
    standards = re.findall(r'IOSTANDARD \S+ \[get_ports "(\S+)"', sources["top.xdc"])
    assert "clk_0__p" in standards
    assert not [name for name in standards if re.match("clk_sfp|sfp_0__[rt]x__", name)]
    assert re.search(r"create_clock -name clk_sfp_125_0__p -period 8\.0", sources["top.xdc"])
    # The instance of which the constraints speak is there.
    modules = re.findall(r"^  (\\?[\w.]+) +(\w+) \(", sources["top.v"], re.M)
    assert ("pcs_pma", "pcs_pma") in modules and "core" in {name for _, name in modules}
    assert sfp.CLOCK in sources["clocks.xdc"]
