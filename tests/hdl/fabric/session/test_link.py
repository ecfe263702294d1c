"""dxpu.fabric.session.link against a plain-Python account of sessions and sequence numbers."""

import random

import pytest

from dxpu.fabric.row_gate import RowGate
from dxpu.fabric.session.link import Link
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.rows import NO_ROW
from tests.support.link_bench import Bench, open_session, state_of
from tests.support.mutate import mutant
from tests.support.testbench import (
    Packet, check_stream, collect_packets, count_pulses, drive_packets, seed, simulate,
)

NODE = 0x105
ROWS = [  # node, slot, local_slot, stream, paths, used
    (0x001, 0, 1, 0, 0b01, 1), (0x001, 0, 2, 0, 0b10, 1), (0x002, 0, 3, 5, 0b10, 1),
    (0x003, 0, 4, 0, 0b01, 1),
]
PEERS, STREAMS = (0x001, 0x002, 0x004), 8
#: Cycles from a reset until all numbers are zero: two for each of up to 32 sessions.
ZEROED = 64
SESSIONS = {  # number: node, stream, tx_tag, rx_tag
    0: (0x001, 0, 0xBEEF, 0x1D0C), 13: (0x002, 5, 0x1111, 0x2222), 16: (0x004, 0, 0x3333, 0x4444),
}
STATS = ("wrong_node", "no_session", "wrong_tag", "duplicate", "gap", "nak", "stray")
#: Cycles after which whatever is to be said has been said.
SCAN = 40


def link_bench(**options):
    return Bench(rows=len(ROWS), peers=len(PEERS), streams=STREAMS, **options)


async def set_up(ctx, dut, ack_delay=20):
    link = dut.link
    ctx.set(link.node, NODE)
    ctx.set(link.ack_delay, ack_delay)
    for n, (node, slot, local, stream, paths, used) in enumerate(ROWS):
        ctx.set(link.rows[n], dict(node=node, slot=slot, local_slot=local, stream=stream,
                                   paths=paths, used=used))
    for n, node in enumerate(PEERS):
        ctx.set(link.peers[n], dict(valid=1, node=node))
    for n, (_, _, tx, rx) in SESSIONS.items():
        ctx.set(dut.tx_tag[n], tx)
        ctx.set(dut.rx_tag[n], rx)
    ctx.set(link.said.ready, 1)
    ctx.set(link.acked.ready, 1)
    ctx.set(link.frame_done, 1)
    await ctx.tick().repeat(ZEROED)


async def ask(ctx, dut, row, consumes):
    return await answer(ctx, dut, row=row, consumes=consumes)


async def answer(ctx, dut, **request):
    """The route for any request."""
    link = dut.link
    ctx.set(link.request.payload, request)
    ctx.set(link.request.valid, 1)
    ctx.set(link.route.ready, 1)
    route, = await ctx.tick().sample(link.route.payload).until(link.route.valid)
    ctx.set(link.request.valid, 0)
    ctx.set(link.route.ready, 0)
    return route


async def judge(ctx, dut, header):
    link = dut.link
    ctx.set(link.header.payload, header)
    ctx.set(link.header.valid, 1)
    ctx.set(link.verdict.ready, 1)
    verdict, = await ctx.tick().sample(link.verdict.payload).until(link.verdict.valid)
    ctx.set(link.header.valid, 0)
    ctx.set(link.verdict.ready, 0)
    return verdict


async def commit(ctx, dut, header, row):
    link = dut.link
    ctx.set(link.committed.payload, dict(row=row, header=header))
    ctx.set(link.committed.valid, 1)
    await ctx.tick().until(link.committed.ready)
    ctx.set(link.committed.valid, 0)


def test_routes_carry_the_session():
    rng = random.Random(seed())
    dut = link_bench()
    count = dict.fromkeys(SESSIONS, 0)

    async def process(ctx):
        await set_up(ctx, dut)
        for _ in range(100):
            row, consumes = rng.randrange(len(ROWS)), rng.randrange(2)
            route = await ask(ctx, dut, row, consumes)
            node, slot, local, stream, paths, _ = ROWS[row]
            session = next((n for n, s in SESSIONS.items() if s[:2] == (node, stream)), None)
            assert route.ok == (session is not None)
            if session is None:
                continue
            assert (route.dst_node, route.dst_slot, route.src_node, route.src_slot, route.stream,
                    route.path, route.tag, route.seq, route.ack) == (
                node, slot, NODE, local, stream, {1: 0, 2: 1}[paths], SESSIONS[session][2],
                count[session], 0)
            count[session] += consumes
        for session in SESSIONS:
            assert (await state_of(ctx, dut, session)).seq == count[session]
        await open_session(ctx, dut, 0)
        assert (await ask(ctx, dut, 0, 1)).seq == 0
        assert (await ask(ctx, dut, 2, 1)).seq == count[13] > 0

    simulate(dut, process)


