"""dxpu.fabric.receive.depacketizer against the golden wire model."""

import itertools
import random
from itertools import pairwise
from collections import Counter

import pytest
from dxpu.fabric.receive.depacketizer import Depacketizer
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.stream import WIDTHS
from dxpu_model import wire_random
from dxpu_model.receiver import HANDLED
from dxpu_model.wire import Event, Frame, Tlps, build
from dxpu_model.wire_vectors import MISTAKES, ONE, THREE, VECTORS
from tests.support.depacketizer_bench import compare, expected, judge, rows, run
from tests.support.testbench import Packet, drive_packets, seed, simulate
from tests.support.widths import some_widths


@pytest.mark.parametrize("densities", [(1, 1), (0.6, 0.6)])
@pytest.mark.parametrize("width", some_widths(64))
def test_valid_frames_act_whole(width, densities):
    rng = random.Random(seed())
    packets = [Packet(build(wire_random.frame(rng, "handled" if n % 6 else "hello", most=12)))
               for n in range(25)]
    want = expected(packets)
    assert want.stats == {"frames": 25}
    out = run(Depacketizer(width, depth=1024), packets, rng=rng, i=densities[0], o=densities[1])
    compare(out, want)


@pytest.mark.parametrize("width", some_widths(64))
def test_verdicts_and_slow_link(width):
    rng = random.Random(seed())
    packets = [Packet(build(wire_random.frame(rng, "any", most=4))) for _ in range(30)]
    verdicts = rows(rng)
    want = expected(packets, verdicts)
    assert want.stats["refused"] and want.stats["unhandled"]
    out = run(Depacketizer(width, depth=512), packets, verdicts=verdicts, rng=rng, i=0.9, o=0.7,
              slow=20, want=want)
    compare(out, want)


@pytest.mark.parametrize("count", [70, pytest.param(1500, marks=pytest.mark.long)])
@pytest.mark.parametrize("width", some_widths(32, 512))
def test_accepts_exactly_what_the_golden_model_accepts(width, count):
    """Random damage, most of it with an HCRC that fits; frames that are taken back; other types."""
    rng = random.Random(seed() + width)
    packets = []
    for _ in range(count):
        data = build(wire_random.frame(rng, rng.choice(["handled", "any"]), most=4, largest=16))
        packets.append(Packet(data if rng.random() < 0.2 else wire_random.mutate(rng, data),
                              discard=rng.random() < 0.05))
    verdicts = rows(rng)
    want = expected(packets, verdicts)
    assert len(want.stats) >= 7
    out = run(Depacketizer(width, depth=512), packets, verdicts=verdicts, rng=rng, i=0.9,
              slow=rng.choice([0, 9]), want=want)
    compare(out, want)


@pytest.mark.parametrize("width", some_widths(32, 64, 128, 512))
def test_openings_of_keyed_sessions(width):
    """With keys HELLO_DONE acts; a HELLO is as long as its security mode says."""
    rng = random.Random(seed() + width)
    kinds = FrameType.HELLO, FrameType.HELLO_ACK, FrameType.HELLO_DONE
    packets = []
    for n in range(60):
        data = build(Frame(wire_random.hello(rng, kinds[n % 3]), dst_node=1, src_node=2))
        packets.append(Packet(data if n < 20 else wire_random.mutate(rng, data)))
    handled = (*HANDLED, FrameType.HELLO_DONE)
    verdicts = rows(rng)
    want = expected(packets, verdicts, handled=handled)
    assert {header["type"] for _, header, *_ in want.committed[:10]} == set(kinds)
    out = run(Depacketizer(width, depth=64, keyed=True), packets, verdicts=verdicts, rng=rng,
              i=0.9, want=want)
    compare(out, want)


