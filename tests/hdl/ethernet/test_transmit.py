# amaranth: UnusedElaboratable=no
"""dxpu.ethernet.transmit: what leaves on GMII, byte by byte, against IEEE 802.3."""

import random
import zlib

import pytest
from amaranth.hdl import ResetInserter, Signal

from dxpu.ethernet import Transmitter
from tests.support.testbench import Packet, beats, check_stream, drive_packets, seed, simulate


def wire(frame: bytes) -> bytes:
    """Bytes on GMII of ``frame`` (802.3, 3.1.1)."""
    frame = frame.ljust(60, b"\0")
    return b"\x55" * 7 + b"\xd5" + frame + zlib.crc32(frame).to_bytes(4, "little")


class Wire:
    """Background process: bursts on GMII as (bytes, error flags), and the gaps between them."""

    def __init__(self, gmii):
        self.gmii = gmii
        self.bursts, self.gaps = [], []
        self.idle = None

    async def watch(self, ctx):
        gmii, idle, burst = self.gmii, 0, None
        async for *_, byte, enable, error in ctx.tick().sample(gmii.txd, gmii.tx_en, gmii.tx_er):
            if enable:
                if burst is None:
                    burst = (bytearray(), [])
                    self.gaps.append(idle)
                burst[0].append(byte)
                burst[1].append(error)
                idle = 0
            else:
                if burst is not None:
                    self.bursts.append((bytes(burst[0]), burst[1]))
                    burst = None
                idle += 1
            self.idle = idle


def count(signals, into):
    """Background process that counts the cycles in which each of ``signals`` is high."""
    async def process(ctx):
        into.update(dict.fromkeys(signals, 0))
        async for _, _, *values in ctx.tick().sample(*signals.values()):
            for name, value in zip(signals, values, strict=True):
                into[name] += value
    return process


def run(width, packets, *processes, **options):
    dut = Transmitter(width)
    seen, stats = Wire(dut.gmii), {}
    signals = {name: getattr(dut, f"stat_{name}") for name in ("good", "underrun", "aborted")}

    async def settle(ctx):
        while seen.idle is None or seen.idle < 40:
            await ctx.tick()

    simulate(dut, drive_packets(dut.i, packets, **options), *(p(dut) for p in processes), settle,
             background=[seen.watch, count(signals, stats), check_stream(dut.i)])
    return seen, stats


@pytest.mark.parametrize("width", [32, 64, 128, 256, 512])
def test_frames_back_to_back(width):
    rng = random.Random(seed())
    frames = [rng.randbytes(4 * n)
              for n in (1, 2, 3, 14, 15, 16, 17, 18, 31, 32, 33, rng.randrange(40, 90), 15, 16)]
    seen, stats = run(width, [Packet(f) for f in frames])
    assert [bytes(b) for b, _ in seen.bursts] == [wire(f) for f in frames]
    assert not any(any(errors) for _, errors in seen.bursts)
    assert seen.gaps[1:] == [12] * (len(frames) - 1)
    assert stats == {"good": len(frames), "underrun": 0, "aborted": 0}


def test_a_late_frame_starts_two_cycles_after_its_first_beat():
    dut = Transmitter(64)
    times = {}

    async def drive(ctx):
        await ctx.tick().repeat(50)
        ctx.set(dut.i.payload, next(beats(dut.i.payload.shape(), Packet(bytes(8)))))
        ctx.set(dut.i.valid, 1)
        while not ctx.get(dut.gmii.tx_en):
            await ctx.tick()
            times["start"] = times.get("start", 0) + 1
        while ctx.get(dut.gmii.txd) == 0x55:
            await ctx.tick()
            times["preamble"] = times.get("preamble", 0) + 1

    simulate(dut, drive)
    assert times == {"start": 2, "preamble": 7}


