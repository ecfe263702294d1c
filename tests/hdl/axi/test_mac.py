"""dxpu.axi.mac: frames between the core and a MAC that neither waits nor bears a gap."""

import itertools
import random
import warnings
from itertools import pairwise

import pytest
from amaranth.sim import Simulator

from dxpu.axi import AxiMac, axi_mac
from dxpu.stream import WIDTHS
from tests.support.axi import Frame, check_axi_stream, collect_frames, drive_frames
from tests.support.testbench import (
    Packet, check_stream, collect_packets, count_pulses, drive_packets, seed, simulate,
)
from tests.support.widths import some_widths

#: Both domains are that of the core, so that one clock is enough; the crossings are there.
CROSSING = {"rx_domain": "sync", "tx_domain": "sync"}
SHAPES = pytest.mark.parametrize("shape", [CROSSING, {}], ids=["crossing", "core"])


def frame_sizes(rng, count):
    return [rng.choice((60, 64, 68, 4 * rng.randrange(15, 60))) for _ in range(count)]


@SHAPES
@pytest.mark.parametrize("width, density", [
    (64, 1), (64, 0.6), (512, 0.6),
    *(pytest.param(width, 0.6, marks=pytest.mark.long) for width in (128, 256))])
def test_frames_are_sent_without_a_gap(shape, width, density):
    """Whole and in order, ``tvalid`` high from begin to end, though with clocks of its own the core
    may stop in a frame; each is counted."""
    rng = random.Random(seed())
    sent = [Packet(rng.randbytes(n), discard=rng.random() < 0.15) for n in frame_sizes(rng, 14)]
    sent.append(Packet(rng.randbytes(60)))
    dut, got, counts = AxiMac(width, tx_bytes=1024, **shape), [], {}
    # What the core promises: once a frame has begun, a beat in each cycle.
    feed = {"rng": rng, "density": density} if shape else {}
    expected = [Frame(p.data, p.discard) for p in sent if not (shape and p.discard)]

    async def settle(ctx):
        await collect_frames(dut.axis.tx, len(expected), got, rng=rng, density=density,
                             gapless=True)(ctx)
        await ctx.tick().repeat(20)

    simulate(dut, drive_packets(dut.i, sent, **feed), settle,
             background=[check_axi_stream(dut.axis.tx), count_pulses(dut, counts)])
    assert got == expected
    bad = sum(p.discard for p in sent)
    assert {name: n for name, n in counts.items() if n} == {
        "tx_good": len(sent) - bad, "tx_aborted": bad}