def test_no_route_for_tlps_of_a_life_that_is_over():
    """Nor for those of a row that is not bound; control frames of the row leave all the same."""
    dut = link_bench()

    async def process(ctx):
        await set_up(ctx, dut)
        link = dut.link
        ctx.set(link.lives[1], 7)
        for bound in (0b10, 0b01):
            ctx.set(link.bound, bound)
            for life in (6, 7, 8):
                for tlps in (0, 1):
                    route = await answer(ctx, dut, row=1, consumes=1, tlps=tlps, life=life)
                    assert route.ok == (not tlps or (bound == 0b10 and life == 7))
        assert (await state_of(ctx, dut, 0)).seq == 7, "a frame that does not leave takes no number"

    simulate(dut, process)


def test_routes_of_replies_and_repetitions():
    """They ask no row; a frame that is sent again keeps its number, and takes none."""
    dut = link_bench(paths=4)

    async def process(ctx):
        await set_up(ctx, dut)
        await ask(ctx, dut, 0, 1)
        await commit(ctx, dut, frame(0, 0), 0)
        ctx.set(dut.about[16].epoch, 3)
        route = await answer(ctx, dut, direct=1, session=16, dst_slot=9, src_slot=8, paths=0b1000)
        assert (route.ok, route.dst_node, route.dst_slot, route.src_slot, route.stream, route.path,
                route.paths, route.tag, route.seq, route.ack, route.ar, route.session,
                route.epoch) == (1, 4, 9, 8, 0, 3, 0b1000, 0x3333, 0, 0, 0, 16, 3)
        for probe in (0, 1):
            route = await answer(ctx, dut, direct=1, session=0, again=1, consumes=1, seq=0xABCDEF,
                                 paths=0b0110, probe=probe)
            assert (route.ok, route.seq, route.ack, route.path, route.ar) == (
                1, 0xABCDEF, 1, 1, probe)
        # Of an earlier epoch: it leaves no more.
        assert not (await answer(ctx, dut, direct=1, session=16, again=1, consumes=1,
                                 paths=1)).ok
        assert (await state_of(ctx, dut, 0)).seq == 1
        # New frames are to be acknowledged at once when there is little room.
        ctx.set(dut.link.short, 1)
        assert (await ask(ctx, dut, 0, 1)).ar == 1
        assert (await answer(ctx, dut, direct=1, session=0, paths=1)).ar == 0

    simulate(dut, process)


def test_with_selective_repeat_all_but_probes_take_the_paths_in_turn():
    """New frames and those that are sent again share the turn; a probe, and an ACK, have none."""
    dut = link_bench(paths=4, selective=True)
    again = dict(direct=1, session=0, again=1, consumes=1, seq=7, paths=0b0111)

    async def process(ctx):
        await set_up(ctx, dut)
        ctx.set(dut.link.rows[0].paths, 0b0111)
        ctx.set(dut.about[0].path, 1)

        async def paths(*requests):
            return [(await answer(ctx, dut, **request)).path for request in requests]

        new = dict(row=0, consumes=1)
        assert await paths(new, again, again, new, again) == [0, 1, 2, 0, 1]
        assert await paths(again | dict(probe=1), again, new, again | dict(probe=1)) == [1, 2, 0, 1]
        assert await paths(dict(direct=1, session=0, paths=0b0100), new) == [2, 1]
        ctx.set(dut.about[0].avoid, 0b010)
        assert await paths(again, again, again, new) == [2, 0, 2, 0]

    simulate(dut, process)


@pytest.mark.parametrize("selective", [False, True])
def test_a_path_without_a_link_is_taken_only_if_there_is_no_other(selective):
    """By frames of all kinds; where else they may go is remembered all the same."""
    rng = random.Random(seed())
    dut = link_bench(paths=4, selective=selective)

    async def process(ctx):
        await set_up(ctx, dut)
        ctx.set(dut.link.limits[0], dict(header=1, data=1))
        for _ in range(150):
            links, paths, first = rng.randrange(16), rng.randrange(1, 16), rng.randrange(4)
            ctx.set(dut.link.links, links)
            ctx.set(dut.link.rows[0].paths, paths)
            ctx.set(dut.about[0].path, first)
            # A probe takes the session's path also with selective repeat.
            request = rng.choice([
                dict(row=0, consumes=1, probe=1), dict(row=0),
                dict(direct=1, session=0, paths=paths),
                dict(direct=1, session=0, paths=paths, again=1, consumes=1, seq=5, probe=1)])
            route = await answer(ctx, dut, **request)
            may = paths & links or paths
            path = next(n % 4 for n in range(first, first + 4) if may >> n % 4 & 1)
            assert (route.path, route.paths) == (path, paths), (links, request)
            # And what tells limits.
            ctx.set(dut.link.want.payload, 0)
            ctx.set(dut.link.want.valid, 1)
            await ctx.tick().until(dut.link.want.ready)
            ctx.set(dut.link.want.valid, 0)
            ctx.set(dut.link.reply.ready, 1)
            told, = await ctx.tick().sample(dut.link.reply.payload).until(dut.link.reply.valid)
            ctx.set(dut.link.reply.ready, 0)
            assert told.path == path

    simulate(dut, process)


