"""dxpu.fabric.session: sessions open by themselves, and nothing of an old one is ever taken."""

import random
from dataclasses import replace

import pytest
from amaranth.lib import data
from session_bench import BOX, HOST, UP, Ends, Player

from dxpu.fabric.format import HELLO_SIZES, FrameType
from dxpu.fabric.session import POLLS, Mode, Phase, SessionKeeper
from dxpu.fabric.types import Hello
from dxpu_sim.spec.session import Sessions
from dxpu_sim.testbench import count_pulses, seed, simulate


async def settle(play, frames, alive=lambda frame: True):
    """Deliver what both ends say until nothing is said; ``frames`` collects it."""
    while said := [f for n in (HOST, BOX) for f in await play.said(n)]:
        frames += said
        for frame in said:
            if alive(frame):
                await play.deliver(frame)


def test_the_layout_of_a_hello_is_that_of_the_wire():
    assert [8 * size for size in HELLO_SIZES] == [
        field.width for _, field in data.Layout.cast(Hello)]


def test_wrong_arguments():
    for pause in (1, 1.5, "8"):
        with pytest.raises(ValueError, match="pause must be an integer of at least 2, not "):
            SessionKeeper(sessions=1, paths=1, pause=pause)


def test_three_frames_open_a_session():
    dut = Ends()

    async def process(ctx):
        play = Player(ctx, dut)
        assert not await play.said(HOST, 100)  # until the boot counter is known
        assert play.phase(HOST) == play.phase(BOX) == Phase.OFF
        play.boot(HOST, 5)
        play.boot(BOX, 0x107)
        hello, = await play.said(HOST)
        nonce, mine, echoed, boot = hello.hello
        assert (hello.type, hello.tag, hello.seq, hello.ack) == (FrameType.HELLO, 0, 0, 0)
        assert nonce == 5 << 16 | mine and mine and not echoed and boot == 5
        assert play.phase(BOX) == Phase.LISTEN and ctx.get(dut.ends[BOX].keeper.down) == 1
        for _ in range(2):  # the same answer for the same nonce
            assert await play.deliver(hello)
            answer, = await play.said(BOX)
            offered = answer.hello[1]
            assert answer.type == FrameType.HELLO_ACK and answer.tag == mine
            assert answer.hello == (nonce, offered, mine, 0x107) and offered
            assert play.tags(BOX) is None
        assert await play.deliver(answer)
        assert play.phase(HOST) == Phase.CONFIRM and play.tags(HOST) == (mine, offered)
        assert ctx.get(dut.ends[HOST].keeper.down) == 1
        ack, = await play.said(HOST)
        assert (ack.type, ack.tag, ack.ar) == (FrameType.ACK, offered, 1)
        # A frame that turns out bad confirms nothing; nor does one with a number.
        assert not await play.deliver(ack, good=False)
        early = await play.send(HOST)
        assert not await play.deliver(early)
        assert play.phase(BOX) == Phase.LISTEN
        assert await play.deliver(ack)
        assert play.phase(BOX) == Phase.OPEN and play.tags(BOX) == (offered, mine)
        assert ctx.get(dut.ends[BOX].keeper.peer_boot[0]) == 5
        await settle(play, [])
        assert play.phase(HOST) == Phase.OPEN and not ctx.get(dut.ends[HOST].keeper.down)
        assert await play.deliver(early) and play.numbers(BOX) == (0, 0, 1)

    simulate(dut, process)


def test_tags_wrap_and_none_is_zero():
    """The counter of tags is a few short of 2**16 at both ends."""
    dut = Ends()
    tags = []

    async def process(ctx):
        play = Player(ctx, dut)
        for end in (HOST, BOX):
            play.boot(end, 0xFFFF)  # all ones, however it is turned
        await ctx.tick().repeat(2)
        for end in (HOST, BOX):
            ctx.set(dut.ends[end].keeper._tag, 0xFFFE - end)
        for _ in range(5):
            await settle(play, [])
            assert play.phase(HOST) == play.phase(BOX) == Phase.OPEN
            assert play.tags(HOST) == play.tags(BOX)[::-1]
            tags.append(play.tags(HOST))
            await play.give_up(HOST)

    simulate(dut, process)
    assert all(0 not in pair for pair in tags)
    for end in zip(*tags, strict=True):
        assert len(set(end)) == len(end) and max(end) >= 0xFFFD and min(end) < 10


