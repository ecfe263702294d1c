"""dxpu_model.management: frames as a second reader of the page makes them, and both ends over a
network that loses, doubles and delays frames, before strangers."""

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from dxpu.management.format import FOLLOWS_MAX, Code, Kind, Status, Subject

from dxpu_model import management as m
from dxpu_model.management import (
    Answer, Event, Identity, ManagedNode, ManagementError, ManagerEnd, Message, Operation, Request,
)
from tests.support import management_by_text as text
from tests.support.testbench import seed

PAGE = Path(__file__).parents[2] / "docs/reference/management.md"

KEY = bytes(range(16))
NODE, MANAGER = bytes.fromhex("025100000001"), bytes.fromhex("02aabbccddee")
NODE_NONCE, MANAGER_NONCE = (bytes.fromhex(t) for t in ("a0a1a2a3a4a5a6a7", "b0b1b2b3b4b5b6b7"))
FENCE_EPOCH = 0x10


class Registers:
    """Some registers; those from 300h on cannot be written."""

    def __init__(self):
        self.values = {FENCE_EPOCH: 0, **{a: a << 16 for a in range(0x100, 0x400, 4)}}
        self.log = []

    def has(self, address, *, write):
        return address in self.values and not (write and address >= 0x300)

    def read(self, address):
        return self.values[address]

    def write(self, address, value):
        self.log.append((address, value))
        self.values[address] = value


def words(data):
    """Random words of which these are the first."""
    rng = random.Random(0)
    first = iter(int.from_bytes(data[n:n + 4], "little") for n in range(0, len(data), 4))
    return lambda: next(first, None) or rng.getrandbits(32)


def node(**kwargs):
    return ManagedNode(KEY, NODE, Registers(), FENCE_EPOCH, words(bytes(8) + NODE_NONCE), **kwargs)


def manager(number=2, rng=None, **kwargs):
    return ManagerEnd(KEY, number, rng.randbytes if rng else lambda size: MANAGER_NONCE,
                      node_mac=NODE, own_mac=MANAGER, **kwargs)


def opened(**kwargs):
    """A node and a manager with an association."""
    one, other = node(), manager(**kwargs)
    other.take(one.take(other.ask()))
    return one, other


# Frames -------------------------------------------------------------------------------------------

def vectors():
    """The frames of the page, by the second reader."""
    to = text.header(NODE, MANAGER, 0xFFF, 0, 0)
    back = text.header(MANAGER, NODE, 0, 0xFFF, 0)
    key = text.association_key(KEY, 2, NODE_NONCE, MANAGER_NONCE)
    told = {"node_nonce": NODE_NONCE, "manager_nonce": MANAGER_NONCE, "manager": 2}
    identity = text.identity(mac=NODE, number=0xFFF, serial=0x12345678, role=2, slots=4,
                             capabilities=0x11, boot=7, links=1, present=5, build=0xDEADBEEF,
                             table=0x44556677)

    def sealed(header, kind, plain):
        return text.frame(header, kind, counter=1, **told, follows=text.sealed(
            key, header, kind, counter=1, **told, plain=plain))

    return {
        "ASK": text.frame(to, 0, 2, 0, bytes(8), MANAGER_NONCE, text.knock(KEY)),
        "CHALLENGE": text.frame(back, 1, counter=0, **told, follows=identity),
        "REQUEST": sealed(to, 2, text.request(3, [("write", 0x104, [7, 8]), ("read", 0x200, 3)])),
        "ANSWER": sealed(back, 3, text.answer(3, 2, 0, [0x11111111, 0x22222222, 0x33333333])),
        "EVENT": sealed(back, 4, text.event(1, 2, 3)),
        "EVENT_ACK": sealed(to, 5, b""),
    }


