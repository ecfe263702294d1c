"""Random walks through the fabric's specification, with parts of `dxpu_host` as one end.

The models of `dxpu_model.spec` give the possible actions. One action is drawn and also applied to
the part, whose state must then agree with the model's end.
"""

import random

from dxpu.fabric.wire.format import FenceReason
from dxpu.fabric.wire.frame_types import FrameType
from dxpu_host.arq import MODULUS, Receiver, Sender, Verdict
from dxpu_host.credits import Accounts, Grants
from dxpu_host.link import Address, Link, TlpsCame
from dxpu_host.session import Phase, TagSource
from dxpu_host.timers import Timers
from dxpu_model.spec.arq import Arq
from dxpu_model.spec.credits import Credits
from dxpu_model.spec.session import BOX, HOST, Sessions
from dxpu_model.wire import Ack, Credit, Event, Fence, Frame, Hello, Tlps, parse
from dxpu_model.wire_vectors import read

NODE, PEER, SLOT = 0x001, 0x101, 3
TIMERS = Timers(retry=1.0, hello=1.0, quiet=1.0, refresh=8.0)
NONE = (Credit(0), Credit(1), Credit(2))


class Differs(AssertionError):
    """The state of the part differs from the model's."""


def differs(what, part, model, trace):
    if part != model:
        raise Differs(f"{what}: {part}, not {model}, after " + "; ".join(trace))


class NoLimits:
    """Limits that grant nothing."""

    def extension(self, slot):
        return None

    def entries(self, slot):
        return NONE


def number_of(tlp):
    """Number of a TLP: the TLPs are reads with the number in their address."""
    return int.from_bytes(tlp[8:12], "big") >> 2


def tlp(number):
    return read(number << 2, number & 0xFF, 1)


