"""dxpu.fabric.link against a plain-Python account of sessions and sequence numbers."""

import random

import pytest

from dxpu.fabric.format import FrameType
from dxpu.fabric.gate import RowGate
from dxpu.fabric.link import NO_ROW, Link
from dxpu_sim.testbench import (
    Packet, check_stream, collect_packets, count_pulses, drive_packets, seed, simulate,
)

NODE = 0x105
ROWS = [  # node, slot, local_slot, stream, paths, used
    (0x001, 0, 1, 0, 0b01, 1), (0x001, 0, 2, 0, 0b10, 1), (0x002, 0, 3, 5, 0b10, 1),
    (0x003, 0, 4, 0, 0b01, 1),
]
SESSIONS = [  # node, stream, tx_tag, rx_tag
    (0x001, 0, 0xBEEF, 0x1D0C), (0x002, 5, 0x1111, 0x2222), (0x004, 0, 0x3333, 0x4444),
]
STATS = ("wrong_node", "no_session", "wrong_tag", "duplicate", "gap")


def set_up(ctx, dut, ack_delay=20):
    ctx.set(dut.node, NODE)
    ctx.set(dut.ack_delay, ack_delay)
    for n, (node, slot, local, stream, paths, used) in enumerate(ROWS):
        ctx.set(dut.rows[n], dict(node=node, slot=slot, local_slot=local, stream=stream,
                                  paths=paths, used=used))
    for n, (node, stream, tx, rx) in enumerate(SESSIONS):
        ctx.set(dut.sessions[n], dict(valid=1, node=node, stream=stream, tx_tag=tx, rx_tag=rx))


async def ask(ctx, dut, row, consumes):
    ctx.set(dut.request.payload, dict(row=row, consumes=consumes))
    ctx.set(dut.request.valid, 1)
    ctx.set(dut.route.ready, 1)
    route, = await ctx.tick().sample(dut.route.payload).until(dut.route.valid)
    ctx.set(dut.request.valid, 0)
    ctx.set(dut.route.ready, 0)
    return route


async def judge(ctx, dut, header):
    ctx.set(dut.header.payload, header)
    ctx.set(dut.header.valid, 1)
    ctx.set(dut.verdict.ready, 1)
    verdict, = await ctx.tick().sample(dut.verdict.payload).until(dut.verdict.valid)
    ctx.set(dut.header.valid, 0)
    ctx.set(dut.verdict.ready, 0)
    return verdict


async def commit(ctx, dut, header, row):
    ctx.set(dut.committed.payload, dict(row=row, header=header))
    ctx.set(dut.committed.valid, 1)
    await ctx.tick().until(dut.committed.ready)
    ctx.set(dut.committed.valid, 0)


def test_routes_carry_the_session():
    rng = random.Random(seed())
    dut = Link(rows=len(ROWS), sessions=len(SESSIONS))
    count = {n: 0 for n in range(len(SESSIONS))}

    async def process(ctx):
        set_up(ctx, dut)
        for _ in range(100):
            row, consumes = rng.randrange(len(ROWS)), rng.randrange(2)
            route = await ask(ctx, dut, row, consumes)
            node, slot, local, stream, paths, _ = ROWS[row]
            session = next((n for n, s in enumerate(SESSIONS) if s[:2] == (node, stream)), None)
            assert route.ok == (session is not None)
            if session is None:
                continue
            assert (route.dst_node, route.dst_slot, route.src_node, route.src_slot, route.stream,
                    route.path, route.tag, route.seq, route.ack) == (
                node, slot, NODE, local, stream, {1: 0, 2: 1}[paths], SESSIONS[session][2],
                count[session], 0)
            count[session] += consumes
        ctx.set(dut.open, 0b011)
        await ctx.tick()
        ctx.set(dut.open, 0)
        assert (await ask(ctx, dut, 0, 1)).seq == 0

    simulate(dut, process)


