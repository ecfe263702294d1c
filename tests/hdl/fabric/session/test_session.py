"""dxpu.fabric.session.session: sessions open by themselves, and nothing of an old one is ever
taken."""

import random
from dataclasses import replace

import pytest
from amaranth.lib import data
from dxpu.fabric.contexts import UNIT
from dxpu.fabric.session.session import POLLS, Mode, Phase, SessionKeeper
from dxpu.fabric.wire.frame_types import Body, FrameType
from dxpu.fabric.wire.types import Hello
from dxpu_model.spec.session import Sessions
from tests.support.engine_bench import open_anew, set_mode, set_tags
from tests.support.session_bench import BOX, HOST, UP, Ends, Player, Sent
from tests.support.testbench import count_pulses, seed, simulate


async def settle(play, frames, alive=lambda frame: True):
    """Deliver what both ends say until nothing is said; ``frames`` collects it."""
    while said := [f for n in (HOST, BOX) for f in await play.said(n)]:
        frames += said
        for frame in said:
            if alive(frame):
                await play.deliver(frame)
                # A HELLO that comes before there is another tag is not answered.
                await play.ctx.tick().repeat(play.dut.turn)


def test_the_layout_of_a_hello_is_that_of_the_wire():
    assert [8 * size for _, size in Body.HELLO.fields] == [
        field.width for _, field in data.Layout.cast(Hello)]


def test_wrong_arguments():
    for pause in (1, 1.5, "8"):
        with pytest.raises(ValueError, match="pause must be an integer of at least 2, not "):
            SessionKeeper(peers=1, streams=1, paths=1, pause=pause)


@pytest.mark.parametrize("options", [
    dict(), dict(unit=UNIT, pause=SessionKeeper.PAUSE)], ids=["quick", "defaults"])
def test_three_frames_open_a_session(options):
    dut, totals = Ends(**options), ({}, {})

    async def process(ctx):
        play = await Player(ctx, dut).set_up()
        assert not await play.said(HOST, 100)  # until the boot counter is known
        assert await play.phases() == [Phase.OFF, Phase.OFF]
        play.boot(HOST, 5)
        play.boot(BOX, 0x107)
        hello, = await play.said(HOST)
        nonce, mine, echoed, boot = hello.hello
        assert (hello.type, hello.tag, hello.seq, hello.ack) == (FrameType.HELLO, 0, 0, 0)
        assert nonce == 5 << 16 | mine and mine and not echoed and boot == 5
        assert await play.phase(BOX) == Phase.LISTEN and ctx.get(dut.ends[BOX].link.lost) == 1
        for _ in range(2):  # the same answer for the same nonce
            assert await play.deliver(hello)
            answer, = await play.said(BOX)
            offered = answer.hello[1]
            assert answer.type == FrameType.HELLO_ACK and answer.tag == mine
            assert answer.hello == (nonce, offered, mine, 0x107) and offered
            view = await play.view(BOX)
            assert view.tags is None and view.candidate == offered and view.greets
        assert await play.deliver(answer)
        view = await play.view(HOST)
        assert view.phase == Phase.CONFIRM and view.tags == (mine, offered)
        assert view.boot == 0x107 and not view.greets and not view.candidate
        assert ctx.get(dut.ends[HOST].link.lost) == 1
        ack, = await play.said(HOST)
        assert (ack.type, ack.tag, ack.ar) == (FrameType.ACK, offered, 1)
        # A frame that turns out bad confirms nothing; nor does one with a number.
        assert not await play.deliver(ack, good=False)
        early = await play.send(HOST)
        assert not await play.deliver(early)
        assert await play.phase(BOX) == Phase.LISTEN
        assert await play.deliver(ack)
        view = await play.view(BOX)
        assert view.phase == Phase.OPEN and view.tags == (offered, mine) and view.boot == 5
        await settle(play, [])
        assert await play.phase(HOST) == Phase.OPEN
        await ctx.tick().repeat(5)
        assert [ctx.get(end.link.lost) for end in dut.ends] == [0, 0]
        assert await play.deliver(early) and await play.numbers(BOX) == (0, 0, 1)

    simulate(dut, process, background=[count_pulses(end.keeper, into) for end, into in zip(
        dut.ends, totals, strict=True)])
    for counts in totals:
        assert counts == dict(opened=1, lost=0, rebooted=0, stale=0, unfit=0)


