"""dxpu.fabric.session.replies: what is said, and when, against a plain account of what came and
left."""

import copy
import random
from collections import Counter, defaultdict, deque

import pytest

from dxpu.fabric.session.replies import CauseKind, Replies
from dxpu.fabric.wire.frame_types import FrameType
from tests.support.testbench import check_stream, drive_words, seed, simulate

TOOK, OLD, GAP, AHEAD = CauseKind
ACK, NAK, SACK = (FrameType.ACK, 0), (FrameType.SACK, 0), (FrameType.SACK, 1)
ACK_DELAY = 100
SOON = 12       # cycles in which something is said at once


class Bench:
    """Tells what came and left; ``said`` are (cycle, kind, session) of what is said, ``requests``
    the numbers of requests of NAKs."""

    def __init__(self, sessions=2):
        self.dut = Replies(sessions=sessions, paths=2)
        self.said, self.requests, self.now = [], [], 0

    async def follow(self, ctx):
        reply = self.dut.reply
        ctx.set(reply.ready, 1)
        async for *_, valid, p in ctx.tick().sample(reply.valid, reply.payload):
            self.now += 1
            if valid:
                self.said.append((self.now, (FrameType(p.type), p.words), p.session))
                if self.said[-1][1] == NAK:
                    self.requests.append(p.request)

    async def came(self, ctx, kind, session=0, **cause):
        stream = self.dut.took if kind is TOOK else self.dut.refused
        cause = dict(numbered=kind is TOOK) | cause
        await drive_words(stream, [dict(kind=kind, session=session, **cause)])(ctx)

    async def left(self, ctx, session=0, whole=1, row=0, all_told=0):
        dut = self.dut
        ctx.set(dut.sent, 1)
        ctx.set(dut.sent_session, session)
        ctx.set(dut.sent_row, row)
        ctx.set(dut.whole, whole)
        ctx.set(dut.all_told, all_told)
        await ctx.tick()
        ctx.set(dut.sent, 0)
        await ctx.tick().repeat(4)

    async def says(self, ctx, *kinds, first=0, last=SOON):
        """Exactly these are said from now on, within so many cycles; those of session 0 leave."""
        self.said.clear()
        begun = self.now
        await ctx.tick().repeat(last)
        assert [kind for _, kind, _ in self.said] == list(kinds)
        assert all(now - begun >= first for now, *_ in self.said), self.said
        if kinds:
            await self.left(ctx)

    def run(self, process):
        async def all_of_it(ctx):
            ctx.set(self.dut.ack_delay, ACK_DELAY)
            await ctx.tick().repeat(80)  # all sessions are known
            await process(ctx)
            await self.says(ctx, last=3 * ACK_DELAY)

        simulate(self.dut, all_of_it, background=[self.follow, check_stream(self.dut.reply)])


def test_an_ack_for_all_that_came_within_its_delay():
    bench = Bench()

    async def process(ctx):
        for frames in (1, 7):
            for _ in range(frames):
                await bench.came(ctx, TOOK)
            await bench.says(ctx, ACK, first=ACK_DELAY - 8 * frames, last=ACK_DELAY + SOON)
            await bench.says(ctx, last=2 * ACK_DELAY)

    bench.run(process)


def test_an_ack_that_does_not_leave_is_not_said_again():
    bench = Bench()

    async def process(ctx):
        await bench.came(ctx, TOOK)
        await ctx.tick().repeat(ACK_DELAY + SOON)
        assert len(bench.said) == 1
        await bench.came(ctx, OLD)
        await bench.says(ctx, last=2 * ACK_DELAY)
        await bench.left(ctx, whole=0)
        await bench.says(ctx, ACK)

    bench.run(process)