@SHAPES
def test_frames_follow_each_other_without_a_pause(shape):
    """A transfer per cycle, from one frame to the next, once two are there."""
    rng, got, cycles = random.Random(seed()), [], []
    sent = [Packet(rng.randbytes(n)) for n in (256, 60, 60, 256, 64, 300)]
    dut = AxiMac(64, **shape)

    async def watch(ctx):
        ctx.set(dut.axis.tx.tready, 1)
        if shape:  # until all are stored
            ctx.set(dut.axis.tx.tready, 0)
            await ctx.tick().repeat(200)
            ctx.set(dut.axis.tx.tready, 1)
        while len(got) < len(sent):
            _, _, valid, last = await ctx.tick().sample(dut.axis.tx.tvalid, dut.axis.tx.tlast)
            cycles.append(valid)
            got.extend([1] * (valid and last))

    simulate(dut, drive_packets(dut.i, sent), watch)
    transfers = sum(-(-len(p.data) // 8) for p in sent)
    assert sum(cycles) == transfers == len(cycles) - cycles.index(1)


@SHAPES
@pytest.mark.parametrize("width", some_widths(64, 512, of=WIDTHS[1:]))
def test_beginnings_of_frames_are_apart(shape, width):
    """At most a small frame in 12 cycles leaves a wide core; others follow each other at once."""
    rng, got, begins = random.Random(seed()), [], []
    apart = 12 if width > 64 else 8
    sent = [Packet(rng.randbytes(n)) for n in (*6 * (60,), 40 * width // 8, 60, 60)]
    dut = AxiMac(width, **shape)

    async def watch(ctx):
        for cycle in itertools.count():
            *_, moves, first, last = await ctx.tick().sample(
                dut.i.valid & dut.i.ready, dut.i.payload.first, dut.i.payload.last)
            if moves and first:
                begins.append(cycle)
            got.extend([1] * (moves and last))
            if len(got) == len(sent):
                return

    async def take(ctx):
        ctx.set(dut.axis.tx.tready, 1)

    simulate(dut, take, watch, background=[drive_packets(dut.i, sent)])
    size = max(apart, 60 * 8 // width + 1) if width > 64 else 8
    assert [b - a for a, b in pairwise(begins)] == 6 * [size] + [40, size]


def test_small_frames_wait_before_the_mac():
    """With clocks of its own, while the line stands still: as many beats are taken as a large frame
    has, one frame more, and what is in the crossing."""
    dut, taken = AxiMac(64, **CROSSING), []

    async def watch(ctx):
        for _ in range(600):
            *_, moves = await ctx.tick().sample(dut.i.valid & dut.i.ready)
            taken.append(moves)

    simulate(dut, watch, background=[drive_packets(dut.i, [Packet(bytes(64))] * 80)])
    assert AxiMac.AHEAD // 8 < sum(taken) <= AxiMac.AHEAD // 8 + 8 + 16 + 2


def test_a_frame_larger_than_the_buffer_is_not_sent():
    """With clocks of its own; and is counted."""
    rng, got, counts = random.Random(seed()), [], {}
    sent = [Packet(rng.randbytes(n)) for n in (60, 600, 512, 1200, 64)]
    dut = AxiMac(64, tx_bytes=512, **CROSSING)

    async def settle(ctx):
        await collect_frames(dut.axis.tx, 3, got)(ctx)
        await ctx.tick().repeat(20)

    simulate(dut, drive_packets(dut.i, sent), settle, background=[count_pulses(dut, counts)])
    assert got == [Frame(sent[n].data) for n in (0, 2, 4)]
    assert {name: n for name, n in counts.items() if n} == {"tx_good": 3, "tx_giant": 2}


@SHAPES
@pytest.mark.parametrize("width", some_widths(64, 512, of=WIDTHS[1:]))
def test_bad_frames_are_dropped_and_counted(shape, width):
    """By cause; good ones pass back to back, and with any gaps."""
    rng, got, bad, counts = random.Random(seed()), [], [], {}
    sent = [Frame(rng.randbytes(n + rng.choice((0, 0, 0, 1, 2, 3))), rng.random() < 0.2)
            for n in frame_sizes(rng, 30)]
    sent.append(Frame(rng.randbytes(60)))
    good = [f for f in sent if not f.bad and len(f.data) % 4 == 0]
    dut = AxiMac(width, **shape)

    async def drive(ctx):
        await drive_frames(dut.axis.rx, sent[:15])(ctx)
        await drive_frames(dut.axis.rx, sent[15:], rng=rng, density=0.6)(ctx)
        await ctx.tick().repeat(20)

    simulate(dut, drive, collect_packets(dut.o, len(good), got, discarded=bad),
             background=[check_stream(dut.o), count_pulses(dut, counts)])
    assert [p.data for p in got] == [f.data for f in good]
    assert {name: n for name, n in counts.items() if n} == {
        "rx_good": len(good), "rx_error": sum(f.bad for f in sent),
        "rx_not_dwords": sum(not f.bad and len(f.data) % 4 > 0 for f in sent)}


@SHAPES
@pytest.mark.parametrize("width", some_widths(64, 512, of=WIDTHS[1:]))
def test_frames_without_room_are_dropped_whole(shape, width):
    """If the core does not take them: what comes out is whole, in order, and all are counted."""
    rng, got, bad, counts = random.Random(seed()), [], [], {}
    sent = [Frame(n.to_bytes(4, "big") + rng.randbytes(size - 4))
            for n, size in enumerate(frame_sizes(rng, 70))]
    dut = AxiMac(width, rx_depth=16, **shape)
    ended = []

    async def drive(ctx):
        await drive_frames(dut.axis.rx, sent)(ctx)
        await ctx.tick().repeat(400)
        ended.append(1)

    simulate(dut, drive, background=[
        check_stream(dut.o), count_pulses(dut, counts),
        collect_packets(dut.o, 1000, got, discarded=bad, rng=rng, density=0.3)])
    numbers = [int.from_bytes(p.data[:4], "big") for p in got]
    assert numbers == sorted(set(numbers)) and 5 < len(got) < 70
    assert [p.data for p in got] == [sent[n].data for n in numbers]
    assert counts["rx_good"] == len(got) and counts["rx_overflow"] == 70 - len(got)
    assert not counts["rx_error"] and not counts["rx_not_dwords"]


@SHAPES
def test_a_cycle_of_the_core_for_each_frame_loses_nothing(shape):
    """The core is not ready for one cycle when it drops a frame. A line leaves 24 byte times
    between two frames, here 3 cycles."""
    rng, got, counts = random.Random(seed()), [], {}
    sent = [Frame(rng.randbytes(n)) for n in frame_sizes(rng, 40)]
    dut = AxiMac(64, **shape)

    async def drive(ctx):
        for frame in sent:
            await drive_frames(dut.axis.rx, [frame])(ctx)
            await ctx.tick().repeat(3)
        await ctx.tick().repeat(30)

    async def core(ctx):
        ctx.set(dut.o.ready, 1)
        async for *_, valid, first in ctx.tick().sample(dut.o.valid & dut.o.ready,
                                                        dut.o.payload.first):
            got.extend([1] * (valid and first))
            ctx.set(dut.o.ready, not (valid and first))

    simulate(dut, drive, background=[core, count_pulses(dut, counts)])
    assert {name: n for name, n in counts.items() if n} == {"rx_good": len(sent)}


@pytest.mark.parametrize("shape, tx, rx", [(CROSSING, 6, 5), ({}, 1, 3)], ids=["crossing", "core"])
def test_latency(shape, tx, rx):
    """From the last beat in to the first transfer out; from a transfer to its beat."""
    dut, found = AxiMac(64, **shape), []

    async def sends(ctx):
        await drive_packets(dut.i, [Packet(bytes(8))])(ctx)
        ctx.set(dut.axis.tx.tready, 1)
        cycles = 1
        while not ctx.get(dut.axis.tx.tvalid):
            await ctx.tick()
            cycles += 1
        found.append(cycles)

    async def receives(ctx):
        await drive_frames(dut.axis.rx, [Frame(bytes(8))])(ctx)
        cycles = 1
        while not ctx.get(dut.o.valid):
            await ctx.tick()
            cycles += 1
        found.append(cycles)

    simulate(dut, sends)
    dut = AxiMac(64, **shape)
    simulate(dut, receives)
    assert found == [tx, rx]


@pytest.mark.parametrize("core_ns, mac_ns", [(6.4, 6.4), (4, 6.4), (7, 3.1)])
def test_clocks_of_any_relation(core_ns, mac_ns):
    """Frames pass both ways; a core slower than the MAC leaves no gap."""
    rng, sent_got, got = random.Random(seed()), [], []
    frames = [rng.randbytes(n) for n in frame_sizes(rng, 14)]
    dut = AxiMac(64, rx_domain="rx", tx_domain="tx", tx_bytes=2048)
    sim = Simulator(dut)
    sim.add_clock(core_ns * 1e-9)
    sim.add_clock(mac_ns * 1e-9, phase=0.7e-9, domain="tx")
    sim.add_clock(mac_ns * 1e-9, phase=1.9e-9, domain="rx")
    # The line is no faster than the core takes it.
    density = min(1, 0.9 * mac_ns / core_ns)
    processes = [
        drive_packets(dut.i, [Packet(data) for data in frames]),
        collect_frames(dut.axis.tx, len(frames), sent_got, domain="tx", gapless=True),
        drive_frames(dut.axis.rx, [Frame(data) for data in frames], domain="rx", rng=rng,
                     density=density),
        collect_packets(dut.o, len(frames), got)]
    left = len(processes)

    def wrap(process):
        async def testbench(ctx):
            nonlocal left
            await process(ctx)
            left -= 1
        return testbench

    for process in processes:
        sim.add_testbench(wrap(process))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while left:
            sim.advance()
            assert sim._engine.now < 100_000 * 1e6, "the hardware hangs"
    assert [f.data for f in sent_got] == frames
    assert [p.data for p in got] == frames


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="rx_domain and tx_domain must be both given or none"):
        AxiMac(64, rx_domain="rx")
    with pytest.raises(ValueError, match="width must be one of"):
        AxiMac(48)


def test_the_factory_names_domains_by_path():
    mac = axi_mac(128).make(128, 3)
    assert (mac._rx, mac._tx) == ("eth3_rx", "eth3_tx")
    mac = axi_mac(128, own_clocks=False).make(128, 3)
    assert (mac._rx, mac._tx) == (None, None)
