"""dxpu.console: a serial line, and the lines of text on it."""

import random

import pytest
from amaranth import *

from dxpu.console import Console, UartReceiver, UartTransmitter
from dxpu.console.uart import divisor
from dxpu_model.console import answer, summed
from tests.support.testbench import count_pulses, drive_words, seed, simulate

#: Addresses that there are; all others are errors.
REGISTERS = range(0x10, 0x40, 4)


def line(rng):
    """A line, right more often than not."""
    address = rng.choice([*REGISTERS, rng.getrandbits(16)])
    digits = f"{address:0{rng.randint(1, 4)}x}"
    text = f"r{' ' * rng.randint(1, 3)}{digits}"
    if rng.random() < 0.5:
        text = f"w {digits}{' ' * rng.randint(1, 3)}{rng.getrandbits(rng.choice([1, 9, 32])):x}"
    text = rng.choice(["", "", " "]) + text + rng.choice(["", "", " "])
    if rng.random() < 0.3:
        text = "".join(c.upper() if rng.random() < 0.5 else c for c in text)
    if rng.random() < 0.5:
        text = summed(text)
    if rng.random() < 0.4:  # a character is wrong, too much or missing
        place = rng.randrange(len(text))
        wrong = rng.choice(["", chr(rng.randint(32, 126)), chr(rng.randrange(256)),
                            2 * text[place]])
        text = text[:place] + wrong + text[place + 1:]
    if rng.random() < 0.1:
        text = rng.choice(["", " ", "r", "w 10", "*", "r 12345", "w 10 123456789", "r 10*",
                           "w 10*3a0b"])
    return text.replace("\r", "").replace("\n", "")


async def registers_of(ctx, bus, values, rng):
    """Answer the port, after any time, for ever."""
    while True:
        while rng.random() < 0.3:
            await ctx.tick()
        ctx.set(bus.request.ready, 1)
        *_, request = await ctx.tick().sample(bus.request.p).until(bus.request.valid)
        ctx.set(bus.request.ready, 0)
        while rng.random() < 0.7:
            await ctx.tick()
        known, shown = request.address in values, 0
        if known and request.write:
            values[request.address] = request.data
        elif known:
            shown = values[request.address]
        ctx.set(bus.response.p, {"data": shown, "error": not known})
        ctx.set(bus.response.valid, 1)
        await ctx.tick().until(bus.response.ready)
        ctx.set(bus.response.valid, 0)


async def say(ctx, dut, text, rng):
    for c in text:
        ctx.set(dut.i, ord(c))
        ctx.set(dut.i_valid, 1)
        await ctx.tick()
        ctx.set(dut.i_valid, 0)
        for _ in range(rng.choice([0, 0, 1, 5])):
            await ctx.tick()


async def hear(ctx, stream, rng, limit=200):
    """The next line; ``None`` if none begins in time."""
    text = ""
    while not text.endswith("\r\n"):
        for _ in range(rng.choice([0, 0, 3])):
            await ctx.tick()
        ctx.set(stream.ready, 1)
        for _ in range(limit):
            *_, valid, c = await ctx.tick().sample(stream.valid, stream.payload)
            if valid:
                break
        else:
            assert not text
            ctx.set(stream.ready, 0)
            return None
        ctx.set(stream.ready, 0)
        text += chr(c)
    await ctx.tick()
    return text.removesuffix("\r\n")


def console(bench, rng):
    """Run ``bench(ctx, dut, values)`` with registers behind; returns these and the counts."""
    dut, counts = Console(), {}
    values = {address: rng.getrandbits(32) for address in REGISTERS}

    async def main(ctx):
        await bench(ctx, dut, values)

    async def behind(ctx):
        await registers_of(ctx, dut.bus, values, rng)

    simulate(dut, main, background=[behind, count_pulses(dut, counts)], deadline=500_000)
    return values, counts


def test_lines_are_answered():
    rng, said = random.Random(seed()), []

    async def bench(ctx, dut, values):
        for _ in range(400):
            text, expected = line(rng), dict(values)
            wanted = answer(text, expected)
            await say(ctx, dut, text + rng.choice(["\n", "\r"]), rng)
            assert await hear(ctx, dut.o, rng) == wanted, text
            assert values == expected, text
            said.append((wanted or " ")[0])

    _, counts = console(bench, rng)
    assert {said.count(c) > 10 for c in "=!?"} == {True}
    assert counts["refused"] == said.count("?")


def test_a_sum_has_four_digits():
    """Also if those of the line before would make it right."""
    rng, right = random.Random(seed()), summed("r 14")

    async def bench(ctx, dut, values):
        for text in (right, "r 14*", right[:-4], right[:-1], right + right[-1]):
            await say(ctx, dut, text + "\n", rng)
            assert await hear(ctx, dut.o, rng) == answer(text, values)

    _, counts = console(bench, rng)
    assert counts["refused"] == 4


