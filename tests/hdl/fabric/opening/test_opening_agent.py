"""dxpu.fabric.opening: the agent does what the golden model of an end does, frame by frame.

The bench is the keeper: it gives tags, and has frames sent that the agent tells of.
"""

import random
from dataclasses import replace

import pytest
from amaranth import Module
from amaranth.lib.wiring import connect
from dxpu.crypto.aes import Aes128
from dxpu.crypto.cmac import Cmac
from dxpu.crypto.share import CipherShare, MacShare
from dxpu.fabric.opening.agent import OpeningAgent
from dxpu.fabric.opening.types import BODY_WORDS, Called, Told
from dxpu_model.keyed import HELLO, HELLO_ACK, HELLO_DONE, Ends
from dxpu_model.opening import Answerer, Begun, Keys, Opener, OpeningFrame
from tests.support.crypto_bench import words
from tests.support.opening_bench import authenticates, give_key, halves
from tests.support.testbench import seed, simulate

#: Of the agent's sessions, the one that is looked at has this number.
PEERS, STREAMS, PEER, STREAM = 3, 2, 1, 1
SESSION = PEER * STREAMS + STREAM
YOUNG, SAID = 250, 50
HOST, BOX = 0x105, 0x00A
NODES = {PEER - 1: 0x0B3, PEER + 1: 0xFFE}
FIRST, SECOND, THIRD = (bytes(range(n, n + 16)) for n in (0, 16, 32))
#: Of a HELLO of either, behind nonce and tags.
HOST_FIELDS = bytes.fromhex("0000000105ee004000fa2ee00003000700000000")
BOX_FIELDS = bytes.fromhex("0108000105ee004000fa2ee00003000900000001")
CAME = {HELLO: Called.HELLO, HELLO_ACK: Called.HELLO_ACK, HELLO_DONE: Called.HELLO_DONE}
SENDS = {HELLO: Called.SEND_HELLO, HELLO_ACK: Called.SEND_HELLO_ACK,
         HELLO_DONE: Called.SEND_HELLO_DONE}


def ends(stream=STREAM):
    return Ends(HOST, BOX, stream)


class Drawn:
    """Draws for a golden model and writes them down."""

    def __init__(self, rng):
        self._rng, self.nonces, self.tags = rng, [], []

    def nonce(self, size):
        self.nonces.append(self._rng.randbytes(size))
        return self.nonces[-1]

    def tag(self):
        self.tags.append(self._rng.randrange(1, 1 << 16))
        return self.tags[-1]


