"""`dxpu_host`'s sessions, numbers and repetitions against the executable specification."""

import random

import pytest

from dxpu.fabric.wire.format import FenceReason, Role
from dxpu.fabric.wire.frame_types import SEQUENCED, FrameType
from dxpu_host.arq import MODULUS, Receiver, Sender, Verdict, ahead
from dxpu_host.link import Address, Closed, Link, Opened, TlpsCame
from dxpu_host.session import Phase, TagSource
from dxpu_host.timers import Timers
from dxpu_model.wire import Ack, Credit, Event, Fence, Frame, Hello, Sack, Tlps, parse
from tests.support.host_bench import (
    NODE, NONE, PEER, SLOT, TIMERS, ArqWalk, Differs, NoLimits, SessionWalk, tlp,
)

BOX_TAG = 0xB0B0


def test_sessions_are_those_of_the_specification():
    """Any frame may come again, at any time; either end is reset or gives up."""
    rng, opened, got, lost = random.Random(1), 0, 0, 0
    for _ in range(300):
        walk = SessionWalk(rng)
        walk.run(40)
        opened += sum("HELLO_ACK" in name for name in walk.trace)
        got += len(walk.got)
        lost += sum(name in ("host: gives up", "host: reset") for name in walk.trace)
    assert opened > 100 and got > 100 and lost > 50


def test_numbers_are_those_of_the_specification_and_wrap():
    rng, wrapped = random.Random(2), 0
    for _ in range(100):
        walk = ArqWalk(rng)
        walk.run(120)
        wrapped += walk.sender.oldest < MODULUS // 2
    assert wrapped > 10


class AcksTooEarly(Receiver):
    """Mutant: acknowledges what it has not taken."""

    def take(self, seq, slot, urgent, now):
        verdict = super().take(seq, slot, urgent, now)
        if verdict is Verdict.GAP:
            self.expected = (seq + 1) % MODULUS
        return verdict


class TakesTwice(Receiver):
    """Mutant: takes what took effect before."""

    def take(self, seq, slot, urgent, now):
        verdict = super().take(seq, slot, urgent, now)
        return Verdict.NEXT if verdict is Verdict.OLD else verdict


class FreesTooMuch(Sender):
    """Mutant: takes any acknowledgement for news."""

    def acknowledged(self, ack, now):
        return super().acknowledged(max(ack, self.oldest + bool(self.next - self.oldest)), now)


class OneNonce(TagSource):
    """Mutant: one tag and nonce for all sessions."""

    def tag(self):
        return 0x1111

    def nonce(self):
        return 1


@pytest.mark.parametrize("parts", [{"receiver": AcksTooEarly}, {"receiver": TakesTwice},
                                   {"sender": FreesTooMuch}], ids=str)
def test_walks_find_wrong_numbers(parts):
    rng = random.Random(3)
    with pytest.raises(Differs):
        for _ in range(50):
            ArqWalk(rng, **parts).run(100)


def test_walks_find_a_link_that_acknowledges_too_early():
    class Mutant(Link):
        RECEIVER = AcksTooEarly

    rng = random.Random(3)
    with pytest.raises(Differs):
        for _ in range(300):
            SessionWalk(rng, Mutant).run(40)


def test_walks_find_tags_that_come_again():
    rng = random.Random(4)
    with pytest.raises((Differs, KeyError)):
        for _ in range(300):
            walk = SessionWalk(rng)
            walk.tags = OneNonce(rng)
            walk.make()
            walk.run(40)


# By hand: what the specification says nothing of.

class Peer:
    """A link that is open, and what its box says; time stands still unless told otherwise."""

    def __init__(self, timers=TIMERS, window=64):
        self.now = 0.0
        self.link = Link(Address(NODE, PEER, 2, 1), timers=timers, tags=TagSource(
            random.Random(5)), boot=77, limits=NoLimits(), now=0.0)
        self.window = window

    def tick(self, now=None):
        """Frames that leave."""
        if now is not None:
            self.now = now
        self.happened = self.link.tick(self.now)
        self.link.reply(self.now)
        return [parse(raw) for raw in self.link.take()]

    def say(self, body, **fields):
        values = dict(dst_node=NODE, src_node=PEER, stream=2, path=1, src_slot=SLOT,
                      tag=self.link.session.rx_tag)
        self.happened = self.link.receive(Frame(body, **values | fields), self.now)

    def greet(self):
        hello, = self.tick(self.link.deadline())
        self.offer(hello)

    def offer(self, hello, **fields):
        body = Hello(**{**vars(hello.body), "answer": True, "tag_offered": BOX_TAG,
                        "tag_echoed": hello.body.tag_offered, "role": Role.BOX,
                        "window": self.window} | fields)
        self.say(body, tag=hello.body.tag_offered)

    def open(self):
        self.greet()
        self.tick()
        self.say(Ack(NONE))
        assert Opened() in self.happened
        return self