@pytest.mark.parametrize("end", [HOST, BOX], ids=["HELLO_ACK", "HELLO"])
def test_no_session_opens_with_a_peer_that_cannot_take_what_is_sent(end):
    """What it says is ignored and counted, until it says something else."""
    dut, totals = Ends(), ({}, {})

    async def process(ctx):
        play = await Player(ctx, dut).set_up()
        play.boot(HOST, 5), play.boot(BOX, 7)
        ctx.set(dut.ends[end].keeper.unfit, 1)
        frame, = await play.said(HOST)
        if end == HOST:
            await play.deliver(frame)
            frame, = await play.said(BOX)
        for _ in range(3):
            assert await play.deliver(frame)
            assert not [f for f in await play.said(end) if f.type != FrameType.HELLO]
        assert await play.tags(end) is None and not (await play.view(end)).candidate
        # Of the same form, but with another security mode.
        ctx.set(dut.ends[end].keeper.unfit, 0)
        ctx.set(dut.ends[end].hello.security, 1)
        assert await play.deliver(frame) and await play.tags(end) is None
        ctx.set(dut.ends[end].hello.security, 0)
        await play.deliver(frame)
        await settle(play, [])
        assert await play.phases() == [Phase.OPEN, Phase.OPEN]

    simulate(dut, process, background=[
        count_pulses(dut.ends[n].keeper, totals[n]) for n in (HOST, BOX)])
    assert totals[end]["unfit"] == 4 and totals[end]["stale"] == 0
    assert not totals[1 - end]["unfit"]


@pytest.mark.parametrize("end", [HOST, BOX], ids=["host", "box"])
def test_an_end_that_gives_up_tells_the_other_at_once(end):
    """By a FENCE with the session's tag; without it the other one would have to find out."""
    dut, totals = Ends(), ({}, {})
    other = 1 - end

    async def process(ctx):
        play = await Player(ctx, dut).set_up(quiet=10_000)
        play.boot(HOST, 5), play.boot(BOX, 7)
        for n in (HOST, BOX):
            ctx.set(dut.ends[n].keeper.quiet, 0)
        await settle(play, [])
        mine, theirs = await play.tags(end)
        for n in (HOST, BOX):
            ctx.set(dut.ends[n].keeper.quiet, 10_000)
        for frame in (await play.send(end), await play.send(end), await play.send(other)):
            assert await play.deliver(frame)
            await play.said(HOST), await play.said(BOX)
        await play.give_up(end)
        fence, = await play.said(end)
        assert (fence.type, fence.tag, fence.seq, fence.ack, fence.ar) == (
            FrameType.FENCE, theirs, 2, 1, 0)
        # Only with the session's own tag, which its own end does not know it by, and with numbers
        # that may be those of the session: ACK of nothing that was not sent.
        for wrong in ({"tag": 0}, {"tag": mine}, {"tag": theirs ^ 1}, {"seq": 2 + 1024},
                      {"seq": 2 - 1025 & 0xFFFFFF}, {"ack": 2}, {"seq": 1 << 23}):
            assert not await play.deliver(replace(fence, **wrong))
        assert await play.phase(other) == Phase.OPEN
        assert not await play.deliver(fence, good=False)
        assert await play.phase(other) == Phase.OPEN
        assert await play.deliver(fence)
        view = await play.view(other)
        assert view.phase == Phase.QUIET and view.tags is None and view.numbers == (0, 0, 0)
        assert ctx.get(dut.ends[other].link.lost)
        # Nothing is answered, and it does not fit again.
        assert not await play.said(other) and not await play.deliver(fence)
        assert await play.phases() == [Phase.QUIET, Phase.QUIET]

    simulate(dut, process, background=[
        count_pulses(dut.ends[n].keeper, totals[n]) for n in (HOST, BOX)])
    assert [total["lost"] for total in totals] == [1, 1]


def test_a_fence_with_the_tag_of_a_candidate_opens_and_ends_nothing():
    dut = Ends()

    async def process(ctx):
        play = await Player(ctx, dut).set_up()
        play.boot(HOST, 5), play.boot(BOX, 7)
        await settle(play, [])
        await play.reset(HOST, 6)
        hello, = await play.said(HOST)
        assert await play.deliver(hello)
        before = await play.view(BOX)
        assert before.candidate and before.phase == Phase.OPEN
        assert not await play.deliver(Sent(HOST, FrameType.FENCE, before.candidate, 0, 0, 0))
        assert await play.view(BOX) == before

    simulate(dut, process)


