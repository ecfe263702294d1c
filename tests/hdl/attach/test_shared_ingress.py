"""dxpu.attach.shared_ingress: what slots send is kept whole and in order, and no slot blocks
another."""

import itertools
import random

import pytest

from dxpu.attach import SharedIngress
from tests.support.formal import prove
from tests.support.testbench import (
    Packet, check_stream, collect_packets, drive_packets, seed, simulate,
)

DEPTH = 8


def random_packets(rng, width, count):
    """Also of one beat, of as many as fit, and larger ones; some end with ``discard``."""
    size = width // 8
    return [Packet(rng.randbytes(rng.choice([
        4, 12, size, 2 * size, DEPTH * size, 4 * rng.randint(1, DEPTH * size // 4),
        (DEPTH + rng.randint(1, 5)) * size])), 0, rng.random() < 0.2) for _ in range(count)]


def what_leaves(packets, width):
    return [p.data[:DEPTH * width // 8] for p in packets if not p.discard]


def collector(dut, into, *, rng=None, density=1.0):
    """Data of the packets of each slot."""
    async def process(ctx):
        got = []
        async for *_, taken, source, beat in ctx.tick().sample(
                dut.o.valid & dut.o.ready, dut.source, dut.o.p):
            ctx.set(dut.o.ready, rng is None or rng.random() < density)
            if not taken:
                continue
            assert beat.first == (not got) and not beat.discard
            got.append((source, beat.data.to_bytes(len(dut.o.p.data) // 8, "little")[
                :4 * beat.dwords]))
            if beat.last:
                assert {n for n, _ in got} == {source}
                into[source].append(b"".join(data for _, data in got))
                got.clear()
    return process


@pytest.mark.parametrize("slots, width, turn, densities", [
    (1, 64, 1, (1, 1)), (3, 32, 1, (0.4, 1)), (3, 32, 20, (1, 0.5)), (8, 64, 1, (1, 1)),
    (8, 64, 20, (1, 1)), (8, 64, 9, (0.2, 0.9)), (4, 512, 2, (1, 0.5))])
def test_tlps_of_all_slots_leave_whole_and_in_order(slots, width, turn, densities):
    rng = random.Random(seed())
    dut = SharedIngress(width, slots=slots, depth=DEPTH, turn=turn)
    sent = [random_packets(rng, width, 100 // slots) for _ in range(slots)]
    got, counted = [[] for _ in range(slots)], {"stat_discarded": [0] * slots,
                                               "stat_overflow": [0] * slots}

    async def start(ctx):
        while True:
            ctx.set(dut.can_start, rng.getrandbits(slots) | rng.getrandbits(slots))
            await ctx.tick().repeat(rng.randint(1, 20))

    async def count(ctx):
        async for *_, discarded, overflow in ctx.tick().sample(
                dut.stat_discarded, dut.stat_overflow):
            for n in range(slots):
                counted["stat_discarded"][n] += discarded >> n & 1
                counted["stat_overflow"][n] += overflow >> n & 1

    async def end(ctx):
        while any(len(some) < len(what_leaves(packets, width))
                  for some, packets in zip(got, sent, strict=True)):
            await ctx.tick()
        await ctx.tick().repeat(200)
        assert ctx.get(dut.empty) == (1 << slots) - 1

    simulate(dut, end, *(drive_packets(dut.i[n], packets, rng=rng, density=densities[0])
                         for n, packets in enumerate(sent)),
             background=[collector(dut, got, rng=rng, density=densities[1]), start, count,
                         check_stream(dut.o)])
    assert got == [what_leaves(packets, width) for packets in sent]
    large = [[len(p.data) > DEPTH * width // 8 and not p.discard for p in packets]
             for packets in sent]
    assert counted == {"stat_discarded": [sum(p.discard for p in packets) for packets in sent],
                       "stat_overflow": [sum(some) for some in large]}


@pytest.mark.parametrize("beats", [1, 2, 5])
@pytest.mark.parametrize("slot, cycles", [(0, 2), (2, 2)])
def test_latency_of_a_lone_tlp(beats, slot, cycles):
    """From its last beat in to its first beat out; its first beat waits if the slot is another."""
    dut, events = SharedIngress(64, slots=4, depth=DEPTH), []

    async def watch(ctx):
        port = dut.i[slot]
        async for *_, taken, last, out in ctx.tick().sample(
                port.valid & port.ready, port.p.last, dut.o.valid):
            events.append((taken, taken and last, out))

    async def drive(ctx):
        ctx.set(dut.can_start, 15)
        await ctx.tick().repeat(10)
        await drive_packets(dut.i[slot], [Packet(bytes(8 * beats))])(ctx)

    simulate(dut, drive, collect_packets(dut.o, 1, []), background=[watch])
    first_taken, last, out = ([bool(e[k]) for e in events].index(True) for k in range(3))
    assert out - last == cycles
    assert last - first_taken == beats - 1


@pytest.mark.parametrize("slots, turn", [(1, 1), (2, 1), (2, 10), (8, 1), (8, 10)])
def test_a_beat_leaves_in_each_cycle(slots, turn):
    """As long as there are whole TLPs: some have gathered when the first may leave."""
    dut, ends = SharedIngress(64, slots=slots, depth=32, turn=turn), []

    async def watch(ctx):
        await ctx.tick().repeat(70)
        async for *_, moves in ctx.tick().sample(dut.o.valid & dut.o.ready):
            ends.append(moves)

    async def run(ctx):
        await ctx.tick().repeat(60)
        ctx.set(dut.can_start, (1 << slots) - 1)
        ctx.set(dut.o.ready, 1)
        await ctx.tick().repeat(300)

    simulate(dut, run, background=[watch, *(
        drive_packets(port, [Packet(bytes(8 * (2 + n % 3)))] * 1000)
        for n, port in enumerate(dut.i))])
    assert all(ends) and len(ends) > 200


def test_a_slot_that_may_not_send_blocks_no_other():
    """Its region is full, and another slot sends all the time."""
    dut, got = SharedIngress(64, slots=2, depth=DEPTH), [[], []]
    packets = [Packet(bytes([n] * 24)) for n in range(40)]

    async def run(ctx):
        ctx.set(dut.can_start, 0b10)
        await drive_packets(dut.i[1], packets)(ctx)
        await ctx.tick().repeat(20)
        assert got == [[], [p.data for p in packets]] and ctx.get(dut.empty) == 0b10
        ctx.set(dut.can_start, 0b11)
        await ctx.tick().repeat(200)
        assert got[0] == [p.data for p in packets] and ctx.get(dut.empty) == 0b11

    simulate(dut, run, background=[drive_packets(dut.i[0], packets), collector(dut, got)])


@pytest.mark.parametrize("turn, tlps", [(1, 1), (3, 1), (4, 2), (9, 3), (10, 4)])
def test_slots_take_turns(turn, tlps):
    """While all have TLPs each sends as many as begin in its turn; at first it may be fewer. Those
    that have no more give their turn away."""
    dut, order = SharedIngress(64, slots=4, depth=32, turn=turn), []

    async def run(ctx):
        ctx.set(dut.can_start, 15)
        await ctx.tick().repeat(100)
        ctx.set(dut.o.ready, 1)
        for _ in range(300):
            if ctx.get(dut.o.valid & dut.o.p.last):
                order.append(ctx.get(dut.source))
            await ctx.tick()

    async def little(ctx):
        while True:
            await drive_packets(dut.i[3], [Packet(bytes(24))])(ctx)
            await ctx.tick().repeat(90)

    simulate(dut, run, background=[little, *(
        drive_packets(port, [Packet(bytes(24))] * 1000) for port in list(dut.i)[:3])])
    groups = [(slot, len(list(some))) for slot, some in itertools.groupby(order)]
    assert {n for slot, n in groups[1:-1] if slot != 3} == {tlps}
    assert 1 <= max(n for slot, n in groups if slot == 3) <= tlps
    turns = [slot for slot, _ in groups if slot != 3]
    assert all({*turns[n:n + 3]} == {0, 1, 2} for n in range(len(turns) - 2))


def test_no_beat_is_read_while_it_is_written():
    prove(SharedIngress(32, slots=2, depth=2), depth=9, claims=True)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="slots must be 1 to 16, not 17"):
        SharedIngress(64, slots=17, depth=8)
    with pytest.raises(ValueError, match="depth must be a power of two of at least 2, not 12"):
        SharedIngress(64, slots=2, depth=12)
    with pytest.raises(ValueError, match="width must be one of"):
        SharedIngress(8, slots=2, depth=8)