class SessionWalk:
    """A :class:`Link` as the host of :class:`Sessions`."""

    RARE = {"give up": 0.1, "reset": 0.1}

    def __init__(self, rng, link=Link, tlps=(3, 3)):
        self.rng, self.factory = rng, link
        self.model = Sessions(tlps=tlps, resets=(2, 2), gave_up=(2, 2), window=3, offers=6)
        self.state = self.model.initial()
        self.tags = TagSource(random.Random(rng.getrandbits(32)))
        self.now, self.trace, self.got = 0.0, [], []
        #: Nonces and tags of the model, to those on the wire.
        self.nonces, self.mine = {}, {}
        self.make()

    def make(self):
        self.link = self.factory(Address(NODE, PEER), timers=TIMERS, tags=self.tags, boot=1,
                                 limits=NoLimits(), now=self.now)

    @staticmethod
    def theirs(tag):
        """Tag on the wire for a tag offered by the model's box."""
        return 0xA000 + tag if tag else 0

    def run(self, steps):
        for _ in range(steps):
            kinds = {}
            for kind, move in self.moves():
                kinds.setdefault(kind, []).append(move)
            if not kinds:
                return
            # Old frames could come much more often than other actions.
            kind, = self.rng.choices(list(kinds), [self.RARE.get(kind, 1) for kind in kinds])
            name, after = self.rng.choice(kinds[kind])()
            self.trace.append(name)
            self.state = after
            self.compare()

    def moves(self):
        state, model = self.state, self.model
        if state.ends[HOST] is None and state.hello is None:
            yield "open", self.open
        if self.link.room and state.ends[HOST]:
            for step in model._send(state, HOST):
                yield "send", lambda step=step: self.send(step)
        for end in (HOST, BOX):
            if state.gave_up[end] < model.gave_up[end]:
                for step in model._give_up(state, end):
                    yield "give up", lambda step=step, end=end: self.give_up(step, end)
            if state.resets[end] < model.resets[end]:
                yield "reset", lambda end=end: self.reset(end)
        if state.ends[BOX]:
            for step in model._send(state, BOX):
                yield "box sends", lambda step=step: step
        for frame in model.wire.frames(state.wire):
            for step in model.take(state, *frame):
                yield frame[:2], lambda step=step, frame=frame: self.take(step, frame)

    def open(self):
        """Send HELLO after the quiet time."""
        step = self.model._open(self.state)
        while self.link.session.phase is not Phase.HELLO:
            self.now = self.link.session.deadline()
            self.link.tick(self.now)
        number = step[1].hello[0]
        hello = self.link.session.hello()
        self.nonces[number], self.mine[number] = hello.nonce, hello.tag_offered
        return step

    def send(self, step):
        number = self.state.made[HOST]
        self.link.send(SLOT, Tlps((tlp(number),)), self.now)
        return step

    def give_up(self, step, end):
        if end == HOST:
            self.link.close("test", self.now)
            self.link.session.end(self.now)
        return step

    def reset(self, end):
        if end == HOST:
            self.make()
        return f"{('host', 'box')[end]}: reset", self.model._reset(self.state, end)

    def take(self, step, frame):
        kind, end, tag, number, label, _ = frame
        if end == BOX:
            return step
        fields = dict(dst_node=NODE, src_node=PEER, src_slot=SLOT, tag=self.mine.get(tag, 0))
        if kind == "HELLO_ACK":
            body = Hello(self.nonces[tag], self.theirs(number), self.mine[tag], 2, 1, 0, 0, 1514,
                         64, 0, 0, 0, 1, 0, answer=True)
        elif kind == "DATA":
            # Its ACK is 0: the model's frames with data acknowledge nothing.
            body = Tlps((tlp(label),))
            fields |= dict(seq=number, ack=self.link.sender.oldest)
        elif kind == "FENCE":
            body = Fence(FenceReason.SESSION_LOST)
        else:
            body = Ack(NONE)
            fields |= dict(ack=number, seq=self.rng.randrange(4))
        for happened in self.link.receive(Frame(body, **fields), self.now):
            if isinstance(happened, TlpsCame):
                self.got += map(number_of, happened.tlps)
        self.link.reply(self.now)
        return step

    def compare(self):
        model, link, trace = self.state.ends[HOST], self.link, self.trace
        session = link.session
        differs("a session", session.up, model is not None, trace)
        if model is not None:
            differs("our tag", session.rx_tag, self.mine[model.mine], trace)
            differs("the peer's tag", session.tx_tag, self.theirs(model.theirs), trace)
            differs("frames sent", link.sender.next, model.sent, trace)
            differs("acknowledged", link.sender.oldest, model.acked, trace)
            differs("taken", link.receiver.expected, model.taken, trace)
        differs("TLPs", tuple(self.got), self.state.got[HOST], trace)
        for raw in link.take():
            for frame in self.abstract(parse(raw)):
                if frame not in {f[:5] for f in self.model.wire.frames(self.state.wire)}:
                    raise Differs(f"sends {frame}, which the model did not, after "
                                  + "; ".join(trace))

    def abstract(self, frame):
        """The model's frame for a frame of the part, with all fields that a receiver uses."""
        if frame.type == FrameType.HELLO:
            nonce = next(n for n, value in self.nonces.items() if value == frame.body.nonce)
            yield "HELLO", BOX, 0, nonce, 0
            return
        tag = frame.tag - 0xA000
        if isinstance(frame.body, Fence):
            yield "FENCE", BOX, tag, 0, 0
            return
        if frame.ack or isinstance(frame.body, Ack):
            yield "ACK", BOX, tag, frame.ack, 0
        if isinstance(frame.body, Tlps):
            yield "DATA", BOX, tag, frame.seq, number_of(frame.body.tlps[0])