def test_tags_wrap_and_none_is_zero():
    """The counter of tags is a few short of 2**16 at both ends."""
    dut = Ends()
    tags = []

    async def process(ctx):
        play = await Player(ctx, dut).set_up()
        for end in (HOST, BOX):
            play.boot(end, 0xFFFF)  # all ones, however it is turned
        await ctx.tick().repeat(2)
        for end in (HOST, BOX):
            ctx.set(dut.ends[end].keeper._tag, 0xFFFE - end)
        for _ in range(5):
            await settle(play, [])
            assert await play.phases() == [Phase.OPEN, Phase.OPEN]
            tags.append(await play.tags(HOST))
            assert tags[-1] == (await play.tags(BOX))[::-1]
            await play.give_up(HOST)

    simulate(dut, process)
    assert all(0 not in pair for pair in tags)
    for end in zip(*tags, strict=True):
        assert len(set(end)) == len(end) and max(end) >= 0xFFFD and min(end) < 10


def test_a_hello_while_open_changes_nothing_until_its_tag_is_used():
    """The peer was reset: its new session replaces the old one, which is lost, once."""
    dut, box = Ends(), {}
    strobes, fences = [], []

    async def process(ctx):
        play = await Player(ctx, dut).set_up()
        await ctx.tick().repeat(5)
        strobes.clear(), fences.clear()
        play.boot(HOST, 1), play.boot(BOX, 1)
        frames = []
        await settle(play, frames)
        await play.give_up(HOST)
        await settle(play, [])
        old = await play.tags(BOX)
        await play.deliver(await play.send(HOST))
        await play.reset(HOST, 2)
        hello, = await play.said(HOST)
        # Old ones and the new one, in turns: each time another tag, and the old session stays.
        seen = {old[0]}
        for frame in [frames[0], hello] * 3:
            await play.deliver(frame)
            answers = [f for f in await play.said(BOX) if f.type == FrameType.HELLO_ACK]
            if frame is hello:
                answer, = answers
                assert answer.hello[1] not in seen
                seen.add(answer.hello[1])
            view = await play.view(BOX)
            assert view.tags == old and view.numbers[2] == 1 and not view.down
            assert not ctx.get(dut.ends[BOX].link.lost)
        await play.deliver(answer)
        for frame in await play.said(HOST):
            await play.deliver(frame)
        view = await play.view(BOX)
        assert view.phase == Phase.OPEN and view.tags[0] == answer.hello[1]
        assert view.numbers == (0, 0, 0) and view.boot == 2
        await ctx.tick().repeat(10)

    async def watch(ctx):
        keeper, before = dut.ends[BOX].keeper, 0
        async for _, _, told, lost, open, fenced in ctx.tick().sample(
                keeper.told, keeper.lost, keeper.open.valid, dut.ends[BOX].link.lost):
            if told:
                strobes.append(lost)
            # The row is fenced from when the session begins.
            assert fenced or not open
            if before and not fenced:
                fences.append(1)
            before = fenced

    simulate(dut, process, background=[count_pulses(dut.ends[BOX].keeper, box), watch])
    assert (box["opened"], box["lost"], box["rebooted"]) == (3, 2, 1)
    # Once for each, and once more for the one that the host gave up; then there was none.
    assert strobes == [1] * 4 and len(fences) == 3