def test_vectors():
    """Those of the page are what a second reader of its text makes, and what both ends say."""
    page = PAGE.read_text()
    made = vectors()
    for name, frame in made.items():
        shown = re.search(rf"^{name}\n([0-9a-f\n]+)$", page, re.M)[1].replace("\n", "")
        assert shown == frame.hex(), name
    assert f"| knock | `{m.knock(KEY).hex()}` |" in page
    key = m.association_key(KEY, 2, NODE_NONCE, MANAGER_NONCE)
    assert f"| key of the association | `{key.hex()}` |" in page

    one, other = node(), manager()
    one.identity = Identity(NODE, serial=0x12345678, role=2, slots=4, capabilities=0x11, boot=7,
                            links=1, present=5, build=0xDEADBEEF, table=0x44556677)
    one.registers.values.update({0x200: 0x11111111, 0x204: 0x22222222, 0x208: 0x33333333})
    assert other.ask() == made["ASK"]
    assert one.take(made["ASK"]) == made["CHALLENGE"]
    assert other.take(made["CHALLENGE"]) is None and other.identity == one.identity
    request = other.request(3, [Operation.write(0x104, 7, 8), Operation(0x200, 3)])
    assert request == made["REQUEST"]
    assert one.take(request) == made["ANSWER"]
    assert other.take(made["ANSWER"]) == Answer(3, Status.DONE, 2, (
        0x11111111, 0x22222222, 0x33333333))
    assert one.registers.log == [(FENCE_EPOCH, 3), (0x104, 7), (0x108, 8)]
    one.happens(Event(1, 2, 3))
    assert one.tell(0) == made["EVENT"]
    assert other.take(made["EVENT"]) == (Event(1, 2, 3), True, made["EVENT_ACK"])
    assert one.take(made["EVENT_ACK"]) is None
    assert not one.counters


def test_a_second_reader_makes_the_same_frames():
    """Of anything that can be said."""
    rng = random.Random(seed())
    for _ in range(200):
        kind = rng.choice(list(Kind))
        to, of = rng.randbytes(6), rng.randbytes(6)
        message = Message(kind, rng.randrange(1, 5), rng.getrandbits(32), rng.randbytes(8),
                          rng.randbytes(8), b"", rng.getrandbits(12), rng.getrandbits(12), to, of,
                          rng.getrandbits(4))
        key, plain = rng.randbytes(16), rng.randbytes(4 * rng.randrange(86))
        told = (kind, message.manager, message.counter, message.node_nonce, message.manager_nonce)
        header = text.header(to, of, message.dst_node, message.src_node, message.path)
        sealed = m.seal(key, message, plain)
        assert sealed.follows == text.sealed(key, header, *told, plain)
        frame = sealed.frame()
        assert frame == text.frame(header, *told, sealed.follows)
        assert m.is_management(frame) and m.intact(frame)
        assert Message.parse(frame) == sealed and m.unseal(key, sealed) == plain
        broken = bytearray(frame)
        broken[rng.randrange(14, len(frame))] ^= 1 << rng.randrange(8)
        assert not (m.is_management(bytes(broken)) and m.intact(bytes(broken)))

    for _ in range(50):
        operations, said = [], []
        for _ in range(rng.randrange(1, 9)):
            address, size = 4 * rng.getrandbits(14), rng.randrange(1, 9)
            if rng.getrandbits(1):
                operations.append(Operation(address, size))
                said.append(("read", address, size))
            else:
                data = tuple(rng.getrandbits(32) for _ in range(size))
                operations.append(Operation.write(address, *data))
                said.append(("write", address, data))
        request = Request(rng.getrandbits(32), tuple(operations))
        assert request.pack() == text.request(request.epoch, said)
        assert Request.unpack(request.pack()) == request
        answer = Answer(rng.getrandbits(32), rng.choice(list(Status)), rng.getrandbits(8),
                        tuple(rng.getrandbits(32) for _ in range(rng.randrange(84))))
        assert answer.pack() == text.answer(answer.epoch, answer.number, answer.status,
                                            answer.words)
        assert Answer.unpack(answer.pack()) == answer
        event = Event(rng.getrandbits(8), rng.getrandbits(8), rng.getrandbits(32))
        assert event.pack() == text.event(event.code, event.where, event.argument)
        assert Event.unpack(event.pack()) == event
        fields = {"mac": rng.randbytes(6)} | {name: rng.getrandbits(8 * size) for name, size in (
            ("number", 2), ("serial", 4), ("role", 1), ("slots", 1), ("capabilities", 2),
            ("boot", 2), ("links", 1), ("present", 4), ("build", 4),
            ("table", 4))}
        assert Identity(**fields).pack() == text.identity(**fields)
        assert Identity.unpack(Identity(**fields).pack()) == Identity(**fields)