def test_what_comes_during_an_answer_is_refused():
    """But for the LF behind a CR; and a line of which only the end was heard does nothing."""
    rng = random.Random(seed())

    async def bench(ctx, dut, values):
        before = dict(values)
        await say(ctx, dut, "r 10\r\n", rng)
        assert await hear(ctx, dut.o, rng) == answer("r 10", values)
        assert await hear(ctx, dut.o, rng) is None
        # Whole lines, and the beginning of one.
        await say(ctx, dut, "r 10\nw 14 1\nw 14 2\nx", rng)
        assert await hear(ctx, dut.o, rng) == answer("r 10", values)
        assert await hear(ctx, dut.o, rng) == summed("?")
        await say(ctx, dut, "w 18 3\n", rng)
        assert await hear(ctx, dut.o, rng) == summed("?")
        await say(ctx, dut, "r 14\n", rng)
        assert await hear(ctx, dut.o, rng) == answer("r 14", values)
        assert await hear(ctx, dut.o, rng) is None
        assert values == before

    _, counts = console(bench, rng)
    assert counts["refused"] == 2


@pytest.mark.parametrize("cycles, theirs", [(8, 8), (9, 9), (25, 26), (26, 25)])
def test_bytes_cross_the_line(cycles, theirs):
    """Both ends together, back to back and with gaps; also with clocks 4 % apart."""
    rng = random.Random(seed())
    sent, got = [rng.randrange(256) for _ in range(60)], []
    m = Module()
    m.submodules.transmitter = transmitter = UartTransmitter(theirs)
    m.submodules.receiver = receiver = UartReceiver(cycles)
    m.d.comb += receiver.rx.eq(transmitter.tx)

    async def collect(ctx):
        async for *_, valid, byte in ctx.tick().sample(receiver.o_valid, receiver.o):
            if valid:
                got.append(byte)

    async def drive(ctx):
        await drive_words(transmitter.i, sent, rng=rng, density=0.1)(ctx)
        await ctx.tick().repeat(12 * theirs)

    simulate(m, drive, background=[collect])
    assert got == sent


def test_a_byte_has_its_shape():
    """Idle 1, start 0, eight bits from the lowest, stop 1; each ten cycles."""
    dut, levels = UartTransmitter(10), []

    async def watch(ctx):
        async for *_, level in ctx.tick().sample(dut.tx):
            levels.append(level)

    async def drive(ctx):
        await ctx.tick().repeat(7)
        await drive_words(dut.i, [0xA6, 0x01])(ctx)
        await ctx.tick().repeat(120)

    simulate(dut, drive, background=[watch])
    start = levels.index(0)
    bits = [levels[start + 10 * n:start + 10 * n + 10] for n in range(10)]
    assert all(len(set(bit)) == 1 for bit in bits)
    assert [bit[0] for bit in bits] == [0, *(0xA6 >> n & 1 for n in range(8)), 1]
    second = levels.index(0, start + 90)
    assert [levels[second + 10 * n + 5] for n in range(10)] == [0, 1, *[0] * 7, 1]


def test_noise_and_breaks_cost_a_byte_each_at_most():
    cycles, got, counts = 16, [], {}
    dut = UartReceiver(cycles)

    async def send(ctx, bits):
        for level, count in bits:
            ctx.set(dut.rx, level)
            await ctx.tick().repeat(count)

    def byte(value, stop=1):
        return [(0, cycles), *((value >> n & 1, cycles) for n in range(8)), (stop, cycles)]

    async def bench(ctx):
        await send(ctx, [(1, 50), (0, 5), (1, 50)])  # a spike is no start bit
        await send(ctx, [*byte(0x55), (1, 3), *byte(0x80), (1, 3)])
        await send(ctx, [*byte(0x33, stop=0), (0, 1000), (1, 40)])  # a break
        await send(ctx, [*byte(0x0F), (1, 40)])

    async def collect(ctx):
        async for *_, valid, value in ctx.tick().sample(dut.o_valid, dut.o):
            if valid:
                got.append(value)

    simulate(dut, bench, background=[collect, count_pulses(dut, counts)])
    assert got == [0x55, 0x80, 0x0F] and counts["framing"] == 1


@pytest.mark.parametrize("clock, baud, cycles", [
    (62.5e6, 115200, 543), (125e6, 1_000_000, 125), (8e6, 1_000_000, 8)])
def test_divisors(clock, baud, cycles):
    assert divisor(clock, baud) == cycles


@pytest.mark.parametrize("make, message", [
    (lambda: divisor(62.5e6, 9_000_000), "A clock of 62,500,000 Hz does not make 9,000,000 baud"),
    (lambda: divisor(12e6, 1_400_000), "does not make 1,400,000 baud: take 1,500,000 or less"),
    (lambda: UartReceiver(4), "divisor must be an integer from 8 on, not 4"),
    (lambda: UartTransmitter(0), "divisor must be a positive integer, not 0"),
])
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()
