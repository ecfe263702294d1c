"""The hardware monitor sees each broken rule, and nothing in random clean traffic."""

import random

import pytest
from amaranth.hdl import Module

from dxpu.stream import PacketLayout, PacketSignature
from dxpu_sim.pcie.monitor import RULES, PacketMonitor
from tests.support.testbench import Packet, collect_packets, drive_packets, seed, simulate

FIRST = {"data": 1, "dwords": 2, "first": 1, "last": 0, "discard": 0}
LAST = {"data": 2, "dwords": 1, "first": 0, "last": 1, "discard": 0}


def run(beats, layout=None):
    """Broken rules after ``beats``, each ``(payload or None, ready)`` for a cycle."""
    dut = PacketMonitor(layout or PacketLayout(64))
    result = []

    async def process(ctx):
        for payload, ready in beats:
            ctx.set(dut.valid, payload is not None)
            if payload is not None:
                ctx.set(dut.payload, payload)
            ctx.set(dut.ready, ready)
            await ctx.tick()
        ctx.set(dut.valid, 0)
        ctx.set(dut.ready, 1)
        await ctx.tick()
        result.append(ctx.get(dut.broken))

    simulate(dut, process)
    return [RULES[n] for n in range(len(RULES)) if result[0] >> n & 1]


@pytest.mark.parametrize("beats, rule", [
    ([(FIRST, 1), (LAST, 1), (FIRST, 0), (FIRST, 1), (None, 0), (LAST, 0), (LAST, 1)], None),
    ([(FIRST, 0), (None, 0), (FIRST, 1)], 0),
    ([(FIRST, 0), ({**FIRST, "data": 3}, 1)], 1),
    ([(FIRST, 1), (FIRST, 1)], 2),
    ([(LAST, 1)], 2),
    ([({**FIRST, "dwords": 1}, 1)], 3),
    ([(FIRST, 1), ({**LAST, "dwords": 0}, 1)], 3),
    ([(FIRST, 1), ({**LAST, "dwords": 3}, 1)], 3)])
def test_rule(beats, rule):
    assert run(beats) == ([] if rule is None else [RULES[rule]])


def test_meta_must_hold():
    layout = PacketLayout(64, 3)
    beats = [({**FIRST, "meta": 5}, 1), ({**LAST, "meta": 5}, 1)]
    assert run(beats, layout) == []
    assert run([beats[0], ({**LAST, "meta": 4}, 1)], layout) == [RULES[1]]


def test_clean_traffic():
    rng = random.Random(seed())
    m = Module()
    m.submodules.monitor = monitor = PacketMonitor(PacketLayout(128))
    stream = PacketSignature(128).create()
    m.d.comb += [monitor.payload.eq(stream.payload), monitor.valid.eq(stream.valid),
                 monitor.ready.eq(stream.ready)]
    packets = [Packet(rng.randbytes(4 * rng.randrange(1, 20))) for _ in range(50)]
    got = []
    broken = []

    async def watch(ctx):
        while len(got) < len(packets):
            await ctx.tick()
        broken.append(ctx.get(monitor.broken))

    simulate(m, drive_packets(stream, packets, rng=rng, density=0.6),
             collect_packets(stream, len(packets), got, rng=rng, density=0.6), watch)
    assert got == packets and broken == [0]


def test_layout():
    with pytest.raises(TypeError, match="layout must be a PacketLayout, not 8"):
        PacketMonitor(8)
