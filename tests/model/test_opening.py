"""dxpu_model.opening: the ends of a keyed session do what the specification allows, and what the
page says, to the microsecond."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from dxpu_model.keyed import HELLO_ACK, HELLO_DONE, Ends, Opening
from dxpu_model.opening import Answerer, Begun, Keys, Opener, OpeningFrame
from dxpu_model.spec import keyed as spec
from dxpu_model.wire import Hello
from tests.model.test_keyed import ANSWER, KEY, OPENING, VECTORS
from tests.model.test_keyed import ENDS as THEIR_ENDS
from tests.support.testbench import seed

ENDS = Ends(1, 0x105, 0)
KEYS = {1: bytes(range(16)), 2: bytes(range(16, 32))}
FIELDS = Hello(0, 0, 0, 0, 0, 0, 1, 1518, 64, 250, 12000, 3, 7, 0).pack(0, 0)[:28]


class Drawn:
    """Nonces and tags that count, so that they are those of the specification."""

    def __init__(self):
        self.nonces = self.tags = 0

    def nonce(self, size):
        self.nonces += 1
        return bytes([self.nonces]) * size

    def tag(self):
        self.tags += 1
        return self.tags


def ends(*, paths=2, now=0.0, keys=(1, None)):
    def of():
        return Keys(*(key and KEYS[key] for key in keys))

    drawn = Drawn(), Drawn()
    return (Opener(ENDS, of(), FIELDS, paths=paths, draw=drawn[0].nonce, draw_tag=drawn[0].tag,
                   now=now),
            Answerer(ENDS, of(), FIELDS, draw=drawn[1].nonce, draw_tag=drawn[1].tag))


#: Steps of a walk.
STEPS = 300
NUMBERS = {key: number for number, key in KEYS.items()}


class Walk:
    """Both ends beside the specification: after each step they must be in a state that it may be
    in. The network brings any frame that was ever sent."""

    def __init__(self, rng):
        self.rng, self.now = rng, 0.0
        self.host, self.box = ends()
        self.model = spec.Keyed(resets=(10**6, 10**6), gave_up=10**6, offers=10**6, renewed=True)
        self.state = self.model.initial()
        self.frames, self.acks = [], []

    def opening(self, opening, key):
        return spec.Opening(0, key, opening.opener_nonce[0],
                            int.from_bytes(opening.hello[4:6], "big"), 0,
                            opening.answerer_nonce[0], int.from_bytes(opening.answer[4:6], "big"))

    def here(self):
        """What of the specification's state can be seen of the ends."""
        host, box = self.host, self.box
        mine = None
        if host.session:
            mine = (self.opening(host.session.opening, NUMBERS[host._key]), host.confirmed)
        elif host._sends:
            mine = (host._sends.opener_nonce[0], host._sends.offered, NUMBERS[host._key])
        offer = box._candidate
        theirs = None
        if box.session:
            key, = (n for n, key in KEYS.items()
                    if box.session.opening.proof(key, HELLO_DONE) == box._done)
            theirs = self.opening(box.session.opening, key)
        return (mine, offer and self.opening(offer.opening, NUMBERS[offer.key]), theirs,
                *(tuple(NUMBERS.get(key) for key in (end.keys.current, end.keys.following))
                  for end in (host, box)))

    @staticmethod
    def there(state):
        host, = state.host
        if isinstance(host, spec.Session):
            host = (host.opening, host.confirmed)
        elif host:
            host = tuple(host)
        box, = state.box
        return (host, *state.candidate, box and box.opening, *state.keys)

    def follow(self, *prefixes):
        """The specification may take steps with these names to where the ends are."""
        states = {self.state}
        for prefix in prefixes:
            states = {after for state in states for name, after in self.model.actions(state)
                      if name.startswith(prefix)} | states
        fits = [state for state in states if self.there(state) == self.here()]
        assert fits, (prefixes, self.here(), [self.there(state) for state in states])
        assert all(self.model.wrong(state) is None for state in fits)
        # Rather one in which something happened.
        self.state = max(fits, key=lambda state: (state.wire, state != self.state))

    def step(self):
        rng = self.rng
        self.now += rng.choice([1, 5, 20, 60, 300])
        what = rng.random()
        if what < 0.25:
            new = self.host.tick(self.now)
            self.frames += new
            self.follow("host: gives up", "host: HELLO")
        elif what < 0.85 and self.frames:
            frame = rng.choice(self.frames[-rng.choice([1, 2, 4, 1000]):])
            if frame.kind == HELLO_ACK:
                self.frames += self.host.take(frame, self.now)
                self.follow("host takes HELLO_ACK")
            else:
                sent, acks = self.box.take(frame, self.now)
                self.frames += sent
                if acks:
                    self.acks.append(self.box.session)
                self.follow("box takes HELLO")
        elif what < 0.93 and self.acks:
            if rng.choice(self.acks) == self.host.session:
                self.host.heard()
            self.follow("host takes ACK")
        elif what < 0.96:
            self.host.end(self.now)
            self.follow("host: reset")
        elif what < 0.97:
            self.box.end()
            self.follow("box: reset")
        else:
            end = rng.choice([self.host, self.box])
            if end.keys.current == KEYS[1] and end.keys.following is None:
                end.keys.following = KEYS[2]
                self.follow(f"{'host' if end is self.host else 'box'} gets the next key")


