"""dxpu.fabric.link against a plain-Python account of sessions and sequence numbers."""

import random

import pytest

from dxpu.fabric.format import FrameType
from dxpu.fabric.gate import RowGate
from dxpu.fabric.link import Link
from dxpu.fabric.types import NO_ROW
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
STATS = ("wrong_node", "no_session", "wrong_tag", "duplicate", "gap", "nak")


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


async def answer(ctx, dut, **request):
    """The route for any request."""
    ctx.set(dut.request.payload, request)
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


def test_routes_of_replies_and_repetitions():
    """They ask no row; a frame that is sent again keeps its number, and takes none."""
    dut = Link(rows=len(ROWS), sessions=len(SESSIONS), paths=4)

    async def process(ctx):
        set_up(ctx, dut)
        await ask(ctx, dut, 0, 1)
        await commit(ctx, dut, frame(0, 0), 0)
        ctx.set(dut.epoch[2], 3)
        route = await answer(ctx, dut, direct=1, session=2, dst_slot=9, src_slot=8, paths=0b1000)
        assert (route.ok, route.dst_node, route.dst_slot, route.src_slot, route.stream, route.path,
                route.paths, route.tag, route.seq, route.ack, route.ar, route.session,
                route.epoch) == (1, 4, 9, 8, 0, 3, 0b1000, 0x3333, 0, 0, 0, 2, 3)
        for probe in (0, 1):
            route = await answer(ctx, dut, direct=1, session=0, again=1, consumes=1, seq=0xABCDEF,
                                 paths=0b0110, probe=probe)
            assert (route.ok, route.seq, route.ack, route.path, route.ar) == (
                1, 0xABCDEF, 1, 1, probe)
        assert ctx.get(dut.state[0].seq) == 1
        # New frames are to be acknowledged at once when there is little room.
        ctx.set(dut.short, 1)
        assert (await ask(ctx, dut, 0, 1)).ar == 1
        assert (await answer(ctx, dut, direct=1, session=0, paths=1)).ar == 0

    simulate(dut, process)


def test_with_selective_repeat_all_but_probes_take_the_paths_in_turn():
    """New frames and those that are sent again share the turn; a probe, and an ACK, have none."""
    dut = Link(rows=len(ROWS), sessions=len(SESSIONS), paths=4, selective=True)
    again = dict(direct=1, session=0, again=1, consumes=1, seq=7, paths=0b0111)

    async def process(ctx):
        set_up(ctx, dut)
        ctx.set(dut.rows[0].paths, 0b0111)
        ctx.set(dut.path[0], 1)

        async def paths(*requests):
            return [(await answer(ctx, dut, **request)).path for request in requests]

        new = dict(row=0, consumes=1)
        assert await paths(new, again, again, new, again) == [0, 1, 2, 0, 1]
        assert await paths(again | dict(probe=1), again, new, again | dict(probe=1)) == [1, 2, 0, 1]
        assert await paths(dict(direct=1, session=0, paths=0b0100), new) == [2, 1]
        ctx.set(dut.avoid[0], 0b010)
        assert await paths(again, again, again, new) == [2, 0, 2, 0]

    simulate(dut, process)


def test_a_failed_path_and_a_failed_session():
    dut = Link(rows=len(ROWS), sessions=len(SESSIONS), paths=4)

    async def process(ctx):
        set_up(ctx, dut)
        for first, paths, path in ((0, 0b1010, 1), (1, 0b1010, 1), (2, 0b1010, 3), (3, 0b1010, 3),
                                   (3, 0b0110, 1), (2, 0b0100, 2)):
            ctx.set(dut.path[0], first)
            route = await answer(ctx, dut, direct=1, session=0, paths=paths)
            assert route.path == path, (first, paths)
        ctx.set(dut.failed, 0b001)
        await ctx.tick()
        assert ctx.get(dut.lost) == 0b0011
        assert not (await ask(ctx, dut, 0, 1)).ok and (await ask(ctx, dut, 2, 1)).ok
        assert not (await answer(ctx, dut, direct=1, session=0, paths=1)).ok
        assert ctx.get(dut.state[0].seq) == 0

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
        await expect(frame(0, 3), 0, 0, gap=1)
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


def follow_replies(dut, replies):
    """Background process: take every reply."""
    async def process(ctx):
        ctx.set(dut.reply.ready, 1)
        now = 0
        async for *_, valid, payload in ctx.tick().sample(dut.reply.valid, dut.reply.payload):
            now += 1
            if valid:
                replies.append((now, payload.type, payload.session, payload.dst_slot,
                                payload.src_slot, payload.path))
    return process


@pytest.mark.parametrize("cycle", range(4))
def test_a_frame_that_is_booked_as_its_session_begins_anew_counts_for_neither(cycle):
    """The session ends in each cycle of the booking; the next frame of the new one is number 0."""
    dut = Link(rows=len(ROWS), sessions=len(SESSIONS))

    async def end(ctx):
        await ctx.tick().repeat(5 + cycle)
        ctx.set(dut.open, 0b001)
        await ctx.tick()
        ctx.set(dut.open, 0)

    async def process(ctx):
        set_up(ctx, dut)
        await ctx.tick().repeat(5)
        await commit(ctx, dut, frame(0, 0, ack=0), 0)
        await ctx.tick().repeat(5)
        assert ctx.get(dut.state[0].next) == 0
        assert (await judge(ctx, dut, frame(0, 0))).accept

    simulate(dut, process, end)