class Agent:
    """The agent, and what surrounds it. ``real``: with its cipher; else Python authenticates."""

    def __init__(self, *, opens, real=False):
        self.part = OpeningAgent(peers=PEERS, streams=STREAMS, young=YOUNG, said=SAID)
        self.opens, self.real = opens, real
        self.m = Module()
        self.m.submodules.agent = self.part
        self.random = []
        self.counted = {}
        if real:
            self.m.submodules.cmac = cmac = Cmac()
            self.m.submodules.aes = aes = Aes128(ram=True)
            self.m.submodules.share = share = CipherShare(count=2)
            self.m.submodules.mac_share = macs = MacShare(count=2)
            connect(self.m, share.i, aes.i)
            connect(self.m, aes.o, share.o)
            connect(self.m, cmac.cipher, share.users[0])
            connect(self.m, macs.use, cmac.use)
            connect(self.m, self.part.cmac, macs.users[0])

    def run(self, process):
        async def whole(ctx):
            part = self.part
            ctx.set(part.opens, self.opens)
            ctx.set(part.node, HOST if self.opens else BOX)
            for n, word in enumerate(halves(HOST_FIELDS if self.opens else BOX_FIELDS)):
                ctx.set(part.own_fields[n], word)
            ctx.set(part.body_ready, 1)
            await process(ctx)

        simulate(self.m, whole, background=[
            self._draws, self._counts, *([] if self.real else [authenticates(self.part)])])

    async def _draws(self, ctx):
        o = self.part.random
        while True:
            ctx.set(o.valid, bool(self.random))
            ctx.set(o.payload, self.random[0] if self.random else 0xDEADBEEF)
            _, _, taken = await ctx.tick().sample(o.ready)
            if taken and self.random:
                del self.random[0]

    async def _counts(self, ctx):
        names = ("knock", "proof", "stale")
        while True:
            _, _, *pulses = await ctx.tick().sample(
                *(getattr(self.part, f"stat_{name}") for name in names))
            for name, pulse in zip(names, pulses, strict=True):
                self.counted[name] = self.counted.get(name, 0) + pulse

    def will_draw(self, nonces):
        self.random += [word for nonce in nonces for word in words(nonce)]

    async def passes(self, ctx, ticks):
        ctx.set(self.part.tick, 1)
        await ctx.tick().repeat(ticks)
        ctx.set(self.part.tick, 0)

    async def gets_key(self, ctx, key, *, following=False, peer=PEER):
        await give_key(ctx, self.part, key, peer=peer, following=following,
                       node=NODES.get(peer, BOX if self.opens else HOST))
        await self._rests(ctx)

    async def _rests(self, ctx):
        """Until the agent waits for a call."""
        await ctx.tick().until(self.part.call.ready)

    async def call(self, ctx, kind, *, tag=0, offered=0, confirms=0, body=None, fresh=0,
                   session=SESSION):
        """What it tells, and the frame that it wants to be sent; else None."""
        part = self.part
        ctx.set(part.call.payload, {
            "kind": kind, "session": session, "peer": BOX if self.opens else HOST, "tag": tag,
            "offered": offered, "confirms": confirms})
        ctx.set(part.call.valid, 1)
        await ctx.tick().until(part.call.ready)
        ctx.set(part.call.valid, 0)
        ctx.set(part.fresh_tag, fresh)
        told, said, self.cycles = [], None, 0
        body, sent = halves(body or bytes(2 * BODY_WORDS)), {}
        while True:
            ctx.set(part.came_word, body[ctx.get(part.body_at)])
            await ctx.delay(0)
            if ctx.get(part.body_put):
                sent[ctx.get(part.body_at)] = ctx.get(part.body_word)
            if ctx.get(part.finding.valid):
                told.append({name: ctx.get(part.finding.payload[name]) for name in (
                    "kind", "session", "offered", "theirs", "seq", "next")})
                ctx.set(part.finding.ready, 1)
            if ctx.get(part.opening_frame.valid):
                frame = part.opening_frame.payload
                said = [ctx.get(frame[name]) for name in ("type", "session", "tag")]
                assert len(sent) == BODY_WORDS - 2  # without the CRC
                said.append(b"".join(sent[n].to_bytes(2, "little") for n in range(len(sent))))
                ctx.set(part.opening_frame.ready, 1)
            if ctx.get(part.call.ready):
                break
            await ctx.tick()
            self.cycles += 1
            assert self.cycles < 5000, "the agent hangs"
            ctx.set(part.finding.ready, 0)
            ctx.set(part.opening_frame.ready, 0)
        assert all(tell["session"] == session for tell in told)
        return told, said

    async def comes(self, ctx, frame, **options):
        return await self.call(ctx, CAME[frame.kind], tag=frame.tag, body=frame.body(),
                               session=PEER * STREAMS + frame.ends.stream, **options)

    async def sends(self, ctx, kind, **options):
        """The frame of this type that it has sent now."""
        told, said = await self.call(ctx, SENDS[kind], **options)
        assert not told
        if said is None:
            return None
        type_, session, tag, text = said
        assert (type_, session) == (kind, SESSION)
        return OpeningFrame(type_, ends(), tag, text[:28], text[28:36], text[36:44], text[44:])


def begun(tell, opens):
    """Tags and numbers of a session: to the opener, to the answerer, of either's first frame."""
    mine = tell["offered"], tell["seq"]
    theirs = tell["theirs"], tell["next"]
    opener, answerer = (mine, theirs) if opens else (theirs, mine)
    return opener[0], answerer[0], opener[1], answerer[1]


def numbers(session: Begun):
    return session.to_opener, session.to_answerer, session.opener_seq, session.answerer_seq