def test_a_hello_while_open_changes_nothing_until_its_tag_is_used():
    """The peer was reset: its new session replaces the old one, which is lost, once."""
    dut, box = Ends(), {}

    async def process(ctx):
        play = Player(ctx, dut)
        play.boot(HOST, 1), play.boot(BOX, 1)
        frames = []
        await settle(play, frames)
        await play.give_up(HOST)
        await settle(play, [])
        old, keeper = play.tags(BOX), dut.ends[BOX].keeper
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
            assert play.tags(BOX) == old and play.numbers(BOX)[2] == 1
            assert not ctx.get(keeper.down)
        await play.deliver(answer)
        for frame in await play.said(HOST):
            ctx.set(dut.ends[BOX].link.rows[0].used, 1)
            await play.deliver(frame)
        assert play.phase(BOX) == Phase.OPEN and play.tags(BOX)[0] == answer.hello[1]
        assert play.numbers(BOX) == (0, 0, 0) and ctx.get(keeper.peer_boot[0]) == 2
        await ctx.tick().repeat(5)

    async def fences(ctx):
        async for _, _, lost, tags in ctx.tick().sample(dut.ends[BOX].link.lost,
                                                        dut.ends[BOX].link.sessions[0].rx_tag):
            if tags:
                box["fenced"] = box.get("fenced", 0) + lost

    simulate(dut, process, background=[count_pulses(dut.ends[BOX].keeper, box), fences])
    assert (box["opened"], box["lost"], box["rebooted"]) == (3, 2, 1)
    assert box["fenced"] == 3  # once for each


class Compared:
    """The ends beside :class:`~dxpu_sim.spec.session.Sessions`: after each step they must be in a
    state that the specification allows."""

    def __init__(self, play, rng):
        self.play, self.rng = play, rng
        self.model = Sessions(tlps=(10**6, 10**6), offers=10**6, window=8)
        self.state = self.model.initial()
        self.tags = ({}, {})     # by end: tag it chose to tag or nonce of the specification
        self.nonces = {}         # of HELLOs
        self.frames = []         # with what the specification calls them
        self.taken = self.refused = 0
        self.boots = [1, 1]

    async def listen(self):
        """What the ends say by themselves."""
        for n in (HOST, BOX):
            for frame in await self.play.said(n):
                self.frames.append((frame, self._named(frame)))
        self.compare(self.state)

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
        assert frame.type in (FrameType.ACK, FrameType.SACK)
        session = self.state.ends[n]
        assert tags[1 - n][frame.tag] == session.theirs
        return ("ACK", 1 - n, session.theirs, frame.ack, 0, session.born)

    async def send(self, n):
        session = self.state.ends[n]
        if session is None or session.sent - session.acked >= self.model.window:
            return
        (_, self.state), = self.model._send(self.state, n)
        frame = replace(await self.play.send(n), ack=0)
        self.frames.append((frame, ("DATA", 1 - n, session.theirs, session.sent,
                                    session.first + session.sent, session.born)))
        assert (self.tags[1 - n][frame.tag], frame.seq) == (session.theirs, session.sent)

    async def forget(self, n):
        """A reset, or a session that is given up, which does not tell the peer."""
        # Tags of seven boots in a row differ. No older frame is under way when those come again.
        if self.rng.random() < 0.5 and self.boots[n] < 7:
            self.boots[n] += 1
            await self.play.reset(n, self.play.boots[n] + 1)
        else:
            await self.play.give_up(n)
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
            tag = int(self.play.ctx.get(self.play.dut.ends[BOX].keeper.candidate[0]))
            if tag and tag not in self.tags[BOX]:
                self.tags[BOX][tag] = after.candidate[1]
            else:
                after = self.state
        for state in (after, self.state):
            if self.same(state):
                break
        # Only what may be lost is not done: nothing else may stay without effect.
        wanted = allowed if state is self.state else [after]
        assert any(s is state or s == state for s in wanted) or named[0] in ("HELLO", "DATA"), named
        self.compare(state)
        self.state = state
        assert self.state.fault is None

    def seen(self):
        """The ends, in the words of the specification."""
        play, box = self.play, self.tags[BOX]
        ends = []
        for n in (HOST, BOX):
            tags = play.tags(n)
            ends.append(tags and (self.tags[n][tags[0]], self.tags[1 - n][tags[1]],
                                  *play.numbers(n)))
        candidate = int(play.ctx.get(play.dut.ends[BOX].keeper.candidate[0]))
        return (*ends, candidate and box[candidate])

    def said_by_the_specification(self, state):
        ends = [s and (s.mine, s.theirs, s.sent, s.acked, s.taken) for s in state.ends]
        return (*ends, state.candidate[1] if state.candidate else 0)

    def same(self, state):
        return self.seen() == self.said_by_the_specification(state)

    def compare(self, state):
        assert self.seen() == self.said_by_the_specification(state)