@pytest.mark.parametrize("offset,value", [
    (15, 0x40), (19, 1), (20, 1), (21, 1), (22, 1), (24, 1), (27, 1), (32, 7), (32, 99), (33, 0),
    (33, 5), (34, 1), (35, 17), (35, 15)])
def test_frames_of_another_form_are_dropped(offset, value):
    """Flags, slots, stream, tag, SEQ, ACK; kind, manager number, length."""
    frame = bytearray(manager().ask())
    frame[offset] = value
    one = node()
    assert one.take(bytes(frame)) is None
    assert one.counters == {"damaged": 1}
    for cut in (frame[:59], frame + bytes(4)):
        assert one.take(bytes(cut)) is None
    assert one.counters == {"damaged": 3}


@pytest.mark.parametrize("kind", [Kind.CHALLENGE, Kind.ANSWER, Kind.EVENT, Kind.ANNOUNCE])
def test_a_node_takes_nothing_that_nodes_say(kind):
    one = node()
    assert one.take(Message(kind, 1, dst_node=0xFFF, dst_mac=NODE, follows=bytes(16)).frame()) is (
        None)
    assert one.counters == {"damaged": 1}


def test_to_whom_a_node_listens():
    """To its number by any MAC address, to FFFh by its own; only to the manager, and to MGMT."""
    one = node(number=0x105)
    ask = Message(Kind.ASK, 1, manager_nonce=MANAGER_NONCE, follows=m.knock(KEY), src_mac=MANAGER,
                  dst_mac=NODE)
    now = 0
    for number, mac, source, answered in (
            (0x105, NODE, 0, True), (0x105, bytes(6), 0, True), (0xFFF, NODE, 0, True),
            (0xFFF, bytes(6), 0, False), (0x106, NODE, 0, False), (0x105, NODE, 1, False)):
        frame = replace(ask, dst_node=number, src_node=source, dst_mac=mac, path=3)
        now += 100
        challenge = one.take(frame.frame(), now)
        assert bool(challenge) == answered
        if answered:
            got = Message.parse(challenge)
            assert (got.dst_node, got.src_node, got.dst_mac, got.src_mac, got.path) == (
                0, number, MANAGER, mac, 3)
    assert node(number=0xFFF).take(replace(ask, dst_node=0xFFF, dst_mac=bytes(6)).frame()) is None
    tlp = bytearray(ask.frame())
    tlp[14] = 0x12
    assert one.take(bytes(tlp)) is None
    assert not one.counters


# Requests -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("plain", [
    b"", bytes(4), text.request(3, []), text.request(3, [("read", 0x100, 1)] * 41),
    text.request(3, [("read", 0x100, 0)]), text.request(3, [("read", 0x100, 81)]),
    text.request(3, [("write", 0x100, [1])])[:-4], text.request(3, [("read", 0x100, 1)])[:-4],
    text.request(3, [("read", 0x100, 1)]) + bytes(4),
    text.request(3, [("read", 0x100, 42)] * 2), text.request(0, [("write", 0x100, [1])]),
    b"\0\0\0\3\1\0\0\1" + text.request(3, [("read", 0x100, 1)])[8:],
    b"\0\0\0\3\1\0\0\0\2\1\0\0\0\0\1\0", b"\0\0\0\3\1\0\0\0\0\1\0\1\0\0\1\0"])
def test_what_is_no_request_is_refused(plain):
    one, other = opened()
    message = replace(other._told, kind=Kind.REQUEST, counter=1)
    answer = one.take(m.seal(m.association_key(KEY, 2, NODE_NONCE, MANAGER_NONCE), message,
                             plain).frame())
    other._counter, other._waits = 1, True
    assert other.take(answer) == Answer(0, Status.REFUSED, 0)
    assert one.registers.log == []


