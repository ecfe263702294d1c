"""dxpu.crypto.health: noise passes; what is stuck or biased is found within the tests' cutoffs."""

import random

import pytest
from dxpu.crypto.health import HealthTests, proportion_cutoff, repetition_cutoff
from tests.support.testbench import collect_words, drive_words, seed, simulate

WINDOW = 1024  # SP 800-90B, 4.4.2, of a binary source


def test_cutoffs():
    """Examples of SP 800-90B for 2^-20: 4.4.1 has 11 for H = 2, 4.4.2 a table of cutoffs."""
    assert repetition_cutoff(2, 20) == 11
    assert repetition_cutoff(0.25, 30) == 121
    assert proportion_cutoff(0.2, 20) == 941
    assert proportion_cutoff(0.4, 20) == 840
    assert proportion_cutoff(0.6, 20) == 748
    assert proportion_cutoff(0.8, 20) == 664
    assert proportion_cutoff(1, 20) == 589
    for wrong in (dict(claim=0), dict(claim=1.5), dict(exponent=19), dict(exponent=41)):
        with pytest.raises(ValueError, match="must be"):
            HealthTests(**wrong)


class Judge:
    """The tests as the text has them, bit by bit."""

    def __init__(self, cutoffs):
        self.cutoffs, self.bits = cutoffs, []
        self.stuck = self.biased = False

    def take(self, bit):
        """Whether the bit goes on."""
        bits = self.bits
        bits.append(bit)
        row = next((n for n in range(len(bits)) if bits[-1 - n] != bit), len(bits))
        self.stuck |= row >= self.cutoffs[0]
        window = bits[(len(bits) - 1) // WINDOW * WINDOW:]
        self.biased |= window.count(window[0]) >= self.cutoffs[1] and bit == window[0]
        return len(bits) > WINDOW and not self.stuck and not self.biased


def run(bits, **options):
    dut = HealthTests(**options)
    judge, got, rng = Judge(dut.cutoffs), [], random.Random(seed())
    expected = [bit for bit in bits if judge.take(bit)]

    async def process(ctx):
        await drive_words(dut.i, bits, rng=rng, density=0.7)(ctx)
        await ctx.tick().repeat(3)
        assert (ctx.get(dut.stuck), ctx.get(dut.biased)) == (judge.stuck, judge.biased)
        assert ctx.get(dut.started) == (len(bits) >= WINDOW)

    simulate(dut, process, background=[collect_words(dut.o, 10**6, got, rng=rng, density=0.8)])
    assert got == expected
    return judge, got


def test_noise_passes_but_for_the_start():
    rng = random.Random(seed())
    bits = [rng.getrandbits(1) for _ in range(4000)]
    assert run(bits)[1] == bits[WINDOW:]


@pytest.mark.parametrize("where", [0, 900, WINDOW - 60, 2 * WINDOW + 77])
@pytest.mark.parametrize("bit", [0, 1])
def test_a_source_that_is_stuck(where, bit):
    rng = random.Random(seed() + where)
    bits = [rng.getrandbits(1) for _ in range(where)] + [bit] * 121
    for more in (119, 120, 121):
        row = [1 - bit, *bits[where:where + more], 1 - bit]
        judge, _ = run(bits[:where] + row + [rng.getrandbits(1) for _ in range(50)])
        assert judge.stuck == (more >= 121)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.92, 0.95])
def test_a_biased_source(share):
    rng = random.Random(seed())
    bits = [int(rng.random() < share) for _ in range(4 * WINDOW)]
    judge, got = run(bits, exponent=20)
    assert judge.biased == (share > 0.91)
    assert not got or share < 0.95


@pytest.mark.parametrize("others, biased", [(96, True), (97, False)])
def test_the_cutoff_of_a_window(others, biased):
    """928 of 1024 bits that are equal to the first one are too many, 927 are not."""
    rng = random.Random(seed())
    places = {10 * n for n in range(1, others + 1)}
    window = [int(n not in places) for n in range(WINDOW)]
    judge, _ = run([rng.getrandbits(1) for _ in range(WINDOW)] + window + [0, 1] * 9)
    assert judge.biased == biased and not judge.stuck


def test_the_start_up_test_begins_anew():
    rng = random.Random(seed())
    dut, got = HealthTests(), []

    async def process(ctx):
        bits = [rng.getrandbits(1) for _ in range(WINDOW + 10)]
        await drive_words(dut.i, bits)(ctx)
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        assert not ctx.get(dut.started)
        await drive_words(dut.i, bits)(ctx)
        await ctx.tick().repeat(2)
        assert got == 2 * bits[WINDOW:]

    simulate(dut, process, background=[collect_words(dut.o, 10**6, got)])
