# amaranth: UnusedElaboratable=no
"""dxpu.ethernet.receive: frames from GMII bytes, good and bad, against IEEE 802.3."""

import random
import zlib
from dataclasses import dataclass, field

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from dxpu import stream
from dxpu.ethernet.gmii import GmiiReceive
from dxpu.ethernet.receive import Delivery, OverflowGuard, Receiver, RxStatus
from dxpu.stream import PacketSignature
from tests.support.testbench import check_stream, seed, simulate

STATS = ("good", "error", "giant", "runt", "bad_fcs", "not_dwords", "overflow")
PREAMBLE = b"\x55" * 7 + b"\xd5"


class Chain(wiring.Component):
    """The three receive agents in one clock domain."""

    def __init__(self, width, **options):
        self.receiver = Receiver(width, **options)
        self._width = width
        super().__init__({"gmii": Out(GmiiReceive()), "o": Out(PacketSignature(width)),
                          **{f"stat_{name}": Out(1) for name in STATS}})

    def elaborate(self, platform):
        m = Module()
        m.submodules.receiver = self.receiver
        m.submodules.guard = guard = OverflowGuard(self._width)
        m.submodules.delivery = delivery = Delivery(self._width)
        connect(m, flipped(self.gmii), self.receiver.gmii)
        connect(m, self.receiver.o, guard.i)
        stream.connect(m, guard.o, delivery.i)
        stream.connect(m, delivery.o, self.o)
        for name in STATS:
            source = guard if name == "overflow" else delivery
            m.d.comb += getattr(self, f"stat_{name}").eq(getattr(source, f"stat_{name}"))
        return m


@dataclass
class Burst:
    """Bytes with RX_DV, the positions with RX_ER, and the idle bytes behind them."""

    data: bytes
    errors: tuple = ()
    gap: int = 12


def fcs(frame: bytes) -> bytes:
    return zlib.crc32(frame).to_bytes(4, "little")


def burst(frame: bytes, **options) -> Burst:
    return Burst(PREAMBLE + frame + fcs(frame), **options)


@dataclass
class Result:
    good: list = field(default_factory=list)
    bad: list = field(default_factory=list)
    stats: dict = field(default_factory=dict)

    @property
    def counts(self):
        return {name: n for name, n in self.stats.items() if n}