class ArqWalk:
    """A :class:`Sender` and a :class:`Receiver` as the two ends of :class:`Arq`.

    Numbers begin shortly before they wrap.
    """

    WINDOW, LIFE = 4, 6

    def __init__(self, rng, sender=Sender, receiver=Receiver):
        self.rng, self.now, self.trace = rng, 0.0, []
        self.model = Arq(selective=False, window=self.WINDOW, modulus=MODULUS, life=self.LIFE)
        self.state = self.model.initial()
        self.base = MODULUS - rng.randint(1, 40)
        self.sender = sender(1.0, self.WINDOW)
        self.receiver = receiver(0.0)
        self.sender.next = self.sender.oldest = self.receiver.expected = self.base

    def run(self, steps):
        for _ in range(steps):
            state = self.state
            name, self.state = self.rng.choice(list(self.model.actions(state)))
            self.trace.append(name)
            self.step(name, state)
            differs("oldest", self.sender.oldest, self.base % MODULUS, self.trace)
            differs("next", self.sender.next, (self.base + self.state.sent) % MODULUS, self.trace)
            differs("expected", self.receiver.expected, (self.base + self.state.taken) % MODULUS,
                    self.trace)
            differs("room", self.sender.room, self.state.sent < self.WINDOW, self.trace)

    def step(self, name, state):
        words = name.split()
        if words[0] == "receiver":
            number = int(words[3])
            verdict = self.receiver.take((self.base + number) % MODULUS, SLOT, False, self.now)
            expected = (Verdict.NEXT if number == state.taken else
                        Verdict.GAP if number > state.taken else Verdict.OLD)
            differs("verdict", verdict, expected, self.trace)
            while self.receiver.reply(self.now) is not None:
                self.receiver.told()
        elif words[1] == "takes":
            number = int(words[3].rstrip(","))
            self.sender.acknowledged((self.base + number) % MODULUS, self.now)
            self.sender.again(self.now)
            self.base += state.sent - self.state.sent
        elif words[-1] == "again":
            self.now = max(self.now, self.sender.deadline())
            frames = [sent.seq for sent, _ in self.sender.again(self.now)]
            allowed = [(self.base + n) % MODULUS for n in range(state.sent)]
            differs("sends again", frames, allowed[:len(frames)], self.trace)
            self.sender.failed = False
            self.sender._round = 0  # the model does not give up
        else:
            self.sender.add(SLOT, Event(1), self.now)


class CreditsWalk:
    """:class:`Accounts` as the sender of :class:`Credits`, :class:`Grants` as its receiver.

    Limits begin shortly before they wrap.
    """

    ROOM = 3

    def __init__(self, rng, accounts=Accounts, grants=Grants):
        self.rng, self.trace = rng, []
        self.model = Credits(room=self.ROOM, modulus=65536, life=4)
        self.state = self.model.initial()
        self.accounts, self.grants = accounts(), grants([(self.ROOM, 0)] * 3, 1.0)
        self.accounts.begin(7, 99)
        self.grants.begin(7, 0.0)
        self.sent = self.drained = 65536 - rng.randint(0, 40)
        self.learn(100, self.sent + self.ROOM)
        for part in (self.accounts, self.grants):
            part._used[2] = self.sent & 0xFFFF, 0
        self.grants._limits[2] = (self.sent + self.ROOM) & 0xFFFF, 0

    def learn(self, ack, limit):
        self.accounts.learn(ack % MODULUS, [Credit(2, 7, limit & 0xFFFF, 0)])

    def run(self, steps):
        for _ in range(steps):
            before = self.state
            name, self.state = self.rng.choice(list(self.model.actions(before)))
            self.trace.append(name)
            self.step(name)
            differs("may send", self.accounts.allows(2, 0), self.model.allowed(self.state) > 0,
                    self.trace)
            differs("limit", self.grants.entries()[2].header_limit,
                    self.drained + self.ROOM & 0xFFFF, self.trace)

    def step(self, name):
        if name == "sender: TLP":
            differs("may send", self.accounts.allows(2, 0), True, self.trace)
            self.accounts.spend(2, 0)
            self.sent += 1
        elif name == "a TLP arrives":
            differs("granted", self.grants.take(2, 0), True, self.trace)
        elif name == "receiver drains a TLP":
            self.grants.release(2, 0, 0.0)
            self.drained += 1
        elif name.startswith("sender takes"):
            limit, ack = (int(word.rstrip(",")) for word in (name.split()[3], name.split()[5]))
            self.learn(1000 + self.sent + ack, self.sent + limit)