def test_no_route_for_tlps_of_a_life_that_is_over():
    """Nor for those of a row that is not bound; control frames of the row leave all the same."""
    dut = Link(rows=len(ROWS), sessions=len(SESSIONS))

    async def process(ctx):
        set_up(ctx, dut)
        ctx.set(dut.lives[1], 7)
        for bound in (0b10, 0b01):
            ctx.set(dut.bound, bound)
            for life in (6, 7, 8):
                for tlps in (0, 1):
                    ctx.set(dut.request.payload, dict(row=1, consumes=1, tlps=tlps, life=life))
                    ctx.set(dut.request.valid, 1)
                    ctx.set(dut.route.ready, 1)
                    route, = await ctx.tick().sample(dut.route.payload).until(dut.route.valid)
                    ctx.set(dut.request.valid, 0)
                    assert route.ok == (not tlps or (bound == 0b10 and life == 7))
        assert ctx.get(dut.state[0].seq) == 7, "a frame that does not leave takes no number"

    simulate(dut, process)


def frame(row, seq, **changes):
    node, slot, local, stream, *_ = ROWS[row]
    rx_tag = next((s[3] for s in SESSIONS if s[:2] == (node, stream)), 0)
    return dict(type=FrameType.TLP, count=1, dst_node=NODE, src_node=node, dst_slot=local,
                src_slot=slot, stream=stream, tag=rx_tag, seq=seq) | changes


def test_verdicts_and_their_counters():
    dut = Link(rows=len(ROWS), sessions=len(SESSIONS))
    totals = {}

    async def process(ctx):
        set_up(ctx, dut)

        async def expect(header, accept, row, **counted):
            before = dict(totals)
            verdict = await judge(ctx, dut, header)
            await ctx.tick()
            assert (verdict.accept, verdict.row if accept else row) == (accept, row)
            assert {k: totals[k] - before[k] for k in STATS} == dict.fromkeys(STATS, 0) | counted

        await expect(frame(0, 0), 1, 0)
        await expect(frame(1, 0), 1, 1)
        await expect(frame(0, 0, dst_node=0x106), 0, 0, wrong_node=1)
        await expect(frame(0, 0, src_node=0x009), 0, 0, no_session=1)
        await expect(frame(0, 0, stream=1), 0, 0, no_session=1)
        await expect(frame(3, 0), 0, 0, no_session=1)
        await expect(frame(0, 0, tag=0xBEEF), 0, 0, wrong_tag=1)
        await expect(frame(0, 0, tag=0), 0, 0, wrong_tag=1)
        # A valid frame for a slot pair without a row is taken, for a row that no gate opens.
        await expect(frame(0, 0, dst_slot=9), 1, NO_ROW)
        await commit(ctx, dut, frame(0, 0), 0)
        await expect(frame(0, 0), 0, 0, duplicate=1)
        await expect(frame(0, 1), 1, 0)
        await expect(frame(0, 3), 1, 0, gap=1)
        await expect(frame(0, 0xFFFFFF), 0, 0, duplicate=1)
        # ACK frames carry the next number and take none, so they are never duplicates.
        await expect(frame(0, 0, type=FrameType.ACK), 1, 0)
        # Sequence numbers are compared modulo 2^24, per session.
        await commit(ctx, dut, frame(0, 0x7FFFFF), 0)
        await commit(ctx, dut, frame(0, 0xFFFFFE), 0)
        await expect(frame(0, 0xFFFFFF), 1, 0)
        await commit(ctx, dut, frame(0, 0xFFFFFF), 0)
        await expect(frame(0, 0), 1, 0)
        await expect(frame(0, 0xFFFFFF), 0, 0, duplicate=1)
        await expect(frame(2, 0), 1, 2)

    simulate(dut, process, background=[count_pulses(dut, totals)])