def test_a_session_opens_in_three_steps():
    peer = Peer()
    assert peer.tick(0.5) == [] and peer.link.deadline() == TIMERS.quiet
    hello, = peer.tick(TIMERS.quiet)
    assert hello.type == FrameType.HELLO and (hello.tag, hello.seq, hello.ack) == (0, 0, 0)
    assert hello.body.role == Role.HOST and hello.body.boot_counter == 77
    assert hello.body.tag_offered != 0 and (hello.stream, hello.path) == (2, 1)
    peer.offer(hello)
    ack, = peer.tick()
    assert ack.type == FrameType.ACK and ack.ar and ack.tag == BOX_TAG
    assert peer.link.session.phase is Phase.CONFIRM and not peer.link.room
    peer.say(Ack(NONE))
    assert Opened() in peer.happened and peer.link.room


@pytest.mark.parametrize("wrong", [{"nonce": 1}, {"tag_echoed": 1}, {"tag_offered": 0},
                                   {"security_mode": 1}, {"answer": False}], ids=str)
def test_an_answer_that_does_not_fit_is_ignored(wrong):
    peer = Peer()
    hello, = peer.tick(TIMERS.quiet)
    peer.offer(hello, **wrong)
    assert peer.link.session.phase is Phase.HELLO and peer.link.counters["stale"] == 1


def test_hello_is_repeated_with_longer_waits():
    peer, times = Peer(), []
    for _ in range(8):
        hello, = peer.tick(peer.link.deadline())
        times.append(peer.now)
        assert hello.body.nonce == peer.link.session.hello().nonce
    waits = [b - a for a, b in zip(times, times[1:], strict=False)]
    assert waits == [1, 2, 4, 8, 16, 16, 16]


def test_a_session_that_is_not_confirmed_begins_with_another_nonce():
    peer = Peer()
    hello, = peer.tick(TIMERS.quiet)
    peer.offer(hello)
    frames = peer.tick()
    while frames[-1].type == FrameType.ACK:
        frames = peer.tick(peer.link.deadline())
    assert frames[-1].body.nonce != hello.body.nonce
    assert frames[-1].body.tag_offered != hello.body.tag_offered


def test_a_silent_session_is_polled_and_lost():
    peer, polls = Peer().open(), []
    while peer.link.open:
        frames = peer.tick(peer.link.deadline())
        polls += [(peer.now, frame.ar) for frame in frames if frame.type == FrameType.ACK]
    assert peer.happened == [Closed("the box does not answer polls")]
    # Somebody may hear us, though we do not hear him.
    fence, = frames
    assert (fence.body, fence.tag, fence.seq, fence.ack) == (
        Fence(FenceReason.SESSION_LOST), BOX_TAG, 0, 0)
    start = TIMERS.quiet
    assert polls == [(start + t, True) for t in (8, 9, 11, 15)] and peer.now == start + 23
    # Quiet, then another session.
    assert peer.tick(peer.now + 0.9) == []
    hello, = peer.tick(peer.link.deadline())
    assert hello.type == FrameType.HELLO


def test_a_fence_of_the_box_ends_the_session():
    """With its tag only; nothing is said in return but, after the quiet time, HELLO."""
    peer = Peer().open()
    tag = peer.link.session.rx_tag
    for other in (0, BOX_TAG, tag ^ 1):
        assert peer.link.receive(Frame(Fence(3), dst_node=NODE, src_node=PEER, tag=other),
                                 peer.now) == []
    assert peer.link.open
    assert peer.link.receive(Frame(Fence(3), dst_node=NODE, src_node=PEER, tag=tag),
                             peer.now) == [Closed("the box has given it up")]
    assert not peer.link.session.up and peer.tick() == []
    hello, = peer.tick(peer.link.deadline())
    assert hello.type == FrameType.HELLO


def test_what_is_not_acknowledged_is_repeated_then_the_session_fails():
    peer = Peer().open()
    start = peer.now
    for number in range(3):
        peer.link.send(SLOT, Tlps((tlp(number),)), peer.now)
    assert [frame.seq for frame in peer.tick()] == [0, 1, 2]
    times = []
    while peer.link.open:
        for frame in peer.tick(peer.link.sender.deadline() or peer.now):
            if frame.type in SEQUENCED:
                assert frame.seq == 0 and frame.ar
                times.append(peer.now - start)
        if peer.link.open:
            peer.link.session.heard(peer.now)  # polls are not what is tested
    assert times == [1, 3, 7, 15, 16, 18, 22] and peer.now - start == 30
    assert peer.happened == [Closed("frames are not acknowledged")]


def test_the_rest_follows_when_a_probe_is_acknowledged():
    peer = Peer().open()
    for number in range(4):
        peer.link.send(SLOT, Tlps((tlp(number),)), peer.now)
    peer.tick()
    assert [frame.seq for frame in peer.tick(peer.now + 1)] == [0]
    peer.say(Ack(NONE), ack=2)
    assert [frame.seq for frame in peer.tick()] == [2, 3]


def test_a_nak_brings_all_again_in_order_and_new_frames_behind():
    peer = Peer().open()
    for number in range(4):
        peer.link.send(SLOT, Tlps((tlp(number),)), peer.now)
    peer.tick()
    peer.say(Sack(NONE), ack=1)
    assert not peer.link.room
    assert [frame.seq for frame in peer.tick()] == [1, 2, 3] and peer.link.room