class Compared:
    """The ends beside :class:`~dxpu_model.spec.session.Sessions`: after each step they must be in a
    state that the specification allows. It looks at the sessions of one stream."""

    def __init__(self, play, rng, stream=0):
        self.play, self.rng, self.stream = play, rng, stream
        self.model = Sessions(tlps=(10**6, 10**6), offers=10**6, window=8)
        self.state = self.model.initial()
        self.tags = ({}, {})     # by end: tag it chose to tag or nonce of the specification
        self.nonces = {}         # of HELLOs
        self.frames = []         # with what the specification calls them
        self.taken = self.refused = 0
        self.last = [None, None]  # numbers of the session that an end has forgotten

    async def hear(self, said):
        """What the ends have said by themselves."""
        mine = [(frame, self._named(frame)) for frame in said if frame.stream == self.stream]
        if mine:
            self.frames += mine
            await self.compare(self.state)

    def _named(self, frame):
        n, tags = frame.source, self.tags
        if frame.type == FrameType.HELLO:
            nonce, tag, _, _ = frame.hello
            if nonce not in self.nonces:
                assert self.state.hello is None and self.state.ends[HOST] is None
                assert tag not in tags[HOST], "a tag was used again"
                _, self.state = self.model._open(self.state)
                self.nonces[nonce] = tags[HOST][tag] = self.state.hello[0]
            return ("HELLO", BOX, 0, self.nonces[nonce], 0, self.state.hello[1])
        if frame.type == FrameType.HELLO_ACK:
            nonce, tag, echoed, _ = frame.hello
            assert tags[HOST][echoed] == self.nonces[nonce]
            return ("HELLO_ACK", HOST, self.nonces[nonce], tags[BOX][tag], 0, 0)
        if frame.type == FrameType.FENCE:
            assert (frame.seq, frame.ack, frame.ar) == (*self.last[n], 0)
            return ("FENCE", 1 - n, tags[1 - n][frame.tag], 0, 0, 0)
        assert frame.type in (FrameType.ACK, FrameType.SACK)
        session = self.state.ends[n]
        assert tags[1 - n][frame.tag] == session.theirs
        return ("ACK", 1 - n, session.theirs, frame.ack, 0, session.born)

    async def send(self, n):
        session = self.state.ends[n]
        if session is None or session.sent - session.acked >= self.model.window:
            return
        (_, self.state), = self.model._send(self.state, n)
        frame = replace(await self.play.send(n, self.stream), ack=0)
        self.frames.append((frame, ("DATA", 1 - n, session.theirs, session.sent,
                                    session.first + session.sent, session.born)))
        assert (self.tags[1 - n][frame.tag], frame.seq) == (session.theirs, session.sent)

    def forget(self, n):
        """The end has forgotten the session, and did not tell the peer."""
        if (session := self.state.ends[n]) is not None:
            self.last[n] = session.sent, session.taken
        self.state = self.model._reset(self.state, n)

    async def deliver(self):
        """Any frame that was ever sent."""
        recent = self.rng.random() < 0.7
        frame, named = self.rng.choice(self.frames[-3:] if recent else self.frames)
        allowed = [after for _, after in self.model.take(self.state, *named)] or [self.state]
        if not await self.play.deliver(frame, good=self.rng.random() < 0.95):
            self.refused += 1
            allowed = [self.state, *allowed]  # what is not taken was lost
        self.taken += 1
        after, = allowed[-1:]
        if named[0] == "HELLO" and after.offers != self.state.offers:
            tag = (await self.play.view(BOX, self.stream)).candidate
            if tag and tag not in self.tags[BOX]:
                self.tags[BOX][tag] = after.candidate[1]
            else:
                after = self.state
        seen = await self.seen()
        for state in (after, self.state):
            if seen == self.said_by_the_specification(state):
                break
        # Only what may be lost is not done: nothing else may stay without effect.
        wanted = allowed if state is self.state else [after]
        assert any(s is state or s == state for s in wanted) or named[0] in ("HELLO", "DATA"), named
        assert seen == self.said_by_the_specification(state)
        self.state = state
        assert self.state.fault is None

    async def seen(self):
        """The ends, in the words of the specification."""
        box, ends = self.tags[BOX], []
        for n in (HOST, BOX):
            view = await self.play.view(n, self.stream)
            ends.append(view.tags and (self.tags[n][view.tags[0]],
                                       self.tags[1 - n][view.tags[1]], *view.numbers))
            sent, acked, _ = view.numbers
            assert view.unacked == sent - acked
        return (*ends, view.candidate and box[view.candidate])

    def said_by_the_specification(self, state):
        ends = [s and (s.mine, s.theirs, s.sent, s.acked, s.taken) for s in state.ends]
        return (*ends, state.candidate[1] if state.candidate else 0)

    async def compare(self, state):
        assert await self.seen() == self.said_by_the_specification(state)


@pytest.mark.parametrize("steps, number, options", [
    (300, 0, {}), pytest.param(
        150, 1, dict(streams=2, peers=2, place=(1, 0), pace=2), marks=pytest.mark.long),
    *(pytest.param(1500, n, {}, marks=pytest.mark.long) for n in range(2, 5)),
    pytest.param(1000, 5, dict(unit=UNIT), marks=pytest.mark.long)])