@pytest.mark.parametrize("number", range(20))
def test_they_do_what_the_specification_allows(number):
    walk = Walk(random.Random(100 * seed() + number))
    for _ in range(STEPS):
        walk.step()


def test_such_walks_get_far():
    """Sessions open, again and again, and keys are renewed."""
    opened, renewed = 0, 0
    for number in range(10):
        walk = Walk(random.Random(100 * seed() + number))
        sessions = set()
        for _ in range(STEPS):
            walk.step()
            if walk.host.confirmed:
                sessions.add(walk.host.session)
        opened += len(sessions)
        renewed += walk.host.keys.current == KEYS[2]
    assert opened >= 10 and renewed


def mixed(rng, frames):
    """A frame put together from all that was seen, with here and there a bit of its own."""
    def some(name):
        value = getattr(rng.choice(frames), name)
        if isinstance(value, bytes) and rng.random() < 0.2:
            bit = rng.randrange(8 * len(value))
            value = (int.from_bytes(value, "big") ^ 1 << bit).to_bytes(len(value), "big")
        return value

    frame = rng.choice(frames)
    names = rng.sample(["kind", "ends", "tag", "fields", "opener_nonce", "answerer_nonce", "proof"],
                       rng.randint(1, 4))
    return replace(frame, **{name: some(name) for name in names})


@pytest.mark.parametrize("number", range(5))
def test_what_a_sniffer_makes_of_frames_opens_and_ends_nothing(number):
    """Two streams under one key. A session that begins at one end is what the other end has offered
    or accepted, there and in this stream, and begins once; none ends but by its own end."""
    rng, now = random.Random(100 * seed() + number), 0.0
    streams = []
    for stream in range(2):
        drawn = random.Random(rng.random())
        options = dict(draw=drawn.randbytes, draw_tag=lambda drawn=drawn: drawn.randint(1, 3))
        of = replace(ENDS, stream=stream)
        streams.append((Opener(of, Keys(KEYS[1]), FIELDS, paths=2, now=now, **options),
                        Answerer(of, Keys(KEYS[1]), FIELDS, **options)))
    seen, offered, accepted, begun = [], set(), set(), Counter()
    for _ in range(6000):
        now += rng.choice([1, 20, 100, 300])
        host, box = rng.choice(streams)
        before = host.session, box.session
        what = rng.random()
        if what < 0.2:
            seen += host.tick(now)
        elif what < 0.21:
            host.end(now)
            before = None, box.session
        elif seen:
            frame = rng.choice(seen[-rng.choice([1, 3, 1000]):])
            if what > 0.5:
                frame = mixed(rng, seen[-rng.choice([4, 20, 1000]):])
            if frame.kind == HELLO_ACK:
                seen += host.take(frame, now)
            else:
                sent, acks = box.take(frame, now)
                seen += sent
                if acks and box.session == host.session:
                    host.heard()
        if box._candidate:
            offered.add(box._candidate.opening)
        if host.session and host.session != before[0]:
            assert before[0] is None or not host.confirmed
            assert host.session.opening in offered and host.session.opening.ends == host.ends
            accepted.add(host.session.opening)
            begun["host", host.session] += 1
        elif before[0]:
            assert host.session == before[0] or not host.confirmed
        if box.session != before[1]:
            assert box.session.opening in accepted and box.session.opening.ends == box.ends
            assert before[1] is None or before[1] != host.session or not host.confirmed
            begun["box", box.session] += 1
    assert set(begun.values()) == {1}
    assert sum(end == "box" for end, _ in begun) > 5