def test_limits_are_told_less_what_is_withheld():
    """In the extension of a frame, and in all entries of an ACK; modulo 2^16."""
    dut = link_bench()
    limits, withheld = ((7, 300), (4, 4), (2, 10)), ((3, 100), (0, 0), (5, 11))
    told = [((n - less) & 0xFFFF, (units - few) & 0xFFFF)
            for (n, units), (less, few) in zip(limits, withheld, strict=True)]

    async def process(ctx):
        await set_up(ctx, dut)
        for n, (limit, less) in enumerate(zip(limits, withheld, strict=True)):
            ctx.set(dut.link.limits[n], dict(header=limit[0], data=limit[1]))
            ctx.set(dut.link.withheld[n], dict(header=less[0], data=less[1]))
        ctx.set(dut.link.granting, 1)
        for cls in range(3):
            ctx.set(dut.link.owed, 1 << cls)
            credit = (await answer(ctx, dut, row=0, consumes=1)).credit
            assert (credit.cls, credit.header_limit, credit.data_limit) == (cls, *told[cls])
        entries = (await answer(ctx, dut, row=0)).credits
        assert [(e.header_limit, e.data_limit) for e in entries] == told
        # Of a row that grants nothing nothing is told.
        ctx.set(dut.link.granting, 0)
        entries = (await answer(ctx, dut, row=0)).credits
        assert [(e.header_limit, e.data_limit) for e in entries] == [(0, 0)] * 3

    simulate(dut, process)


def test_a_failed_path_and_a_failed_session():
    dut = link_bench(paths=4)

    async def process(ctx):
        await set_up(ctx, dut)
        for first, paths, path in ((0, 0b1010, 1), (1, 0b1010, 1), (2, 0b1010, 3), (3, 0b1010, 3),
                                   (3, 0b0110, 1), (2, 0b0100, 2)):
            ctx.set(dut.about[0].path, first)
            route = await answer(ctx, dut, direct=1, session=0, paths=paths)
            assert route.path == path, (first, paths)
        assert ctx.get(dut.link.lost) == 0
        ctx.set(dut.about[0].failed, 1)
        await ctx.tick().repeat(3 * len(ROWS))
        assert ctx.get(dut.link.lost) == 0b0011
        assert not (await ask(ctx, dut, 0, 1)).ok and (await ask(ctx, dut, 2, 1)).ok
        assert not (await answer(ctx, dut, direct=1, session=0, paths=1)).ok
        assert (await state_of(ctx, dut, 0)).seq == 0
        # Nor does anything of it take effect; what is down is lost, too.
        ctx.set(dut.given_up[0], 1)
        assert not (await judge(ctx, dut, frame(0, 0))).accept
        ctx.set(dut.down[13], 1)
        await ctx.tick().repeat(3 * len(ROWS))
        assert ctx.get(dut.link.lost) == 0b0111

    simulate(dut, process)


def frame(row, seq, **changes):
    node, slot, local, stream, *_ = ROWS[row]
    rx_tag = next((s[3] for s in SESSIONS.values() if s[:2] == (node, stream)), 0)
    return dict(type=FrameType.TLP, count=1, dst_node=NODE, src_node=node, dst_slot=local,
                src_slot=slot, stream=stream, tag=rx_tag, seq=seq) | changes


def test_verdicts_and_their_counters():
    dut = link_bench()
    totals = {}

    async def process(ctx):
        await set_up(ctx, dut)

        async def expect(header, accept, row, **counted):
            before = dict(totals)
            verdict = await judge(ctx, dut, header)
            await ctx.tick().repeat(2)
            assert (verdict.accept, verdict.row if accept else row) == (accept, row)
            assert {k: totals[k] - before[k] for k in STATS} == dict.fromkeys(STATS, 0) | counted

        await expect(frame(0, 0), 1, 0)
        await expect(frame(1, 0), 1, 1)
        await expect(frame(0, 0, dst_node=0x106), 0, 0, wrong_node=1)
        await expect(frame(0, 0, src_node=0x009), 0, 0, no_session=1)
        await expect(frame(0, 0, stream=8), 0, 0, no_session=1)
        await expect(frame(0, 0, stream=1), 0, 0, wrong_tag=1)
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

    simulate(dut, process, background=[count_pulses(dut.link, totals)])


@pytest.mark.parametrize("selective", [False, True])
def test_frames_far_from_the_numbers_of_the_session_do_nothing(selective):
    """SEQ within 1024 of the expected one, ACK of what was sent, and not of long ago; for each type
    with numbers. So a stranger has to hit the tag and both numbers."""
    dut = link_bench(selective=selective)
    totals = {}
    near = (0, 1, 1023, -1, -1024)

    async def process(ctx):
        await set_up(ctx, dut)

        async def verdict(header):
            before = dict(totals)
            said = await judge(ctx, dut, header)
            await ctx.tick().repeat(2)
            counted = {k for k in STATS if totals[k] != before[k]}
            assert counted <= {"stray", "duplicate", "gap"} and len(counted) <= 1
            assert not (said.accept and counted)
            return said, "stray" in counted

        async def numbers(expected, acked, unacked):
            """What comes near those of the session is judged, and nothing else."""
            tells = (*near, 1024, -1025, 1 << 23, (1 << 23) - 1, 5000, -5000)
            for kind in (FrameType.TLP, FrameType.EVENT, FrameType.ACK, FrameType.SACK):
                for far in tells:
                    said, stray = await verdict(frame(
                        0, (expected + far) % (1 << 24), type=kind, ack=acked))
                    assert stray == (far not in near), (kind, far)
                    assert said.accept == (not stray and (
                        far == 0 or kind in (FrameType.ACK, FrameType.SACK)
                        or selective and 0 < far < 64)), (kind, far)
                for ahead in (*range(unacked + 1), -1, -1024):
                    said, stray = await verdict(frame(
                        0, expected, type=kind, ack=(acked + ahead) % (1 << 24)))
                    assert said.accept and not stray, (kind, ahead)
                for ahead in (unacked + 1, 63, 64, 1024, -1025, 1 << 23, (1 << 23) - 1):
                    said, stray = await verdict(frame(
                        0, expected, type=kind, ack=(acked + ahead) % (1 << 24)))
                    assert stray and not said.accept, (kind, ahead)

        await numbers(0, 0, 0)
        for _ in range(5):
            await ask(ctx, dut, 0, 1)
        ctx.set(dut.unacked[0], 5)
        await numbers(0, 0, 5)
        await commit(ctx, dut, frame(0, 0x7FFFFF, ack=3), 0)
        ctx.set(dut.unacked[0], 2)
        await ctx.tick().repeat(5)
        await numbers(0x800000, 3, 2)
        # Of another session: its numbers are its own.
        said, stray = await verdict(frame(2, 0x800000, ack=3))
        assert stray and not said.accept

    simulate(dut, process, background=[count_pulses(dut.link, totals)])


