"""dxpu_boards.pcie: what stands above the host proxy of a board with PCIe."""

import json
import random

from amaranth import *
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In
from amaranth.sim import Simulator

from dxpu.attach import PciePort
from dxpu.csr import RegisterCrossing, RegisterPort
from dxpu_boards import crossings, ecp5
from dxpu_boards.pcie import LINK_WIDTH, SETTLE, Upstream
from dxpu_boards.registry import BOARDS
from dxpu_tools.conversion import to_verilog
from tests.support.testbench import access, seed

VERSA = BOARDS["versa-ecp5-5g"]
OTHER = BOARDS["ecpix-5-45f"]


class Pads:
    """A platform of which only PERST# is there."""

    def __init__(self):
        self.perst = io.SimulationPort("i", 1, invert=True)

    def request(self, name, number, dir):
        assert (name, number, dir) == ("perst", 0, "-")
        return self.perst


class Software:
    """Registers of an Upstream, by name."""

    def __init__(self, ctx, dut):
        self.ctx, self.dut = ctx, dut

    async def read(self, block, path):
        placed = self.dut.blocks[block].find(path)
        value, error = await access(self.ctx, getattr(self.dut, block), placed.address)
        assert not error
        return placed.register.unpack(value)

    async def write(self, path, **fields):
        placed = self.dut.blocks["tlp"].find(path)
        assert await access(self.ctx, self.dut.tlp, placed.address,
                            placed.register.pack(**fields)) == (0, 0)

    async def until(self, block, path, **fields):
        for _ in range(400):
            got = await self.read(block, path)
            if fields.items() <= got.items():
                return
        raise AssertionError(got)


def simulate(dut, pads, *testbenches, background=()):
    sim = Simulator(Fragment.get(dut, pads))
    sim.add_clock(16e-9)
    sim.add_clock(16.3e-9, phase=3e-9, domain="pcie")
    for testbench in testbenches:
        sim.add_testbench(testbench)
    for testbench in background:
        sim.add_testbench(testbench, background=True)
    sim.run()


def test_an_operator_sends_and_receives_tlps_and_sees_perst():
    rng = random.Random(seed())
    pads, dut = Pads(), Upstream(VERSA, 64, hz=62.5e6 / 10)  # shorter waits than in hardware
    request, reply = bytes([4, 0, 0, 1]) + rng.randbytes(8), bytes([10, 0, 0, 0]) + rng.randbytes(8)
    came = []

    async def operator(ctx):
        software = Software(ctx, dut)
        ctx.set(pads.perst.i, 1)  # PERST# is not asserted
        await ctx.tick().repeat(round(dut._hz * SETTLE))
        await software.until("tlp", "link", held=0)
        await software.write("link", up=1)
        await software.until("pcie", "state", up=1, perst=0, downs=0)
        for n in range(3):
            await software.write("out[0].word",
                                 value=int.from_bytes(request[4 * n:4 * n + 4], "little"))
            await software.write("send", dwords=1, last=n == 2)
        got = b""
        while len(got) < 12:
            await software.until("tlp", "received", dwords=1)
            got += (await software.read("tlp", "in[0].word"))["value"].to_bytes(4, "little")
            await software.write("next", strobe=1)
        assert got == reply and came == [request]

        ctx.set(pads.perst.i, 0)
        await software.until("tlp", "link", active=0, held=1)
        await software.until("pcie", "state", up=0, perst=1, downs=1)
        assert (await software.read("pcie", "dropped"))["count"] == 1
        ctx.set(pads.perst.i, 1)
        await software.until("tlp", "link", active=1, held=0)
        await software.until("pcie", "state", up=1, perst=0, downs=1)

    async def proxy(ctx):
        """Answers a request; and sends one more TLP when the link has gone down."""
        port, tlp = dut.port, b""
        for cls in ("p", "np", "cpl"):
            ctx.set(getattr(port, f"rx_{cls}"), {"header": 3, "data": 9})
        ctx.set(port.rx.ready, 1)
        while not came:
            *_, valid, beat = await ctx.tick().sample(port.rx.valid, port.rx.payload)
            if valid:
                tlp += int(beat.data).to_bytes(8, "little")[:4 * beat.dwords]
                if beat.last:
                    came.append(tlp)
        for down in (False, True):
            if down:
                await ctx.tick().until(~port.link_up)
            for n in (0, 8):
                ctx.set(port.tx_cpl.payload, {
                    "data": int.from_bytes(reply[n:n + 8], "little"), "dwords": 2 - (n == 8),
                    "first": n == 0, "last": n == 8})
                ctx.set(port.tx_cpl.valid, 1)
                await ctx.tick().until(port.tx_cpl.ready)
                ctx.set(port.tx_cpl.valid, 0)

    simulate(dut, pads, operator, background=[proxy])