def run(width, bursts, *, stall=lambda now: False, **options) -> Result:
    """Play ``bursts``; ``stall(cycle)`` tells when the core takes nothing."""
    dut, result = Chain(width, **options), Result()
    result.stats = dict.fromkeys(STATS, 0)
    signals = [getattr(dut, f"stat_{name}") for name in STATS]

    async def drive(ctx):
        for item in bursts:
            for n, byte in enumerate(item.data):
                ctx.set(dut.gmii.rxd, byte)
                ctx.set(dut.gmii.rx_dv, 1)
                ctx.set(dut.gmii.rx_er, n in item.errors)
                await ctx.tick()
            ctx.set(dut.gmii.rx_dv, 0)
            ctx.set(dut.gmii.rx_er, 0)
            await ctx.tick().repeat(item.gap)
        await ctx.tick().repeat(50)

    async def collect(ctx):
        chunk, now = None, 0
        ctx.set(dut.o.ready, not stall(0))
        async for _, _, valid, ready, beat in ctx.tick().sample(dut.o.valid, dut.o.ready,
                                                              dut.o.payload):
            now += 1
            ctx.set(dut.o.ready, not stall(now))
            if not (valid and ready):
                continue
            assert beat.first == (chunk is None)
            assert 1 <= beat.dwords <= width // 32
            assert beat.last or beat.dwords == width // 32
            chunk = (chunk or b"") + beat.data.to_bytes(width // 8, "little")[:4 * beat.dwords]
            if beat.last:
                (result.bad if beat.discard else result.good).append(chunk)
                chunk = None

    async def count(ctx):
        async for _, _, *values in ctx.tick().sample(*signals):
            for name, value in zip(STATS, values, strict=True):
                result.stats[name] += value

    simulate(dut, drive, background=[collect, count, check_stream(dut.o)])
    return result


@pytest.mark.parametrize("width", [32, 64, 128, 256, 512])
def test_good_frames_back_to_back(width):
    rng = random.Random(seed())
    frames = [rng.randbytes(4 * n)
              for n in (15, 16, 17, 18, 31, 32, 33, rng.randrange(40, 90), 15, 16)]
    # A PHY may shorten gap and preamble.
    bursts = [burst(f, gap=rng.choice([1, 2, 12])) for f in frames]
    for item in bursts[1:]:
        item.data = item.data[rng.randrange(8):]
    result = run(width, bursts)
    assert result.good == frames and not result.bad
    assert result.counts == {"good": len(frames)}


def test_any_preamble_and_garbage_before_it():
    rng = random.Random(seed())
    frame = rng.randbytes(64)
    body = frame + fcs(frame)
    starts = [b"\xd5", b"\x55\xd5", b"\x55" * 20 + b"\xd5", b"\x5d\x00" + PREAMBLE,
              bytes(rng.choice([0, 1, 0xAA, 0xFF, 0xD5]) for _ in range(30)).replace(b"\x55", b"")
              + PREAMBLE]
    # In the last one 0xD5 stands behind other bytes, too, and is no delimiter there.
    starts[-1] = b"\x00\xd5\xaa\xd5" + starts[-1].lstrip(b"\xd5")
    result = run(64, [Burst(start + body) for start in starts])
    assert result.good == [frame] * len(starts)
    assert result.counts == {"good": len(starts)}


def bad_cases(rng, max_frame):
    """Yields status, burst, and the bytes that may be delivered with ``discard``."""
    for size in (60, 64, 100, max_frame):
        frame = rng.randbytes(size)
        for position in (0, size // 2, size + 3):
            flipped_bit = bytearray(frame + fcs(frame))
            flipped_bit[position] ^= 1 << rng.randrange(8)
            yield "bad_fcs", Burst(PREAMBLE + bytes(flipped_bit))
        for position in (0, 7, 8, 8 + size // 2, 8 + size + 3):
            yield "error", burst(frame, errors=(position,))
    for size in (0, 1, 4, 5, 8, 20, 56, 59):
        yield "runt", burst(rng.randbytes(size))
    for size in (0, 1, 2, 3, 4, 5, 11, 12, 13):
        yield "runt", Burst(PREAMBLE + rng.randbytes(size))
    yield "runt", Burst(PREAMBLE[:-1])
    yield "runt", Burst(b"\x00")
    for size in (61, 62, 63, 65, 97, max_frame - 1):
        yield "not_dwords", burst(rng.randbytes(size))
    for size in (max_frame + 1, max_frame + 4, 2 * max_frame):
        yield "giant", burst(rng.randbytes(size))


@pytest.mark.parametrize("width", [32, 64, 512])
def test_bad_frames_are_discarded_and_counted(width):
    """Every kind of bad frame, each between two good ones that must pass."""
    rng = random.Random(seed())
    max_frame = 200
    cases = list(bad_cases(rng, max_frame))
    rng.shuffle(cases)
    frames, bursts, expected = [], [], dict.fromkeys(STATS, 0)
    for status, item in cases:
        item.gap = rng.choice([1, 12])
        frames.append(rng.randbytes(rng.choice([60, 64, max_frame])))
        bursts += [item, burst(frames[-1])]
        expected[status] += 1
    expected["good"] = len(frames)
    result = run(width, bursts, max_frame=max_frame)
    assert result.good == frames
    assert result.stats == expected
    assert len(result.bad) <= len(cases)


def test_false_carrier_is_ignored():
    """RX_ER without RX_DV: false carrier or carrier extension (35.2.2.9), no frame."""
    dut, events = Chain(64), []

    async def drive(ctx):
        ctx.set(dut.gmii.rxd, 0x0E)
        ctx.set(dut.gmii.rx_er, 1)
        await ctx.tick().repeat(50)

    async def watch(ctx):
        async for _, _, *values in ctx.tick().sample(
                dut.o.valid, *(getattr(dut, f"stat_{name}") for name in STATS)):
            events.append(any(values))

    simulate(dut, drive, background=[watch])
    assert len(events) >= 49 and not any(events)


@pytest.mark.parametrize("width", [32, 64, 128])
def test_overflow_discards_whole_frames(width):
    """The core stops for random times: what comes out is whole, in order, and all is counted."""
    rng = random.Random(seed())
    frames = [n.to_bytes(2, "little") + rng.randbytes(4 * rng.randrange(15, 40) - 2)
              for n in range(60)]
    stops = []
    while sum(stops) < 4500:
        stops += [rng.randrange(1, 400), rng.randrange(1, 250)]
    stalled = [bool(n % 2) for n, length in enumerate(stops) for _ in range(length)]
    result = run(width, [burst(f) for f in frames],
                 stall=lambda now: now < len(stalled) and stalled[now])
    assert set(result.counts) == {"good", "overflow"}
    assert result.stats["good"] == len(result.good)
    assert result.stats["good"] + result.stats["overflow"] == len(frames)
    assert result.stats["good"] > 5 and result.stats["overflow"] > 5
    arrived = [f for f in frames if f in result.good]
    assert result.good == arrived


def test_statuses_are_named_after_their_counters():
    assert {status.name.lower() for status in RxStatus} == set(STATS)


@pytest.mark.parametrize("size", [59, 0, "1500", None])
def test_max_frame_is_checked(size):
    with pytest.raises(ValueError, match="max_frame must be an integer of at least 60, not"):
        Receiver(64, max_frame=size)