def test_random_actions_are_what_the_specification_allows(steps, number, options):
    """Frames of any age come in any order; ends are reset and give up at any time."""
    rng = random.Random(100 * seed() + number)
    dut = Ends(**options)

    async def process(ctx):
        play = await Player(ctx, dut).set_up()
        play.boot(HOST, rng.randint(1, 9)), play.boot(BOX, rng.randint(1, 9))
        runs, boots = [Compared(play, rng, n) for n in range(dut.streams)], [1, 1]
        opened, often = [0] * dut.streams, 0.02 * len(runs)
        for _ in range(steps):
            said = [f for n in (HOST, BOX) for f in await play.said(n, 16)]
            for run in runs:
                await run.hear(said)
            run, what, n = rng.choice(runs), rng.random(), rng.choice((HOST, BOX))
            # Tags of seven boots in a row differ. No older frame is under way when those come
            # again.
            if what < often / 2 and boots[n] < 7:
                boots[n] += 1
                await play.reset(n, play.boots[n] + 1)
                for each in runs:
                    each.forget(n)
            elif what < often:
                await play.give_up(n, run.stream)
                run.forget(n)
            elif what < 0.3:
                await run.send(n)
            elif run.frames:
                await run.deliver()
            for each in runs:
                opened[each.stream] += each.state.ends[HOST] is not None
        for run in runs:
            state = run.state
            print(f"{len(run.frames)} frames, {run.taken} came, {run.refused} refused, open in "
                  f"{opened[run.stream]} steps, {state.hellos} HELLOs, {state.offers} tags, "
                  f"TLPs {[len(tlps) for tlps in state.got]}")
            assert state.hellos and run.refused
        # How much comes through is left to chance.
        assert all(sum(len(run.state.got[n]) for run in runs) for n in (HOST, BOX))
        assert sum(run.state.hellos for run in runs) > 2
        # What is of no session here was not touched.
        others = set(range(dut.peers * dut.streams)) - {
            dut.session(HOST, n) for n in range(dut.streams)}
        for session in others:
            view = await play.look(HOST, session)
            assert (view.phase, view.tags, view.numbers) == (Phase.OFF, None, (0, 0, 0))

    simulate(dut, process, deadline=10**7)


def steps_of_opening():
    """Actions that open a session and use it, one at a time."""
    async def hello(play, frames):
        frames += await play.said(HOST)

    async def deliver(play, frames):
        await play.deliver(frames[-1])

    async def answer(play, frames):
        frames += await play.said(BOX)

    async def data(play, frames):
        for n in (HOST, BOX):
            if frame := await play.send(n):
                frames.append(frame)
                await play.deliver(frame)

    return [hello, deliver, answer, deliver, hello, deliver, answer, deliver, data, data]


@pytest.mark.parametrize("end", [HOST, pytest.param(BOX, marks=pytest.mark.long)],
                         ids=["host", "box"])
def test_reset_in_every_state_and_all_old_frames_again(end):
    """Whatever was sent before one end forgot it comes again, while a new session opens and when it
    is open: none of it is taken, and the session that is open stays."""
    rng = random.Random(seed())
    steps = steps_of_opening()
    dut = Ends()

    async def process(ctx):
        play, boots, ages = await Player(ctx, dut).set_up(), [0, 0], []
        for last in range(len(steps) + 1):
            for n in (HOST, BOX):
                boots[n] += 1
                await play.reset(n, boots[n])
            frames = []
            for step in steps[:last]:
                await step(play, frames)
            # Tags may be those of seven boots before, or more.
            ages = [*ages[-2:], frames]
            old = sum(ages, [])
            boots[end] += 1
            await play.reset(end, boots[end])
            if await play.phase(HOST) in UP:  # it would find out by itself
                await play.give_up(HOST)
            # Now all old ones between the new.
            numbered = [f for f in old if f.type == FrameType.EVENT]
            for _ in range(12):
                said = [f for n in (HOST, BOX) for f in await play.said(n)]
                for frame in (*rng.sample(old, min(len(old), 6)), *said):
                    if frame.type == FrameType.EVENT:
                        assert not await play.deliver(frame), f"{frame} after step {last}"
                    else:
                        await play.deliver(frame)
            # The host's timer, if an old HELLO has taken the place of its own.
            await settle(play, [])
            if await play.phase(HOST) != Phase.OPEN:
                await play.give_up(HOST)
                await settle(play, [])
            assert await play.phases() == [Phase.OPEN, Phase.OPEN], last
            tags = await play.tags(HOST)
            assert tags == (await play.tags(BOX))[::-1]
            for frame in (*numbered, *old[-8:]):
                assert not (await play.deliver(frame) and frame.type == FrameType.EVENT)
                await play.said(BOX, 4)
            await settle(play, [])
            assert await play.tags(HOST) == tags == (await play.tags(BOX))[::-1]
            frame = await play.send(HOST)
            assert frame.seq == 0 and await play.deliver(frame)
            new = [await play.send(BOX)]
            assert new[0].seq == 0 and await play.deliver(new[0])
            ages[-1] += [frame, *new]

    simulate(dut, process, deadline=10**6)


