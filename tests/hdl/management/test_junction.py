"""The junction: frames of the fabric and of management on one path."""

import random

import pytest

from dxpu.management.junction import ManagementJunction
from tests.support.testbench import (
    Packet, check_stream, collect_packets, drive_packets, seed, simulate,
)


def run(fabric, management, *, density, cycles=None):
    """Packets that come out; ``density`` of both inputs, and of the output."""
    rng, dut, got = random.Random(seed()), ManagementJunction(64), []

    async def process(ctx):
        if cycles:
            await ctx.tick().repeat(cycles)
        while not cycles and len(got) < len(fabric) + len(management):
            await ctx.tick()

    simulate(dut, process, background=[
        drive_packets(dut.fabric, fabric, rng=rng, density=density[0]),
        drive_packets(dut.management, management, rng=rng, density=density[1]),
        collect_packets(dut.o, 10**6, got, rng=rng, density=density[2]), check_stream(dut.o)])
    return got


@pytest.mark.parametrize("density", [(1, 1, 1), (0.3, 0.9, 0.6), (0.9, 0.2, 0.3), (0.2, 0.2, 1)])
def test_each_frame_comes_out_whole_and_in_order(density):
    rng = random.Random(seed())
    fabric, management = ([Packet(bytes([kind]) + rng.randbytes(4 * rng.randrange(15, 40) - 1))
                           for _ in range(40)] for kind in (0, 1))
    got = run(fabric, management, density=density)
    for kind, packets in enumerate((fabric, management)):
        assert [p.data for p in got if p.data[0] == kind] == [p.data for p in packets]


def test_the_fabric_alone_waits_for_nothing():
    packets = [Packet(bytes(4 * 16))] * 20
    got = run(packets, [], density=(1, 1, 1))
    # Collected with a cycle between two beats.
    assert [p.last_cycle - p.first_cycle for p in got] == [7] * 20


def test_management_has_a_quarter_of_the_time_at_most():
    """Both always have something; frames of 8 and of 52 beats."""
    fabric, management = [Packet(bytes(64))] * 2000, [Packet(b"\1" + bytes(4 * 104 - 1))] * 200
    got = run(fabric, management, density=(1, 1, 1), cycles=8000)
    time = sum(p.last_cycle - p.first_cycle + 1 for p in got if p.data[0])
    assert 0.20 < time / 8000 <= 0.25
    # And it waits for one frame at most, when its time has come.
    first = next(n for n, p in enumerate(got) if p.data[0])
    assert first <= 1
