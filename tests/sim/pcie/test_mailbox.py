"""The mailbox's hardware: whole TLPs in and out, gaps, stalls, and the rules of streams."""

import random

import pytest

from dxpu_sim.pcie.mailbox import CHUNKS, CHUNK_BITS, CLASSES, TRANSFER_DWORDS, TlpPort
from tests.support.testbench import (
    Packet, check_stream, collect_packets, drive_packets, seed, simulate,
)

LENGTHS = [3, 4, 5, 31, 32, 33, TRANSFER_DWORDS - 1, TRANSFER_DWORDS, TRANSFER_DWORDS + 1,
           2 * TRANSFER_DWORDS, 1024 + 4]


def send(py, tlps):
    """Process that does what :class:`dxpu_sim.pcie.ports.Mailbox` does to send."""
    async def process(ctx):
        request = 0
        for raw in tlps:
            for start in range(0, len(raw), TRANSFER_DWORDS * 4):
                part = raw[start:start + TRANSFER_DWORDS * 4]
                while ctx.get(py.tx_accept) != request:
                    await ctx.tick()
                for n in range(CHUNKS):
                    chunk = part[n * CHUNK_BITS // 8:(n + 1) * CHUNK_BITS // 8]
                    ctx.set(getattr(py, f"tx_data{n}"), int.from_bytes(chunk, "little"))
                request ^= 1
                end = start + len(part) == len(raw)
                ctx.set(py.tx_control, request | end << 1 | len(part) // 4 << 2)
                await ctx.tick()
    return process


def receive(py, count, into):
    """Process that collects ``(class, TLP, first, last, discard)``."""
    async def process(ctx):
        seen, raw = 0, b""
        while len(into) < count:
            await ctx.tick()
            if ctx.get(py.rx_count) == seen:
                continue
            seen += 1
            assert ctx.get(py.rx_count) == seen
            info = ctx.get(py.rx_info)
            data = b"".join(ctx.get(getattr(py, f"rx_data{n}")).to_bytes(CHUNK_BITS // 8, "little")
                            for n in range(CHUNKS))
            raw += data[:(info >> 64 & 0x7f) * 4]
            if info >> 73 & 1:
                into.append((info >> 71 & 3, raw, info & 0xffffffff, info >> 32 & 0xffffffff,
                             info >> 74))
                raw = b""
    return process


@pytest.mark.parametrize("gap", [0, 100])
@pytest.mark.parametrize("width", [32, 64, 512])
def test_send(width, gap):
    rng = random.Random(seed())
    dut = TlpPort(width, seed=rng.randrange(1 << 20))
    tlps = [rng.randbytes(4 * n) for n in rng.sample(LENGTHS, len(LENGTHS))]
    got, taken = [], []

    async def gaps(ctx):
        ctx.set(dut.py.tx_gap, gap)

    async def watch(ctx):
        while len(taken) < len(tlps):
            await ctx.tick()
            if ctx.get(dut.py.tx_taken) > len(taken):
                taken.append(ctx.get(dut.py.tx_info))

    simulate(dut, send(dut.py, tlps), watch,
             collect_packets(dut.o, len(tlps), got, rng=rng, density=0.6 if gap else 1), gaps,
             background=[check_stream(dut.o, "o")])
    assert [p.data for p in got] == tlps
    # Cycles as the mailbox stamped them and as they were seen outside differ by a constant.
    stamps = [(info & 0xffffffff, info >> 32) for info in taken]
    offset = got[0].first_cycle - stamps[0][0]
    assert [(a + offset, b + offset) for a, b in stamps] == [
        (p.first_cycle, p.last_cycle) for p in got]
    if not gap:
        # A beat in each cycle; at 512 bits a handshake per transfer of six beats costs some.
        beats = sum(-(-len(t) * 8 // width) for t in tlps)
        assert got[-1].last_cycle - got[0].first_cycle < beats + (30 if width == 512 else 0)


@pytest.mark.parametrize("width", [32, 64, 512])
def test_receive(width):
    rng = random.Random(seed())
    dut = TlpPort(width)
    sent = [[Packet(rng.randbytes(4 * n)) for n in rng.sample(LENGTHS, len(LENGTHS))]
            for _ in CLASSES]
    sent[1][3].discard = True
    got = []
    streams = [getattr(dut, f"i_{name}") for name in CLASSES]
    simulate(dut, receive(dut.py, 3 * len(LENGTHS), got),
             *(drive_packets(s, p, rng=rng, density=0.7) for s, p in zip(streams, sent,
                                                                         strict=True)))
    for cls in range(3):
        assert [(raw, bool(discard)) for c, raw, _, _, discard in got if c == cls] == [
            (p.data, p.discard) for p in sent[cls]]
    # One TLP at a time: they do not overlap in time.
    assert all(a[3] < b[2] for a, b in zip(got, got[1:], strict=False))


def test_receive_every_cycle_and_in_turn():
    rng = random.Random(seed())
    dut = TlpPort(64)
    sent = [[Packet(rng.randbytes(16)) for _ in range(20)] for _ in CLASSES]
    got = []
    streams = [getattr(dut, f"i_{name}") for name in CLASSES]
    simulate(dut, receive(dut.py, 60, got),
             *(drive_packets(s, p) for s, p in zip(streams, sent, strict=True)))
    assert got[-1][3] - got[0][2] == 119
    assert max(abs(sum(g[0] == a for g in got[:n]) - sum(g[0] == b for g in got[:n]))
               for n in range(60) for a, b in ((0, 1), (1, 2))) == 1


@pytest.mark.parametrize("stalled", range(3))
def test_a_stalled_class_is_passed(stalled):
    rng = random.Random(seed())
    dut = TlpPort(64)
    sent = [[Packet(rng.randbytes(4 * rng.randrange(3, 40))) for _ in range(10)] for _ in CLASSES]
    got = []
    streams = [getattr(dut, f"i_{name}") for name in CLASSES]

    async def stall(ctx):
        ctx.set(dut.py.rx_stall, 1 << stalled)
        ctx.set(dut.py.rx_gap, 80)
        while len(got) < 20:
            await ctx.tick()
        assert all(g[0] != stalled for g in got)
        await ctx.tick().repeat(50)
        assert len(got) == 20
        ctx.set(dut.py.rx_stall, 0)

    simulate(dut, receive(dut.py, 30, got), stall,
             *(drive_packets(s, p) for s, p in zip(streams, sent, strict=True)),
             background=[check_stream(s, "i") for s in streams])
    assert sorted(g[1] for g in got) == sorted(p.data for c in sent for p in c)


def test_width():
    with pytest.raises(ValueError, match="width must be one of 32, 64, 128, 256, 512, not 48"):
        TlpPort(48)