@pytest.mark.parametrize("steps, number", [
    (300, 0), (300, 1), *(pytest.param(1500, n, marks=pytest.mark.long) for n in range(2, 6))])
def test_random_actions_are_what_the_specification_allows(steps, number):
    """Frames of any age come in any order; ends are reset and give up at any time."""
    rng = random.Random(100 * seed() + number)
    dut = Ends()

    async def process(ctx):
        play = Player(ctx, dut)
        play.boot(HOST, rng.randint(1, 9)), play.boot(BOX, rng.randint(1, 9))
        run = Compared(play, rng)
        opened = 0
        for _ in range(steps):
            await run.listen()
            what = rng.random()
            if what < 0.02:
                await run.forget(rng.choice((HOST, BOX)))
            elif what < 0.3:
                await run.send(rng.choice((HOST, BOX)))
            elif run.frames:
                await run.deliver()
            opened += play.phase(HOST) == Phase.OPEN
        got = [len(got) for got in run.state.got]
        print(f"{len(run.frames)} frames, {run.taken} came, {run.refused} refused, open in "
              f"{opened} steps, {run.state.hellos} HELLOs, {run.state.offers} tags, TLPs {got}")
        assert min(got) > 0 and run.state.hellos > 2 and run.refused

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


@pytest.mark.parametrize("end", [HOST, BOX], ids=["host", "box"])
def test_reset_in_every_state_and_all_old_frames_again(end):
    """Whatever was sent before one end forgot it comes again, while a new session opens and when it
    is open: none of it is taken, and the session that is open stays."""
    rng = random.Random(seed())
    steps = steps_of_opening()
    dut = Ends()

    async def process(ctx):
        play, boots, ages = Player(ctx, dut), [0, 0], []
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
            if play.phase(HOST) in UP:  # it would find out by itself
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
            if play.phase(HOST) != Phase.OPEN:
                await play.give_up(HOST)
                await settle(play, [])
            assert play.phase(HOST) == play.phase(BOX) == Phase.OPEN, last
            tags = play.tags(HOST)
            assert tags == play.tags(BOX)[::-1]
            for frame in (*numbered, *old[-8:]):
                assert not (await play.deliver(frame) and frame.type == FrameType.EVENT)
                await play.said(BOX, 4)
            await settle(play, [])
            assert play.tags(HOST) == tags == play.tags(BOX)[::-1]
            frame = await play.send(HOST)
            assert frame.seq == 0 and await play.deliver(frame)
            new = [await play.send(BOX)]
            assert new[0].seq == 0 and await play.deliver(new[0])
            ages[-1] += [frame, *new]

    simulate(dut, process, deadline=10**6)


def test_hellos_are_repeated_with_doubling_waits_on_all_paths():
    dut = SessionKeeper(sessions=1, paths=3, pause=2)
    times, paths = [], []

    async def process(ctx):
        ctx.set(dut.config[0], dict(valid=1, node=9, mode=Mode.OPENS))
        ctx.set(dut.boot, 7)
        ctx.set(dut.wait, 2)
        ctx.set(dut.quiet, 5)
        ctx.set(dut.o.ready, 1)
        cycle = 0
        async for _, _, valid, greeting in ctx.tick().sample(dut.o.valid, dut.o.payload):
            cycle += 1
            if valid:
                times.append(cycle)
                paths.append(greeting.path)
                assert greeting.type == FrameType.HELLO
            if len(times) == 8:
                break

    simulate(dut, process)
    waits = [round((b - a) / 128) for a, b in zip(times, times[1:], strict=False)]
    assert waits == [1, 2, 4, 8, 16, 16, 16] and paths == [0, 1, 2, 0, 1, 2, 0, 1]
    assert 5 * 64 <= times[0] < 6 * 64 + 10