@pytest.mark.parametrize("peers, streams, count", [(1, 1, 8), (16, 4, 6)])
def test_hellos_are_repeated_with_doubling_waits_on_all_paths(peers, streams, count):
    dut = SessionKeeper(peers=peers, streams=streams, paths=3, pause=2)
    times, paths = [], []
    turn = max(UNIT, 4 * peers * streams)

    async def process(ctx):
        session = peers * streams - 1
        ctx.set(dut.valid, ~0)
        ctx.set(dut.wait, 8)
        ctx.set(dut.quiet, 20)
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.open.ready, 1)
        await set_mode(ctx, dut, Mode.OPENS, session=session)
        ctx.set(dut.boot, 7)
        cycle = 0
        async for _, _, valid, greeting in ctx.tick().sample(dut.o.valid, dut.o.payload):
            cycle += 1
            if valid:
                times.append(cycle)
                paths.append(greeting.path)
                assert greeting.type == FrameType.HELLO and greeting.session == session
            if len(times) == count:
                break

    simulate(dut, process)
    waits = [(b - a - turn) / (8 * 64) for a, b in zip(times, times[1:], strict=False)]
    assert [round(wait) for wait in waits] == [1, 2, 4, 8, 16, 16, 16][:count - 1]
    assert all(abs(wait - round(wait)) < 0.02 for wait in waits)
    assert paths == [n % 3 for n in range(count)]
    # It is called for the time to begin, for its end, for a tag, and for saying it.
    assert 20 * 64 <= times[0] < 20 * 64 + 5 * turn


def test_a_peer_that_falls_silent_is_polled_and_lost_and_comes_back():
    """The box dies: after eight waits four polls, then the session is lost; quiet; HELLO."""
    dut, host = Ends(unit=UNIT), {}

    async def process(ctx):
        play = await Player(ctx, dut).set_up(wait=6, quiet=20)
        play.boot(HOST, 1), play.boot(BOX, 1)
        while await play.phase(HOST) != Phase.OPEN:
            await settle(play, [])
        # Polls are answered.
        await ctx.tick().until(dut.ends[HOST].keeper.o.valid)
        poll, = await play.said(HOST, 100)
        assert poll.ar and await play.deliver(poll)
        answer, *_ = [f for f in await play.said(BOX, 100) if not f.ar]
        assert await play.deliver(answer)
        keeper, begin = dut.ends[HOST].keeper, 0
        polls = []
        ctx.set(keeper.o.ready, 1)
        while not ctx.get(keeper.told):
            begin += 1
            if ctx.get(keeper.o.valid):
                assert ctx.get(keeper.o.payload.type) == FrameType.ACK.value
                polls.append(begin)
            await ctx.tick()
        # 8 waits, then 1, 2, 4 and 8.
        assert len(polls) == POLLS and -64 < begin - 23 * 6 * 64 < 6 * 64
        assert [round((b - a) / (6 * 64)) for a, b in zip(polls, polls[1:], strict=False)] == [
            1, 2, 4]
        await ctx.tick().repeat(2)
        assert await play.phase(HOST) == Phase.QUIET and ctx.get(dut.ends[HOST].link.lost)
        ctx.set(keeper.o.ready, 0)
        silent = 0
        while not ctx.get(keeper.o.valid):
            silent += 1
            await ctx.tick()
        assert 19 * 64 <= silent <= 24 * 64
        while await play.phases() != [Phase.OPEN, Phase.OPEN]:
            await settle(play, [])
        assert await play.tags(HOST) == (await play.tags(BOX))[::-1]

    simulate(dut, process, background=[count_pulses(dut.ends[HOST].keeper, host)])
    assert (host["opened"], host["lost"], host["rebooted"]) == (2, 1, 0)


def test_a_session_that_is_not_confirmed_begins_with_another_nonce():
    """The box's answer came, and then nothing more: five times the host asks for a frame."""
    dut, host = Ends(unit=UNIT), {}

    async def process(ctx):
        play = await Player(ctx, dut).set_up()
        play.boot(HOST, 1), play.boot(BOX, 1)
        hello, = await play.said(HOST)
        await play.deliver(hello)
        answer, = await play.said(BOX)
        ctx.set(dut.ends[HOST].keeper.wait, 2)
        await play.deliver(answer)
        assert await play.phase(HOST) == Phase.CONFIRM
        said = []
        while not said or said[-1].type == FrameType.ACK:
            said += await play.said(HOST, 70)
        ctx.set(dut.ends[HOST].keeper.wait, 0)
        assert [f.type for f in said] == [FrameType.ACK] * (1 + POLLS) + [FrameType.HELLO]
        view = await play.view(HOST)
        assert view.phase == Phase.HELLO and view.tags is None and view.numbers == (0, 0, 0)
        assert said[-1].hello[0] != hello.hello[0]
        # The old answer comes again: nothing.
        assert await play.deliver(answer) and await play.phase(HOST) == Phase.HELLO
        await play.deliver(said[-1])
        await settle(play, [])
        assert await play.phases() == [Phase.OPEN, Phase.OPEN]

    simulate(dut, process, background=[count_pulses(dut.ends[HOST].keeper, host)])
    assert (host["opened"], host["lost"], host["stale"]) == (1, 0, 1)