def test_an_opening_to_the_microsecond():
    host, box = ends()
    times = []
    for now in range(8000):
        times += [(now, frame.path, frame.offered) for frame in host.tick(now)]
    # Five with one nonce and tag, on both paths in turn; then another one.
    assert times == [(0, 0, 1), (250, 1, 1), (750, 0, 1), (1750, 1, 1), (3750, 0, 1), (7750, 1, 2)]
    hello, = host.tick(8000)
    (answer,), acks = box.take(hello, 8000)
    assert not acks and answer.path == hello.path and not box.session
    # The same again is answered again, but not so soon.
    assert box.take(hello, 8049) == ([], False)
    other = 1 - hello.path
    assert box.take(replace(hello, path=other), 8050) == ([replace(answer, path=other)], False)
    assert box.take(hello, 8099) == ([], False) and box.take(hello, 8100) == ([answer], False)
    done, = host.take(answer, 8100)
    assert host.session and not host.confirmed
    assert (done.kind, done.tag, done.offered, done.echoed) == (
        HELLO_DONE, answer.offered, hello.offered, answer.offered)
    sent = [(now, done) for now in range(8101, 15_851) for done in host.tick(now)]
    assert [now for now, _ in sent] == [8350, 8850, 9850, 11850, 15850]
    assert all(replace(again, path=0) == replace(done, path=0) for _, again in sent[:4])
    assert sent[4][1].opener_nonce != done.opener_nonce, "a new attempt"


def test_what_the_host_takes():
    host, box = ends()
    hello, = host.tick(0)
    (answer,), _ = box.take(hello, 0)
    for wrong, counter in (
            (replace(answer, tag=answer.tag + 1), "stale"),
            (replace(answer, fields=answer.fields[:6] + b"\0\7" + answer.fields[8:]), "stale"),
            (replace(answer, opener_nonce=bytes(8)), "stale"),
            (replace(answer, kind=HELLO_DONE), "stale"),
            (replace(answer, ends=replace(ENDS, stream=1)), "stale"),
            (replace(answer, answerer_nonce=bytes(8)), "proof"),
            (replace(answer, fields=answer.fields[:-1] + b"\1"), "proof"),
            (replace(answer, proof=bytes(16)), "proof")):
        before = host.counters[counter]
        assert host.take(wrong, 10) == [] and not host.session
        assert host.counters[counter] == before + 1
    done, = host.take(answer, 10)
    # The same again: HELLO_DONE again. With another nonce of the box: nothing.
    assert [replace(frame, path=done.path) for frame in host.take(answer, 20)] == [done]
    assert host.take(replace(answer, answerer_nonce=bytes(8)), 20) == []
    session = host.session
    host.heard()
    assert host.confirmed and host.take(answer, 30) == [] and host.tick(10**6) == []
    assert host.session == session


