"""dxpu.queue, dxpu.info_queue, dxpu.arbiter and dxpu.priority."""

import random

import pytest
from amaranth import *
from amaranth.sim import Simulator

from dxpu.arbiter import PacketArbiter
from dxpu.info_queue import InfoQueue
from dxpu.priority import first_one, one_hot_mux, round_robin
from dxpu.queue import PacketQueue, Queue
from dxpu.stream import ForwardRegister, Register
from tests.support.testbench import (
    Packet, check_stream, collect_packets, collect_words, count_pulses, drive_packets, drive_words,
    seed, simulate,
)


def packets(rng, count, largest=12, discard=0.0):
    return [Packet(rng.randbytes(4 * rng.randint(1, largest)), rng.randrange(256),
                   rng.random() < discard) for _ in range(count)]


@pytest.mark.parametrize("depth, direct", [(1, False), (2, True), (3, False), (17, False),
                                           (17, True)])
def test_queue(depth, direct):
    rng = random.Random(seed())
    dut = Queue(8, depth=depth, direct=direct)
    words, got = [rng.randrange(256) for _ in range(200)], []
    simulate(dut, drive_words(dut.i, words, rng=rng, density=0.7),
             collect_words(dut.o, len(words), got, rng=rng, density=0.7),
             background=[check_stream(dut.o)])
    assert got == words


@pytest.mark.parametrize("depth", [0, -1, "4"])
def test_queue_depth_is_checked(depth):
    with pytest.raises(ValueError, match="depth must be a positive integer, not"):
        Queue(8, depth=depth)


@pytest.mark.parametrize("width", [32, 64, 512])
@pytest.mark.parametrize("densities", [(1, 1), (0.5, 1), (1, 0.5), (0.6, 0.6)])
def test_packets_leave_whole_and_in_order(width, densities):
    rng = random.Random(seed())
    dut = PacketQueue(width, depth=16, meta=8)
    sent, got, stat = packets(rng, 120, discard=0.3), [], {}
    good = [p for p in sent if not p.discard]
    simulate(dut, drive_packets(dut.i, sent, rng=rng, density=densities[0]),
             collect_packets(dut.o, len(good), got, rng=rng, density=densities[1]),
             background=[check_stream(dut.o), count_pulses(dut, stat)])
    assert got == good
    # A packet that ends with discard in the run's last cycles may still be on its way.
    assert stat["discarded"] in (len(sent) - len(good), len(sent) - len(good) - 1)


@pytest.mark.parametrize("overflow", ["wait", "drop"])
def test_a_packet_larger_than_the_queue_is_dropped(overflow):
    rng = random.Random(seed())
    dut = PacketQueue(32, depth=8, meta=8, overflow=overflow)
    small, exact = Packet(rng.randbytes(12), 1), Packet(rng.randbytes(32), 2)
    sent = [Packet(rng.randbytes(36), 3), small, Packet(rng.randbytes(400), 4), exact, small]
    got, stat = [], {}
    simulate(dut, drive_packets(dut.i, sent, rng=rng, density=0.3),
             collect_packets(dut.o, 3, got),
             background=[count_pulses(dut, stat)])
    assert got == [small, exact, small]
    assert stat["overflow"] == 2


@pytest.mark.parametrize("width", [32, 128])
def test_a_packet_larger_than_the_queue_is_cut(width):
    """With ``overflow="cut"`` its first beats leave, however many they are; nothing of it if it
    ends with ``discard``."""
    rng = random.Random(seed())
    dut = PacketQueue(width, depth=8, meta=8, overflow="cut")
    size = width // 8
    small, exact = Packet(rng.randbytes(12), 1), Packet(rng.randbytes(8 * size), 2)
    large = [Packet(rng.randbytes(n), 3) for n in (8 * size + 4, 9 * size, 30 * size)]
    bad = Packet(rng.randbytes(12 * size), 4, discard=True)
    sent = [large[0], small, large[1], exact, bad, small, small, large[2], bad, exact]
    cut = {n: Packet(p.data[:8 * size], p.meta) for n, p in enumerate(sent) if p in large}
    got, stat = [], {}
    simulate(dut, drive_packets(dut.i, sent, rng=rng, density=0.7),
             collect_packets(dut.o, 8, got, rng=rng, density=0.6),
             background=[check_stream(dut.o), count_pulses(dut, stat)])
    assert got == [cut.get(n, p) for n, p in enumerate(sent) if p is not bad]
    assert stat == {"overflow": 3, "discarded": 2}


