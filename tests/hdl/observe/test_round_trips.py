"""dxpu.observe: histograms and sums of round trips, read as registers."""

import random

import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.csr import Block, RegisterFile, RegisterPort, connect_ports, word
from dxpu.observe import BINS, RoundTrips, access_of, round_trip_rows
from tests.support.mutate import mutant
from tests.support.testbench import access, seed, simulate


class Observed(wiring.Component):
    """Round trips behind a register port."""

    def __init__(self, ports=3):
        self.block = Block("observe", (
            round_trip_rows(ports, 16), word("unit", "const", reset=16)))
        self.trips, self.file = RoundTrips(ports=ports), RegisterFile(self.block)
        super().__init__({"bus": In(RegisterPort())})

    def elaborate(self, platform):
        m = Module()
        m.submodules.trips, m.submodules.file = trips, file = self.trips, self.file
        connect_ports(m, wiring.flipped(self.bus), file.bus)
        access_of(m, file, trips)
        return m


async def word_at(ctx, dut, path, value=None):
    """The word of a register, after it was written if there is a value."""
    word, error = await access(ctx, dut.bus, dut.block.address(path), value)
    assert not error
    return word


async def row(ctx, dut, slot):
    """Bins, sum and longest of a slot."""
    async def read(name):
        return await word_at(ctx, dut, f"round_trip[{slot}].{name}")

    return ([await read(f"bin{n}") for n in range(BINS)],
            await read("sum_high") << 32 | await read("sum_low"), await read("longest"))


async def note(ctx, dut, slot, time):
    """One round trip."""
    ctx.set(dut.trips.i, {"strobe": 1, "slot": slot, "time": time})
    await ctx.tick()
    ctx.set(dut.trips.i.strobe, 0)


def expected(trips, slot):
    """What the registers of a slot must be."""
    times = [time for which, time in trips if which == slot]
    bins = [0] * BINS
    for time in times:
        # By comparison, not by the position of a bit.
        bins[next((n for n in range(BINS - 1) if time < 2 << n), BINS - 1)] += 1
    return bins, sum(times), max(times, default=0)


def cleared(dut):
    """Cycles after which the memory is clear."""
    return dut.trips._slots * 32 + 2


def run_random(dut, ports, *, burst, many=False):
    """Random round trips, of which ``burst`` come in a row; ``many``: sums of more than 32 bits."""
    rng, trips = random.Random(seed()), []

    async def process(ctx):
        await ctx.tick().repeat(cleared(dut))
        for _ in range(2500 * ports if many else 300):
            time = (1 << 21) - 1 if many and rng.random() < 0.9 else rng.choice((
                rng.getrandbits(21), 1 << rng.randrange(21), rng.randrange(40),
                (1 << rng.randrange(1, 21)) - 1))
            trips.append((rng.randrange(ports), time))
            await note(ctx, dut, *trips[-1])
            if len(trips) % burst == 0:
                await ctx.tick().repeat(13 * burst + 4)
        await ctx.tick().repeat(13 * burst + 4)
        for slot in range(ports):
            assert await row(ctx, dut, slot) == expected(trips, slot), slot

    simulate(dut, process, deadline=400_000)


@pytest.mark.parametrize("ports", [1, 3, 8])
@pytest.mark.parametrize("burst", [1, 16])
def test_all_are_in_the_right_bin_and_sum(ports, burst):
    run_random(Observed(ports), ports, burst=burst)


def test_sums_have_more_than_32_bits():
    run_random(Observed(1), 1, burst=1, many=True)


def test_what_finds_no_room_is_counted():
    """Of 40 in a row some are missed; what was not missed is there."""
    dut, missed = Observed(), []

    async def process(ctx):
        await ctx.tick().repeat(cleared(dut))
        for _ in range(40):
            await note(ctx, dut, 1, 100)
        await ctx.tick().repeat(13 * 20)
        bins, total, longest = await row(ctx, dut, 1)
        assert bins[6] == sum(bins) == 40 - len(missed) and len(missed) in range(20, 25)
        assert total == 100 * bins[6] and longest == 100

    async def count(ctx):
        async for _, _, pulse in ctx.tick().sample(dut.trips.stat_missed):
            if pulse:
                missed.append(pulse)

    simulate(dut, process, background=[count])


def test_registers_are_read_while_trips_come():
    """Reads are answered within two trips' time, and none is lost by them."""
    dut, rng, trips = Observed(), random.Random(seed()), []

    async def source(ctx):
        await ctx.tick().repeat(cleared(dut))
        for _ in range(200):
            trips.append((rng.randrange(3), rng.getrandbits(12)))
            await note(ctx, dut, *trips[-1])
            await ctx.tick().repeat(rng.randint(15, 25))

    async def process(ctx):
        await ctx.tick().repeat(cleared(dut))
        while len(trips) < 200:
            await row(ctx, dut, rng.randrange(3))
        await ctx.tick().repeat(50)
        for slot in range(3):
            assert await row(ctx, dut, slot) == expected(trips, slot)

    simulate(dut, process, background=[source], deadline=40_000)


def test_the_longest_can_be_set_and_sums_carry():
    dut = Observed(1)

    async def process(ctx):
        await ctx.tick().repeat(cleared(dut))
        # 2**32 needs 2,049 of the longest times.
        for _ in range(2050):
            await note(ctx, dut, 0, (1 << 21) - 1)
            await ctx.tick().repeat(14)
        _, total, longest = await row(ctx, dut, 0)
        assert total == 2050 * ((1 << 21) - 1) > 1 << 32 and longest == (1 << 21) - 1
        await word_at(ctx, dut, "round_trip[0].longest", 0)
        await note(ctx, dut, 0, 7)
        await ctx.tick().repeat(20)
        assert (await row(ctx, dut, 0))[2] == 7

    simulate(dut, process, deadline=60_000)


def test_a_reset_clears_all():
    """What is asked while the memory is cleared is answered then."""
    dut, reset = Observed(1), Signal()

    async def process(ctx):
        await ctx.tick().repeat(cleared(dut))
        await note(ctx, dut, 0, 100)
        await ctx.tick().repeat(20)
        assert (await row(ctx, dut, 0))[1:] == (100, 100)
        ctx.set(reset, 1)
        await ctx.tick()
        ctx.set(reset, 0)
        assert await row(ctx, dut, 0) == ([0] * BINS, 0, 0)

    simulate(ResetInserter(reset)(dut), process)


@pytest.mark.parametrize("ports", [0, 129, "1"])
def test_mistakes(ports):
    with pytest.raises(ValueError, match="ports must be 1 to 128"):
        RoundTrips(ports=ports)


@pytest.mark.parametrize("old, new, many", [
    ("Mux(step == 1, time, carry)", "Mux(step == 1, time, 0)", True),
    ("old < time", "old > time", False),
    ("time[BINS - 1:].any()", "time[BINS - 1]", False),
    ("value.eq(Mux(step == 3,", "value.eq(Mux(step == 2,", False),
    ("carry.eq(total[32])", "carry.eq(carry | total[32])", True),
    ("trip.time), trip.slot)", "trip.time))", False),
], ids=["no carry", "shortest", "long ones", "sum", "carry stays", "first slot"])
def test_mutants_are_found(old, new, many):
    ports = 1 if many else 3
    dut = Observed(ports)
    dut.trips = mutant(RoundTrips, (old, new))(ports=ports)
    with pytest.raises(AssertionError):
        run_random(dut, ports, burst=1, many=many)