def test_a_frame_that_leaves_is_an_answer_if_it_acknowledges_all():
    bench = Bench()

    async def process(ctx):
        await bench.came(ctx, TOOK)
        await ctx.tick().repeat(ACK_DELAY // 2)
        await bench.left(ctx)
        await bench.says(ctx, last=2 * ACK_DELAY)
        # The next delay begins with the next frame.
        await bench.came(ctx, TOOK)
        await bench.left(ctx, session=1)
        await bench.left(ctx, whole=0)
        await bench.says(ctx, ACK, first=ACK_DELAY - 20, last=ACK_DELAY + SOON)

    bench.run(process)


@pytest.mark.parametrize("came, early, frame, stale", [
    (dict(kind=TOOK), 0, {}, True),
    (dict(kind=OLD), 0, {}, True),
    (dict(kind=TOOK), 0, dict(whole=0), False),         # more took effect
    (dict(kind=TOOK), 0, dict(all_told=0), False),      # limits are left to be told
    (dict(kind=TOOK), 0, dict(row=6), False),
    (dict(kind=TOOK), 0, dict(session=1), False),
    (dict(kind=GAP, seq=3), 0, {}, False),              # a NAK
    (dict(kind=TOOK), 1, {}, False),                    # a SACK with a word
])
def test_an_ack_that_waits_is_stale_when_a_frame_has_said_it(came, early, frame, stale):
    """It stays offered, so that a stream it is; the next one is not stale."""
    bench = Bench()
    dut = bench.dut

    async def process(ctx):
        ctx.set(dut.ack_delay, ACK_DELAY)
        ctx.set(dut.early, early)
        await ctx.tick().repeat(80)
        kind = came["kind"]
        await bench.came(ctx, kind, row=5, **{k: v for k, v in came.items() if k != "kind"})
        await ctx.tick().repeat(ACK_DELAY + SOON)
        assert ctx.get(dut.reply.valid) and not ctx.get(dut.stale)
        await bench.left(ctx, **dict(session=0, row=5, all_told=1) | frame)
        assert ctx.get(dut.reply.valid) and ctx.get(dut.stale) == stale
        ctx.set(dut.reply.ready, 1)
        await ctx.tick()
        ctx.set(dut.reply.ready, 0)
        await bench.left(ctx)
        ctx.set(dut.early, 0)
        for _ in range(2):                              # what is said next waits for no frame
            await bench.came(ctx, OLD, row=5)
            await ctx.tick().repeat(SOON)
            assert ctx.get(dut.reply.valid) and not ctx.get(dut.stale)
            ctx.set(dut.reply.ready, 1)
            await ctx.tick()
            ctx.set(dut.reply.ready, 0)
            await bench.left(ctx)

    simulate(dut, process, background=[check_stream(dut.reply)])


def test_what_others_say_is_never_stale():
    """It may be about limits alone."""
    bench = Bench()
    dut = bench.dut

    async def process(ctx):
        await ctx.tick().repeat(80)
        await drive_words(dut.others, [dict(type=FrameType.ACK, row=5, session=0)])(ctx)
        await ctx.tick()
        assert ctx.get(dut.reply.valid)
        await bench.left(ctx, row=5, all_told=1)
        assert ctx.get(dut.reply.valid) and not ctx.get(dut.stale)

    simulate(dut, process, background=[check_stream(dut.reply)])


def test_what_came_before_or_is_urgent_is_answered_at_once():
    bench = Bench()

    async def process(ctx):
        await bench.came(ctx, OLD)
        await bench.says(ctx, ACK)
        for cause in (dict(urgent=1), dict(urgent=1, numbered=0)):
            await bench.came(ctx, TOOK, **cause)
            await bench.says(ctx, ACK)
        await bench.came(ctx, TOOK)
        await bench.says(ctx, last=SOON)
        await bench.came(ctx, OLD)
        await bench.says(ctx, ACK)
        await bench.came(ctx, TOOK)
        await bench.says(ctx, ACK, first=ACK_DELAY - SOON, last=ACK_DELAY + SOON)

    bench.run(process)


def test_a_nak_for_each_frame_behind_a_gap_and_another_request_when_they_begin_anew():
    bench = Bench()
    start = 2**24 - 4   # numbers wrap in between
    request = 0

    async def gaps(ctx, numbers, *, another):
        nonlocal request
        request ^= another
        for n in numbers:
            bench.requests.clear()
            await bench.came(ctx, GAP, seq=(start + n) % 2**24)
            await bench.says(ctx, NAK)
            assert bench.requests == [request], n

    async def process(ctx):
        await gaps(ctx, [0], another=1)
        await gaps(ctx, range(1, 9), another=0)
        await gaps(ctx, [1], another=1)         # the one that is missing was lost again
        await gaps(ctx, range(2, 9), another=0)
        await gaps(ctx, [8], another=1)         # the same once more
        await bench.came(ctx, TOOK)
        await bench.says(ctx, ACK, last=ACK_DELAY + SOON)
        await gaps(ctx, [9], another=1)         # another gap
        await bench.came(ctx, TOOK, numbered=0, urgent=1)
        await bench.says(ctx, ACK)
        await gaps(ctx, [10], another=0)        # the same gap
        # Nothing comes, nothing is said.
        await bench.says(ctx, last=1000)

    bench.run(process)


def test_a_sack_with_a_word_while_frames_are_kept():
    bench = Bench()

    async def process(ctx):
        await bench.came(ctx, AHEAD)
        await bench.says(ctx, SACK)
        ctx.set(bench.dut.early, 1)
        await bench.came(ctx, TOOK)
        await bench.says(ctx, SACK, first=ACK_DELAY - SOON, last=ACK_DELAY + SOON)
        await bench.came(ctx, OLD)
        await bench.says(ctx, SACK)
        await bench.came(ctx, AHEAD)
        await bench.says(ctx, SACK)
        await bench.came(ctx, GAP, seq=70)      # finds no room
        await bench.says(ctx, NAK)
        ctx.set(bench.dut.early, 0b10)
        await bench.came(ctx, OLD)
        await bench.says(ctx, ACK)

    bench.run(process)


def test_answers_wait_while_a_kept_frame_is_about_to_take_effect():
    bench = Bench()

    async def process(ctx):
        ctx.set(bench.dut.coming, 0b01)
        await bench.came(ctx, OLD)
        await bench.came(ctx, AHEAD)
        await bench.says(ctx, last=2 * ACK_DELAY)
        await bench.came(ctx, OLD, session=1)
        await bench.says(ctx, ACK)
        await bench.left(ctx, session=1)
        # What left acknowledges all that took effect; it says nothing of the frame ahead.
        ctx.set(bench.dut.coming, 0)
        await bench.says(ctx, SACK)

    bench.run(process)


def test_nothing_is_said_of_a_session_that_begins_anew():
    bench = Bench()

    async def begins(ctx, session):
        await drive_words(bench.dut.open, [session])(ctx)

    async def process(ctx):
        ctx.set(bench.dut.coming, 0b11)
        for kind in (TOOK, OLD, GAP, AHEAD):
            await bench.came(ctx, kind)
        await bench.came(ctx, OLD, session=1)
        await begins(ctx, 0)
        ctx.set(bench.dut.coming, 0)
        await bench.says(ctx, ACK, last=2 * ACK_DELAY)
        assert [session for *_, session in bench.said] == [1]
        await bench.left(ctx, session=1)
        await bench.came(ctx, GAP, seq=5)   # is the first of its gap
        await bench.says(ctx, NAK)
        await begins(ctx, 0)
        await bench.came(ctx, GAP, seq=6)
        await bench.says(ctx, NAK)

    bench.run(process)


class Account:
    """What is owed to one session."""

    def __init__(self):
        self.due = self.newest = None   # cycle from which an ACK is to be said; if one is missing
        self.request = 0                # number of the last request to go back
        self.asked = self.nak = self.sack = False
        self.place = None               # of the last frame that came

    def came(self, now, cause):
        self.place = (cause.row, cause.dst_slot, cause.src_slot, cause.path)
        kind = CauseKind(cause.kind)
        if kind in (TOOK, OLD):
            due = now if kind is OLD or cause.urgent else now + ACK_DELAY
            self.due = due if self.due is None else min(due, self.due)
        elif kind is GAP:
            if self.newest is None or (cause.seq - self.newest - 1) % 2**24 >= 2**23:
                self.request ^= 1
            self.nak, self.newest = True, cause.seq
        else:
            self.sack = True
        if cause.numbered:
            self.newest, self.nak = None, False

    def left(self, whole):
        self.asked = False
        if whole:
            self.due = None

    def owed(self, now, early):
        """What is to be said, if anything."""
        ack = self.due is not None and now >= self.due and not self.asked
        if self.nak:
            return NAK
        if self.sack or ack and early:
            return SACK
        return ACK if ack else None

    def said(self):
        self.asked, self.sack, self.nak = True, self.sack and self.nak, False


@pytest.mark.parametrize("sessions", [1, 64])
def test_random_orders(sessions):
    """All that is owed is said in time, and nothing else; answers leave when they like."""
    rng = random.Random(seed())
    dut = Replies(sessions=sessions, paths=2)
    accounts = [Account() for _ in range(sessions)]
    since, leaving = defaultdict(int), deque()     # cycle from which something is owed
    others, wanted, total = [], 40, Counter()
    busy = True

    async def check(ctx):
        now, shown = 0, False
        ports = [dut.reply.valid, dut.reply.ready, dut.reply.payload, dut.sent, dut.sent_session,
                 dut.whole, dut.early, dut.coming]
        ports += [x for s in (dut.took, dut.refused, dut.open) for x in (s.valid & s.ready,
                                                                        s.payload)]
        left, bits = deque(), (0, 0)    # (cycle, session, whole): known two cycles later
        # Of each session the frame that left last, and what was owed before: the session may have
        # been picked to be examined before the frame left, and is acted upon two cycles later.
        recent = {}
        async for _, _, *values in ctx.tick().sample(*ports):
            valid, ready, p, sent, who, whole, early, coming, *streams = values
            now += 1
            if valid and not shown:
                if p.row == 63:
                    others.append(p.session)
                else:
                    kind, account = (FrameType(p.type), p.words), accounts[p.session]
                    is_early = bits[0] >> p.session & 1
                    at, covers, before = recent.get(p.session, (-100, False, None))
                    overtaken = now - at <= 1
                    assert kind == (before if overtaken else account).owed(now - 1, is_early), now
                    assert not bits[1] >> p.session & 1
                    assert (p.row, p.dst_slot, p.src_slot, p.path) == account.place
                    assert kind != NAK or p.request == account.request
                    account.said()
                    if overtaken:
                        account.left(covers)
                    total[kind] += 1
                    since.pop(p.session, None)
                    leaving.append((now + rng.randint(1, 200), p.session))
            shown = valid and not ready
            while left and left[0][0] == now - 2:
                _, session, covers = left.popleft()
                recent[session] = now, covers, copy.copy(accounts[session])
                accounts[session].left(covers)
            for happens, cause in zip(streams[:4:2], streams[1:4:2], strict=True):
                if happens:
                    accounts[cause.session].came(now, cause)
            if streams[4]:
                accounts[streams[5]] = Account()
            bits = early, coming
            if sent:
                left.append((now, who, whole))
            for n, account in enumerate(accounts):
                if account.owed(now, 0) is None or coming >> n & 1:
                    since.pop(n, None)
                elif now - since.setdefault(n, now) > 8 * sessions + 60:
                    raise AssertionError(f"{now}: nothing is said to {n}")

    def cause(kinds):
        kind = rng.choice(kinds)
        return dict(kind=kind, session=rng.randrange(sessions), urgent=rng.random() < 0.1,
                    numbered=kind is TOOK and rng.random() < 0.8, seq=rng.randrange(2**24),
                    row=rng.randrange(60), dst_slot=rng.randrange(256),
                    src_slot=rng.randrange(256), path=rng.randrange(2))

    async def feed(ctx):
        nonlocal busy
        ctx.set(dut.ack_delay, ACK_DELAY)
        await drive_words(dut.took, [cause([TOOK]) for _ in range(300)], rng=rng,
                          density=0.03)(ctx)
        busy = False
        await ctx.tick().repeat(3000)

    async def leave(ctx):
        while True:
            session = None
            if leaving and rng.random() < 0.5:
                session = leaving.popleft()[1]
            elif rng.random() < 0.02:
                session = rng.randrange(sessions)
            if session is not None:
                ctx.set(dut.sent, 1)
                ctx.set(dut.sent_session, session)
                ctx.set(dut.whole, rng.random() < 0.8 or not busy)
                await ctx.tick()
                ctx.set(dut.sent, 0)
            await ctx.tick().repeat(rng.randint(6, 30))

    async def bits(ctx):
        while True:
            ctx.set(dut.reply.ready, rng.random() < 0.8)
            if rng.random() < 0.01:
                ctx.set(dut.early, rng.getrandbits(sessions))
            await ctx.tick()

    async def come(ctx):
        while True:
            await ctx.tick().repeat(rng.randint(50, 300))
            ctx.set(dut.coming, busy * rng.getrandbits(sessions) & rng.getrandbits(sessions))
            await ctx.tick().repeat(rng.randint(1, 200))
            ctx.set(dut.coming, 0)

    simulate(dut, feed, drive_words(dut.others, [
        dict(type=FrameType.ACK, row=63, session=n) for n in range(wanted)], rng=rng,
        density=0.01), background=[
            check, leave, bits, come, check_stream(dut.reply),
            drive_words(dut.refused, [cause([OLD, GAP, AHEAD]) for _ in range(300)], rng=rng,
                        density=0.03),
            drive_words(dut.open, [rng.randrange(sessions) for _ in range(20)], rng=rng,
                        density=0.002)])
    assert others == list(range(wanted))
    assert min(total[kind] for kind in (ACK, NAK, SACK)) > 20, total