def test_a_peer_that_falls_silent_is_polled_and_lost_and_comes_back():
    """The box dies: after eight waits four polls, then the session is lost; quiet; HELLO."""
    dut, host = Ends(), {}

    async def process(ctx):
        play = Player(ctx, dut, wait=2, quiet=20)
        play.boot(HOST, 1), play.boot(BOX, 1)
        while play.phase(HOST) != Phase.OPEN:
            await settle(play, [])
        # Polls are answered.
        await ctx.tick().repeat(8 * 128)
        poll, = await play.said(HOST)
        assert poll.ar and await play.deliver(poll)
        answer, *_ = [f for f in await play.said(BOX) if not f.ar]
        assert await play.deliver(answer)
        await play.said(HOST)
        keeper, begin = dut.ends[HOST].keeper, 0
        polls = []
        while play.phase(HOST) == Phase.OPEN:
            begin += 1
            ctx.set(keeper.o.ready, 1)
            if ctx.get(keeper.o.valid):
                polls.append(begin)
            await ctx.tick()
        assert len(polls) == POLLS and -64 < begin - 23 * 128 < 6 * 64
        await ctx.tick().repeat(2)
        assert ctx.get(keeper.down) and ctx.get(dut.ends[HOST].link.lost)
        ctx.set(keeper.o.ready, 0)
        silent = 0
        while not ctx.get(keeper.o.valid):
            silent += 1
            await ctx.tick()
        assert 19 * 64 <= silent <= 22 * 64
        while play.phase(HOST) != Phase.OPEN or play.phase(BOX) != Phase.OPEN:
            await settle(play, [])
        assert play.tags(HOST) == play.tags(BOX)[::-1]

    simulate(dut, process, background=[count_pulses(dut.ends[HOST].keeper, host)])
    assert (host["opened"], host["lost"], host["rebooted"]) == (2, 1, 0)


def test_a_failed_session_opens_again_by_itself():
    dut = Ends()

    async def process(ctx):
        play = Player(ctx, dut, quiet=2)
        play.boot(HOST, 1), play.boot(BOX, 1)
        for n in (HOST, BOX):
            await ctx.tick().repeat(200)
            await settle(play, [])
            assert play.phase(HOST) == play.phase(BOX) == Phase.OPEN
            before = play.tags(HOST)
            ctx.set(dut.ends[n].keeper.failed, 1)
            assert ctx.get(dut.ends[n].link.open) == 1
            await ctx.tick()
            ctx.set(dut.ends[n].keeper.failed, 0)
            assert play.phase(n) == Phase.QUIET and play.tags(n) is None
            if n == BOX:
                await play.give_up(HOST)
            await ctx.tick().repeat(200)
            await settle(play, [])
            assert play.phase(HOST) == play.phase(BOX) == Phase.OPEN
            assert not {*before} & {*play.tags(HOST)}

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
    dut = SessionKeeper(sessions=1, paths=1, pause=2)

    async def process(ctx):
        ctx.set(dut.config[0], dict(valid=1, node=9, mode=Mode.OPENS))
        ctx.set(dut.boot, 0x1235)
        ctx.set(dut.quiet, 0)
        ctx.set(dut.o.ready, 1)
        tags = []
        while len(tags) < 5:
            if ctx.get(dut.o.valid):
                tags.append(ctx.get(dut.o.payload.offered))
                ctx.set(dut.boot, 0x1235 + len(tags))  # has no effect any more
                ctx.set(dut.reopen, 1)
                await ctx.tick()
                ctx.set(dut.reopen, 0)
            await ctx.tick()
        assert tags == [first(0x1235) + n for n in range(5)]

    simulate(dut, process)