def test_boards_without_pcie_have_the_mailbox_alone():
    assert set(Upstream(OTHER, 64, hz=62.5e6).blocks) == {"tlp"}
    assert OTHER.clocks_of("host") == OTHER.clocks
    assert VERSA.clocks_of("box") == VERSA.clocks
    assert [c.domain for c in VERSA.clocks_of("host")] == ["sync", "tx", "tx90", "pcie"]
    # 2.5 GT/s, of which 8b/10b leaves 2 Gb/s; and what the core takes is no less.
    assert LINK_WIDTH * VERSA.pcie_clock.mhz == 2000 <= 64 * VERSA.clocks[0].mhz


def test_registers_are_reached_in_another_domain():
    """One request at a time, each answered once, whatever the clocks."""
    rng = random.Random(seed())
    dut, words = RegisterCrossing(domain="pcie"), {}

    async def software(ctx):
        for n in range(60):
            address, value = 4 * rng.randrange(4), rng.randrange(1 << 32)
            if n % 2:
                assert await access(ctx, dut.bus, address, value) == (0, 0)
            else:
                assert await access(ctx, dut.bus, address) == (words.get(address, 0), 0)

    async def registers(ctx):
        while True:
            ctx.set(dut.far.request.ready, 1)
            *_, request = await ctx.tick("pcie").sample(dut.far.request.payload).until(
                dut.far.request.valid)
            ctx.set(dut.far.request.ready, 0)
            await ctx.tick("pcie").repeat(rng.randrange(1, 4))
            data = 0 if request.write else words.get(request.address, 0)
            if request.write:
                words[request.address] = request.data
            ctx.set(dut.far.response.payload, {"data": data, "error": 0})
            ctx.set(dut.far.response.valid, 1)
            await ctx.tick("pcie").until(dut.far.response.ready)
            ctx.set(dut.far.response.valid, 0)

    simulate(dut, None, software, background=[registers])


class Plain(wiring.Component):
    """An Upstream whose PERST# is a port, for the tools."""

    def __init__(self):
        self._upstream = Upstream(VERSA, 64, hz=62.5e6)
        super().__init__({"port": In(PciePort(64)), "tlp": In(RegisterPort()),
                          "pcie": In(RegisterPort()), "perst": In(1)})

    def elaborate(self, platform):
        m = Module()
        pads = Pads()
        m.submodules.upstream = upstream = self._upstream
        wiring.connect(m, wiring.flipped(self.port), upstream.port)
        wiring.connect(m, wiring.flipped(self.tlp), upstream.tlp)
        wiring.connect(m, wiring.flipped(self.pcie), upstream.pcie)
        m.d.comb += pads.perst.i.eq(self.perst)
        return Fragment.get(m, pads)


def test_every_way_between_the_clocks_is_safe(tmp_path):
    ecp5.synthesize(to_verilog(Plain(), name="top"), tmp_path, "speed")
    netlist = crossings.Netlist(
        json.loads((tmp_path / ecp5.REGISTERS).read_text())["modules"]["top"])
    names = {"clk": "sync", "pcie_clk": "pcie"}
    clocks = {netlist.module["netnames"][net]["bits"][0]: name for net, name in names.items()}
    found = crossings.find(netlist, clocks)
    assert {(c.source, c.target) for c in found} == {("sync", "pcie"), ("pcie", "sync")}
    assert {c.kind for c in found} == {"queue", "synchroniser"}
    assert not crossings.unexplained(found)