def test_a_request_is_done_whole_or_not_at_all():
    one, other = opened()

    def ask(epoch, *operations):
        return other.take(one.take(other.request(epoch, operations)))

    long = [Operation(0x100 + 40 * n, 10) for n in range(8)] + [Operation(0x300, 3)]
    assert ask(0, *long) == Answer(0, Status.DONE, 9, tuple(
        a << 16 for a in range(0x100, 0x100 + 4 * 80, 4)) + (0x300 << 16, 0x304 << 16, 0x308 << 16))
    assert ask(0, *long[:8], Operation(0x300, 4)) == Answer(0, Status.REFUSED, 0)
    for n, wrong in enumerate((Operation.write(0x300, 1), Operation(0x400), Operation(0x102),
                               Operation.write(0x2FC, 1, 2), Operation(0x1_0100))):
        write = [Operation.write(0x100, 5)] * n
        assert ask(7, *write, wrong) == Answer(0, Status.ADDRESS, n)
    assert one.registers.log == []
    assert ask(7, Operation.write(0x100, 5), Operation(0x100)) == Answer(7, Status.DONE, 2, (5,))
    assert ask(6, Operation.write(0x100, 6)) == Answer(7, Status.STALE, 0)
    assert ask(6, Operation(0x100)) == Answer(7, Status.DONE, 1, (5,))
    assert ask(6, Operation.write(0x300, 6)) == Answer(7, Status.STALE, 0)
    assert ask(7, Operation.write(0x100, 6)) == Answer(7, Status.DONE, 1)
    assert one.registers.log == [(FENCE_EPOCH, 7), (0x100, 5), (0x100, 6)]


def test_of_two_managers_the_one_with_the_higher_epoch_writes():
    rng = random.Random(seed())
    one, ends = node(), [manager(n, rng) for n in (1, 2)]
    for end in ends:
        end.take(one.take(end.ask()))
    for epoch, end, status in ((3, 0, "DONE"), (4, 1, "DONE"), (3, 0, "STALE"), (5, 0, "DONE"),
                               (4, 1, "STALE")):
        answer = ends[end].take(one.take(ends[end].request(
            epoch, [Operation.write(0x100, epoch)])))
        assert answer.status.name == status
    assert [value for address, value in one.registers.log if address == 0x100] == [3, 4, 5]


def test_a_bad_network():
    """Requests of a manager that gives up and starts again, over a network that loses, doubles and
    delays: each acts once at most and in order, those answered have acted, events come once."""
    rng = random.Random(seed())
    one = ManagedNode(KEY, NODE, Registers(), FENCE_EPOCH, lambda: rng.getrandbits(32))
    end, flying, sent, answered, events = manager(rng=rng), [], 0, [], []
    sealed = {}  # by key, kind and counter: what was sent under it
    last, now, happened = None, 0, 0

    def send(frame):
        if frame:
            message = Message.parse(frame)
            if message.kind in (Kind.REQUEST, Kind.ANSWER, Kind.EVENT, Kind.EVENT_ACK):
                place = (message.manager, message.node_nonce, message.manager_nonce, message.kind,
                         message.counter)
                assert sealed.setdefault(place, message.follows) == message.follows
            flying.extend([frame] * rng.randrange(3))

    for _ in range(6000):
        now += 50_000
        doing = rng.random()
        if doing < 0.3 and end.open and not end._waits:
            sent += 1
            last = end.request(1, [Operation.write(0x100, sent), Operation(0x100)])
            send(last)
        elif doing < 0.5 and last and end._waits:
            send(last)
        elif 0.5 < doing < 0.51 or not end.open and doing < 0.05:
            send(end.ask())
        elif 0.5 < doing < 0.55:
            happened += 1
            one.happens(Event(1, 0, happened))
        elif flying:
            frame = flying[rng.randrange(len(flying))]
            if rng.getrandbits(1):
                flying.remove(frame)
            send(one.take(frame, now))
            got = end.take(frame)
            if isinstance(got, Answer):
                answered.append((sent, got))
            elif got:
                event, _, acknowledged = got
                events.append(event.argument)
                send(acknowledged)
        send(one.tell(now))
        del flying[:-30]
    acted = [value for address, value in one.registers.log if address == 0x100]
    assert acted == sorted(set(acted))
    assert len(answered) > 40 and len(acted) >= len(answered)
    for number, answer in answered:
        assert answer == Answer(1, Status.DONE, 2, (number,))
    known = list(dict.fromkeys(events))
    assert known == list(range(1, len(known) + 1)) and len(known) > 10


