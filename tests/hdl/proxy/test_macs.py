"""dxpu.proxy.macs: MACs below the frame ports of a core are made by a factory, and by it alone."""

import re
from pathlib import Path

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

import dxpu
from dxpu.endpoint.box import BoxWithGpus
from dxpu.fabric.session.types import Mode
from dxpu.proxy import GMII, BoxProxy, HostProxy, MacFactory
from dxpu.proxy.verilog import plain_ports
from dxpu.stream import PacketSignature, Register, connect
from tests.support.testbench import access, check_stream, simulate

SMALL = {"paths": 1, "peers": 1, "streams": 1}


class LoopLine(wiring.Signature):
    """What the loop-back shows of its line."""

    def __init__(self):
        super().__init__({"busy": Out(1), "spoil": In(1)})


class LoopBack(wiring.Component):
    """A MAC whose line ends at its beginning; frames are bad while ``spoil`` is 1."""

    def __init__(self, width):
        super().__init__({
            "i": In(PacketSignature(width)), "o": Out(PacketSignature(width)),
            "line": Out(LoopLine()), "link_up": Out(1), "stat_looped": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.stage = stage = Register(self.i.payload.shape())
        connect(m, wiring.flipped(self.i), stage.i)
        m.d.comb += [
            self.o.payload.eq(stage.o.payload),
            self.o.payload.discard.eq(stage.o.payload.last & self.line.spoil),
            self.o.valid.eq(stage.o.valid),
            stage.o.ready.eq(self.o.ready),
            self.line.busy.eq(stage.o.valid),
            self.link_up.eq(~self.line.spoil),
            self.stat_looped.eq(self.o.valid & self.o.ready & self.o.payload.last),
        ]
        return m


LOOP = MacFactory(port="line", signature=LoopLine(), make=lambda width, path: LoopBack(width),
                  counters={"looped": "Frames that came back."})


@pytest.mark.long
def test_another_mac_is_put_on_by_its_factory_alone():
    """A host whose HELLOs come back refuses them: they are for another node. Its only clock is that
    of the core, and the counters are those of the MAC."""
    dut = HostProxy(32, ports=1, macs=LOOP, **SMALL)
    assert list(dut.signature.members) == ["upstream", "line", "links", "bus"]
    counters = {r.name: r for r in dut.registers.blocks["counters"][1].entries}
    assert [name for name in counters if name.startswith("mac")] == ["mac0_looped"]
    assert counters["mac0_looped"].doc == "Frames that came back."

    async def process(ctx):
        async def write(name, value):
            await access(ctx, dut.bus, dut.registers.address(f"control.{name}"), value)

        async def count(name):
            value, error = await access(ctx, dut.bus, dut.registers.address(f"counters.{name}"))
            assert not error
            return value

        for name, value in {"quiet": 1, "hello": 4, "node": 1, "peer[0].node": 1 << 31 | 2,
                            "boot": 1, "session[0].mode": Mode.OPENS.value}.items():
            await write(name, value)
        assert (await access(ctx, dut.bus, dut.registers.address("control.links")))[0] == 1
        for _ in range(100):
            await ctx.tick().repeat(100)
            if looped := await count("mac0_looped"):
                break
        assert 0 < looped == await count("fabric_tx_frames") == await count(
            "fabric_link_wrong_node")
        # Bad frames end in the core; the MAC knows that there is no link.
        ctx.set(dut.line[0].spoil, 1)
        await ctx.tick().repeat(5000)
        assert await count("mac0_looped") > looped
        assert await count("fabric_link_wrong_node") == looped
        assert (await access(ctx, dut.bus, dut.registers.address("control.links")))[0] == 0
        # What the board says counts, too.
        ctx.set(dut.line[0].spoil, 0)
        ctx.set(dut.links, 0)
        assert (await access(ctx, dut.bus, dut.registers.address("control.links")))[0] == 0

    simulate(dut, process, background=[check_stream(dut.core.frame[0].tx)])


def test_the_factory_decides_about_ports_and_counters():
    """Nothing of GMII is left where another MAC is."""
    for proxy in (BoxProxy(32, slots=1, macs=LOOP, **SMALL),
                  BoxWithGpus(32, slots=1, macs=LOOP, gpu={"vram_bytes": 4096}, **SMALL)):
        names = [name for name, *_ in plain_ports(proxy.signature)]
        assert {"line0_busy", "line0_spoil", "links"} <= set(names)
        assert not [name for name in names if "gmii" in name]
        assert [name for name in proxy.pulses if name.startswith("mac")] == ["mac0_looped"]
    plain = MacFactory(port="line", signature=LoopLine(), make=LOOP.make)
    assert not [name for name in BoxProxy(32, slots=1, macs=plain, **SMALL).pulses
                if name.startswith("mac")]


def test_proxies_have_gmii_by_default():
    dut = BoxProxy(32, slots=1, paths=2, peers=1, streams=1)
    assert list(dut.signature.members) == ["slot", "reset", "wipes", "gmii", "links", "bus"]
    assert [name for name in dut.pulses if name.startswith("mac1_")] == [
        f"mac1_{name}" for name in GMII.counters]


def test_only_the_factory_knows_a_mac():
    """So another one touches that file, or brings its own, and what chooses it."""
    knows = {path.relative_to(Path(dxpu.__path__[0])).as_posix()
             for path in Path(dxpu.__path__[0]).rglob("*.py")
             if re.search(r"^\s*(from|import) dxpu\.ethernet\b", path.read_text(), re.MULTILINE)}
    assert {name for name in knows if not name.startswith("ethernet/")} == {
        "axi/mac.py", "proxy/macs.py"}
