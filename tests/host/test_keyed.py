"""dxpu_host.keyed: the host's end of keyed sessions, beside the golden model of the box's."""

import random
from dataclasses import replace

import pytest
from dxpu.fabric.wire.format import Role, SecurityMode
from dxpu.fabric.wire.frame_types import FrameType
from dxpu_host.link import Address, Closed, Link, Opened
from dxpu_host.session import Phase, TagSource
from dxpu_model.keyed import Ends
from dxpu_model.opening import Answerer, Keys, OpeningFrame
from dxpu_model.wire import Ack, Frame, Hello, parse
from tests.support.host_bench import NODE, NONE, PEER, TIMERS, NoLimits
from tests.support.testbench import seed

KEYS = bytes(range(16)), bytes(range(16, 32))
ENDS = Ends(NODE, PEER, 2)
BOX = Hello(0, 0, 0, Role.BOX, 2, 0, SecurityMode.KEYED, 1514, 64, 1, 2, 0, 9, 3, answer=True)


class Pair:
    """A link of the host, and the golden box. Time stands still unless told otherwise."""

    def __init__(self, host=None, box=None, rng=None):
        self.rng = rng or random.Random(seed())
        self.now, self.happened = 0.0, []
        self.link = Link(Address(NODE, PEER, 2, 1), timers=TIMERS, tags=TagSource(self.rng),
                         boot=77, limits=NoLimits(), now=0.0, keys=host or Keys(KEYS[0]))
        self.box = Answerer(ENDS, box or Keys(KEYS[0]), BOX.pack(0, 0)[:28],
                            draw=self.rng.randbytes,
                            draw_tag=lambda: self.rng.randrange(1, 1 << 16))

    def tick(self, now=None):
        """Frames that leave."""
        self.now = self.link.deadline() if now is None else now
        self.happened = self.link.tick(self.now)
        return self.left()

    def left(self):
        """Frames that wait to be sent."""
        self.link.reply(self.now)
        return [parse(raw) for raw in self.link.take()]

    def to_box(self, frame):
        """What the golden box answers: frames, and whether an ACK goes out at once."""
        body = frame.body.pack(0, 0)
        assert (frame.dst_slot, frame.src_slot, frame.seq, frame.ack, frame.ar) == (0, 0, 0, 0, 0)
        return self.box.take(OpeningFrame.parse(frame.type, ENDS, frame.tag, body),
                             self.now * 1e6)

    def to_host(self, answer, /, **changes):
        """Deliver a HELLO_ACK; ``changes`` are of the frame, or of its body."""
        made = parse_opening(answer)
        inner = {name: changes.pop(name) for name in list(changes) if hasattr(made.body, name)}
        frame = replace(made, body=replace(made.body, **inner), **changes)
        self.happened += self.link.receive(frame, self.now)

    def greet(self):
        """HELLO to the box; its answer."""
        hello, = self.tick()
        (answer,), _ = self.to_box(hello)
        return hello, answer

    def confirm(self):
        """HELLO_DONE to the box, and its ACK to the host."""
        done, = self.left()
        assert done.type == FrameType.HELLO_DONE and done.tag == self.link.session.tx_tag
        assert self.to_box(done) == ([], True)
        begun = self.box.session
        self.happened = self.link.receive(Frame(
            Ack(NONE), dst_node=NODE, src_node=PEER, stream=2, path=1, tag=begun.to_opener,
            seq=begun.answerer_seq, ack=begun.opener_seq), self.now)
        return begun

    def open(self):
        """A session."""
        _, answer = self.greet()
        self.to_host(answer)
        return self.confirm()


def parse_opening(frame):
    """A frame of the golden box, as the link gets it."""
    values = {name: int.from_bytes(frame.fields[at:at + size], "big")
              for (name, size), at in zip(Hello.FIELDS, starts(), strict=True)}
    return Frame(Hello(**values, answer=True,
                       keyed=frame.opener_nonce + frame.answerer_nonce + frame.proof),
                 dst_node=NODE, src_node=PEER, stream=2, path=1, tag=frame.tag)


def starts():
    at = 0
    for _, size in Hello.FIELDS:
        yield at
        at += size


def test_a_session_opens_under_the_key():
    """Both ends begin with the numbers and tags that the golden model says."""
    pair = Pair()
    begun = pair.open()
    link = pair.link
    assert Opened() in pair.happened and link.open
    assert (link.session.rx_tag, link.session.tx_tag) == (begun.to_opener, begun.to_answerer)
    assert (link.sender.next, link.receiver.expected) == (begun.opener_seq, begun.answerer_seq)
    assert begun.opener_seq and begun.answerer_seq


@pytest.mark.parametrize("what", [
    {"proof": 0}, {"proof": 127}, {"answerer": 0}, {"answerer": 63}, {"slots": 3}, {"window": 1},
    {"boot_counter": 10}, {"tag_offered": 0x4242}, {"capabilities": 1}], ids=str)