def test_what_confirms_a_candidate_has_numbers_near_0():
    """Whatever those of the session are that is still open; and acknowledges nothing."""
    dut = link_bench()
    totals = {}

    async def process(ctx):
        await set_up(ctx, dut)
        ctx.set(dut.candidate[0], 0xCAFE)
        await commit(ctx, dut, frame(0, 0x7FFFFF), 0)
        await ctx.tick().repeat(5)
        for seq, ack, accept in ((0, 0, 1), (5, 0, 1), (1023, 0, 1), (1024, 0, 0), (0, 1, 0),
                                 (0, 0xFFFFFF, 0), (0x800000, 0, 0), (0xFFFC00, 0, 1)):
            before = totals["stray"]
            said = await judge(ctx, dut, frame(0, seq, type=FrameType.ACK, tag=0xCAFE, ack=ack))
            await ctx.tick().repeat(2)
            assert (said.accept, totals["stray"] - before) == (accept, 1 - accept), (seq, ack)

    simulate(dut, process, background=[count_pulses(dut.link, totals)])


def test_a_refusal_counts_when_its_frame_is_done():
    """Once, also if the frame was taken back and its header came twice; and is answered then."""
    dut = link_bench()
    totals, replies = {}, []

    async def process(ctx):
        await set_up(ctx, dut)
        ctx.set(dut.link.frame_done, 0)
        for taken_back in (1, 1, 0):
            assert not (await judge(ctx, dut, frame(0, 3))).accept
            await ctx.tick().repeat(SCAN)
            assert totals["gap"] == 0 and not replies
            ctx.set(dut.link.frame_taken_back, taken_back)
            ctx.set(dut.link.frame_done, 1)
            await ctx.tick()
            ctx.set(dut.link.frame_done, 0)
        await ctx.tick().repeat(SCAN)
        assert totals["gap"] == 1
        assert [reply[1:3] for reply in replies] == [(FrameType.SACK, 0)]

    simulate(dut, process, background=[count_pulses(dut.link, totals),
                                       follow_replies(dut, replies)])


def follow_replies(dut, replies, requests=None):
    """Background process: take every reply; ``requests`` are the numbers that they have."""
    async def process(ctx):
        reply = dut.link.reply
        ctx.set(reply.ready, 1)
        now = 0
        async for *_, valid, payload in ctx.tick().sample(reply.valid, reply.payload):
            now += 1
            if valid:
                replies.append((now, payload.type, payload.session, payload.dst_slot,
                                payload.src_slot, payload.path))
                if requests is not None:
                    requests.append(payload.request)
    return process


@pytest.mark.parametrize("cycle", range(6))
@pytest.mark.parametrize("same", [False, True])
def test_a_frame_that_is_booked_as_its_session_begins_anew_counts_for_neither(cycle, same):
    """The session ends in each cycle of the booking; the next frame of the new one is number 0. If
    the tags stay the same, nobody can tell a frame whose booking has not begun."""
    dut = link_bench()
    told = []

    async def end(ctx):
        await ctx.tick().repeat(100 + cycle)
        if not same:
            ctx.set(dut.rx_tag[0], 0x7777)
        await open_session(ctx, dut, 0)

    async def process(ctx):
        await set_up(ctx, dut)
        await ctx.tick().repeat(100 - ZEROED + 1)
        await commit(ctx, dut, frame(0, 0), 0)
        await ctx.tick().repeat(SCAN)
        after = (await state_of(ctx, dut, 0)).next
        assert after == 0 or (same and cycle <= 1 and after == 1)
        if not same:
            assert not (await judge(ctx, dut, frame(0, 0))).accept
        tag = ctx.get(dut.rx_tag[0])
        assert (await judge(ctx, dut, frame(0, after, tag=tag))).accept
        # Nothing is to be said of what was.
        assert not told or after

    simulate(dut, process, end, background=[follow_replies(dut, told)])