@pytest.mark.parametrize("slow", [0, 30])
@pytest.mark.parametrize("width", some_widths(64, 512))
def test_every_mistake_is_dropped_by_its_cause_and_the_next_frame_served(width, slow):
    """Each of the golden model's list of single mistakes, then a good frame; the link answers at
    once, or when the frame has ended."""
    rng = random.Random(seed())
    packets = []
    for data, _ in MISTAKES.values():
        if data:
            packets += [Packet(data), Packet(build(wire_random.frame(rng, "handled", most=2)))]
    packets += [Packet(build(ONE), discard=True), Packet(build(ONE))]
    want = expected(packets)
    causes = Counter(cause.name.lower() for data, cause in MISTAKES.values() if data)
    assert +Counter({k: v for k, v in want.stats.items() if k not in ("frames", "unhandled")}
                    ) == causes
    compare(run(Depacketizer(width, depth=256), packets, want=want, rng=rng, slow=slow), want)


@pytest.mark.parametrize("width", some_widths(64, 512))
def test_a_verdict_on_a_header_that_is_not_sound_counts_for_nothing(width):
    """Nor does one on a frame that is taken back; a frame with a wrong record was judged."""
    good, damaged, wrong = build(ONE), bytearray(build(ONE)), bytearray(build(ONE))
    damaged[20] ^= 1
    wrong[40] ^= 1
    dut, got = Depacketizer(width, depth=256), []

    async def link(ctx):
        ctx.set(dut.committed.ready, 1)
        ctx.set(dut.header.ready, 1)
        ctx.set(dut.verdict.payload, {"accept": 0, "row": 0})
        ctx.set(dut.verdict.valid, 1)
        while len(got) < 5:
            _, _, judged, taken_back = await ctx.tick().sample(dut.judged, dut.taken_back)
            if judged:
                got.append(taken_back)

    simulate(dut, link, background=[drive_packets(dut.i, [
        Packet(good), Packet(bytes(damaged)), Packet(bytes(wrong)), Packet(good, discard=True),
        Packet(good)])])
    assert got == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("width", some_widths(64, of=(32, 64, 512)))
def test_every_bit_of_a_frame_matters(width):
    """One flipped bit at a time: all but those of the MAC addresses drop the frame (sampled)."""
    data = build(THREE)
    step = {32: 13, 64: 11, 512: 7}[width]    # all bits of a byte in turn, not all bytes
    packets = []
    for bit in range(0, len(data) * 8, step):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        packets.append(Packet(bytes(flipped)))
    want = expected(packets)
    assert want.stats["frames"] == len(range(0, 96, step))
    compare(run(Depacketizer(width, depth=256), packets, want=want), want)


@pytest.mark.parametrize("width", WIDTHS)
def test_check_vectors(width):
    packets = [Packet(bytes.fromhex(data)[:-4]) for _, data in VECTORS.values()]
    want = expected(packets)
    assert want.stats == {"frames": 4} and len(want.tlps) == 4
    compare(run(Depacketizer(width, depth=16), packets, want=want), want)


@pytest.mark.parametrize("width", some_widths(512))
def test_smallest_largest_and_truncated_frames(width):
    """A largest TLP; 31 records; each length from one dword up; frames of 16 kB of anything."""
    rng = random.Random(seed())
    prefixes = bytes([0x91, 1, 2, 3]) * 4
    largest = prefixes + bytes([0x60, 0, 0x80, 0]) + rng.randbytes(12 + 4096 + 4)
    smallest = bytes([0, 0, 0, 1]) + rng.randbytes(8)
    shared = build(Frame(Tlps((smallest, smallest + bytes(0), prefixes + smallest) * 3)))
    frames = [build(Frame(Tlps((largest,)))), build(Frame(Tlps((smallest,) * 31))),
              *(shared[:n] for n in range(4, len(shared), 4 if width == 512 else 12)),
              build(ONE) + bytes(2048), build(ONE) + rng.randbytes(2048), rng.randbytes(2048),
              build(Frame(Tlps((smallest,) * 30 + (prefixes,)))) + prefixes * 100, build(ONE)]
    packets = [Packet(data) for data in frames]
    want = expected(packets)
    assert want.stats["frames"] == 3
    compare(run(Depacketizer(width, depth=2048), packets, want=want), want)


