"""The watchdog in the top of a board: wired, readable, and safe between clocks."""

from dataclasses import replace

import pytest
from amaranth import *
from amaranth.build import ResourceError
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from test_board_top import SMALL, Hollow

from dxpu.csr import RegisterFile, RegisterPort, connect_ports
from dxpu.ethernet import GmiiSignature
from dxpu.proxy.registers import control_block
from dxpu_boards import ecp5, report, top as board_top
from dxpu_boards.build import prepare
from dxpu_boards.clocks import Resets
from dxpu_boards.ethernet import PortState
from dxpu_boards.registers import BASES, board_block
from dxpu_boards.registry import BOARDS

VERSA = BOARDS["versa-ecp5-5g"]
BLOCK = board_block(VERSA.name, paths=2)
WATCHDOG = BASES["board"] + BLOCK.address("watchdog")


class Box(Hollow):
    """With registers, whose bus may hang."""

    hangs = Signal()

    def elaborate(self, platform):
        m = Module()
        m.submodules.file = file = RegisterFile(
            control_block("box", rows=1, paths=2, peers=1, streams=1, width=64))
        connect_ports(m, wiring.flipped(self.bus), file.bus)
        with m.If(Box.hangs):
            m.d.comb += [self.bus.request.ready.eq(0), file.bus.request.valid.eq(0)]
        return m


class Clocks(wiring.Component):
    """Resets of clocks that the simulator makes."""

    def __init__(self, *_):
        super().__init__({"cause": In(1), "reset": Out(1)})

    def domains(self):
        return [ClockDomain(name) for name in ("sync", "tx", "oscillator")]

    def elaborate(self, platform):
        m = Module()
        m.submodules.resets = resets = Resets(["sync", "tx"])
        m.d.comb += [resets.cause.eq(self.cause), self.reset.eq(resets.reset)]
        return m


class Ports(wiring.Component):
    """Ethernet ports on which nothing happens."""

    def __init__(self, board, *, hz):
        super().__init__({"gmii": In(GmiiSignature()).array(2), "reset": In(1),
                          "state": Out(PortState).array(2), "restart": In(2)})

    def domains(self):
        return []

    def elaborate(self, platform):
        return Module()


class Platform:
    """A board with nothing on it; its oscillator makes ``default_clk_frequency`` cycles a second of
    the watchdog's."""

    resources = {}
    default_clk_frequency = 1000

    def request(self, *args, **options):
        raise ResourceError


class Asker(wiring.Component):
    """In place of the console."""

    bus: Out(RegisterPort())

    def elaborate(self, platform):
        return Module()

    async def read(self, ctx, address, write=None):
        """Ask; returns what is answered."""
        request = self.bus.request
        ctx.set(request.p, {"address": address, "write": write is not None, "data": write or 0})
        ctx.set(request.valid, 1)
        ctx.set(self.bus.response.ready, 1)
        await ctx.tick().until(request.ready)
        ctx.set(request.valid, 0)
        answer, = await ctx.tick().sample(self.bus.response.p).until(self.bus.response.valid)
        assert not answer.error
        return answer.data


def fields(value):
    return BLOCK.find("watchdog").register.unpack(value)


def simulate(monkeypatch, testbench):
    """The top of the Versa with stand-ins; the testbench gets what asks, too."""
    asker = Asker()

    def console(self, m, *_):
        m.submodules.asker = asker
        return asker

    for name, value in {"Clocks": Clocks, "EthernetPorts": Ports, "BoxWithGpus": Box,
                        "PULSE": 1e-6}.items():
        monkeypatch.setattr(board_top, name, value)
    monkeypatch.setattr(board_top.Top, "_console", console)
    sim = Simulator(Fragment.get(board_top.top(
        replace(VERSA, record=None), "box", SMALL), Platform()))
    sim.add_clock(1e-8, domain="oscillator")
    sim.add_clock(16e-9)

    async def process(ctx):
        await testbench(ctx, asker)

    sim.add_testbench(process)
    sim.run()


def test_a_board_whose_register_bus_hangs_is_reset(monkeypatch):
    async def testbench(ctx, asker):
        await ctx.delay(50e-6)
        assert fields(await asker.read(ctx, WATCHDOG)) == {"enable": 1, "last": 0, "count": 0}
        # 2 "seconds" are 20 us.
        for count in (1, 2):
            ctx.set(Box.hangs, 1)
            await ctx.delay(21e-6)
            ctx.set(Box.hangs, 0)
            await ctx.delay(30e-6)
            assert fields(await asker.read(ctx, WATCHDOG)) == {
                "enable": 1, "last": 1, "count": count}
        # Off: what hangs hangs.
        await asker.read(ctx, WATCHDOG, write=0)
        ctx.set(Box.hangs, 1)
        await ctx.delay(100e-6)
        ctx.set(Box.hangs, 0)
        await ctx.delay(5e-6)
        assert fields(await asker.read(ctx, WATCHDOG)) == {"enable": 0, "last": 1, "count": 2}

    simulate(monkeypatch, testbench)


@pytest.mark.long
def test_its_ways_between_clocks_are_safe(monkeypatch, tmp_path):
    """In the netlist of a board whose proxy is hollow."""
    monkeypatch.setattr(board_top, "BoxWithGpus", Box)
    files = prepare(VERSA, board_top.top(VERSA, "box", SMALL))
    (tmp_path / ecp5.CONSTRAINTS).write_text(files["top.lpf"])
    ecp5.synthesize(files["top.v"], tmp_path)
    netlist = report.netlist_of(tmp_path, ecp5.REGISTERS)
    found, wrong = report.crossings_of(netlist, report.constraints(tmp_path, netlist))
    assert not wrong
    counts = {(c.source, c.target): c.count for c in found if c.kind == "synchroniser"}
    # Count and cause one way, heartbeat and switch the other.
    assert (counts["clk100_0", "sync"], counts["sync", "clk100_0"]) == (9, 2)