def silenced(design=Link):
    """Sessions begin anew, again and again, each with an answer that is owed: what is said then."""
    dut = Bench(design, rows=len(ROWS), peers=len(PEERS), streams=STREAMS)
    told, owed = [], []

    async def process(ctx):
        await set_up(ctx, dut, ack_delay=60)
        for row, session in ((0, 0), (0, 0), (2, 13), (0, 0), (2, 13)):
            header = frame(row, 0)
            assert (await judge(ctx, dut, header)).accept
            await commit(ctx, dut, header, row)
            await ctx.tick().repeat(20)
            assert not told
            await open_session(ctx, dut, session)
            assert (await state_of(ctx, dut, session)).next == 0
            await ctx.tick().repeat(60 + SCAN)
            owed.append(len(told))
            told.clear()
        # One that does not begin anew is answered.
        await commit(ctx, dut, frame(0, 0), 0)
        await ctx.tick().repeat(60 + SCAN)
        owed.append(len(told))

    simulate(dut, process, background=[follow_replies(dut, told)])
    return owed


def test_nothing_is_said_of_a_session_that_has_begun_anew_however_often():
    assert silenced() == [0, 0, 0, 0, 0, 1]


def test_a_second_opening_that_leaves_answers_of_the_old_session_is_found():
    first, *others = silenced(mutant(Link, ("m.d.sync += silent.eq(0)", "pass")))
    assert first == 0 and any(others[:-1])


def test_no_answer_takes_a_path_that_is_none():
    dut = link_bench(paths=2)
    asked = []

    async def process(ctx):
        await set_up(ctx, dut, ack_delay=0)
        for seq, path in enumerate((1, 2, 15)):
            await commit(ctx, dut, frame(1, seq, path=path), 1)
            await ctx.tick().repeat(SCAN)
            await ask(ctx, dut, 1, 0)
        assert [a[-1] for a in asked] == [1, 0, 0]

    simulate(dut, process, background=[follow_replies(dut, asked)])


def test_acknowledgements_are_asked_for_once_and_only_if_nothing_carries_them():
    dut = link_bench(paths=6)
    asked = []

    async def process(ctx):
        await set_up(ctx, dut, ack_delay=20)
        start = ZEROED
        await commit(ctx, dut, frame(1, 0, path=5), 1)
        await ctx.tick().repeat(60)
        # Back where it came from, between the same slots.
        assert [a[1:] for a in asked] == [(FrameType.ACK, 0, 0, 2, 5)]
        assert 20 <= asked[0][0] - start <= 50
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
        await ctx.tick().repeat(SCAN)
        assert [a[1:] for a in asked[1:]] == [(FrameType.ACK, 13, 0, 3, 0)]
        # An ACK frame alone is not acknowledged.
        await ask(ctx, dut, 2, 0)
        await commit(ctx, dut, frame(2, 0, type=FrameType.ACK), 2)
        await ctx.tick().repeat(60)
        assert len(asked) == 2
        # A frame that nobody is there for is acknowledged, as its stream must go on.
        await commit(ctx, dut, frame(2, 0, dst_slot=77), NO_ROW)
        await ctx.tick().repeat(60)
        assert [a[1:] for a in asked[2:]] == [(FrameType.ACK, 13, 0, 77, 0)]
        # A frame that came before is acknowledged again, at once.
        await ask(ctx, dut, 2, 0)
        assert not (await judge(ctx, dut, frame(2, 0))).accept
        await ctx.tick().repeat(SCAN)
        assert len(asked) == 4

    simulate(dut, process, background=[
        follow_replies(dut, asked), check_stream(dut.link.reply, "reply")])


def test_one_request_for_each_loss():
    dut = link_bench()
    asked, requests = [], []

    async def process(ctx):
        await set_up(ctx, dut, ack_delay=20)
        seqs = 3, 4, 6, 4, 5, 3, 7
        for n, (seq, request) in enumerate(zip(seqs, (1, 1, 1, 0, 0, 1, 1), strict=True)):
            assert not (await judge(ctx, dut, frame(0, seq, path=1))).accept
            await ctx.tick().repeat(SCAN)
            # The second and third: numbers fell, so what was missing was sent again, and lost.
            assert len(asked) == n + 1 and requests[-1] == request, seq
            await ask(ctx, dut, 0, 0)
        assert {a[1:] for a in asked} == {(FrameType.SACK, 0, 0, 1, 1)}
        await commit(ctx, dut, frame(0, 0), 0)
        await ask(ctx, dut, 0, 0)
        # That one is there; the next that is missing is another.
        assert not (await judge(ctx, dut, frame(0, 9))).accept
        await ctx.tick().repeat(SCAN)
        assert len(asked) == len(seqs) + 1 and requests[-1] == 0

    simulate(dut, process, background=[
        follow_replies(dut, asked, requests), check_stream(dut.link.reply, "reply")])


