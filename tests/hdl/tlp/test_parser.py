"""dxpu.tlp.parser against the golden model: every field, every cause, any packet, full rate."""

import random

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from dxpu.stream import WIDTHS
from dxpu.tlp.parser import Parser
from dxpu.tlp.types import Malformed
from dxpu_model import tlp as golden
from tests.model.test_tlp import RULES
from tests.support.testbench import (
    Packet, check_stream, collect_packets, drive_packets, seed, simulate,
)

def properties(examples):
    """Hypothesis with the seed of this run; no deadline, since every example builds the block."""
    def decorate(test):
        chosen = settings(max_examples=examples, deadline=None, database=None,
                          suppress_health_check=list(HealthCheck),
                          phases=[Phase.explicit, Phase.generate, Phase.shrink])
        return hypothesis.seed(seed())(chosen(test))
    return decorate


# Fmt/Type that the table of 2.2.1 does not have: everything else, by enumeration.
RESERVED = [(fmt, type) for fmt in range(8) for type in range(32)
            if fmt != 4 and not golden.defined(fmt, type)]


def watch(dut, pulses):
    """Background process that records the cause of each malformed TLP."""
    async def process(ctx):
        async for *_, pulse, cause, header in ctx.tick().sample(
                dut.stat_malformed, dut.malformed_cause, dut.malformed_header):
            if pulse:
                pulses.append(cause)
                pulses.headers.append(b"".join(w.to_bytes(4, "little") for w in header))
    return process


def limited(dut, limits):
    """Background process that sets Max_Payload_Size of each TLP only with its first beat."""
    async def process(ctx):
        for limit in limits:
            ctx.set(dut.max_payload, limit)
            await ctx.tick().until(dut.i.valid & dut.i.ready & dut.i.payload.first)
    return process


