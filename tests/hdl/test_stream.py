"""dxpu.stream: layouts, the checked connect, the register stage."""

import random

import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import ForwardRegister, PacketLayout, PacketSignature, Register, connect
from tests.support.testbench import (
    Packet, StreamViolation, check_stream, collect_packets, drive_packets, seed, simulate,
)


@pytest.mark.parametrize("width", [0, 16, 96, 1024, "64"])
def test_width_is_checked(width):
    with pytest.raises(ValueError, match="width must be one of 32, 64, 128, 256, 512, not"):
        PacketLayout(width)


def test_connect_refuses_layouts_of_equal_width():
    class Bad(wiring.Component):
        i: In(PacketSignature(32))
        o: Out(stream.Signature(PacketLayout(32).size))

    bad, m = Bad(), Module()
    with pytest.raises(TypeError, match="Cannot connect"):
        connect(m, wiring.flipped(bad.i), bad.o)


@pytest.mark.parametrize("kind, width", [
    (Register, 32), (Register, 64), (Register, 512), (ForwardRegister, 64)])
@pytest.mark.parametrize("densities", [(1, 1), (0.5, 1), (1, 0.5), (0.7, 0.7)])
def test_register_keeps_every_packet(kind, width, densities):
    rng = random.Random(seed())
    dut = kind(PacketLayout(width, meta=8))
    packets = [Packet(rng.randbytes(4 * rng.choice([1, 2, 3, 16, 17, 40])), rng.randrange(256))
               for _ in range(60)]
    got = []
    simulate(dut, drive_packets(dut.i, packets, rng=rng, density=densities[0]),
             collect_packets(dut.o, len(packets), got, rng=rng, density=densities[1]),
             background=[check_stream(dut.i, "i"), check_stream(dut.o, "o")])
    assert got == packets


@pytest.mark.parametrize("kind", [Register, ForwardRegister])
def test_register_takes_a_word_per_cycle(kind):
    dut = kind(PacketLayout(64))
    packets = [Packet(bytes(8 * 100))]
    got = []
    simulate(dut, drive_packets(dut.i, packets), collect_packets(dut.o, 1, got))
    assert got[0].last_cycle - got[0].first_cycle == 99


def test_checker_sees_a_broken_stream():
    dut = Register(PacketLayout(32))

    async def withdraw(ctx):
        ctx.set(dut.i.valid, 1)
        await ctx.tick().repeat(4)
        ctx.set(dut.i.valid, 0)
        await ctx.tick().repeat(3)

    with pytest.raises(StreamViolation, match="valid fell"):
        simulate(dut, withdraw, background=[check_stream(dut.i)])