def test_a_failed_session_opens_again_by_itself():
    """A frame is never acknowledged, until the retransmitter gives the session up."""
    dut = Ends()

    async def process(ctx):
        play = await Player(ctx, dut).set_up(quiet=500)
        play.boot(HOST, 1), play.boot(BOX, 1)
        for n in (HOST, BOX):
            await ctx.tick().repeat(2100)
            await settle(play, [])
            assert await play.phases() == [Phase.OPEN, Phase.OPEN]
            before, end = await play.tags(HOST), dut.ends[n]
            await play.send(n)
            ctx.set(end.retransmitter.wait, 1)
            await ctx.tick().until(end.retransmitter.stat_failed)
            ctx.set(end.retransmitter.wait, 0)
            await ctx.tick().until(end.link.open.valid & end.link.open.ready)
            await play.calm(n)
            view = await play.view(n)
            assert (view.phase, view.tags, view.numbers) == (Phase.QUIET, None, (0, 0, 0))
            assert not view.failed and ctx.get(end.link.lost) and view.unacked == 0
            fence, = await play.said(n, 20)
            assert fence.type == FrameType.FENCE and await play.deliver(fence)
            assert await play.phases() == [Phase.QUIET, Phase.QUIET]
            await ctx.tick().repeat(2100)
            await settle(play, [])
            assert await play.phases() == [Phase.OPEN, Phase.OPEN]
            assert not {*before} & {*await play.tags(HOST)}

    simulate(dut, process)


@pytest.mark.parametrize("peers, place", [
    (3, (0, 2)), pytest.param(16, (5, 11), marks=pytest.mark.long)])
def test_only_the_right_sessions_are_touched(peers, place):
    """All sessions, up to 64, are set up by software, but for two streams of one peer."""
    many, streams = 4 * peers, (1, 2)
    dut = Ends(peers=peers, streams=4, place=place, pace=2)
    here, there = (4 * n for n in place)
    opens = [[dut.session(n, stream) for stream in streams] for n in (HOST, BOX)]

    async def process(ctx):
        # A HELLO that comes before there is another fresh tag is said again.
        play = await Player(ctx, dut).set_up(streams=streams, wait=500)
        for session in range(many):
            for n in (HOST, BOX):
                if session not in opens[n]:
                    tags = 0x9000 + session, 0xA000 + session
                    await set_tags(ctx, dut.ends[n].keeper, *tags, session=session)
        play.cycles = dut.turn + 20
        now = [await play.look_at_all(n) for n in (HOST, BOX)]

        async def changed():
            """Sessions that are not what they were."""
            which = set()
            for n in (HOST, BOX):
                views = await play.look_at_all(n)
                which |= {(n, session) for session in range(many)
                          if views[session] != now[n][session]}
                now[n] = views
            return which

        assert await changed() == set()
        play.boot(HOST, 3), play.boot(BOX, 4)
        frames = []
        while any([await play.phase(n, stream) != Phase.OPEN
                   for n in (HOST, BOX) for stream in streams]):
            await settle(play, frames)
        both = {(n, session) for n in (HOST, BOX) for session in opens[n]}
        assert await changed() == both
        assert {f.stream for f in frames} == {*streams}
        tags = [now[n][session].tags for n in (HOST, BOX) for session in opens[n]]
        assert len({*sum(tags, ())}) == 4 and all(
            now[n][session].phase == Phase.OPEN for n, session in both)
        # A frame, by a session of each kind.
        for stream, at_host in ((1, here + 1), (3, here + 3)):
            frame = await play.send(HOST, stream)
            assert await changed() == {(HOST, at_host)}
            if stream == 1:
                assert await play.deliver(frame)
                assert await changed() == {(BOX, there + 1)}
                await settle(play, [])
                assert await changed() == {(HOST, at_host)}
            else:  # the box has other tags for that
                assert not await play.deliver(frame)
        # One ends, and opens again; then one of those that software opens.
        await play.give_up(BOX, 2)
        assert await changed() == {(BOX, there + 2)}
        await play.give_up(HOST, 2)
        while await play.phases(2) != [Phase.OPEN, Phase.OPEN]:
            await settle(play, [])
        assert await changed() == {(HOST, here + 2), (BOX, there + 2)}
        assert now[HOST][here + 2].phase == Phase.OPEN
        await open_anew(ctx, dut.ends[HOST].keeper, session=here + 3)
        await play.calm(HOST)
        assert await changed() == {(HOST, here + 3)}
        view = now[HOST][here + 3]
        assert view.tags == (0xA003 + here, 0x9003 + here) and view.numbers == (0, 0, 0)
        # A peer is gone, and those of its sessions that opened by themselves are.
        for n in (HOST, BOX):
            ctx.set(dut.ends[n].link.peers[place[n]].valid, 0)
        await ctx.tick().repeat(600)
        assert await changed() == both
        assert {now[n][session].phase for n, session in both} == {Phase.OFF}

    simulate(dut, process)