@pytest.mark.parametrize("ack", [4, MODULUS - 1, MODULUS // 2])
def test_forged_acknowledgements_have_no_effect(ack):
    peer = Peer().open()
    for number in range(3):
        peer.link.send(SLOT, Tlps((tlp(number),)), peer.now)
    peer.say(Ack(NONE), ack=ack)
    assert peer.link.sender.oldest == 0 and peer.link.sender.has(2)


def test_no_more_frames_than_the_window_of_the_peer():
    peer, count = Peer(window=5).open(), 0
    while peer.link.room:
        peer.link.send(SLOT, Event(1), peer.now)
        count += 1
    assert count == 5
    peer.say(Ack(NONE), ack=2)
    assert peer.link.room


def test_frames_act_once_and_in_order_and_naks_ask_for_what_is_missing():
    peer = Peer().open()

    def taken(seq):
        peer.say(Tlps((tlp(seq),)), seq=seq)
        came = [h.tlps for h in peer.happened if isinstance(h, TlpsCame)]
        return came == [(tlp(seq),)], [
            (f.type.name, f.ack, *([f.body.request] if isinstance(f.body, Sack) else []))
            for f in peer.tick()]

    assert taken(0) == (True, [("ACK", 1)])
    assert taken(0) == (False, [("ACK", 1)])      # again
    assert taken(2) == (False, [("SACK", 1, 1)])  # a NAK
    assert taken(3) == (False, [("SACK", 1, 1)])  # a copy
    assert taken(2) == (False, [("SACK", 1, 0)])  # began anew, and 1 is lost again
    assert taken(3) == (False, [("SACK", 1, 0)])
    assert taken(1) == (True, [("ACK", 2)])
    assert taken(3) == (False, [("SACK", 2, 1)])  # another gap
    assert taken(2) == (True, [("ACK", 3)])


def test_an_acknowledgement_waits_for_a_frame_that_carries_it():
    peer = Peer(Timers(retry=1.0, hello=1.0, quiet=1.0, ack=0.5)).open()
    peer.say(Tlps((tlp(0),)), seq=0)
    assert peer.tick() == [] and peer.link.deadline() == peer.now + 0.5
    peer.link.send(SLOT, Event(1), peer.now)
    frame, = peer.tick()
    assert frame.ack == 1 and peer.tick(peer.now + 0.5) == []
    peer.say(Tlps((tlp(1),)), seq=1, ack=1)
    frame, = peer.tick(peer.now + 0.5)
    assert frame.type == FrameType.ACK and (frame.ack, frame.dst_slot) == (2, SLOT)
    peer.say(Tlps((tlp(2),)), seq=2, ack=1, ar=True)
    frame, = peer.tick()
    assert frame.ack == 3


def test_frames_of_other_sessions_are_refused():
    peer = Peer().open()
    peer.say(Tlps((tlp(0),)), seq=0, tag=peer.link.session.rx_tag ^ 1)
    assert peer.happened == [] and peer.link.counters["wrong_tag"] == 1
    peer.say(Tlps((tlp(0),)), seq=0, tag=0)
    assert peer.happened == []


@pytest.mark.parametrize("body", [
    Tlps((tlp(0),)), Event(1), Ack((Credit(0), Credit(1), Credit(2))),
], ids=lambda body: type(body).__name__)
def test_frames_far_from_the_numbers_of_the_session_do_nothing(body):
    """SEQ within 1024 of the expected one; ACK of what was sent, and not of long ago."""
    peer = Peer().open()
    for _ in range(3):
        peer.link.send(SLOT, Event(1), peer.now)
    counters, opened = peer.link.counters, peer.link.counters["taken"]

    def stray(seq, ack):
        before, taken = counters["stray"], counters["taken"]
        peer.say(body, seq=seq % MODULUS, ack=ack % MODULUS)
        assert not (counters["taken"] > taken and counters["stray"] > before)
        return counters["stray"] > before

    for seq in (1024, -1025, MODULUS // 2, MODULUS // 2 - 1):
        assert stray(seq, 0)
    for ack in (4, 1023, -1025, MODULUS // 2):
        assert stray(0, ack)
    assert counters["taken"] == opened and not counters["duplicate"] and not counters["gap"]
    assert not any(stray(seq, 0) for seq in (-1024, -1, 1, 1023))
    assert not any(stray(0, ack) for ack in (-1024, -1, 3))


def test_tags_wrap_and_none_is_zero():
    source = TagSource(random.Random(6))
    tags = [source.tag() for _ in range(65535)]
    assert 0 not in tags and len(set(tags)) == 65535


def test_distance():
    assert ahead(3, MODULUS - 2) == 5 and ahead(MODULUS - 2, 3) >= MODULUS // 2


@pytest.mark.parametrize("name", ["retry", "hello", "completion", "attach", "refresh"])
def test_timers_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be a positive time, not 0"):
        Timers(**{name: 0})
    with pytest.raises(ValueError, match="quiet must be a positive time, not -1"):
        Timers(quiet=-1)
    assert Timers().slower(10).retry == 10 * Timers().retry
