"""dxpu.fabric.credit.classifier: the credits of a TLP, told with its first beat."""

import random

import pytest
from dxpu.fabric.credit.classifier import Classifier
from dxpu.tlp.types import TlpClass
from tests.support.raw_tlps import completion, config, memory, message
from tests.support.testbench import (
    Packet, check_stream, collect_packets, count_pulses, drive_packets, seed, simulate,
)

P, NP, CPL = TlpClass


def some_tlps(rng):
    """TLPs of all kinds with the class and the units that they take (PCIe Base 5.0, 2.6.1)."""
    size = rng.choice([1, 3, 4, 5, 32, 127, 128])
    data = rng.randbytes(4 * size)
    units = -(-size // 4)
    return rng.choice([
        (memory(0x1000, data=data), P, units), (memory(0x1_0000_1000, data=data), P, units),
        (memory(0x1000, length=size), NP, 0), (memory(0x1000, data=data[:4], kind=2), NP, 1),
        (memory(0x2000, data=rng.randbytes(8), kind=0x0C), NP, 1),
        (memory(0x2000, data=rng.randbytes(32), kind=0x0E), NP, 2),
        (config(0, 0x0100, 4), NP, 0), (config(0, 0x0100, 4, value=5), NP, 1),
        (completion(data), CPL, units), (completion(), CPL, 0), (message(4, 0x20), P, 0),
    ])


@pytest.mark.parametrize("width", [32, 64, pytest.param(128, marks=pytest.mark.long),
                                   pytest.param(256, marks=pytest.mark.long), 512])
def test_class_and_units_come_with_the_first_beat(width):
    """Also behind prefixes, of which there may be more than a beat."""
    rng = random.Random(seed())
    dut = Classifier(width)
    sent, expected, got, gone = [], [], [], []
    for n in range(50):
        raw, cls, units = some_tlps(rng)
        prefixes = rng.choice([0, 0, 0, 1, 2, 3, 4, 4])
        raw = b"".join(bytes([0x90 | rng.randrange(16)]) + rng.randbytes(3)
                       for _ in range(prefixes)) + raw
        discard = rng.random() < 0.1
        sent.append(Packet(raw, dict(row=n % 8, life=n), discard=discard))
        expected.append((n, raw, n % 8, cls, units))
    simulate(dut, drive_packets(dut.i, sent, rng=rng, density=0.8),
             collect_packets(dut.o, sum(not p.discard for p in sent), got, rng=rng, density=0.8,
                             discarded=gone),
             background=[check_stream(dut.o)])
    assert sorted((p.meta.life, p.data, p.meta.row, p.meta.cls, p.meta.units)
                  for p in got + gone) == expected
    assert [p.meta.life for p in got] == sorted(p.meta.life for p in got)


def test_latency_and_rate():
    dut = Classifier(64)
    tlps = [Packet(memory(0x1000, data=bytes(8)), dict(row=0)) for _ in range(8)]
    times = []

    async def watch(ctx):
        ctx.set(dut.o.ready, 1)
        count = 0
        async for *_, came, left in ctx.tick().sample(dut.i.valid, dut.o.valid):
            times.append((came, left))
            count += 1

    simulate(dut, drive_packets(dut.i, tlps), background=[watch])
    came = [n for n, (c, _) in enumerate(times) if c]
    left = [n for n, (_, o) in enumerate(times) if o]
    assert left[0] == came[0] + 1 and left[-1] - left[0] == len(left) - 1


def test_large_tlps_are_dropped():
    dut = Classifier(64, largest=32)
    sizes = [129, 128, 1, 1024, 128]
    tlps = [Packet(memory(0x1000, data=bytes(4 * n)), dict(row=n % 3)) for n in sizes]
    prefixed = Packet(bytes([0x90, 0, 0, 0] * 2) + memory(0x1000, data=bytes(516)), dict(row=0))
    got, pulses = [], {}

    async def end(ctx):
        await drive_packets(dut.i, [*tlps, prefixed, tlps[2]])(ctx)
        await ctx.tick().repeat(200)

    simulate(dut, end, background=[collect_packets(dut.o, 100, got),
                                   count_pulses(dut, pulses, "large")])
    assert [p.data for p in got] == [tlps[n].data for n in (1, 2, 4, 2)]
    assert pulses["large"] == 3
