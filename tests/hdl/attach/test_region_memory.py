"""dxpu.attach.egress_memory: each beat of each region is what was written to it."""

import random

import pytest

from dxpu.attach.egress_memory import RegionMemory
from dxpu.attach.egress_regions import Regions
from tests.support.testbench import seed, simulate


@pytest.mark.parametrize("width, slots, space", [
    (64, 3, (16384, 512, 4096)), (32, 1, (16, 32, 64)), (512, 2, (256, 128, 512))])
def test_each_beat_has_a_place_of_its_own(width, slots, space):
    """From the first to the last beat of each region."""
    rng = random.Random(seed())
    regions = Regions(width, slots=slots, space=space, packets=2)
    dut = RegionMemory(regions)
    beats = {}
    for cls, size in enumerate(regions.beats):
        for slot in range(slots):
            for position in {0, 1, size // 2, size - 1, *rng.choices(range(size), k=20)}:
                last = rng.random() < 0.5
                beats[slot + (cls << regions.slot_bits), position] = {
                    "data": rng.getrandbits(width), "last": last,
                    "dwords": rng.randint(1, width // 32) if last else width // 32}

    async def process(ctx):
        for (queue, position), beat in rng.sample(sorted(beats.items(), key=str), len(beats)):
            ctx.set(dut.write_queue, queue)
            ctx.set(dut.write_position, position + rng.choice([0, regions.beats[
                queue >> regions.slot_bits]]))  # the number of a round does not matter
            ctx.set(dut.write_beat, beat)
            ctx.set(dut.write_en, 1)
            await ctx.tick()
        ctx.set(dut.write_en, 0)
        stays = {}
        for (queue, position), beat in rng.sample(sorted(beats.items(), key=str), len(beats)):
            ctx.set(dut.read_queue, queue)
            ctx.set(dut.read_position, position)
            ctx.set(dut.read_en, 1)
            await ctx.tick()
            stays[queue >> regions.slot_bits] = beat
            for cls, expected in stays.items():
                found = ctx.get(dut.read_beats[cls])
                assert {k: found[k] for k in expected} == expected

    simulate(dut, process, deadline=5000)