def run(width, packets, *, rng=None, densities=(1, 1), dut=None, limits=(), background=()):
    """Put ``packets`` through a parser; return what leaves it and the causes it reported.

    ``limits``: the codes of Max_Payload_Size for them, if there are any.
    """
    dut = dut or Parser(width)
    causes = Causes()
    everything = Both()
    # Room for every beat, every gap, and nothing else: a hang is an error.
    deadline = 200 + 20 * sum(len(p.data) // 4 for p in packets)

    async def settle(ctx):
        while len(everything.seen) < len(packets):
            await ctx.tick()
        await ctx.tick().repeat(8)

    collector = collect_packets(dut.o, len(packets) + 1, everything, rng=rng,
                                density=densities[1], discarded=everything.discarded)
    simulate(dut, drive_packets(dut.i, packets, rng=rng, density=densities[0]), settle,
             background=[check_stream(dut.i, "i"), check_stream(dut.o, "o"),
                         collector, watch(dut, causes), limited(dut, limits), *background],
             deadline=deadline)
    return everything.seen, causes


class Causes(list):
    """Causes of malformed TLPs, and ``headers`` as they were reported."""

    def __init__(self):
        super().__init__()
        self.headers = []


class Both(list):
    """Collects packets, discarded or not, in the order in which they come."""

    def __init__(self):
        super().__init__()
        self.seen = []
        self.discarded = self

    def append(self, packet):
        self.seen.append(packet)


def compare(packets, out, causes, limits=None, *, completer=False):
    """Every packet came through unchanged, in order, and was classified as the model does."""
    assert [p.data for p in out] == [p.data for p in packets]
    expected = []
    for sent, got, limit in zip(packets, out, limits or [5] * len(packets), strict=True):
        cause = golden.malformed(sent.data, 128 << limit, completer=completer)
        assert got.discard == (sent.discard or cause is not Malformed.NONE), cause
        if cause is not Malformed.NONE and not sent.discard:
            expected.append(cause)
            # The first three dwords behind the prefixes, where they are all there.
            if cause not in (Malformed.TRUNCATED, Malformed.PREFIX, Malformed.FORMAT):
                at = 4 * golden.classify(sent.data).prefix_dwords
                assert causes.headers[len(expected) - 1][:12] == sent.data[at:at + 12]
        if cause not in (Malformed.TRUNCATED, Malformed.PREFIX, Malformed.FORMAT):
            compare_info(sent.data, got.meta)
    assert causes == expected


def compare_info(data, meta):
    for name, value in vars(golden.classify(data)).items():
        if value is not None:
            assert getattr(meta, name) == value, (name, data.hex())


def mutate(rng, raw):
    """Make a TLP hostile: bits of the first dwords changed, cut short, or made longer."""
    raw = bytearray(raw)
    for _ in range(rng.randint(0, 3)):
        raw[rng.randrange(min(len(raw), 12))] ^= 1 << rng.randrange(8)
    match rng.randrange(4):
        case 0:
            raw = raw[:4 * rng.randint(1, len(raw) // 4)]
        case 1:
            raw += bytes(4 * rng.randint(1, 20))
        case 2:
            raw[0] = rng.randrange(256)
    return bytes(raw)


@st.composite
def tlps(draw, hostile):
    rng = draw(st.randoms(use_true_random=False))
    raw = golden.random_tlp(rng, max_payload=rng.choice([1, 4, 40])).pack()
    return mutate(rng, raw) if hostile and rng.randrange(4) else raw


@pytest.mark.parametrize("width", WIDTHS)
@properties(6)
@given(data=st.lists(tlps(hostile=False), min_size=1, max_size=16), gaps=st.integers(0, 999))
def test_well_formed(width, data, gaps):
    assert all(golden.malformed(raw) is Malformed.NONE for raw in data)
    packets = [Packet(raw) for raw in data]
    out, causes = run(width, packets, rng=random.Random(gaps), densities=(0.8, 0.8))
    compare(packets, out, causes)
    assert not any(p.discard for p in out)


@pytest.mark.parametrize("width", WIDTHS)
@properties(6)
@given(data=st.lists(tlps(hostile=True), min_size=1, max_size=16), gaps=st.integers(0, 999))
def test_hostile(width, data, gaps):
    packets = [Packet(raw, discard=gaps % 7 == n % 7) for n, raw in enumerate(data)]
    rng = random.Random(gaps)
    limits = [rng.choice([0, 0, 0, 1, 2, 5]) for _ in packets]
    out, causes = run(width, packets, rng=rng, densities=(0.8, 0.8), limits=limits)
    compare(packets, out, causes, limits)


@pytest.mark.parametrize("width", [
    64, 512, *(pytest.param(width, marks=pytest.mark.long) for width in (32, 128, 256))])
def test_max_payload_size(width):
    """Data of as much as each size allows, and of a dword more; requests for more are no data."""
    packets, limits = [], []
    for limit in range(8):
        most = min(1024, 32 << limit)
        for kind in ("MWr32", "MWr64", "CplD", "MsgD"):
            for length in {most, min(most + 1, 1024)}:
                packets.append(Packet(golden.Tlp(
                    *golden.KINDS[kind], length=length % 1024, first_be=15, last_be=15,
                    message_code=0x7F, payload=bytes(4 * length)).pack()))
                limits.append(limit)
        packets.append(Packet(golden.Tlp(0, 0, length=0, first_be=15, last_be=15).pack()))
        limits.append(limit)
    out, causes = run(width, packets, limits=limits)
    compare(packets, out, causes, limits)
    assert causes == [Malformed.PAYLOAD] * 4 * 5


def hostile_batch(rng, count):
    return [Packet(mutate(rng, golden.random_tlp(rng, max_payload=24).pack()))
            for _ in range(count)]


@pytest.mark.parametrize("width", [32, 64, 512])
@pytest.mark.parametrize("densities", [(0.4, 1), (1, 0.4)])
def test_hostile_batch(width, densities):
    rng = random.Random(seed())
    packets = hostile_batch(rng, 60)
    out, causes = run(width, packets, rng=rng, densities=densities)
    compare(packets, out, causes)
    assert len(causes) > 10


def test_the_batches_reach_every_cause():
    rng = random.Random(1)
    packets = hostile_batch(rng, 4000)
    for completer in (False, True):
        found = {golden.malformed(p.data, 64, completer=completer) for p in packets}
        assert found == set(Malformed)


@pytest.mark.long
@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_campaign(width):
    rng = random.Random(seed())
    packets = hostile_batch(rng, 8000)
    limits = [rng.choice([0, 1, 5]) for _ in packets]
    out, causes = run(width, packets, rng=rng, densities=(0.9, 0.9), limits=limits)
    compare(packets, out, causes, limits)


@pytest.mark.parametrize("width", [32, 64, 512])
def test_every_fmt_and_type(width):
    """All 256 first bytes, each followed by enough for any of them; prefixes lead a header."""
    rng = random.Random(seed())
    packets = []
    for first in range(256):
        raw = bytes([first, 0, 0, 1]) + rng.randbytes(3) + b"\x0f" + bytes(8)
        fmt = first >> 5
        size = 4 if fmt & 1 else 3
        if fmt == 4:
            raw = raw[:4] + golden.Tlp(0, 0, length=1, first_be=15).pack()
        else:
            raw = raw[:4 * size] + (bytes(4) if fmt & 2 else b"")
        packets.append(Packet(raw))
    out, causes = run(width, packets)
    compare(packets, out, causes)
    assert sum(c == Malformed.FORMAT for c in causes) == len(RESERVED)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_number_of_prefixes_and_every_end(width):
    """0 to 8 prefixes of both sorts, in every mixture that matters, cut at every dword."""
    body = golden.Tlp(3, 0, length=2, first_be=15, last_be=15, address=0x1_2345_6780,
                      payload=bytes(range(8)), digest=b"ecrc").pack()
    packets = []
    for count in range(9):
        for locals_at in [(), (0,), (1,), (0, 1), (count - 1,)]:
            lead = b"".join(bytes([0x80 if n in locals_at else 0x91, 1, 2, n])
                            for n in range(count))
            packets.append(Packet(lead + body))
    whole = packets[10].data + body
    assert golden.classify(whole).prefix_dwords == 2
    packets += [Packet(whole[:n]) for n in range(4, len(whole) + 1, 4)]
    out, causes = run(width, packets)
    compare(packets, out, causes)
    assert {Malformed.PREFIX, Malformed.TRUNCATED, Malformed.LENGTH} <= set(causes)


@pytest.mark.parametrize("width", [64, 256])
def test_length_zero_is_1024_dwords(width):
    """A write of 4 KiB with all prefixes and digest is the largest TLP; a read of 4 KiB is not."""
    prefixes = (b"\x91def",) * 4
    write = golden.Tlp(3, 0, length=1024, first_be=15, last_be=15, address=0x1_0000_0000,
                       payload=random.Random(1).randbytes(4096), digest=b"ecrc",
                       prefixes=prefixes)
    read = golden.Tlp(0, 0, length=1024, first_be=15, last_be=15, address=0x1000)
    completion = golden.Tlp(2, 10, length=1024, byte_count=4096, payload=bytes(4096))
    packets = [Packet(x.pack()) for x in (write, read, completion)]
    packets.append(Packet(packets[0].data[:-4]))
    out, causes = run(width, packets)
    compare(packets, out, causes)
    assert [p.meta.dwords for p in out] == [1033, 3, 1027, 1033]
    assert [p.meta.payload_dwords for p in out[:3]] == [1024, 0, 1024]
    assert out[2].meta.byte_count == 0
    assert causes == [Malformed.LENGTH]


def test_requests_end_at_a_4_kib_boundary_at_the_latest():
    """Every pair of start and length about the boundary, the largest and the smallest included."""
    lengths = (1, 2, 3, 511, 512, 513, 1023, 1024)
    pairs = sorted({(start, length) for length in lengths
                    for start in (0, 1, 511, 512, 1023, *range(1023 - length, 1026 - length))
                    if 0 <= start < 1024})
    packets = [Packet(golden.Tlp(fmt, 0, length=length, first_be=15, last_be=15 * (length > 1),
                                 address=page | start << 2).pack())
               for fmt, page in ((0, 0xFFFF_F000), (1, 0xFFFF_FFFF_FFFF_F000))
               for start, length in pairs]
    out, causes = run(64, packets)
    compare(packets, out, causes)
    crossing = [start + length > 1024 for start, length in pairs]
    assert [p.discard for p in out] == crossing * 2
    assert causes == [Malformed.BOUNDARY] * 2 * sum(crossing)


def test_overlong_by_the_counter_period_is_still_malformed():
    """A packet longer than its header says by exactly 2**12 dwords must not pass."""
    raw = golden.Tlp(0, 0, length=1, first_be=15).pack()
    packets = [Packet(raw + bytes(4 * 4096)), Packet(raw)]
    out, causes = run(512, packets)
    compare(packets, out, causes)
    assert causes == [Malformed.LENGTH]


@pytest.mark.parametrize("width", WIDTHS)
def test_one_beat_per_cycle(width):
    """Back to back, shortest packets first: the input is never held back, and the output is late
    by no more than the longest header and four cycles.
    """
    rng = random.Random(seed())
    short = [golden.random_tlp(rng, kinds=("MRd32", "MRd64", "Cpl", "CfgRd0", "Msg")).pack()
             for _ in range(60)]
    mixed = [golden.random_tlp(rng, max_payload=40).pack() for _ in range(40)]
    packets = [Packet(raw) for raw in short + mixed]
    beats = sum(-(-len(p.data) // (width // 8)) for p in packets)
    dut = Parser(width)
    out, taken, given = [], [], []

    async def clock(ctx):
        for now in range(beats + 20):
            *_, i, o = await ctx.tick().sample(dut.i.valid & dut.i.ready, dut.o.valid)
            if i:
                taken.append(now)
            if o:
                given.append(now)

    simulate(dut, drive_packets(dut.i, packets), collect_packets(dut.o, len(packets), out), clock)
    compare(packets, out, [])
    assert len(taken) == len(given) == beats
    assert taken[-1] - taken[0] == beats - 1
    assert given[-1] - taken[-1] <= 4 + 8 * 32 // width


@pytest.mark.parametrize("width", WIDTHS)
def test_latency(width):
    """Four cycles from the beat that completes the header."""
    packet = Packet(golden.Tlp(1, 0, length=1, first_be=15).pack())
    dut = Parser(width)
    got, cycles = [], []

    async def process(ctx):
        taken = None
        for now in range(40):
            *_, i, o = await ctx.tick().sample(dut.i.valid & dut.i.ready & dut.i.payload.last,
                                               dut.o.valid & dut.o.payload.first)
            if i:
                taken = now
            if o and not cycles:
                cycles.append(now - taken)

    simulate(dut, drive_packets(dut.i, [packet]), process,
             background=[collect_packets(dut.o, 1, got)])
    assert cycles == [4]


@pytest.mark.parametrize("width", WIDTHS)
def test_rules_one_by_one(width):
    """Packets written by hand from the rules, each twice."""
    packets = [Packet(bytes.fromhex(raw)) for raw, _ in RULES for _ in range(2)]
    out, causes = run(width, packets)
    compare(packets, out, causes)
    assert causes == [cause for _, cause in RULES for _ in range(2) if cause]


def test_arguments():
    with pytest.raises(ValueError, match="width must be one of 32, 64, 128, 256, 512, not 48"):
        Parser(48)
