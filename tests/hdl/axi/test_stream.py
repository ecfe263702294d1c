"""dxpu.axi.stream: packets are the same bytes as AXI4-Streams, whatever the gaps and stalls."""

import random

import pytest
from amaranth import *

from dxpu.axi import AxiReceiver, AxiStream, AxiTransmitter
from dxpu.stream import WIDTHS
from tests.support.axi import Frame, check_axi_stream, collect_frames, drive_frames, transfers
from tests.support.testbench import (
    Packet, StreamViolation, check_stream, collect_packets, drive_packets, seed, simulate,
)


def transmitter(width, **options):
    """An :class:`AxiTransmitter`, which has no state, in a design with a clock."""
    class Clocked(AxiTransmitter):
        def elaborate(self, platform):
            m = super().elaborate(platform)
            m.d.sync += Signal().eq(1)
            return m
    return Clocked(width, **options)


def packets(rng, width, count=40):
    """Packets of all numbers of dwords in the last beat, one-beat packets among them."""
    lanes = width // 32
    return [Packet(rng.randbytes(4 * (lanes * rng.choice((0, 0, 1, 4)) + n % lanes + 1)),
                   discard=rng.random() < 0.2) for n in range(count)]


@pytest.mark.parametrize("density", [1, 0.5])
@pytest.mark.parametrize("width", WIDTHS)
def test_packets_become_transfers(width, density):
    rng = random.Random(seed())
    sent, got = packets(rng, width), []
    dut = transmitter(width, user=True)
    simulate(dut, drive_packets(dut.i, sent, rng=rng, density=density),
             collect_frames(dut.axis, len(sent), got, rng=rng, density=density),
             background=[check_axi_stream(dut.axis)])
    assert got == [Frame(p.data, p.discard) for p in sent]


@pytest.mark.parametrize("density", [1, 0.5])
@pytest.mark.parametrize("width", WIDTHS)
def test_transfers_become_packets(width, density):
    """Only whole dwords pass; ``tuser`` and a part of a dword end in ``discard``."""
    rng = random.Random(seed())
    sent = [Frame(p.data, p.discard) for p in packets(rng, width)]
    sent += [Frame(rng.randbytes(n), rng.random() < 0.2) for n in range(1, width // 4)]
    rng.shuffle(sent)
    sent.append(Frame(bytes(4)))
    dut = AxiReceiver(width, user=True)
    good, bad, flags = [], [], []

    async def watch(ctx):
        async for *_, moved, broken, odd in ctx.tick().sample(
                dut.o.valid & dut.o.ready & dut.o.payload.last, dut.broken, dut.not_dwords):
            if moved:
                flags.append((broken, odd))

    expected = [f for f in sent if not f.bad and len(f.data) % 4 == 0]
    simulate(dut, drive_frames(dut.axis, sent, rng=rng, density=density),
             collect_packets(dut.o, len(expected), good, rng=rng, density=density, discarded=bad),
             background=[check_stream(dut.o), check_axi_stream(dut.axis), watch])
    assert [p.data for p in good] == [f.data for f in expected]
    assert len(bad) == len(sent) - len(expected)
    assert flags[:len(sent) - 1] == [(0, len(f.data) % 4 != 0) for f in sent[:-1]]


@pytest.mark.parametrize("width", (32, 64, 512))
def test_packets_with_gaps_among_their_bytes_are_dropped(width):
    """A byte that is missing before the end, in whichever transfer, and a transfer without any; the
    next packet passes."""
    rng = random.Random(seed())
    step = width // 8
    broken = []
    for beats in (1, 3):
        for beat in range(beats):
            full = (1 << step) - 1
            for keep in {0, full & ~1, full & ~2, full >> 1 if beat < beats - 1 else 0,
                         1 << step - 1}:
                broken.append((beats, beat, keep))
    sent = []
    for case in broken:
        sent += [(Frame(rng.randbytes(step * case[0])), case),
                 (Frame(rng.randbytes(rng.randrange(1, 3 * step // 4 + 1) * 4)), None)]

    def cut(axis, item):
        frame, case = item
        for n, beat in enumerate(transfers(axis, frame)):
            yield {**beat, "tkeep": case[2]} if case and n == case[1] else beat

    dut = AxiReceiver(width)
    good, bad = [], []
    simulate(dut, drive_frames(dut.axis, sent, cut=cut),
             collect_packets(dut.o, len(broken), good, discarded=bad))
    assert [p.data for p in good] == [f.data for f, case in sent if case is None]
    assert len(bad) == len(broken)


def test_the_checker_sees_broken_streams():
    dut = None

    async def drop(ctx):
        ctx.set(dut.i.payload, {"data": 1, "dwords": 1, "first": 1, "last": 1})
        ctx.set(dut.i.valid, 1)
        await ctx.tick()
        ctx.set(dut.i.valid, 0)
        await ctx.tick().repeat(3)

    async def change(ctx):
        ctx.set(dut.i.valid, 1)
        await ctx.tick()
        ctx.set(dut.i.payload.data, 2)
        await ctx.tick().repeat(3)

    for process in (drop, change):
        dut = transmitter(32)
        with pytest.raises(StreamViolation):
            simulate(dut, process, background=[check_axi_stream(dut.axis)])


def test_signatures_are_told_apart():
    assert AxiStream(64) == AxiStream(64) != AxiStream(64, user=True)
    assert AxiStream(64) != AxiStream(64, ready=False)
    assert not {"tuser", "tready"} & set(AxiStream(64, ready=False).members)
    with pytest.raises(ValueError, match="width must be one of"):
        AxiStream(48)