class Box:
    """The agent as a box beside the golden model; the keeper's part is here."""

    def __init__(self, rng, **options):
        self.agent, self.drawn = Agent(opens=0, **options), Drawn(rng)
        self.keys = Keys(FIRST)
        self.model = Answerer(ends(), self.keys, bytes(8) + BOX_FIELDS, draw=self.drawn.nonce,
                              draw_tag=self.drawn.tag)
        self.now, self.offered = 0, 0

    async def takes(self, ctx, frame):
        """What both answer; they agree."""
        before, began = len(self.drawn.tags), self.model.session
        sent, acks = self.model.take(frame, self.now)
        drawn = len(self.drawn.tags) > before
        if drawn:
            self.agent.will_draw(self.drawn.nonces[-1:])
        elif not self.agent.random:
            self.agent.random += [1, 2]  # those of nobody
        await ctx.tick()
        told, said = await self.agent.comes(ctx, frame, offered=self.offered,
                                            fresh=self.drawn.tags[-1] if drawn else 0x5555)
        assert said is None
        self.cycles = self.agent.cycles
        kinds = [tell["kind"] for tell in told]
        if drawn:
            assert kinds == [Told.WANTS, Told.OFFERS]
            self.offered = told[1]["offered"]
            assert self.offered == self.drawn.tags[-1]
        elif acks and self.model.session is not began:
            assert kinds == [Told.BEGINS]
            assert begun(told[0], opens=False) == numbers(self.model.session)
            self.offered = 0
        else:
            assert kinds == [Told.AGAIN] * len(sent) + [Told.REPEATS] * acks
        self.agent.random[:] = []
        if sent:
            assert await self.agent.sends(ctx, HELLO_ACK, offered=self.offered) == replace(
                sent[0], path=0)
        return sent, acks

    async def passes(self, ctx, ticks):
        self.now += ticks
        await self.agent.passes(ctx, ticks)


class Host:
    """The same as a host."""

    def __init__(self, rng, **options):
        self.agent, self.drawn = Agent(opens=1, **options), Drawn(rng)
        self.keys = Keys(FIRST)
        self.model = Opener(ends(), self.keys, bytes(8) + HOST_FIELDS, paths=1,
                            draw=self.drawn.nonce, draw_tag=self.drawn.tag, now=0)

    @property
    def offered(self):
        """The tag that it offers, until a frame of the session came."""
        return self.drawn.tags[-1] if self.model._sends and not self.model.confirmed else 0

    async def goes_on(self, ctx):
        """Sends what is due, until the model has another time."""
        frames = self.model.tick(self.model.deadline())
        self.agent.will_draw(self.drawn.nonces[-1:])
        await ctx.tick()
        for frame in frames:
            assert await self.agent.sends(ctx, frame.kind, offered=self.offered) == frame
        self.agent.random[:] = []
        return frames

    async def takes(self, ctx, frame):
        began, offered = self.model.session, self.offered
        sent = self.model.take(frame, self.model.deadline() or 0)
        told, said = await self.agent.comes(
            ctx, frame, confirms=began is not None, offered=offered)
        assert said is None
        kinds = [tell["kind"] for tell in told]
        if self.model.session is not began:
            assert kinds == [Told.BEGINS]
            assert begun(told[0], opens=True) == numbers(self.model.session)
        else:
            assert kinds == [Told.AGAIN] * len(sent)
        if sent:
            assert await self.agent.sends(
                ctx, HELLO_DONE, offered=self.offered) == sent[0]
        return sent

    async def hears(self, ctx):
        self.model.heard()
        await self.agent.call(ctx, Called.HEARD)


def peer(rng, key=FIRST, following=None):
    """Golden models of the ends."""
    return (
        Opener(ends(), Keys(key, following), bytes(8) + HOST_FIELDS, paths=1, draw=rng.randbytes,
               draw_tag=lambda: rng.randrange(1, 1 << 16), now=0),
        Answerer(ends(), Keys(key, following), bytes(8) + BOX_FIELDS, draw=rng.randbytes,
                 draw_tag=lambda: rng.randrange(1, 1 << 16)))


#: Cycles from a HELLO to its candidate, and from a HELLO_DONE to the session, with a cipher and a
#: CMAC that are shared.
ANSWERED, OPENED = 1217, 363


@pytest.mark.parametrize("real", [False, True], ids=["python", "cipher"])
def test_a_box_is_opened(real):
    rng = random.Random(seed())
    box, (opener, _) = Box(rng, real=real), peer(rng)

    async def process(ctx):
        await box.agent.gets_key(ctx, FIRST)
        hello, = opener.tick(0)
        (answer,), _ = await box.takes(ctx, hello)
        assert not real or box.cycles == ANSWERED
        done, = opener.take(answer, 1)
        _, acks = await box.takes(ctx, done)
        assert not real or box.cycles == OPENED
        assert acks and numbers(opener.session) == numbers(box.model.session)
        # Again, and what is old now.
        assert (await box.takes(ctx, done)) == ([], True)
        assert box.agent.counted == {"knock": 0, "proof": 0, "stale": 0}

    box.agent.run(process)