def test_an_altered_answer_is_refused(what):
    """A bit of the proof or of the nonce, or a field: nothing else can be told to the host."""
    pair = Pair()
    _, answer = pair.greet()
    (name, value), = what.items()
    body = bytearray(parse_opening(answer).body.keyed)
    if name in ("proof", "answerer"):
        start = 16 if name == "proof" else 8
        body[start + value // 8] ^= 1 << value % 8
        pair.to_host(answer, keyed=bytes(body))
    else:
        pair.to_host(answer, **what)
    assert pair.link.session.phase is Phase.HELLO and pair.left() == []
    assert pair.link.counters["proof"] == 1
    # The right one still counts.
    pair.to_host(answer)
    assert pair.link.session.phase is Phase.CONFIRM


@pytest.mark.parametrize("wrong", [
    {"tag": 5}, {"tag_echoed": 5}, {"tag_offered": 0}, {"nonce": 5}, {"answer": False},
    {"keyed": b"", "security_mode": 0}, {"keyed": bytes(32)}, {"dst_slot": 1}, {"src_slot": 1},
    {"ar": True}], ids=str)
def test_what_is_no_answer_is_ignored(wrong):
    pair = Pair()
    _, answer = pair.greet()
    pair.to_host(answer, **wrong)
    assert pair.link.session.phase is Phase.HELLO and pair.link.counters["stale"] == 1
    assert pair.left() == []


def test_a_link_without_a_key_takes_no_keyed_answer():
    pair = Pair()
    plain = Link(Address(NODE, PEER, 2, 1), timers=TIMERS, tags=TagSource(random.Random(1)),
                 boot=77, limits=NoLimits(), now=0.0)
    plain.tick(plain.deadline())
    hello = parse(plain.take()[0]).body
    assert hello.security_mode == SecurityMode.NONE and hello.keyed == b""
    _, answer = pair.greet()
    frame = parse_opening(answer)
    assert plain.receive(replace(frame, tag=hello.tag_offered, body=replace(
        frame.body, nonce=hello.nonce, tag_echoed=hello.tag_offered)), 1.0) == []
    assert plain.counters["stale"] == 1 and plain.take() == []


def test_the_same_answer_again_is_confirmed_again_and_no_other():
    pair = Pair()
    _, answer = pair.greet()
    pair.to_host(answer)
    first, = pair.left()
    pair.to_host(answer)
    assert pair.left() == [first]
    other = bytearray(parse_opening(answer).body.keyed)
    other[8] ^= 1
    pair.to_host(answer, keyed=bytes(other))
    assert pair.left() == []
    # When it is open it is not confirmed any more.
    assert pair.to_box(first) == ([], True)
    begun = pair.box.session
    pair.link.receive(Frame(Ack(NONE), dst_node=NODE, src_node=PEER, stream=2, path=1,
                            tag=begun.to_opener, seq=begun.answerer_seq, ack=begun.opener_seq),
                      pair.now)
    pair.to_host(answer)
    assert pair.left() == []


def test_a_silent_box_is_asked_five_times_then_everything_is_new():
    """The same for HELLO and for HELLO_DONE, with waits that double."""
    pair = Pair()
    hellos = [pair.tick()[0] for _ in range(6)]
    assert hellos[:5] == [hellos[0]] * 5 and hellos[5].body.keyed != hellos[0].body.keyed
    (answer,), _ = pair.to_box(hellos[5])
    pair.to_host(answer)
    done, begin = pair.left()[0], pair.now
    times = []
    for _ in range(4):
        again, = pair.tick()
        assert again == done
        times.append(pair.now - begin)
    assert times == pytest.approx([TIMERS.hello * n for n in (1, 3, 7, 15)])
    hello, = pair.tick()
    assert hello.type == FrameType.HELLO and hello.body.keyed[:8] not in (
        done.body.keyed[:8], hellos[0].body.keyed[:8])


def test_nothing_but_the_confirmation_is_sent_before_the_box_was_heard():
    pair = Pair()
    _, answer = pair.greet()
    pair.to_host(answer)
    assert not pair.link.room and [f.type for f in pair.left()] == [FrameType.HELLO_DONE]
    # A frame whose numbers are not those of the session does not confirm it.
    session = pair.link.session
    pair.link.receive(Frame(Ack(NONE), dst_node=NODE, src_node=PEER, stream=2, path=1,
                            tag=session.rx_tag, seq=session.first[1] + 5000 & 0xFFFFFF,
                            ack=session.first[0]), pair.now)
    assert session.phase is Phase.CONFIRM and pair.link.counters["stray"] == 1


@pytest.mark.parametrize("box", [Keys(KEYS[0]), Keys(KEYS[1]), Keys(*KEYS)],
                         ids=["old", "new", "both"])
def test_the_next_key_is_tried_in_turn(box):
    """Whatever the box has: a session opens in the first or in the second attempt."""
    host = Keys(*KEYS)
    pair = Pair(host, box)
    for _ in range(2):
        for _ in range(5):
            hello, = pair.tick()
            answers, _ = pair.to_box(hello)
            if answers:
                break
        if answers:
            break
    pair.to_host(answers[0])
    pair.confirm()
    assert Opened() in pair.happened
    if box.current == KEYS[1]:
        assert host == Keys(KEYS[1])


def test_a_session_ends_and_opens_again():
    pair = Pair()
    first = pair.open()
    assert pair.link.close("enough", pair.now) == [Closed("enough")]
    fence, = pair.left()
    assert (fence.type, fence.tag, fence.seq) == (
        FrameType.FENCE, first.to_answerer, first.opener_seq)
    second = pair.open()
    assert (second.opener_seq, second.to_opener) != (first.opener_seq, first.to_opener)