def test_forged_acknowledgements_have_no_effect():
    """Those of what was never sent are counted; old ones, which come late, are not."""
    dut = link_bench()
    told, totals = [], {}

    async def watch(ctx):
        acked = dut.link.acked
        async for *_, valid, p in ctx.tick().sample(acked.valid & acked.ready, acked.payload):
            if valid:
                assert p.session == 0 and not p.named
                told.append((p.count, p.back))
                ctx.set(dut.unacked[0], ctx.get(dut.unacked[0]) - p.count)

    async def process(ctx):
        await set_up(ctx, dut)
        for _ in range(5):
            await ask(ctx, dut, 0, 1)
        ctx.set(dut.unacked[0], 5)
        for ack, acked in ((3, 3), (6, 3), (2, 3), (0xFFFFFF, 3)):
            await commit(ctx, dut, frame(0, 0, type=FrameType.ACK, ack=ack), 0)
            await ctx.tick().repeat(3)
            assert (await state_of(ctx, dut, 0)).acked == acked
        # A NAK goes back to what is left, if anything is; an old one to nothing.
        for ack in (2, 6, 4, 4, 5, 5):
            await commit(ctx, dut, frame(0, 0, type=FrameType.SACK, ack=ack), 0)
            await ctx.tick().repeat(3)
        assert told == [(3, 0), (1, 1), (0, 1), (1, 0)]
        # The verdict refuses 6, where 5 were sent; it has no effect even so.
        assert not totals["stray"]

    simulate(dut, process, background=[watch, check_stream(dut.link.acked, "acked"),
                                       count_pulses(dut.link, totals)])


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


@pytest.mark.parametrize("beats", [1, 3])
def test_gate_drops_though_nobody_takes_what_passes(beats):
    dut, totals = RowGate(64, rows=2), {}

    async def process(ctx):
        ctx.set(dut.open, 0b01)
        await drive_packets(dut.i, [Packet(bytes(8 * beats), dict(row=1))] * 3)(ctx)
        await ctx.tick()

    simulate(dut, process, deadline=50, background=[count_pulses(dut, totals)])
    assert totals == {"dropped": 3}