@pytest.mark.parametrize("overflow", ["wait", "drop"])
@pytest.mark.parametrize("beats, discard", [(15, 0), (16, 0), (16, 1), (15, 1), (17, 0), (18, 0)])
@pytest.mark.parametrize("gap", [0, 1, 2])
def test_what_follows_a_packet_that_fills_the_queue(overflow, beats, discard, gap):
    """The next one fits once that has left, or was removed: no earlier, and it is not lost."""
    dut = PacketQueue(32, depth=16, overflow=overflow)
    large, small = Packet(bytes(4 * beats), discard=discard), Packet(b"next")
    got, stat = [], {}

    async def feed(ctx):
        # What is stored whole leaves first: a queue that drops has no room before.
        pause = gap + 25 * (not discard and beats <= 16 and overflow == "drop")
        if pause:
            await drive_packets(dut.i, [large])(ctx)
            await ctx.tick().repeat(pause)
        await drive_packets(dut.i, [large] * (not pause) + [small, small])(ctx)
        await ctx.tick().repeat(60)

    simulate(dut, feed, background=[collect_packets(dut.o, 10, got), check_stream(dut.o),
                                    count_pulses(dut, stat)])
    whole = [large] * (beats <= 16 and not discard)
    assert [p.data for p in got] == [p.data for p in (*whole, small, small)]
    assert stat.get("overflow", 0) == (beats > 16)


def test_drop_mode_never_holds_the_source_back():
    rng = random.Random(seed())
    dut = PacketQueue(64, depth=16, meta=8, overflow="drop")
    sent, got, stat = packets(rng, 100), [], {}

    async def drive(ctx):
        await drive_packets(dut.i, sent)(ctx)
        await ctx.tick().repeat(200)

    simulate(dut, drive, background=[
        collect_packets(dut.o, 10**6, got, rng=rng, density=0.3), check_stream(dut.o),
        count_pulses(dut, stat)])
    assert len(got) + stat["overflow"] == len(sent)
    assert stat["overflow"] > 10
    kept = iter(sent)
    assert all(any(p == q for q in kept) for p in got)


def test_latency_and_rate():
    dut = PacketQueue(64, depth=64)
    sent, got = [Packet(bytes(64)) for _ in range(20)], []
    simulate(dut, drive_packets(dut.i, sent), collect_packets(dut.o, 20, got))
    assert got[-1].last_cycle - got[0].first_cycle == 20 * 8 - 1


@pytest.mark.parametrize("beats, latency", [(1, 2), (2, 1), (5, 1)])
def test_latency_of_a_lone_packet(beats, latency):
    """From its last beat in to its first beat out."""
    dut = PacketQueue(64, depth=16)
    sent, got, ends = Packet(bytes(8 * beats)), [], []

    async def watch(ctx):
        async for *_, last, first in ctx.tick().sample(
                dut.i.valid & dut.i.ready & dut.i.p.last, dut.o.valid):
            ends.append((last, first))

    simulate(dut, drive_packets(dut.i, [sent]), collect_packets(dut.o, 1, got), background=[watch])
    firsts = [n for n, (_, first) in enumerate(ends) if first]
    assert firsts[0] - [n for n, (last, _) in enumerate(ends) if last][0] == latency


@pytest.mark.parametrize("depth", [0, 1, 3, 12])
def test_packet_queue_depth_is_checked(depth):
    with pytest.raises(ValueError, match="depth must be a power of two of at least 2, not"):
        PacketQueue(64, depth=depth)


