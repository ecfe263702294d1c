"""The watchdog in the top of a board: wired, readable, and safe between clocks."""

import pytest
from amaranth import *
from amaranth.lib import wiring
from dxpu.csr import RegisterFile, connect_ports
from dxpu.proxy.registers import control_block
from dxpu_boards import ecp5, report, top as board_top
from dxpu_boards.build import prepare
from dxpu_boards.registers import BASES, board_block
from tests.support.board_top_bench import SMALL, VERSA, Hollow, simulate

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


def fields(value):
    return BLOCK.find("watchdog").register.unpack(value)


def test_a_board_whose_register_bus_hangs_is_reset(monkeypatch):
    async def testbench(ctx, top, asker):
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

    simulate(monkeypatch, testbench, box=Box, PULSE=1e-6)


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