def test_what_is_looked_up_for_software_is_of_one_session():
    """It may look at one after the other, without a pause, while frames come and go."""
    rng = random.Random(seed())
    dut, done = link_bench(), []
    want = {}

    async def process(ctx):
        await set_up(ctx, dut)
        for n in range(24):
            ctx.set(dut.rx_tag[n], 0x100 + n)
            ctx.set(dut.tx_tag[n], 0x200 + n)
            ctx.set(dut.unacked[n], n)
            ctx.set(dut.about[n].epoch, n % 4)
            for _ in range(n % 3):
                await answer(ctx, dut, direct=1, session=n, consumes=1, paths=1)
            node, stream = PEERS[n // STREAMS], n % STREAMS
            for seq in range(n % 4):
                await commit(ctx, dut, dict(
                    type=FrameType.TLP, src_node=node, stream=stream, tag=0x100 + n, seq=seq), 0)
            want[n] = (n % 3, n % 4, n, n % 4)
        ctx.set(dut.link.look, 1)
        for _ in range(60):
            n = rng.randrange(24)
            ctx.set(dut.link.looked, n)
            state, unacked, about = await ctx.tick().sample(
                dut.link.state, dut.link.shown_unacked, dut.link.shown).until(dut.link.seen)
            assert (state.seq, state.next, unacked, about.epoch) == want[n]
        ctx.set(dut.link.look, 0)
        done.append(1)

    async def traffic(ctx):
        while not want or len(want) < 24:
            await ctx.tick()
        while not done:
            await answer(ctx, dut, direct=1, session=rng.randrange(24), paths=1)
            await judge(ctx, dut, frame(0, 0))

    simulate(dut, process, traffic)


@pytest.mark.parametrize("cycle", range(8))
@pytest.mark.parametrize("selective", [False, True])
def test_a_route_that_is_under_way_as_its_session_begins_anew_gets_no_number(cycle, selective):
    """Or it is one of the new session; the tag that it carries tells which."""
    dut = link_bench(selective=selective)
    numbered = []

    async def end(ctx):
        await ctx.tick().repeat(100 + cycle)
        ctx.set(dut.tx_tag[0], 0x7777)
        await open_session(ctx, dut, 0)

    async def watch(ctx):
        link = dut.link
        async for _, _, strobe, numbers in ctx.tick().sample(
                link.numbered_strobe, link.numbered):
            if strobe:
                numbered.append((numbers.row, numbers.seq))

    async def process(ctx):
        link = dut.link
        await set_up(ctx, dut)
        for _ in range(2):
            await ask(ctx, dut, 0, 1)
        while ctx.get(link.request.valid):
            await ctx.tick()
        ctx.set(link.request.payload, dict(row=0, consumes=1, begins=1))
        await ctx.tick().repeat(102 - ZEROED - 2 * (4 + selective))
        ctx.set(link.request.valid, 1)
        # It is taken late, so that the session begins anew before.
        await ctx.tick().until(link.route.valid)
        held = ctx.get(link.route.payload)
        await ctx.tick().repeat(12)
        assert ctx.get(link.route.payload) == held
        ctx.set(link.route.ready, 1)
        await ctx.tick()
        ctx.set(link.request.valid, 0)
        ctx.set(link.route.ready, 0)
        assert held.ok
        new = held.tag == 0x7777
        assert held.seq == (0 if new else 2) and held.tag in (0xBEEF, 0x7777)
        await ctx.tick().repeat(2)   # it is known a cycle later
        assert numbered == ([(0, 0)] if new else [])
        after = await ask(ctx, dut, 0, 1)
        assert (after.seq, after.tag) == (new, 0x7777)
        return new

    simulate(dut, process, end, background=[watch])


def test_while_held_no_session_is_looked_up():
    dut = link_bench()

    async def process(ctx):
        link = dut.link
        await set_up(ctx, dut)
        ctx.set(link.hold, 1)
        await ctx.tick()
        for source, header in ((link.request, dict(row=0)), (link.header, frame(0, 0)),
                               (link.committed, dict(header=frame(0, 0)))):
            ctx.set(source.payload, header)
            ctx.set(source.valid, 1)
        ctx.set(dut.down[0], 1)
        lost = ctx.get(link.lost)
        for _ in range(50):
            assert not ctx.get(link.route.valid) and not ctx.get(link.verdict.valid)
            assert not ctx.get(link.committed.ready) and ctx.get(link.lost) == lost
            await ctx.tick()
        # What is told counts at once, and stays until all is known again.
        for bit in (1, 0, 1):
            ctx.set(link.told, 1)
            ctx.set(link.told_session, 0)
            ctx.set(link.told_lost, bit)
            await ctx.tick()
            ctx.set(link.told, 0)
            await ctx.tick().repeat(20)
            assert ctx.get(link.lost) == (0b0011 if bit else 0)
        ctx.set(dut.down[0], 0)
        ctx.set(link.hold, 0)
        ctx.set(link.verdict.ready, 1)
        await ctx.tick().until(link.route.valid)
        await ctx.tick().until(link.committed.ready)
        ctx.set(link.committed.valid, 0)
        await ctx.tick().until(link.verdict.valid)
        assert ctx.get(link.lost) == 0

    simulate(dut, process)


def test_a_row_with_another_peer_is_lost_until_that_is_looked_up():
    dut = link_bench()

    async def process(ctx):
        link = dut.link
        await ctx.tick()
        assert ctx.get(link.lost) == 0b1111  # nothing is known after a reset
        await set_up(ctx, dut)
        assert ctx.get(link.lost) == 0
        for down in (0, 1):
            ctx.set(dut.down[16], down)
            for field, value in (("node", 0x004), ("stream", 1), ("stream", 0)):
                ctx.set(link.rows[2][field], value)
                for cycle in range(4 * len(ROWS)):
                    lost = ctx.get(link.lost)
                    assert lost & 0b1011 == 0
                    assert cycle > 2 or lost == 0b0100  # at once
                    await ctx.tick()
                stream = ctx.get(link.rows[2].stream)
                assert lost == (0b0100 if down and not stream else 0)
            ctx.set(link.rows[2].node, 0x002)
            await ctx.tick().repeat(4 * len(ROWS))
        # A change of a row that is used by nobody, and to a node that is no peer.
        ctx.set(link.rows[3].node, 0x00A)
        assert ctx.get(link.lost) == 0b1000
        await ctx.tick().repeat(4 * len(ROWS))
        assert ctx.get(link.lost) == 0

    simulate(dut, process)


class Account:
    """What a session must be like: plain Python, told of what happens."""

    def __init__(self, number):
        self.number, self.life = number, 0
        self.begin()

    def begin(self):
        self.seq = self.next = self.acked = 0
        self.owes = False
        self.ends = False  # its tags are the next life's already

    def tags(self, life):
        """Tags to send and to receive in a life."""
        return 0x4000 + 64 * life + self.number, 0x8000 + 64 * life + self.number


@pytest.mark.parametrize("peers, streams, steps", [
    (2, 2, 150), pytest.param(16, 4, 150), pytest.param(16, 4, 1500, marks=pytest.mark.long)])
def test_many_sessions_at_random(peers, streams, steps):
    """Frames leave and come by all sessions, while these begin anew. Each has its own numbers."""
    rng = random.Random(seed())
    dut = Bench(rows=6, peers=peers, streams=streams, frames=1000)
    link, many = dut.link, peers * streams
    accounts = [Account(n) for n in range(many)]
    nodes = rng.sample(range(1, 4096), peers)
    rows = [divmod(rng.randrange(many), streams) for _ in range(6)]
    done, opened, seen = [], [], dict(late=0, accepted=0, refused=0, replies=0)
    replies = []

    async def prepare(ctx):
        ctx.set(link.node, NODE)
        ctx.set(link.ack_delay, 20)
        ctx.set(link.frame_done, 1)
        for n, node in enumerate(nodes):
            ctx.set(link.peers[n], dict(valid=1, node=node))
        for n, (peer, stream) in enumerate(rows):
            ctx.set(link.rows[n], dict(node=nodes[peer], slot=0, local_slot=n, stream=stream,
                                       paths=1, used=1))
        for account in accounts:
            for signals, tag in zip((dut.tx_tag, dut.rx_tag), account.tags(0), strict=True):
                ctx.set(signals[account.number], tag)

    async def leave(ctx):
        await prepare(ctx)
        left, idle = steps, 0
        while left or idle < 400:
            if not left and not replies:
                idle += 1
                await ctx.tick()
                continue
            left, idle = max(0, left - 1), 0
            consumes, row = rng.randrange(2), rng.randrange(6)
            number = rows[row][0] * streams + rows[row][1]
            request = dict(row=row)
            if rng.random() < 0.6:
                number = rng.randrange(many)
                request = dict(direct=1, session=number, paths=1)
            if replies and (not left or rng.random() < 0.5):
                number, consumes = replies.pop(0), 0
                request = dict(direct=1, session=number, paths=1)
            ctx.set(link.request.payload, request | dict(consumes=consumes))
            ctx.set(link.request.valid, 1)
            await ctx.tick().until(link.route.valid)
            if wait := rng.choice([0, 0, 1, 2, 20]):
                await ctx.tick().repeat(wait)
            ctx.set(link.route.ready, 1)
            account, route = accounts[number], ctx.get(link.route.payload)
            await ctx.tick()
            ctx.set(link.request.valid, 0)
            ctx.set(link.route.ready, 0)
            assert route.ok and route.session == number
            assert (route.dst_node, route.stream) == (nodes[number // streams], number % streams)
            now = account.tags(account.life)[0]
            if route.tag != now:
                # Of a session that was, or is over in this very cycle.
                assert route.tag == account.tags(account.life - 1)[0]
                seen["late"] += 1
                continue
            assert route.seq == account.seq and account.next - route.ack in (0, 1)
            account.seq += consumes
            if consumes:
                ctx.set(dut.unacked[number], account.seq - account.acked)
            if route.ack == account.next:
                account.owes = False
        done.append(1)

    async def come(ctx):
        await ctx.tick()
        ctx.set(link.said.ready, 1)
        ctx.set(link.acked.ready, 1)
        for _ in range(steps):
            account = rng.choice(accounts)
            life, number = account.life, account.number
            stale = rng.random() < 0.1 and life
            ahead = rng.choice([0, 0, 0, 0, 1, -1, 5])
            kind = rng.choice([FrameType.TLP, FrameType.TLP, FrameType.ACK])
            more = rng.randint(0, account.seq - account.acked)
            header = dict(type=kind, dst_node=NODE, src_node=nodes[number // streams],
                          stream=number % streams, tag=account.tags(life - bool(stale))[1],
                          seq=(account.next + ahead) % 2**24, ack=account.acked + more)
            verdict = await judge(ctx, dut, header)
            good = not stale and (kind == FrameType.ACK or ahead == 0)
            assert account.life != life or account.ends or verdict.accept == good, header
            seen["accepted" if verdict.accept else "refused"] += 1
            if not verdict.accept:
                account.owes |= (not stale and kind == FrameType.TLP and ahead < 0
                                 and account.life == life)
                continue
            if wait := rng.randrange(4):
                await ctx.tick().repeat(wait)
            if account.life == life:
                # As soon as it is booked, routes acknowledge it.
                ctx.set(link.committed.payload, dict(row=0, header=header))
                ctx.set(link.committed.valid, 1)
                await ctx.tick().until(link.committed.ready)
                ctx.set(link.committed.valid, 0)
                if account.life == life:
                    account.acked += more
                    ctx.set(dut.unacked[number], account.seq - account.acked)
                    if kind == FrameType.TLP:
                        account.next += 1
                        account.owes = True
                await ctx.tick().repeat(3)
        done.append(1)

    async def begin(ctx):
        """Sessions begin anew, with other tags."""
        await ctx.tick().repeat(2 * many)
        while not done:
            await ctx.tick().repeat(rng.randint(20, 80))
            account = rng.choice(accounts)
            ctx.set(link.hold, 1)
            account.ends = True
            for signals, tag in zip((dut.tx_tag, dut.rx_tag), account.tags(account.life + 1),
                                    strict=True):
                ctx.set(signals[account.number], tag)
            ctx.set(link.open.payload, account.number)
            ctx.set(link.open.valid, 1)
            while not ctx.get(link.open.ready):
                await ctx.tick()
            account.life += 1
            account.begin()
            await ctx.tick()
            ctx.set(link.open.valid, 0)
            ctx.set(dut.unacked[account.number], 0)
            await ctx.tick().repeat(rng.randint(1, 5))
            ctx.set(link.hold, 0)
            opened.append(account.number)

    async def listen(ctx):
        ctx.set(link.reply.ready, 1)
        async for _, _, valid, reply in ctx.tick().sample(link.reply.valid, link.reply.payload):
            if valid:
                replies.append(reply.session)
                seen["replies"] += 1

    async def finish(ctx):
        while len(done) < 2:
            await ctx.tick()
        for account in accounts:
            state = await state_of(ctx, dut, account.number)
            assert (state.seq, state.next, state.acked) == (
                account.seq, account.next, account.acked), account.number
            assert not account.owes

    simulate(dut, leave, come, begin, finish, background=[
        listen, check_stream(link.route, "route"), check_stream(link.reply, "reply")])
    print(seen, len(opened))
    assert min(seen["accepted"], seen["refused"], seen["replies"], len(opened)) > 5


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="rows must be 1 to 63, not 64"):
        Link(rows=64)
    with pytest.raises(ValueError, match="streams must be 1, 2, 4, 8 or 16, not 3"):
        Link(rows=4, streams=3)
    for peers in (0, 17):
        with pytest.raises(ValueError, match="peers must be 1 to 16 with 4 streams of each, not "):
            Link(rows=4, peers=peers, streams=4)