def test_tags_do_not_repeat_over_boots():
    """8191 tags of each of seven boots in a row are all different, wherever the counter stands."""
    def first(boot):
        return boot >> 3 | (boot & 7) << 13

    rng = random.Random(seed())
    for boot in (1, 0xFFF9, *(rng.randrange(1, 0xFFF9) for _ in range(50))):
        starts = sorted(first(b) for b in range(boot, boot + 7))
        gaps = [b - a for a, b in zip(starts, [*starts[1:], starts[0] + 65536], strict=True)]
        assert min(gaps) >= 8191
    # And that is where the hardware begins.
    dut = SessionKeeper(peers=1, streams=1, paths=1, pause=2, unit=4)

    async def process(ctx):
        ctx.set(dut.valid, 1)
        ctx.set(dut.quiet, 0)
        ctx.set(dut.open.ready, 1)
        await set_mode(ctx, dut, Mode.OPENS)
        ctx.set(dut.boot, 0x1235)
        tags = []
        while len(tags) < 5:
            ctx.set(dut.o.ready, 1)
            greeting, = await ctx.tick().sample(dut.o.payload).until(dut.o.valid)
            ctx.set(dut.o.ready, 0)
            tags.append(greeting.offered)
            ctx.set(dut.boot, 0x1235 + len(tags))  # has no effect any more
            await open_anew(ctx, dut)
        assert tags == [first(0x1235) + n for n in range(5)]

    simulate(dut, process)


def test_settings_of_software():
    """Tags count in mode REGISTERS only; another mode ends the session, the same one does not."""
    dut, totals = SessionKeeper(peers=2, streams=2, paths=1, pause=2, unit=4), {}
    opened = []

    async def process(ctx):
        ctx.set(dut.valid, 0b11)
        ctx.set(dut.receiving, 3)
        ctx.set(dut.sending, 3)

        async def check(*opens, **expect):
            await ctx.tick().repeat(2)
            assert opened == [*opens], expect
            opened.clear()
            got = dict(rx=ctx.get(dut.rx_tag), tx=ctx.get(dut.tx_tag), down=ctx.get(dut.down))
            assert got == expect

        await set_tags(ctx, dut, 7, 8, session=3)
        await check(rx=8, tx=7, down=0)
        await set_tags(ctx, dut, 9, 10, session=2)
        await check(rx=8, tx=7, down=0)
        await open_anew(ctx, dut, session=3)
        await check((3, 1), rx=8, tx=7, down=0)
        await set_mode(ctx, dut, Mode.REGISTERS, session=3)
        await check(rx=8, tx=7, down=0)
        await set_mode(ctx, dut, Mode.ANSWERS, session=3)
        await check((3, 1), rx=0, tx=0, down=1)
        await set_tags(ctx, dut, 7, 8, session=3)
        await check(rx=0, tx=0, down=1)
        await set_mode(ctx, dut, Mode.REGISTERS, session=3)
        await check((3, 1), rx=0, tx=0, down=0)
        ctx.set(dut.receiving, 2)
        ctx.set(dut.sending, 2)
        await check(rx=10, tx=9, down=0)

    async def opener(ctx):
        """Takes its time, so that it is seen that the keeper waits."""
        while True:
            session, = await ctx.tick().sample(dut.open.payload).until(dut.open.valid)
            ctx.set(dut.open.ready, 1)
            await ctx.tick()
            ctx.set(dut.open.ready, 0)

    async def told(ctx):
        async for _, _, told, about, lost in ctx.tick().sample(dut.told, dut.about, dut.lost):
            if told:
                opened.append((about, lost))

    simulate(dut, process, background=[opener, told, count_pulses(dut, totals)])
    assert not any(totals.values())