def test_acknowledgements_are_asked_for_once_and_only_if_nothing_carries_them():
    dut = Link(rows=len(ROWS), sessions=len(SESSIONS))
    asked = []

    async def control(ctx):
        ctx.set(dut.control.ready, 1)
        now = 0
        async for *_, valid, payload in ctx.tick().sample(dut.control.valid, dut.control.payload):
            now += 1
            if valid:
                asked.append((now, payload.type, payload.row))

    async def process(ctx):
        set_up(ctx, dut, ack_delay=20)
        await commit(ctx, dut, frame(1, 0), 1)
        await ctx.tick().repeat(60)
        assert [a[1:] for a in asked] == [(FrameType.ACK, 1)] and 20 <= asked[0][0] <= 30
        assert (await ask(ctx, dut, 1, 0)).ack == 1
        await ctx.tick().repeat(60)
        assert len(asked) == 1
        # Data going out in time carries it.
        await commit(ctx, dut, frame(1, 1), 1)
        assert (await ask(ctx, dut, 0, 1)).ack == 2
        await ctx.tick().repeat(60)
        assert len(asked) == 1
        # AR asks for it at once, also on a frame that takes no number.
        await commit(ctx, dut, frame(2, 0, type=FrameType.ACK, ar=1), 2)
        await ctx.tick().repeat(6)
        assert [a[1:] for a in asked[1:]] == [(FrameType.ACK, 2)]
        # An ACK frame alone is not acknowledged.
        await ask(ctx, dut, 2, 0)
        await commit(ctx, dut, frame(2, 0, type=FrameType.ACK), 2)
        await ctx.tick().repeat(60)
        assert len(asked) == 2

    simulate(dut, process, background=[control, check_stream(dut.control, "control")])


def test_forged_acknowledgements_have_no_effect():
    dut = Link(rows=len(ROWS), sessions=len(SESSIONS))

    async def process(ctx):
        set_up(ctx, dut)
        for _ in range(5):
            await ask(ctx, dut, 0, 1)
        for ack, acked in ((3, 3), (6, 3), (2, 3), (0xFFFFFF, 3), (5, 5)):
            await commit(ctx, dut, frame(0, 0, type=FrameType.ACK, ack=ack), 0)
            await ctx.tick()
            assert ctx.get(dut.state[0].acked) == acked

    simulate(dut, process)


@pytest.mark.parametrize("width", [32, 512])
def test_gate_drops_whole_packets_of_closed_rows(width):
    rng = random.Random(seed())
    dut = RowGate(width, rows=5)
    sent = [Packet(rng.randbytes(4 * rng.randint(1, 20)), dict(row=rng.randrange(8)))
            for _ in range(80)]
    rows = 0b10101
    want = [p for p in sent if p.meta["row"] < 5 and rows >> p.meta["row"] & 1]
    got, totals = [], {}

    async def process(ctx):
        ctx.set(dut.open, rows)
        await drive_packets(dut.i, sent, rng=rng, density=0.8)(ctx)
        await ctx.tick()

    simulate(dut, process, collect_packets(dut.o, len(want), got, rng=rng, density=0.8),
             background=[check_stream(dut.o), count_pulses(dut, totals)])
    assert [(p.data, p.meta.row) for p in got] == [(p.data, p.meta["row"]) for p in want]
    assert totals == {"dropped": len(sent) - len(want)}


def test_gate_inside_drops_what_is_of_an_earlier_life():
    rng = random.Random(seed())
    dut = RowGate(64, rows=2, inside=True)
    sent = [Packet(rng.randbytes(4 * rng.randint(1, 9)),
                   dict(row=rng.randrange(3), life=rng.choice([4, 5, 6]))) for _ in range(60)]
    want = [p for p in sent if (p.meta["row"], p.meta["life"]) in {(0, 4), (1, 5)}]
    got, totals = [], {}

    async def process(ctx):
        ctx.set(dut.open, 0b11)
        for row, life in enumerate((4, 5)):
            ctx.set(dut.lives[row], life)
        await drive_packets(dut.i, sent, rng=rng, density=0.8)(ctx)
        await ctx.tick()

    simulate(dut, process, collect_packets(dut.o, len(want), got, rng=rng, density=0.8),
             background=[check_stream(dut.o), count_pulses(dut, totals)])
    assert [(p.data, p.meta.row, p.meta.life) for p in got] == [
        (p.data, p.meta["row"], p.meta["life"]) for p in want]
    assert totals == {"dropped": len(sent) - len(want)}


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="rows must be 1 to 63, not 64"):
        Link(rows=64)
    with pytest.raises(ValueError, match="sessions must be 1 to 64, not 0"):
        Link(rows=4, sessions=0)