def test_what_the_box_takes():
    host, box = ends()
    hello, = host.tick(0)
    for wrong, counter in (
            (replace(hello, proof=bytes(16)), "knock"),
            (replace(hello, tag=1), "stale"),
            (replace(hello, fields=hello.fields[:4] + bytes(2) + hello.fields[6:]), "stale"),
            (replace(hello, answerer_nonce=b"\1" * 8), "stale"),
            (replace(hello, opener_nonce=b"\7" * 8), "stale"),
            (replace(hello, kind=HELLO_ACK), "stale"),
            (replace(hello, ends=replace(ENDS, opener=2)), "stale")):
        before = box.counters[counter]
        assert box.take(wrong, 0) == ([], False)
        assert box.counters[counter] == before + 1
    (answer,), _ = box.take(hello, 0)
    done, = host.take(answer, 0)
    # Another HELLO: not while the candidate is young.
    other = replace(hello, opener_nonce=b"\1" * 4 + bytes(4))
    assert box.take(other, 249) == ([], False)
    for wrong, counter in (
            (replace(done, tag=done.tag + 1), "stale"), (replace(done, proof=bytes(16)), "proof"),
            (replace(done, opener_nonce=bytes(8)), "stale"),
            (replace(done, answerer_nonce=bytes(8)), "stale")):
        before = box.counters[counter]
        assert box.take(wrong, 249) == ([], False) and not box.session
        assert box.counters[counter] == before + 1
    # No wrong proof costs a pause.
    assert box.take(done, 249) == ([], True)
    assert box.session == host.session
    first = box.session
    assert box.take(done, 260) == ([], True) and box.session is first
    assert box.take(replace(done, proof=bytes(16)), 260) == ([], False)
    # The HELLO again makes a candidate, and ends nothing.
    (later,), _ = box.take(hello, 270)
    assert later.answerer_nonce != answer.answerer_nonce and box.session is first
    (replaced,), _ = box.take(other, 520)
    assert box.take(done, 530) == ([], True)
    assert box.session is first and replaced.offered not in (answer.offered, later.offered)


def test_numbers_and_tags_of_a_session():
    begun = Begun.under(KEY, OPENING)
    assert (begun.to_opener, begun.to_answerer) == (0x1D0C, 0xBEEF)
    assert f"{begun.opener_seq:06x}{begun.answerer_seq:06x}" == VECTORS["first numbers"][:12]


def test_the_body_of_a_frame():
    """Fields, nonces, proof; CRC-32C, least significant byte first."""
    frame = OpeningFrame(HELLO_ACK, THEIR_ENDS, 0x1D0C, ANSWER, OPENING.opener_nonce,
                         OPENING.answerer_nonce, bytes.fromhex(VECTORS["HELLO_ACK"]))
    body = frame.body()
    assert body[:60].hex() == (ANSWER.hex() + "a0a1a2a3a4a5a6a7b0b1b2b3b4b5b6b7"
                               + VECTORS["HELLO_ACK"])
    assert len(body) == 64
    assert OpeningFrame.parse(HELLO_ACK, THEIR_ENDS, 0x1D0C, body) == frame
    for wrong, message in ((body[:-1], "body must have 64 bytes, not 63"),
                           (body[:-1] + b"\0", "the CRC of the body is wrong")):
        with pytest.raises(ValueError, match=f"^{message}$"):
            OpeningFrame.parse(HELLO_ACK, THEIR_ENDS, 0x1D0C, wrong)


def test_keys_are_renewed_in_either_order():
    for first in (0, 1):
        host, box = ends()
        both = (host, box)
        both[first].keys.following = KEYS[2]
        assert opened(host, box) and host.keys.current == KEYS[1]
        both[1 - first].keys.following = KEYS[2]
        for end in (host, box):
            end.end(10**5) if end is host else end.end()
        assert opened(host, box, 10**5) and opened_under(host) in KEYS.values()
        host.end(2 * 10**5)
        assert opened(host, box, 2 * 10**5)
        assert host.keys == box.keys == Keys(KEYS[2])


def opened(host, box, now=0):
    """Whether the ends alone open a session within 20 ms."""
    for time in range(now, now + 20_000, 10):
        for frame in host.tick(time):
            sent, acks = box.take(frame, time)
            for answer in sent:
                for done in host.take(answer, time):
                    acks |= box.take(done, time)[1]
            if acks and box.session == host.session:
                host.heard()
        if host.confirmed:
            return True
    return False


def opened_under(host):
    opening = host.session.opening
    assert isinstance(opening, Opening)
    return next(key for key in KEYS.values()
                if Begun.under(key, opening) == host.session)
