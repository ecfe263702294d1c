"""dxpu_sim.system.paper: what a pacer lets through, what taps see, an engine at a memory."""

import random

import pytest
from amaranth import *
from amaranth.lib import wiring

from dxpu.stream import connect
from dxpu_model.tlp import KINDS, Tlp
from dxpu_sim.system.paper.design import LINK_OVERHEAD, pcie_link, split_requests
from dxpu_sim.system.paper.gpu import DmaEngine
from dxpu_sim.system.paper.host_memory import HostMemory
from dxpu_sim.system.paper.lines import FRACTION, Pacer, Wire
from dxpu_sim.system.paper.tlps import TlpTap, completion, request
from tests.support.testbench import (
    Packet, check_stream, collect_packets, drive_packets, seed, simulate,
)


@pytest.mark.parametrize("width, rate, overhead, least", [
    (64, 8 * FRACTION, 24, 60), (512, 50 * FRACTION, 24, 60), (512, 15326, 8, 0),
    (64, 300, 20, 64)])
def test_packets_pass_at_the_rate_of_the_line(width, rate, overhead, least):
    """Of random lengths, back to back: as many bytes as the line sends in the time, but for a beat
    and a packet."""
    rng = random.Random(seed())
    dut = Pacer(width, rate=rate, overhead=overhead, least=least)
    sent = [Packet(rng.randbytes(4 * rng.randint(1, 64))) for _ in range(300)]
    got, took = [], sum(max(len(p.data), least) + overhead for p in sent)
    least_cycles = sum(-(-8 * len(p.data) // width) for p in sent)

    async def process(ctx):
        count = 0
        driving = drive_packets(dut.i, sent)
        await driving(ctx)
        while len(got) < len(sent):
            await ctx.tick()
            count += 1

    simulate(dut, process, background=[collect_packets(dut.o, 10**6, got), check_stream(dut.o)])
    assert [p.data for p in got] == [p.data for p in sent]
    cycles = got[-1].last_cycle - got[0].first_cycle
    ideal = max(took * FRACTION / rate, least_cycles)
    slack = (max(len(p.data) for p in sent) + overhead + least + width // 4) * FRACTION / rate
    assert ideal - slack <= cycles <= 1.003 * ideal + slack


def test_an_idle_line_saves_nothing_up():
    """After a long pause two packets are as far apart as at first."""
    dut = Pacer(64, rate=FRACTION, overhead=20)
    got = []

    async def process(ctx):
        for _ in range(2):
            await drive_packets(dut.i, [Packet(bytes(64)), Packet(bytes(64)), Packet(bytes(64))])(
                ctx)
            await ctx.tick().repeat(2000)

    simulate(dut, process, background=[collect_packets(dut.o, 10**6, got)])
    apart = [got[n + 1].last_cycle - got[n].last_cycle for n in range(5)]
    assert apart[:2] == apart[3:] and 80 <= apart[1] <= 90


@pytest.mark.parametrize("width", [64, 512])
def test_headers_are_those_of_the_golden_model(width):
    """And are seen again, with the length of the data."""
    rng = random.Random(seed())
    for _ in range(20):
        kind = rng.choice(["MRd32", "MRd64", "MWr32", "MWr64"])
        dwords, tag, requester = rng.randint(1, 64), rng.randrange(256), rng.randrange(1 << 16)
        address = rng.randrange(1 << (32 if "32" in kind else 60)) & ~3 | (
            1 << 40 if "64" in kind else 0)
        write = "W" in kind
        data = b"".join((address + 4 * n & 0xFFFF_FFFF).to_bytes(4, "little")
                        for n in range(dwords)) if write else b""
        golden = Tlp(*KINDS[kind], address=address, length=dwords, tag=tag, payload=data,
                     requester_id=requester, first_be=15, last_be=15 if dwords > 1 else 0).pack()
        made, seen, wrong = Signal(128), [], []
        dut, m = TlpTap(width), Module()
        m.submodules.dut = dut
        m.d.comb += made.eq(request(
            write=C(write, 1), long=C("64" in kind, 1), requester=C(requester, 16), tag=C(tag, 8),
            dwords=C(dwords % 1024, 10), address=C(address, 64)))

        async def process(ctx, golden=golden, dut=dut, made=made, address=address, seen=seen,
                          wrong=wrong):
            size = 16 if golden[0] & 0x20 else 12
            assert ctx.get(made).to_bytes(16, "little")[:size] == golden[:size]
            ctx.set(dut.base, address & 0xFFFF_FFFF)
            ctx.set(dut.ready, 1)
            for at in range(0, len(golden), width // 8):
                beat = golden[at:at + width // 8]
                ctx.set(dut.payload.data, int.from_bytes(beat, "little"))
                ctx.set(dut.payload.dwords, len(beat) // 4)
                ctx.set(dut.payload.first, at == 0)
                ctx.set(dut.payload.last, at + width // 8 >= len(golden))
                ctx.set(dut.valid, 1)
                await ctx.delay(1e-9)
                if ctx.get(dut.ends):
                    seen.append(ctx.get(dut.dwords))
                wrong.append(ctx.get(dut.wrong))
                await ctx.tick()

        simulate(m, process)
        assert seen == [dwords if write else 0] and not any(wrong)


def test_completions_are_those_of_the_golden_model():
    rng = random.Random(seed())
    made = Signal(128)
    dwords, left, lower = 16, rng.randrange(64, 4096), 4 * rng.randrange(32)
    m = Module()
    m.d.comb += made.eq(completion(
        requester=C(0x0312, 16), tag=C(0xA5, 8), dwords=C(dwords, 10), byte_count=C(left, 12),
        lower=C(lower, 7)))
    m.submodules.clocked = TlpTap(512)
    golden = Tlp(*KINDS["CplD"], length=dwords, tag=0xA5, requester_id=0x0312, completer_id=0,
                 byte_count=left, lower_address=lower, payload=bytes(4 * dwords)).pack()

    async def process(ctx):
        assert ctx.get(made).to_bytes(16, "little")[:12] == golden[:12]

    simulate(m, process)


class Loop(wiring.Component):
    """An engine at a memory; ``spoil`` inverts a bit of each beat of completions."""

    def __init__(self, width):
        super().__init__({})
        self.spoil, self.cycle = Signal(), Signal(32)
        self.engine, self.held = DmaEngine(width), HostMemory(width)

    def elaborate(self, platform):
        m = Module()
        m.submodules.engine, m.submodules.held = engine, held = self.engine, self.held
        m.submodules.link = link = pcie_link(512, 4000) if engine._width == 512 else Pacer(
            64, rate=8 * FRACTION, overhead=LINK_OVERHEAD)
        connect(m, engine.o, link.i)
        split_requests(m, link.o, held)
        m.d.comb += [
            engine.cpl.payload.eq(held.o.payload),
            engine.cpl.payload.data.eq(held.o.payload.data ^ (self.spoil << 40)),
            engine.cpl.valid.eq(held.o.valid), held.o.ready.eq(engine.cpl.ready),
            engine.cycle.eq(self.cycle), held.cycle.eq(self.cycle),
        ]
        m.d.sync += self.cycle.eq(self.cycle + 1)
        return m


@pytest.mark.parametrize("width", [64, 512])
def test_an_engine_at_a_memory(width):
    """Reads are answered after the latency, as many at a time as there are tags, with right data;
    what is written is counted; a wrong bit is an error."""
    dut, trips, most = Loop(width), [], []

    async def watch(ctx):
        async for *_, done, latency, under_way in ctx.tick().sample(
                dut.engine.done, dut.engine.latency, dut.engine.under_way):
            most.append(under_way)
            if done:
                trips.append(latency)

    async def process(ctx):
        engine, held = dut.engine, dut.held
        for name, value in dict(reads=1, tags=6, read_dwords=32, write_dwords=32, chance=1 << 16,
                                read_address=0x20_0000_0000, write_address=0x1000).items():
            ctx.set(engine.work[name], value)
        ctx.set(held.latency, 200)
        await ctx.tick().repeat(1500)
        assert max(most) == 6 and len(trips) >= 6 * 5
        assert ctx.get(engine.read_bytes) >= 128 * len(trips)
        assert 200 < trips[0] <= 200 + 3 * 128 * 8 // width
        assert ctx.get(engine.errors) == ctx.get(held.errors) == 0
        ctx.set(engine.work.writes, 1)
        ctx.set(engine.work.reads, 0)
        await ctx.tick().repeat(1000)
        assert ctx.get(engine.under_way) == 0
        written = ctx.get(engine.written_bytes)
        assert written > 1000 and written - 256 <= ctx.get(held.written_bytes) <= written
        assert ctx.get(engine.errors) == ctx.get(held.errors) == 0
        ctx.set(engine.work.reads, 1)
        ctx.set(dut.spoil, 1)
        await ctx.tick().repeat(600)
        assert ctx.get(engine.errors) > 0

    simulate(dut, process, background=[watch])


def test_what_a_wire_takes_and_loses():
    """Each frame comes out ``delay`` cycles later, or not at all, as often as the loss says."""
    dut = Wire(512, rate=50 * FRACTION, most=256)
    sent, came = [], []

    async def watch(ctx):
        async for *_, valid, last in ctx.tick().sample(dut.o.tvalid, dut.o.tlast):
            came.append((valid, last))

    async def process(ctx):
        for delay, loss in ((10, 0), (200, 1 << 15)):
            ctx.set(dut.delay, delay)
            ctx.set(dut.loss, loss)
            await ctx.tick().repeat(300)
            came.clear()
            for _ in range(200):
                ctx.set(dut.i.tvalid, 1)
                ctx.set(dut.i.tkeep, (1 << 64) - 1)
                ctx.set(dut.i.tlast, 1)
                await ctx.tick().until(dut.i.tready)
                ctx.set(dut.i.tvalid, 0)
                if not sent:
                    sent.append(len(came))
                await ctx.tick()
            await ctx.tick().repeat(300)
            count = sum(valid & last for valid, last in came)
            assert ctx.get(dut.frames) - ctx.get(dut.lost) == count if not loss else True
            assert count == 200 if not loss else 60 < count < 140
            if not loss:
                first = next(n for n, (valid, _) in enumerate(came) if valid)
                assert first - sent[0] == delay

    simulate(dut, process, background=[watch])
