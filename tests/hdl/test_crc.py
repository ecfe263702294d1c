"""dxpu.crc: matrices, fixed messages, and the CRC of streams with every tail length."""

import random

import pytest
from amaranth import *

from dxpu.crc import CRC16_CCITT_FALSE, CRC32C, CRC32_ETHERNET, CrcStream
from dxpu.stream import WIDTHS
from tests.support.testbench import seed, simulate

ALGORITHMS = [CRC32C, CRC16_CCITT_FALSE, CRC32_ETHERNET]
CHECK = {CRC32C: 0xE3069283, CRC16_CCITT_FALSE: 0x29B1, CRC32_ETHERNET: 0xCBF43926}


def reverse(value, width):
    return int(format(value, f"0{width}b")[::-1], 2)


def reference(algorithm, message):
    """The remainder of a polynomial division, bit by bit, as a CRC is defined.

    The message, followed by ``width`` zeros and with the initial value added to its first ``width``
    bits, is divided by the polynomial. ``reflect`` sends each byte low bit first and reverses the
    result.
    """
    width = algorithm.width
    bits = [(byte >> (n if algorithm.reflect else 7 - n)) & 1 for byte in message
            for n in range(8)]
    dividend = int("0" + "".join(map(str, bits)), 2) << width
    dividend ^= algorithm.initial << len(bits)
    divisor = (1 << width) | algorithm.polynomial
    for n in reversed(range(len(bits))):
        if dividend >> (n + width) & 1:
            dividend ^= divisor << n
    assert dividend < 1 << width
    if algorithm.reflect:
        dividend = reverse(dividend, width)
    return dividend ^ algorithm.final_xor


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_reference_gives_the_published_check_values(algorithm):
    assert reference(algorithm, b"123456789") == CHECK[algorithm]


def run(width, packets, *, rng=None, density=1.0, stall=0.0, algorithm=CRC32C):
    """Feed ``packets``; return the CRCs, and check that each comes after exactly the latency."""
    dut = CrcStream(width, algorithm=algorithm)
    lanes, due, got = width // 32, [], []
    enabled = 0

    async def process(ctx):
        nonlocal enabled
        junk = rng or random.Random(0)

        async def cycle(beat=None):
            nonlocal enabled
            while True:
                stalled = rng is not None and rng.random() < stall
                ctx.set(dut.enable, not stalled)
                ctx.set(dut.valid, beat is not None)
                if beat is not None:
                    chunk, last = beat
                    size = len(chunk)
                    chunk = chunk + junk.randbytes(width // 8 - size)  # past dwords: don't-care
                    ctx.set(dut.data, int.from_bytes(chunk, "little"))
                    ctx.set(dut.dwords, size // 4)
                    ctx.set(dut.last, last)
                else:
                    ctx.set(dut.last, junk.getrandbits(1))
                if not stalled:
                    enabled += 1
                    if beat is not None and beat[1]:
                        due.append(enabled + dut.latency)
                *_, valid, crc = await ctx.tick().sample(dut.crc_valid, dut.crc)
                if not stalled:
                    if valid:
                        assert due[len(got)] == enabled
                        got.append(crc)
                    return

        for packet in packets:
            for n in range(0, len(packet), 4 * lanes):
                while rng is not None and rng.random() > density:
                    await cycle()
                await cycle((packet[n:n + 4 * lanes], n + 4 * lanes >= len(packet)))
        for _ in range(dut.latency + 1):
            await cycle()

    simulate(dut, process)
    return got


@pytest.mark.parametrize("width", WIDTHS)
def test_every_tail_back_to_back(width):
    rng = random.Random(seed())
    lanes = width // 32
    sizes = [whole * lanes + tail for tail in range(1, lanes + 1) for whole in (0, 1, 2, 3)]
    sizes += rng.choices(range(1, 4 * lanes), k=30)
    rng.shuffle(sizes)
    packets = [rng.randbytes(4 * size) for size in sizes]
    assert run(width, packets) == [reference(CRC32C, packet) for packet in packets]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("density, stall", [(0.5, 0), (1, 0.4), (0.6, 0.3)])
def test_gaps_and_stalls(width, density, stall):
    rng = random.Random(seed())
    packets = [rng.randbytes(4 * rng.randint(1, 5 * width // 32)) for _ in range(40)]
    got = run(width, packets, rng=rng, density=density, stall=stall)
    assert got == [reference(CRC32C, packet) for packet in packets]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("algorithm", [CRC16_CCITT_FALSE, CRC32_ETHERNET])
def test_other_algorithms(width, algorithm):
    rng = random.Random(seed())
    packets = [rng.randbytes(4 * rng.randint(1, 3 * width // 32)) for _ in range(30)]
    got = run(width, packets, rng=rng, density=0.8, algorithm=algorithm)
    assert got == [reference(algorithm, packet) for packet in packets]


@pytest.mark.parametrize("width", [16, 48, 1024])
def test_width_is_checked(width):
    with pytest.raises(ValueError, match="width must be one of 32, 64, 128, 256, 512, not"):
        CrcStream(width)
