# amaranth: UnusedElaboratable=no
"""dxpu.ethernet.mac: the whole MAC, its GMII looped back, and the latencies it promises."""

import random
import warnings
import zlib

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from dxpu import stream
from dxpu.ethernet import Mac
from dxpu.stream import PacketSignature
from tests.support.testbench import Packet, check_stream, collect_packets, drive_packets, seed

#: Kinds of events by name, without ``stat_``.
EVENTS = ("tx_good", "tx_underrun", "tx_aborted", "rx_good", "rx_error", "rx_giant", "rx_runt",
          "rx_bad_fcs", "rx_not_dwords", "rx_overflow")


class Loop(wiring.Component):
    """A MAC that hears itself; transmit and receive clock are one."""

    def __init__(self, width):
        super().__init__({"i": In(PacketSignature(width)), "o": Out(PacketSignature(width))})
        self.mac = Mac(width, rx_domain="line", tx_domain="line")

    def elaborate(self, platform):
        m = Module()
        m.submodules.mac = mac = self.mac
        stream.connect(m, self.i, mac.i)
        stream.connect(m, mac.o, self.o)
        m.d.comb += [mac.gmii.rx.rxd.eq(mac.gmii.tx.txd), mac.gmii.rx.rx_dv.eq(mac.gmii.tx.tx_en),
                     mac.gmii.rx.rx_er.eq(mac.gmii.tx.tx_er)]
        return m


def run(dut, *processes, background=(), core=8, phase=0):
    """Returns the number of events by name, those that happened."""
    sim, left, events = Simulator(dut), len(processes), dict.fromkeys(EVENTS, 0)
    sim.add_clock(core * 1e-9, phase=phase * 1e-9)
    sim.add_clock(8e-9, phase=0, domain="line")

    async def count(ctx):
        signals = [getattr(dut.mac, f"stat_{name}") for name in EVENTS]
        async for _, _, *values in ctx.tick().sample(*signals):
            for name, value in zip(EVENTS, values, strict=True):
                events[name] += value

    def wrap(process):
        async def testbench(ctx):
            nonlocal left
            await process(ctx)
            left -= 1
        return testbench

    for process in processes:
        sim.add_testbench(wrap(process))
    for process in (count, *background):
        sim.add_testbench(process, background=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while left:
            sim.advance()
            assert sim._engine.now < 1e12, "the hardware hangs"
    return {name: n for name, n in events.items() if n}


@pytest.mark.parametrize("width, core", [(32, 25.6), (32, 8), (64, 5), (64, 16), (512, 40)])
def test_loopback(width, core):
    """Frames come back whole and in order at any core clock that can feed the line."""
    rng = random.Random(seed())
    frames = [rng.randbytes(4 * n) for n in (1, 15, 16, 17, 18, rng.randrange(20, 150), 15)]
    dut, got = Loop(width), []

    async def settle(ctx):
        while len(got) < len(frames):
            await ctx.tick()
        await ctx.tick().repeat(20)

    events = run(dut, drive_packets(dut.i, [Packet(f) for f in frames]),
                 collect_packets(dut.o, len(frames), got), settle,
                 background=[check_stream(dut.o, "o")], core=core, phase=core / 3)
    assert [packet.data for packet in got] == [frame.ljust(60, b"\0") for frame in frames]
    assert events == {"tx_good": len(frames), "rx_good": len(frames)}


@pytest.mark.parametrize("width", [32, 64, 512])
def test_default_queue_holds_2_kib(width):
    """That much waits for ``o``; the next frame is lost as a whole."""
    rng = random.Random(seed())
    frames = [rng.randbytes(1024) for _ in range(3)]
    dut, got, cut = Loop(width), [], []

    async def collect_late(ctx):
        await ctx.tick().repeat(3 * (1024 + 24) + 100)
        await collect_packets(dut.o, len(frames), got, discarded=cut)(ctx)

    async def settle(ctx):
        await ctx.tick().repeat(3 * (1024 + 24) + 100 + 3 * 8192 // width + 50)

    events = run(dut, drive_packets(dut.i, [Packet(f) for f in frames]), settle,
                 background=[check_stream(dut.o, "o"), collect_late])
    assert [packet.data for packet in got] == frames[:2]
    assert len(cut) <= 1
    assert events == {"tx_good": 3, "rx_good": 2, "rx_overflow": 1}


class Heard(wiring.Component):
    """A MAC with a small queue, whose bytes the bench receives for it."""

    rxd: In(8)
    rx_dv: In(1)

    def __init__(self, width):
        super().__init__()
        self.mac = Mac(width, rx_depth=4, rx_domain="line", tx_domain="line")

    def elaborate(self, platform):
        m = Module()
        m.submodules.mac = mac = self.mac
        m.d.comb += [mac.gmii.rx.rxd.eq(self.rxd), mac.gmii.rx.rx_dv.eq(self.rx_dv),
                     mac.o.ready.eq(1)]
        return m


@pytest.mark.parametrize("mhz, enough", [(2.72, True), (2.5, False)])
def test_clock_that_512_bits_need_to_receive(mhz, enough):
    """1.25 Gb/s by 512 bits, which is 2.44 MHz, is too little: the last of two beats is nearly
    empty. Ref: docs/reference/ports.md"""
    frame, count = random.Random(seed()).randbytes(68), 60
    line = 8 + 68 + 4 + 12
    assert round(2 / (line * 8e-9) / 1e6, 2) == 2.72 and 1250 / 512 < 2.5
    burst = [*[0x55] * 7, 0xD5, *frame, *zlib.crc32(frame).to_bytes(4, "little")]
    dut = Heard(512)

    async def receive(ctx):
        for _ in range(count):
            ctx.set(dut.rx_dv, 1)
            for byte in burst:
                ctx.set(dut.rxd, byte)
                await ctx.tick("line")
            ctx.set(dut.rx_dv, 0)
            await ctx.tick("line").repeat(line - len(burst))
        await ctx.tick().repeat(20)

    events = run(dut, receive, core=1e3 / mhz)
    assert events.pop("rx_good") + events.get("rx_overflow", 0) == count
    assert bool(events) is not enough and set(events) <= {"rx_overflow"}


def test_latency():
    """What the docstring promises, with equal clocks in phase and width 64."""
    dut, at = Loop(64), {}
    frame = bytes(range(1, 65))

    async def drive(ctx):
        await ctx.tick().repeat(20)
        await drive_packets(dut.i, [Packet(frame)])(ctx)

    async def watch(ctx):
        tx, now = dut.mac.gmii.tx, 0
        async for _, _, i, byte, enable, valid, last in ctx.tick().sample(
                dut.i.valid, tx.txd, tx.tx_en, dut.o.valid, dut.o.payload.last):
            now += 1
            if i:
                at.setdefault("i", now)
            if enable:
                at["end"] = now
                if byte == frame[0]:
                    at.setdefault("byte", now)
            if valid and last:
                at.setdefault("o", now)

    run(dut, drive, collect_packets(dut.o, 1, []), background=[watch])
    assert at["byte"] - at["i"] == 14
    assert at["o"] - at["end"] == 7


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="width must be one of"):
        Mac(8)
    with pytest.raises(ValueError, match="max_frame must be an integer of at least 60, not 0"):
        Mac(64, max_frame=0)
    with pytest.raises(ValueError, match="depth must be a power of two and at least 4, not 3"):
        Mac(64, rx_depth=3)