def test_events_go_to_who_wrote_last_until_acknowledged():
    one, first = opened()
    rng = random.Random(seed())
    second = manager(3, rng)
    second.take(one.take(second.ask()))
    one.happens(Event(1))
    assert one.tell(0) is None  # nobody has written
    one.take(first.request(1, [Operation(0x100)]))
    one.take(second.request(1, [Operation.write(0x100, 1)]))
    waits, now = [], 0.0
    while now < 3.5e6:
        if frame := one.tell(now):
            waits.append(now)
            assert first.take(frame) is None
        now += 1000
    for n, (a, b) in enumerate(zip(waits, waits[1:], strict=False)):
        assert 0 <= b - a - 7_812 * 2 ** min(n, 7) < 1000
    assert len(waits) == 10
    event, fresh, acknowledges = second.take(frame or one.tell(5e6))
    assert (event, fresh) == (Event(1), True)
    one.happens(Event(2))
    one.take(acknowledges)
    assert one.take(acknowledges) is None and one.counters == {"stale": 1}
    event, fresh, acknowledges = second.take(one.tell(5e6))
    assert (event, fresh) == (Event(2), True)
    # Asked anew, the manager gets it under the new association, and acknowledges that.
    second.take(one.take(second.ask(), 5e6))
    one.take(second.request(1, [Operation(0x100)]), 5e6)
    one.take(acknowledges, 5e6)
    assert one.counters == {"stale": 2}
    assert second.take(one.tell(6e6))[0] == Event(2)


# Strangers ----------------------------------------------------------------------------------------