@pytest.mark.parametrize("width", some_widths(64, of=(32, 64, 256)))
def test_a_frame_larger_than_the_queue_is_dropped_and_others_wait(width):
    rng = random.Random(seed())
    lanes, depth = width // 32, 16
    packets, overflows = [], 0
    for _ in range(25):
        frame = wire_random.frame(rng, "tlp", most=3, largest=2 * lanes)
        if rng.random() < 0.3:
            tlp = bytes([0x60, 0, 0, lanes]) + rng.randbytes(12 + 4 * lanes)
            frame = Frame(Tlps((tlp,) * rng.randint(5, 30)))
        used = sum(-(-len(tlp) // (4 * lanes)) for tlp in frame.body.tlps)
        if not depth - 2 < used <= depth:       # may or may not fit
            packets.append(Packet(build(frame)))
            overflows += used > depth
    damaged = bytearray(wire_random.packed(rng, 20, lanes))
    damaged[-1] ^= 1                            # too large, and wrong: counted as wrong
    packets += [Packet(bytes(damaged)), Packet(build(ONE))]
    want = expected(packets)
    fits = [p for p in packets if not isinstance(f := judge(p), Frame) or sum(
        -(-len(tlp) // (4 * lanes)) for tlp in f.body.tlps) <= depth]
    want_tlps = expected(fits)
    want.tlps, want.committed = want_tlps.tlps, want_tlps.committed
    want.stats = want_tlps.stats + Counter(overflow=overflows)
    assert overflows and want.stats["padding"] + want.stats["record"] == 1
    compare(run(Depacketizer(width, depth=depth), packets, rng=rng, o=0.3, want=want), want)


@pytest.mark.parametrize("width", WIDTHS)
def test_latency(width):
    """Last beat of a frame in to first beat of its TLP out, as the docstring says."""
    long = Frame(Tlps((bytes([0x40, 0, 0, 64]) + bytes(8 + 256),)))
    # Of a short frame the header is the last to be checked; three TLPs may end in one beat.
    one = {128: 8, 256: 9, 512: 10}.get(width, 8)
    three = {128: 9, 256: 10, 512: 10}.get(width, 8)
    for frame, latency in ((ONE, one), (THREE, three), (long, 9 if width == 512 else 8)):
        packet = Packet(build(frame))
        dut = Depacketizer(width, depth=1024)
        cycles = {}

        async def watch(ctx, dut=dut, cycles=cycles):
            now = 0
            async for *_, i, last, o in ctx.tick().sample(
                    dut.i.valid & dut.i.ready, dut.i.payload.last, dut.o.valid):
                now += 1
                if i and last:
                    cycles["in"] = now
                if o:
                    cycles.setdefault("out", now)
                    break

        async def link(ctx, dut=dut):
            ctx.set(dut.committed.ready, 1)
            while True:
                ctx.set(dut.verdict.payload.accept, 1)
                valid = ctx.get(dut.header.valid)
                ctx.set(dut.verdict.valid, valid)
                ctx.set(dut.header.ready, valid)
                await ctx.tick()

        simulate(dut, watch, drive_packets(dut.i, [packet]), background=[link], deadline=2000)
        assert cycles["out"] - cycles["in"] == latency


@pytest.mark.parametrize("width", some_widths(64, 512))
@pytest.mark.parametrize("frame, cycles", [
    (ONE, {32: 16, 64: 9}), (THREE, {32: 25, 64: 13, 128: 9, 256: 9, 512: 9})],
    ids=["one", "three"])
def test_small_frames_take_few_cycles(width, frame, cycles):
    """With a verdict as late as the link's, a wide core takes a frame of one TLP, or of three, in
    less cycles than AxiMac.SPACING, and one of 64 bits in no more than a line of 8 bytes a cycle
    does: 84 and 120 bytes with preamble, FCS and gap."""
    packets = [Packet(build(frame))] * 20
    dut, begins = Depacketizer(width, depth=1024), []

    async def watch(ctx):
        for now in itertools.count():
            *_, moves, first = await ctx.tick().sample(
                dut.i.valid & dut.i.ready, dut.i.payload.first)
            if moves and first:
                begins.append(now)
            if len(begins) == len(packets):
                return

    async def link(ctx):
        ctx.set(dut.committed.ready, 1)
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.header.ready, 1)
        ctx.set(dut.verdict.payload.accept, 1)
        while True:
            await ctx.tick().until(dut.header.valid)
            await ctx.tick().repeat(2)
            ctx.set(dut.verdict.valid, 1)
            await ctx.tick().until(dut.verdict.ready)
            ctx.set(dut.verdict.valid, 0)

    simulate(dut, watch, background=[link, drive_packets(dut.i, packets)], deadline=4000)
    apart = [b - a for a, b in pairwise(begins[4:])]
    assert max(apart) == cycles.get(width, 8)


@pytest.mark.parametrize("width", some_widths(64, 512))
def test_throughput_of_long_records(width):
    """Frames with one long TLP each: a beat per cycle but for what a frame costs."""
    rng = random.Random(seed())
    data = wire_random.packed(rng, 1, 256)
    packets = [Packet(data)] * 6
    out = run(Depacketizer(width, depth=1024), packets)
    beats = 6 * -(-len(data) // (width // 8))
    print(width, beats, out.cycles)
    last = -(-260 * 32 // width) + 11           # from the last beat in to the last one out
    assert out.cycles - 30 - last <= beats + 6 * 3


def test_no_tlp_overtakes_an_event():
    """An event waits for older TLPs, and younger TLPs wait for the event."""
    rng = random.Random(seed())
    frames = [Frame(Event(n, n)) if n % 3 == 2 else wire_random.frame(rng, "tlp", most=3)
              for n in range(24)]
    dut = Depacketizer(64, depth=512)
    order = []

    async def watch(ctx):
        async for *_, event, tlp in ctx.tick().sample(
                dut.event.valid & dut.event.ready,
                dut.o.valid & dut.o.ready & dut.o.payload.last):
            assert not (event and tlp)
            if event or tlp:
                order.append("E" if event else "T")
            if len(order) == len(wanted):
                break

    async def link(ctx):
        ctx.set(dut.verdict.payload.accept, 1)
        for name in ("verdict.valid", "header.ready", "committed.ready"):
            port, member = name.split(".")
            ctx.set(getattr(getattr(dut, port), member), 1)
        while True:
            ctx.set(dut.event.ready, rng.random() < 0.05)
            ctx.set(dut.o.ready, rng.random() < 0.2)
            await ctx.tick()

    wanted = "".join("E" if isinstance(f.body, Event) else "T" * len(f.body.tlps) for f in frames)
    simulate(dut, drive_packets(dut.i, [Packet(build(f)) for f in frames]), watch,
             background=[link])
    assert "".join(order) == wanted


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="width must be one of 32, 64, 128, 256, 512, not 48"):
        Depacketizer(48, depth=16)
    with pytest.raises(ValueError, match="depth must be a power of two of at least 4, not 12"):
        Depacketizer(64, depth=12)
    with pytest.raises(TypeError, match="split must be a bool, not 1"):
        Depacketizer(64, split=1, depth=16)
    with pytest.raises(ValueError, match="assemblies must be a positive integer, not 0"):
        Depacketizer(64, depth=16, assemblies=0)


@pytest.mark.parametrize("width", some_widths(64, 512))
def test_words_of_sacks(width):
    """A SACK tells on the way how long it is; a frame behind it is not touched."""
    rng = random.Random(seed())
    packets = []
    while len(packets) < 20:
        frame = wire_random.frame(rng, "any", most=3)
        if frame.type == FrameType.SACK or frame.type == FrameType.TLP and len(packets) % 2:
            packets.append(Packet(build(frame)))
    want = expected(packets)
    assert {len(words) for words in want.words} == {0, 1} and want.stats["length"]
    out = run(Depacketizer(width, depth=512, selective=True), packets, rng=rng, i=0.9)
    compare(out, want)
    assert out.words == want.words