def test_no_answer_takes_a_path_that_is_none():
    dut = Link(rows=len(ROWS), sessions=len(SESSIONS), paths=2)
    asked = []

    async def process(ctx):
        set_up(ctx, dut, ack_delay=0)
        for seq, path in enumerate((1, 2, 15)):
            await commit(ctx, dut, frame(1, seq, path=path), 1)
            await ctx.tick().repeat(10)
            await ask(ctx, dut, 1, 0)
        assert [a[-1] for a in asked] == [1, 0, 0]

    simulate(dut, process, background=[follow_replies(dut, asked)])


def test_acknowledgements_are_asked_for_once_and_only_if_nothing_carries_them():
    dut = Link(rows=len(ROWS), sessions=len(SESSIONS), paths=6)
    asked = []

    async def process(ctx):
        set_up(ctx, dut, ack_delay=20)
        await commit(ctx, dut, frame(1, 0, path=5), 1)
        await ctx.tick().repeat(60)
        # Back where it came from, between the same slots.
        assert [a[1:] for a in asked] == [(FrameType.ACK, 0, 0, 2, 5)] and 20 <= asked[0][0] <= 30
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
        assert [a[1:] for a in asked[1:]] == [(FrameType.ACK, 1, 0, 3, 0)]
        # An ACK frame alone is not acknowledged.
        await ask(ctx, dut, 2, 0)
        await commit(ctx, dut, frame(2, 0, type=FrameType.ACK), 2)
        await ctx.tick().repeat(60)
        assert len(asked) == 2
        # A frame that nobody is there for is acknowledged, as its stream must go on.
        await commit(ctx, dut, frame(2, 0, dst_slot=77), NO_ROW)
        await ctx.tick().repeat(60)
        assert [a[1:] for a in asked[2:]] == [(FrameType.ACK, 1, 0, 77, 0)]
        # A frame that came before is acknowledged again, at once.
        await ask(ctx, dut, 2, 0)
        assert not (await judge(ctx, dut, frame(2, 0))).accept
        await ctx.tick().repeat(6)
        assert len(asked) == 4

    simulate(dut, process, background=[
        follow_replies(dut, asked), check_stream(dut.reply, "reply")])


def test_one_nak_for_each_loss():
    dut = Link(rows=len(ROWS), sessions=len(SESSIONS))
    asked = []

    async def process(ctx):
        set_up(ctx, dut, ack_delay=20)
        seqs = 3, 4, 6, 4, 5, 3, 7
        for seq, naks in zip(seqs, (1, 1, 1, 2, 2, 3, 3), strict=True):
            assert not (await judge(ctx, dut, frame(0, seq, path=1))).accept
            await ctx.tick().repeat(10)
            # The second and third: numbers fell, so what was missing was sent again, and lost.
            assert len(asked) == naks, seq
            await ask(ctx, dut, 0, 0)
        assert {a[1:] for a in asked} == {(FrameType.SACK, 0, 0, 1, 1)}
        await commit(ctx, dut, frame(0, 0), 0)
        await ask(ctx, dut, 0, 0)
        # That one is there; the next that is missing is another.
        assert not (await judge(ctx, dut, frame(0, 9))).accept
        await ctx.tick().repeat(10)
        assert len(asked) == 4

    simulate(dut, process, background=[
        follow_replies(dut, asked), check_stream(dut.reply, "reply")])


def test_a_nak_is_repeated_if_nothing_comes_of_it():
    dut = Link(rows=len(ROWS), sessions=len(SESSIONS))
    asked = []

    async def process(ctx):
        set_up(ctx, dut, ack_delay=20)
        ctx.set(dut.nak_delay, 200)
        seq = 3

        async def more(cycles):
            """Frames behind the gap, for so many cycles."""
            nonlocal seq
            for _ in range(cycles // 25):
                assert not (await judge(ctx, dut, frame(0, seq))).accept
                await ctx.tick().repeat(20)
                seq += 1

        async def reply():
            await ask(ctx, dut, 0, 0)

        await more(150)
        assert len(asked) == 1
        await reply()
        # One more after 200 to 400 cycles (and those that a judgement takes), then the same again.
        await more(450)
        assert len(asked) == 2
        await reply()
        await ctx.tick().repeat(600)
        assert len(asked) == 2  # nothing came meanwhile
        await more(25)
        assert len(asked) == 3
        await reply()
        ctx.set(dut.nak_delay, 0)
        await ctx.tick().repeat(450)
        await more(25)
        await reply()
        seen = len(asked)
        await more(900)
        assert len(asked) == seen  # never

    simulate(dut, process, background=[
        follow_replies(dut, asked), check_stream(dut.reply, "reply")])


def test_forged_acknowledgements_have_no_effect():
    dut = Link(rows=len(ROWS), sessions=len(SESSIONS))
    told = []

    async def watch(ctx):
        async for *_, acked, back in ctx.tick().sample(dut.acked[0], dut.back):
            if acked or back:
                told.append((acked, back))
                ctx.set(dut.unacked[0], ctx.get(dut.unacked[0]) - acked)

    async def process(ctx):
        set_up(ctx, dut)
        for _ in range(5):
            await ask(ctx, dut, 0, 1)
        ctx.set(dut.unacked[0], 5)
        for ack, acked in ((3, 3), (6, 3), (2, 3), (0xFFFFFF, 3)):
            await commit(ctx, dut, frame(0, 0, type=FrameType.ACK, ack=ack), 0)
            await ctx.tick()
            assert ctx.get(dut.state[0].acked) == acked
        # A NAK goes back to what is left, if anything is; an old or a forged one to nothing.
        for ack in (2, 6, 4, 4, 5, 5):
            await commit(ctx, dut, frame(0, 0, type=FrameType.SACK, ack=ack), 0)
            await ctx.tick()
        await ctx.tick()
        assert told == [(3, 0), (1, 1), (0, 1), (1, 0)]

    simulate(dut, process, background=[watch])


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