def test_who_has_no_key_costs_no_calculation_and_changes_nothing():
    """Frames of every kind with random and with recorded content, and what they are counted as."""
    rng = random.Random(seed())
    one, other = opened()
    answer = one.take(other.request(1, [Operation.write(0x100, 1)]))
    log, calculations = list(one.registers.log), one.calculations
    key = rng.randbytes(16)
    for n in range(4000):
        message = Message(
            rng.choice(list(Kind)), rng.randrange(1, 5), rng.choice((0, 1, 2, 3)),
            rng.choice((bytes(8), rng.randbytes(8))), rng.choice((MANAGER_NONCE, rng.randbytes(8))),
            rng.randbytes(4 * rng.randrange(FOLLOWS_MAX // 4 + 1)), dst_node=0xFFF, dst_mac=NODE)
        if message.kind == Kind.ASK and rng.getrandbits(1):
            message = replace(message, counter=0, node_nonce=bytes(8), follows=rng.randbytes(16))
        elif rng.getrandbits(1):
            message = m.seal(key, replace(message, follows=b""), text.request(
                9, [("write", 0x100, [n])]))
        assert one.take(message.frame(), 1e6 + 1000 * n) is None
    assert one.calculations == calculations
    assert one.registers.log == log
    assert set(one.counters) == {"damaged", "knock", "stale"}
    # The association is as it was.
    other.take(answer)
    assert other.take(one.take(other.request(1, [Operation(0x100)]))).words == (1,)


def test_recorded_frames_act_never_again():
    """A sniffer repeats all that was said, in any order, after each step and after a reset."""
    rng = random.Random(seed())
    seen, registers = [], Registers()
    one = ManagedNode(KEY, NODE, registers, FENCE_EPOCH, lambda: rng.getrandbits(32))
    done, now = 0, 0

    def repeat():
        nonlocal now
        for frame in rng.sample(seen, len(seen)):
            now += 1000
            one.take(frame, now)
        assert [v for a, v in registers.log if a == 0x100] == list(range(1, done + 1))

    for step in range(12):
        if step == 6:
            registers.values[FENCE_EPOCH] = 0
            one = ManagedNode(KEY, NODE, registers, FENCE_EPOCH, lambda: rng.getrandbits(32))
            repeat()
        end = manager(rng=rng)
        seen.append(end.ask())
        seen.append(one.take(seen[-1], now := now + 1000))
        end.take(seen[-1])
        for _ in range(2):
            done += 1
            seen.append(end.request(1, [Operation.write(0x100, done)]))
            seen.append(one.take(seen[-1], now))
            assert end.take(seen[-1]).status == Status.DONE
            repeat()


@pytest.mark.parametrize("change", ["kind", "manager", "counter", "nonces", "text", "tag", "nodes"])
def test_no_part_of_a_request_can_be_changed(change):
    one, other = opened()
    message = Message.parse(other.request(1, [Operation.write(0x100, 1)]))
    key = m.association_key(KEY, 2, NODE_NONCE, MANAGER_NONCE)
    changed = {
        "kind": {"kind": Kind.EVENT}, "manager": {"manager": 1}, "counter": {"counter": 2},
        "nonces": {"manager_nonce": bytes(8)}, "nodes": {"dst_node": 0x105},
        "text": {"follows": bytes([message.follows[0] ^ 1]) + message.follows[1:]},
        "tag": {"follows": message.follows[:-1] + bytes([message.follows[-1] ^ 1])},
    }[change]
    with pytest.raises(m.Wrong, match="^tag$"):
        m.unseal(key, replace(message, **changed))
    one.number = 0x105
    assert one.take(replace(message, **changed).frame()) is None
    assert one.registers.log == [] and sum(one.counters.values()) == 1


def test_damaged_frames_act_not():
    """A frame whose CRCs are wrong, whatever else is right."""
    one, other = opened()
    ask, request = manager(3).ask(), other.request(1, [Operation.write(0x100, 1)])
    for frame in (ask, request):
        for place in (30, len(frame) - 1):
            broken = bytearray(frame)
            broken[place] ^= 1
            assert one.take(bytes(broken), 1e6) is None
    assert one.counters == {"damaged": 4}
    assert one.take(request)
    one.happens(Event(1))
    acknowledges = other.take(one.tell(0))[2]
    assert one.take(acknowledges[:-1] + b"\0") is None
    assert one.counters == {"damaged": 5} and one.take(acknowledges) is None
    assert one.counters == {"damaged": 5} and not one._events


def test_an_ask_within_100_us_is_dropped():
    one = node()
    for now, number, answered in ((0, 1, True), (99, 1, False), (99, 2, True), (100, 1, True)):
        assert bool(one.take(manager(number).ask(), now)) == answered
    assert one.counters == {"early": 1}


@pytest.mark.parametrize("do,message", [
    (lambda: manager(5), "manager number must be 1 to 4, not 5"),
    (lambda: manager().request(1, [Operation(0)]), "there is no association: ask first"),
    (lambda: [(e := opened()[1]).request(1, [Operation(0)]), e.request(1, [Operation(0)])],
     "the last request is not answered: send it again, or ask anew"),
    (lambda: opened()[1].request(1, [Operation.write(0, *range(80)), Operation(0)]),
     "a request has 340 bytes at most, not 344: make two of it"),
])
def test_what_a_manager_cannot_do(do, message):
    with pytest.raises(ManagementError, match=f"^{message}$"):
        do()


def test_the_other_end_is_not_believed():
    """A manager drops what is not right, and waits for what is."""
    one, other = opened()
    answer = one.take(other.request(1, [Operation(0x100)]))
    good = Message.parse(answer)
    for wrong in (
            bytes(60), answer[:-1] + b"\0", replace(good, counter=2).frame(),
            replace(good, manager=1).frame(), replace(good, src_node=5).frame(),
            replace(good, node_nonce=bytes(8)).frame(),
            replace(good, follows=good.follows[:-1] + b"\0").frame(),
            replace(good, kind=Kind.EVENT).frame(), replace(good, kind=Kind.ANNOUNCE).frame()):
        assert other.take(wrong) is None
    assert other.take(answer).status == Status.DONE
    assert other.take(answer) is None
    asks = manager()
    asks.ask()
    assert asks.take(Message(Kind.CHALLENGE, 2, 0, NODE_NONCE, MANAGER_NONCE, bytes(20),
                             src_node=0xFFF).frame()) is None
    assert not asks.open


@pytest.mark.parametrize("unpack,data", [
    (Request.unpack, bytes(7)), (Answer.unpack, bytes(7)), (Answer.unpack, bytes(10)),
    (Answer.unpack, bytes(5) + b"\x09" + bytes(2)), (Event.unpack, bytes(9)),
    (Event.unpack, b"\1\0\1" + bytes(5)), (Identity.unpack, bytes(27)),
    (Identity.unpack, bytes(19) + b"\1" + bytes(8))])
def test_what_has_another_form(unpack, data):
    with pytest.raises(ValueError):
        unpack(data)


def test_codes_of_the_page():
    page = PAGE.read_text()
    for kind in Kind:
        assert f"| {kind.value} {kind.name} |" in page
    for entry in (*Status, *Subject):
        assert f"| {entry.value} {entry.name} |" in page
    assert f"{Code.READ.value} read, {Code.WRITE.value} write" in page