@pytest.mark.parametrize("real", [False, True], ids=["python", "cipher"])
def test_a_host_opens(real):
    rng = random.Random(seed())
    host, (_, answerer) = Host(rng, real=real), peer(rng)

    async def process(ctx):
        await host.agent.gets_key(ctx, FIRST)
        hello, = await host.goes_on(ctx)
        assert await host.goes_on(ctx) == [hello]
        (answer,), _ = answerer.take(hello, 1)
        done, = await host.takes(ctx, answer)
        _, acks = answerer.take(done, 2)
        assert acks and numbers(answerer.session) == numbers(host.model.session)
        assert await host.takes(ctx, answer) == [done]
        await host.hears(ctx)
        assert host.agent.counted == {"knock": 0, "proof": 0, "stale": 0}

    host.agent.run(process)


def altered(rng, frame):
    """The frame with one bit of header or body changed."""
    body = bytearray(frame.body()[:-4])
    bit = rng.randrange(-16, 8 * len(body))
    if bit < 0:
        return replace(frame, tag=frame.tag ^ 1 << (bit + 16))
    body[bit // 8] ^= 1 << bit % 8
    return OpeningFrame(frame.kind, frame.ends, frame.tag, bytes(body[:28]), bytes(body[28:36]),
                        bytes(body[36:44]), bytes(body[44:]))


def forged(rng, frame):
    """The frame with another proof."""
    return replace(frame, proof=(int.from_bytes(frame.proof, "big") ^ 1 << rng.randrange(128))
                   .to_bytes(16, "big"))


#: Of a test. Between a frame of the right kind and its answer a forged one comes in every other.
STEPS = 150


@pytest.mark.parametrize("number", range(4))
def test_a_box_among_strangers(number):
    """Frames of two honest hosts with the key, of one with another key, altered and repeated."""
    rng = random.Random(1000 * seed() + number)
    box = Box(rng)
    openers = [peer(rng)[0], peer(rng)[0], peer(rng, SECOND)[0]]

    async def process(ctx):
        frames, opened = [], 0
        await box.agent.gets_key(ctx, FIRST)
        for _ in range(STEPS):
            opener, what = rng.choice(openers), rng.random()
            if what < 0.3 or not frames:
                deadline = opener.deadline()
                frame, = opener.tick(0 if deadline is None else deadline) or [rng.choice(frames)]
                frames.append(frame)
            elif what < 0.6:
                frame = altered(rng, rng.choice(frames[-6:]))
            else:
                frame = rng.choice(frames[-rng.choice([2, 6, 1000]):])
            sent, acks = await box.takes(ctx, frame)
            opened += acks
            for opener in openers:
                for answer in sent:
                    frames += opener.take(answer, 0)
            if frames[-1].kind == HELLO_DONE and rng.random() < 0.5:
                await box.takes(ctx, forged(rng, frames[-1]))
            if acks and rng.random() < 0.5:
                for opener in openers:
                    opener.end(0)
            await box.passes(ctx, rng.choice([1, 10, 60, 300]))
        assert box.agent.counted == {name: box.model.counters[name] for name in (
            "knock", "proof", "stale")}
        assert opened and all(box.agent.counted.values())

    box.agent.run(process)


@pytest.mark.parametrize("number", range(4))
def test_a_host_among_strangers(number):
    rng = random.Random(1000 * seed() + number)
    host = Host(rng)
    answerers = [peer(rng)[1], peer(rng, SECOND)[1]]

    async def process(ctx):
        frames, opened, now = [], 0, 0
        await host.agent.gets_key(ctx, FIRST)
        for _ in range(STEPS):
            what, now = rng.random(), now + 300
            if what < 0.3 and host.model.deadline() is not None:
                for frame in await host.goes_on(ctx):
                    for answerer in answerers:
                        frames += answerer.take(frame, now)[0]
                if frames and rng.random() < 0.5:
                    await host.takes(ctx, forged(rng, frames[-1]))
            elif frames:
                frame = rng.choice(frames[-rng.choice([1, 3, 1000]):])
                if what < 0.6:
                    frame = altered(rng, frame)
                began = host.model.session
                await host.takes(ctx, frame)
                opened += host.model.session is not began
            if host.model.session and rng.random() < 0.2:
                if not host.model.confirmed:
                    await host.hears(ctx)
                else:
                    host.model.end(now)
        assert host.agent.counted == {name: host.model.counters[name] for name in (
            "knock", "proof", "stale")}
        assert opened and host.agent.counted["proof"] and host.agent.counted["stale"]

    host.agent.run(process)


async def opened_by(ctx, box, opener):
    """The session is opened by ``opener``."""
    hello, = opener.tick(0)
    (answer,), _ = await box.takes(ctx, hello)
    done, = opener.take(answer, 1)
    _, acks = await box.takes(ctx, done)
    assert acks and numbers(box.model.session) == numbers(opener.session)


def test_a_box_gets_the_next_key():
    rng = random.Random(seed())
    box = Box(rng)
    old, new = peer(rng)[0], peer(rng, SECOND)[0]

    async def process(ctx):
        part = box.agent.part
        assert not ctx.get(part.with_key)
        await box.agent.gets_key(ctx, FIRST)
        assert ctx.get(part.with_key) == 1 << PEER and not ctx.get(part.with_two)
        await opened_by(ctx, box, old)
        box.keys.following = SECOND
        await box.agent.gets_key(ctx, SECOND, following=True)
        assert ctx.get(part.with_two) == 1 << PEER
        # Both keys are good until the next one has opened a session.
        for opener in (old, new):
            opener.end(0)
            await box.passes(ctx, YOUNG)
            await opened_by(ctx, box, opener)
        assert ctx.get(part.with_key) == 1 << PEER and not ctx.get(part.with_two)
        old.end(0)
        assert await box.takes(ctx, *old.tick(0)) == ([], False)
        assert box.agent.counted["knock"] == 1
        # The other slot again.
        box.keys.following = THIRD
        await box.agent.gets_key(ctx, THIRD, following=True)
        await box.passes(ctx, YOUNG)
        await opened_by(ctx, box, peer(rng, THIRD)[0])
        assert box.keys == Keys(THIRD)

    box.agent.run(process)


def test_an_only_key_ends_what_was_offered_before():
    rng = random.Random(seed())
    box, old = Box(rng), peer(rng)[0]

    async def process(ctx):
        agent = box.agent
        await agent.gets_key(ctx, FIRST)
        await agent.gets_key(ctx, THIRD, following=True)
        (answer,), _ = await box.takes(ctx, *old.tick(0))
        done, = old.take(answer, 1)
        await agent.gets_key(ctx, SECOND)
        assert not ctx.get(agent.part.with_two)
        for key in (FIRST, THIRD):
            assert await agent.comes(ctx, *peer(rng, key)[0].tick(0)) == ([], None)
        assert agent.counted["knock"] == 2
        assert await agent.comes(ctx, done, offered=box.offered) == ([], None)
        assert agent.counted["stale"] == 1
        assert await agent.sends(ctx, HELLO_ACK, offered=box.offered) is None

    box.agent.run(process)


def test_a_host_tries_both_keys_in_turn():
    rng = random.Random(seed())
    host = Host(rng)
    _, answerer = peer(rng, SECOND)

    async def process(ctx):
        await host.agent.gets_key(ctx, FIRST)
        for _ in range(5):
            await host.goes_on(ctx)
        host.keys.following = SECOND
        await host.agent.gets_key(ctx, SECOND, following=True)
        knocks = []
        for _ in range(4):
            hello, = await host.goes_on(ctx)
            knocks.append(hello.proof)
            for _ in range(4):
                assert await host.goes_on(ctx) == [hello]
        assert knocks[0] == knocks[2] != knocks[1] == knocks[3]
        hello, = await host.goes_on(ctx)
        if hello.proof != ends().knock(SECOND):
            for _ in range(5):
                hello, = await host.goes_on(ctx)
        (answer,), _ = answerer.take(hello, 1)
        await host.takes(ctx, answer)
        assert ctx.get(host.agent.part.with_two)
        await host.hears(ctx)
        assert host.keys == Keys(SECOND) and not ctx.get(host.agent.part.with_two)
        # A session of the old key would be opened in vain.
        host.model.end(0)
        for _ in range(6):
            hello, = await host.goes_on(ctx)
            assert hello.proof == ends().knock(SECOND)

    host.agent.run(process)


def test_sessions_and_peers_are_apart():
    """A key opens the sessions of its peer, each with its own record, and of no other."""
    rng = random.Random(seed())
    box = Box(rng)
    others = [Opener(ends(stream), Keys(FIRST), bytes(8) + HOST_FIELDS, paths=1, draw=rng.randbytes,
                     draw_tag=lambda: 77, now=0) for stream in range(STREAMS)]

    async def process(ctx):
        agent = box.agent
        await agent.gets_key(ctx, SECOND, peer=PEER - 1)
        await agent.gets_key(ctx, FIRST)
        await agent.gets_key(ctx, THIRD, peer=PEER + 1)
        assert ctx.get(agent.part.with_key) == 7
        await opened_by(ctx, box, others[STREAM])
        agent.random += [1, 2]
        hello, = others[1 - STREAM].tick(0)
        told, _ = await agent.comes(ctx, hello, fresh=9)
        assert [tell["kind"] for tell in told] == [Told.WANTS, Told.OFFERS]
        # What came first is still there.
        assert await box.takes(ctx, *others[STREAM].tick(1e9)) == ([], True)
        # A knock names stream and nodes.
        assert await agent.comes(ctx, replace(hello, ends=ends(STREAM))) == ([], None)
        assert agent.counted["knock"] == 1

    box.agent.run(process)


def test_without_key_tag_or_random_numbers_nothing_is_offered():
    rng = random.Random(seed())
    box = Box(rng)
    hello, = peer(rng)[0].tick(0)

    async def process(ctx):
        agent = box.agent
        assert await agent.comes(ctx, hello) == ([], None)
        assert agent.counted["knock"] == 1
        await agent.gets_key(ctx, FIRST)
        assert await agent.comes(ctx, hello, fresh=9) == ([], None)
        agent.random += [1]
        await ctx.tick()
        told, _ = await agent.comes(ctx, hello, fresh=0)
        assert [tell["kind"] for tell in told] == [Told.WANTS]
        assert agent.counted["stale"] == 2
        # The source fails after the first of two words.
        ctx.set(agent.part.failed, 1)
        told, _ = await agent.comes(ctx, hello, fresh=9)
        assert [tell["kind"] for tell in told] == [Told.WANTS]
        assert await agent.sends(ctx, HELLO_ACK, offered=9) is None
        ctx.set(agent.part.failed, 0)
        await box.takes(ctx, hello)

    box.agent.run(process)


def test_a_host_without_key_or_random_numbers_says_nothing():
    host = Host(random.Random(seed()))

    async def process(ctx):
        agent = host.agent
        agent.random += [1, 2]
        await ctx.tick()
        assert await agent.sends(ctx, HELLO, offered=5) is None
        await agent.gets_key(ctx, FIRST)
        assert await agent.sends(ctx, HELLO, offered=5) is not None
        agent.random[:] = []
        await ctx.tick()
        assert await agent.sends(ctx, HELLO, offered=6) is None
        # The attempt before goes on, if it still is one.
        assert (await agent.sends(ctx, HELLO, offered=5)).offered == 5
        assert await agent.sends(ctx, HELLO_DONE, offered=6) is None

    host.agent.run(process)


#: Cycles that a HELLO without the knock takes, in a frame of 120 bytes with preamble and gap: at
#: 125 MHz less than the frame takes at 1 Gb/s.
BLIND = 61


def test_comparisons_take_as_long_whatever_they_find():
    rng = random.Random(seed())
    box, (opener, _) = Box(rng), peer(rng)

    def wrong(frame, byte):
        proof = bytearray(frame.proof)
        proof[byte] ^= 1 << rng.randrange(8)
        return replace(frame, proof=bytes(proof))

    async def process(ctx):
        agent = box.agent
        await agent.gets_key(ctx, FIRST)
        await agent.gets_key(ctx, SECOND, following=True)
        hello, = opener.tick(0)
        took = set()
        for byte in range(16):
            assert await agent.comes(ctx, wrong(hello, byte)) == ([], None)
            took.add(agent.cycles)
        assert took == {BLIND}
        took.clear()
        (answer,), _ = await box.takes(ctx, hello)
        done, = opener.take(answer, 1)
        for byte in range(16):
            assert await agent.comes(ctx, wrong(done, byte), offered=box.offered) == ([], None)
            took.add(agent.cycles)
        assert len(took) == 1
        assert agent.counted["knock"] == agent.counted["proof"] == 16
        assert await box.takes(ctx, done) == ([], True)

    box.agent.run(process)