@pytest.mark.parametrize("width", [32, 64, 512])
def test_underrun_ends_the_frame_with_an_error(width):
    """The source stops after two beats; the frame is cut, its rest swallowed, the next is sent."""
    rng = random.Random(seed())
    step = width // 8
    bad, good = rng.randbytes(6 * step), rng.randbytes(64)
    dut = Transmitter(width)
    seen, stats = Wire(dut.gmii), {}
    signals = {name: getattr(dut, f"stat_{name}") for name in ("good", "underrun", "aborted")}

    async def drive(ctx):
        for n, beat in enumerate(beats(dut.i.payload.shape(), Packet(bad))):
            if n == 2:
                await ctx.tick().repeat(3 * step + 20)
            ctx.set(dut.i.payload, beat)
            ctx.set(dut.i.valid, 1)
            await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)
        await drive_packets(dut.i, [Packet(good)])(ctx)
        await ctx.tick().repeat(120)

    simulate(dut, drive, background=[seen.watch, count(signals, stats)])
    (cut, errors), (whole, clean) = seen.bursts
    assert cut[:-1] == b"\x55" * 7 + b"\xd5" + bad[:2 * step]
    assert errors == [0] * (len(cut) - 1) + [1]
    assert whole == wire(good) and not any(clean)
    assert stats == {"good": 1, "underrun": 1, "aborted": 0}


def test_a_frame_that_loses_its_end_does_not_swallow_the_next():
    rng = random.Random(seed())
    good = rng.randbytes(64)
    dut = Transmitter(64)
    seen, stats = Wire(dut.gmii), {}
    signals = {name: getattr(dut, f"stat_{name}") for name in ("good", "underrun", "aborted")}

    async def drive(ctx):
        for beat in list(beats(dut.i.payload.shape(), Packet(bytes(64))))[:3]:
            ctx.set(dut.i.payload, beat)
            ctx.set(dut.i.valid, 1)
            await ctx.tick().until(dut.i.ready)
        await drive_packets(dut.i, [Packet(good)])(ctx)
        await ctx.tick().repeat(120)

    simulate(dut, drive, background=[seen.watch, count(signals, stats)])
    assert seen.bursts[0][1][-1] == 1
    assert seen.bursts[1] == (wire(good), [0] * 76)
    assert stats == {"good": 1, "underrun": 1, "aborted": 0}


@pytest.mark.parametrize("cycles", [1, 5])
@pytest.mark.parametrize("at", [3, 8, 30, 70, 73])
def test_a_reset_leaves_a_whole_gap_behind_a_frame(at, cycles):
    """Twelve byte times, wherever in a frame the reset comes and however short it is (4.4.2), and
    though the next frame is there already."""
    rng = random.Random(seed())
    first, good = rng.randbytes(64), rng.randbytes(64)
    dut, reset = Transmitter(64), Signal()
    seen = Wire(dut.gmii)

    async def disturb(ctx):
        await ctx.tick().until(dut.gmii.tx_en)
        await ctx.tick().repeat(at)
        ctx.set(reset, 1)
        await ctx.tick().repeat(cycles)
        ctx.set(reset, 0)
        while seen.idle < 40:
            await ctx.tick()

    simulate(ResetInserter(reset)(dut), drive_packets(dut.i, [Packet(first), Packet(good)]),
             disturb, background=[seen.watch])
    cut = at + 2
    assert seen.bursts[0][0] == wire(first)[:cut] and seen.bursts[-1][0] == wire(good)
    # A frame of which nothing was taken yet is sent again, whole.
    assert len(seen.bursts) == (3 if at == 3 else 2)
    assert 12 <= seen.gaps[1] <= 32 + cycles and seen.gaps[2:] in ([], [12])


@pytest.mark.parametrize("size", [4, 8, 60, 64, 100])
def test_discard_ends_the_frame_with_an_error(size):
    rng = random.Random(seed())
    good = rng.randbytes(64)
    seen, stats = run(64, [Packet(bytes(size), discard=True), Packet(good)])
    (cut, errors), (whole, _) = seen.bursts
    assert len(cut) == 8 + size + 1 and errors[-1] == 1
    assert whole == wire(good)
    assert seen.gaps[1] == 12
    assert stats == {"good": 1, "underrun": 0, "aborted": 1}


@pytest.mark.parametrize("width", [0, 8, 96])
def test_width_is_checked(width):
    with pytest.raises(ValueError, match="width must be one of"):
        Transmitter(width)