@pytest.mark.parametrize("width", [32, 64, 512])
@pytest.mark.parametrize("densities", [(1, 1, 1), (0.5, 1, 1), (1, 0.3, 1), (1, 1, 0.1)])
def test_information_of_packets_has_its_own_pace(width, densities):
    """None of packets that are discarded or too large; of the others in order, each once."""
    rng = random.Random(seed())
    dut = InfoQueue(width, depth=16, info=8, packets=4)
    sent, got, infos, stat = packets(rng, 200, largest=12, discard=0.3), [], [], {}
    sent.insert(50, Packet(bytes(20 * width // 8), 1))
    good = [p for p in sent if not p.discard and len(p.data) <= 2 * width]

    async def feed(ctx):
        for packet in sent:
            ctx.set(dut.i_info, packet.meta)
            await drive_packets(dut.i, [packet], rng=rng, density=densities[0])(ctx)

    simulate(dut, feed, collect_packets(dut.beats, len(good), got, rng=rng, density=densities[1]),
             collect_words(dut.info, len(good), infos, rng=rng, density=densities[2]),
             background=[check_stream(dut.beats), check_stream(dut.info), count_pulses(dut, stat)])
    assert [p.data for p in got] == [p.data for p in good]
    assert infos == [p.meta for p in good]
    assert stat["overflow"] == 1


def test_the_end_of_a_packet_waits_for_room_for_its_information():
    dut = InfoQueue(64, depth=64, info=8, packets=3)
    got = []

    async def process(ctx):
        await drive_packets(dut.i, [Packet(bytes(8))] * 3)(ctx)
        ctx.set(dut.i.payload, {"dwords": 2, "first": 1, "last": 0})
        ctx.set(dut.i.valid, 1)
        assert ctx.get(dut.i.ready)
        await ctx.tick()
        ctx.set(dut.i.payload, {"dwords": 2, "first": 0, "last": 1})
        await ctx.tick().repeat(5)
        assert not ctx.get(dut.i.ready)
        await collect_words(dut.info, 1, got)(ctx)
        assert ctx.get(dut.i.ready)

    simulate(dut, process)


@pytest.mark.parametrize("packets", [0, "4"])
def test_info_queue_packets_are_checked(packets):
    with pytest.raises(ValueError, match="packets must be a positive integer, not"):
        InfoQueue(64, depth=4, info=8, packets=packets)


@pytest.mark.parametrize("count, register", [
    (1, Register), (2, Register), (3, Register), (9, Register), (3, ForwardRegister)])
def test_arbiter_keeps_packets_whole_and_is_fair(count, register):
    rng = random.Random(seed())
    dut = PacketArbiter(64, count=count, meta=8, register=register)
    sent = [[Packet(p.data, n) for p in packets(rng, 30)] for n in range(count)]
    got = []
    simulate(dut, *(drive_packets(s, p, rng=rng, density=0.8) for s, p in zip(dut.i, sent,
                                                                            strict=True)),
             collect_packets(dut.o, 30 * count, got, rng=rng, density=0.8),
             background=[check_stream(dut.o)])
    for n in range(count):
        assert [p for p in got if p.meta == n] == sent[n]


@pytest.mark.parametrize("register", [Register, ForwardRegister])
def test_arbiter_takes_turns_without_a_gap(register):
    dut = PacketArbiter(32, count=4, meta=8, register=register)
    sent = [[Packet(bytes(8), n)] * 10 for n in range(4)]
    got = []
    simulate(dut, *(drive_packets(s, p) for s, p in zip(dut.i, sent, strict=True)),
             collect_packets(dut.o, 40, got))
    assert got[-1].last_cycle - got[0].first_cycle == 79
    order = [p.meta for p in got]
    assert all(len(set(order[k:k + 4])) == 4 for k in range(0, 40, 4))


@pytest.mark.parametrize("home", [None, 1])
def test_arbiter_serves_its_home_at_once(home):
    """The first beat is out a cycle after it came, or two cycles if it was not its input's turn."""
    rng = random.Random(seed())
    dut = PacketArbiter(32, count=3, home=home)

    async def process(ctx):
        ctx.set(dut.o.ready, 1)
        turn = home or 0
        for _ in range(40):
            source = rng.randrange(3)
            ctx.set(dut.i[source].payload, dict(data=0, dwords=1, first=1, last=1))
            ctx.set(dut.i[source].valid, 1)
            waited = 0
            while not ctx.get(dut.i[source].ready):
                await ctx.tick()
                waited += 1
            assert waited == (source != turn)
            await ctx.tick()
            ctx.set(dut.i[source].valid, 0)
            assert ctx.get(dut.o.valid) and ctx.get(dut.source) == source
            turn = source if home is None else home
            await ctx.tick().repeat(rng.randint(1, 3))

    simulate(dut, process)
    with pytest.raises(ValueError, match="home must be an input, 0 to 2, not 3"):
        PacketArbiter(32, count=3, home=3)


@pytest.mark.parametrize("size", [1, 2, 5, 33])
def test_priority(size):
    rng = random.Random(seed())
    request, last = Signal(size), Signal(range(size))
    values = [Const(n + 1, 8) for n in range(size)]
    out = {"first": first_one(request), "rr": round_robin(request, last),
           "mux": one_hot_mux(request, values)}

    async def process(ctx):
        for _ in range(300):
            r, k = rng.getrandbits(size) & rng.getrandbits(size), rng.randrange(size)
            ctx.set(request, r)
            ctx.set(last, k)
            bits = [n for n in range(size) if r >> n & 1]
            assert ctx.get(out["first"]) == (bits[0] if bits else 0)
            later = [n for n in bits if n > k]
            assert ctx.get(out["rr"]) == (later or bits or [0])[0]
            if len(bits) == 1:
                assert ctx.get(out["mux"]) == bits[0] + 1

    sim = Simulator(Module())
    sim.add_testbench(process)
    sim.run()
