"""`dxpu_host`'s bindings and lives, and one box with its frames."""

import random

import pytest

from dxpu.fabric.wire.format import ErrorCode, EventCode
from dxpu.fabric.wire.frame_types import FrameType
from dxpu_host import SessionLost, SlotLost
from dxpu_host.bindings import Binding, Change, State
from dxpu_host.box import Box, SlotDown, SlotReady, TlpCame
from dxpu_host.link import Address
from dxpu_host.session import TagSource
from dxpu_host.tlp import memory_writes
from dxpu_model import wire_random
from dxpu_model.receiver import judge
from dxpu_model.wire import Ack, Credit, Event, Frame, Hello, Tlps, build, parse
from tests.support.host_bench import NODE, NONE, PEER, TIMERS

SLOT = 2


# Lives

def test_a_life_begins_with_the_answer_that_repeats_its_number():
    binding = Binding()
    event = binding.bind(0x203)
    assert (event.code, event.generation, event.argument) == (EventCode.BIND, 0x203, binding.life)
    for wrong in (Event(EventCode.RESET_DONE, 0x203, event.argument + 1),
                  Event(EventCode.RESET_DONE, 0x204, event.argument),
                  Event(EventCode.LINK_DOWN, 0x203, 0), Event(EventCode.HEADER, 0x203, 0)):
        assert binding.take(wrong) is Change.NOTHING
    assert binding.take(Event(EventCode.RESET_DONE, 0x203, event.argument)) is Change.READY
    assert binding.take(Event(EventCode.RESET_DONE, 0x203, event.argument)) is Change.NOTHING


@pytest.mark.parametrize("event, change", [
    (Event(EventCode.LINK_DOWN, 1), Change.DOWN), (Event(EventCode.PRESENCE, 1, 0), Change.GONE),
    (Event(EventCode.PRESENCE, 1, 1), Change.NOTHING),
    (Event(EventCode.ERROR, 1, ErrorCode.OVERFLOW), Change.FENCED),
    (Event(EventCode.ERROR, 1, ErrorCode.MALFORMED), Change.NOTHING),
    (Event(EventCode.ERROR, 2, ErrorCode.OVERFLOW), Change.NOTHING),
    (Event(EventCode.LINK_DOWN, 2), Change.NOTHING)])
def test_a_life_ends_with_the_link_or_the_card(event, change):
    binding = Binding()
    begin = binding.bind(1)
    binding.take(Event(EventCode.RESET_DONE, 1, begin.argument))
    assert binding.take(event) is change


def test_numbers_of_lives_go_round_and_two_in_a_row_differ():
    binding, lives = Binding(), []
    for _ in range(600):
        lives.append(binding.bind(1).argument)
        lives.append(binding.reset().argument)
    assert max(lives) == 255 and all(a != b for a, b in zip(lives, lives[1:], strict=False))
    assert binding.unbind().code == EventCode.UNBIND and binding.state is State.UNBOUND
    assert binding.take(Event(EventCode.RESET_DONE, 1, lives[-1])) is Change.NOTHING


# A box

class Bench:
    """A :class:`Box` with an open session, and what its box says; time stands still."""

    def __init__(self, **options):
        self.now, self.seq = 0.0, 0
        self.box = Box(Address(NODE, PEER), timers=TIMERS, tags=TagSource(random.Random(1)), boot=1,
                       now=0.0, **options)
        self.now = TIMERS.quiet
        hello, = self.turn()
        tag = hello.body.tag_offered
        self.say(Hello(**{**vars(hello.body), "answer": True, "tag_offered": 9,
                          "tag_echoed": tag}), tag=tag)
        self.say(Ack(NONE))
        assert self.box.open
        self.turn()

    def turn(self):
        self.events = self.box.turn(self.now)
        return [parse(raw) for raw in self.box.take()]

    def say(self, body, **fields):
        values = dict(dst_node=NODE, src_node=PEER, src_slot=SLOT,
                      tag=self.box.link.session.rx_tag)
        if body.kind in (FrameType.TLP, FrameType.EVENT):
            values |= dict(seq=self.seq, ack=self.box.link.sender.next)
            self.seq += 1
        elif body.kind == FrameType.ACK:
            values |= dict(ack=self.box.link.sender.next)
        self.events = self.box.receive(Frame(body, **values | fields), self.now)
        return self.events

    def ready(self, generation=0x105, header=4, data=64, number=SLOT):
        """Bind the slot, and open it with so many credits."""
        self.box.bind(number, generation)
        bind, = self.turn()
        assert bind.body.code == EventCode.BIND and bind.dst_slot == number
        assert self.say(Event(EventCode.RESET_DONE, generation, bind.body.argument),
                        src_slot=number) == [SlotReady(number)]
        self.say(Ack(tuple(Credit(cls, generation & 255, header, data) for cls in range(3))),
                 src_slot=number)
        return self.turn()


def write(length=4, address=0x1000):
    tlp, = memory_writes(address, bytes(length), 512)
    return tlp.pack()


def test_a_bound_slot_is_told_our_limits_and_gets_tlps():
    bench = Bench()
    told = bench.ready()
    assert {entry.generation for frame in told if isinstance(frame.body, Ack)
            for entry in frame.body.entries} >= {0x05}
    bench.box.send(SLOT, write())
    frame, = bench.turn()
    assert frame.body == Tlps((write(),)) and frame.dst_slot == SLOT and frame.src_slot == 0


def test_nothing_is_sent_without_credits_and_what_waits_goes_together():
    bench = Bench()
    bench.ready(header=1)
    for _ in range(3):
        bench.box.send(SLOT, write())
    frame, = bench.turn()
    assert frame.count == 1 and bench.turn() == []
    bench.say(Ack(tuple(Credit(cls, 5, 3, 64) for cls in range(3))))
    frame, = bench.turn()
    assert frame.count == 2


@pytest.mark.parametrize("packing, counts", [(1500, [10]), (512, [4, 4, 2]), (64, [1] * 10)])
def test_tlps_share_frames_up_to_the_packing_limit(packing, counts):
    bench = Bench(packing=packing)
    bench.ready(header=20, data=200)
    for _ in range(10):
        bench.box.send(SLOT, write(90 & ~3, 0x1000))
    frames = bench.turn()
    assert [frame.count for frame in frames] == counts


def test_a_large_tlp_goes_alone():
    bench = Bench(packing=64)
    bench.ready()
    bench.box.send(SLOT, write(512))
    frame, = bench.turn()
    assert len(frame.body.tlps[0]) == 512 + 12


def test_tlps_of_a_slot_without_a_life_are_dropped():
    bench = Bench()
    assert bench.say(Tlps((write(),))) == [] and bench.box.dropped == 1
    bench.ready()
    event, = bench.say(Tlps((write(),)))
    assert isinstance(event, TlpCame) and event.tlp == write()
    bench.box.unbind(SLOT)
    assert bench.say(Tlps((write(),))) == [] and bench.box.dropped == 2
    frame = bench.turn()[0]
    assert frame.body.code == EventCode.UNBIND and not bench.box.settled()
    bench.say(Ack(NONE))
    assert bench.box.settled()
    with pytest.raises(SlotLost):
        bench.box.send(SLOT, write())


def test_a_command_has_arrived_whatever_else_is_on_its_way():
    bench = Bench()
    for number in (SLOT, SLOT + 1):
        bench.ready(number=number)
    bench.box.unbind(SLOT)
    assert not bench.box.settled()
    unbind, = (frame for frame in bench.turn() if isinstance(frame.body, Event))
    bench.box.send(SLOT + 1, write())
    assert any(isinstance(frame.body, Tlps) for frame in bench.turn())
    assert not bench.box.settled()
    bench.say(Ack(NONE), ack=unbind.seq)
    assert not bench.box.settled()
    bench.say(Ack(NONE), ack=unbind.seq + 1)
    assert bench.box.settled() and bench.box.link.sender.next > unbind.seq + 1


def test_room_is_granted_again_when_a_tlp_was_dealt_with():
    bench = Bench(grants=[(2, 100)] * 3)
    bench.ready()
    first, second = bench.say(Tlps((write(), write())))
    assert bench.say(Tlps((write(),))) == [] and bench.box.dropped == 1  # not granted
    bench.turn()
    first.done()
    ack, = bench.turn()
    assert ack.body.entries[0].header_limit == 3
    assert len(bench.say(Tlps((write(),)))) == 1
    second.done()


def test_a_link_that_goes_down_ends_the_life_and_asks_for_the_next():
    bench = Bench()
    bench.ready()
    bench.box.send(SLOT, write())
    down, = bench.say(Event(EventCode.LINK_DOWN, 0x105, 0))
    assert isinstance(down, SlotDown) and not down.lost
    reset, *acks = bench.turn()  # and not the TLP
    assert reset.body.code == EventCode.RESET and all(a.type == FrameType.ACK for a in acks)
    with pytest.raises(SlotLost):
        bench.box.send(SLOT, write())
    # Credits of the old life do not count in the new one.
    bench.say(Event(EventCode.RESET_DONE, 0x105, reset.body.argument))
    bench.box.send(SLOT, write())
    assert all(frame.type != FrameType.TLP for frame in bench.turn())
    bench.say(Ack(tuple(Credit(cls, 5, 4, 64) for cls in range(3))), ack=reset.seq)
    assert all(frame.type != FrameType.TLP for frame in bench.turn())
    bench.say(Ack(tuple(Credit(cls, 5, 4, 64) for cls in range(3))))
    assert any(frame.type == FrameType.TLP for frame in bench.turn())


def test_a_slot_that_the_box_has_fenced_is_reset_and_says_why():
    bench = Bench()
    bench.ready()
    down, = bench.say(Event(EventCode.ERROR, 0x105, ErrorCode.OVERFLOW))
    assert isinstance(down, SlotDown) and not down.lost
    assert "TLPs came that it had granted no credits for" in down.reason
    reset, *_ = bench.turn()
    assert reset.body.code == EventCode.RESET


def test_a_session_that_ends_takes_all_slots_with_it():
    bench = Bench()
    bench.ready()
    bench.ready(number=SLOT + 1)
    events = []
    while bench.box.open:
        bench.now = bench.box.deadline()
        bench.turn()
        events += bench.events
    assert [(e.slot, e.lost) for e in events] == [(SLOT, True), (SLOT + 1, True)]
    with pytest.raises(SessionLost, match="no session with box 0x101"):
        bench.box.bind(SLOT, 1)


def test_slots_take_turns():
    bench = Bench(packing=64)
    for number in (SLOT, SLOT + 1):
        bench.ready(header=20, data=200, number=number)
    for number in (SLOT, SLOT + 1):
        for _ in range(4):
            bench.box.send(number, write())
    assert sorted(frame.dst_slot for frame in bench.turn()[:2]) == [SLOT, SLOT + 1]


def test_a_box_may_send_anything():
    """Random frames, good in themselves and of the session, in their turn and not; all but those
    that end it."""
    rng = random.Random(6)
    bench = Bench()
    bench.ready()
    seq, came = bench.seq, 0
    for _ in range(2000):
        fields = dict(dst_node=NODE, src_node=PEER, src_slot=rng.choice([SLOT, SLOT, 0, 9]),
                      dst_slot=rng.choice([0, 0, 0, 1]), stream=0,
                      tag=bench.box.link.session.rx_tag,
                      ack=bench.box.link.sender.next - rng.choice([0, 0, 1, 5]) & 0xFF_FFFF)
        frame = wire_random.frame(rng, rng.choice(["handled", "any"]), most=3, largest=8, **fields)
        if frame.type == FrameType.FENCE:
            continue
        number = seq + rng.choice([0, 0, 0, 0, 1, -1, 100])
        verdict = judge(build(Frame(**{**vars(frame), "seq": number & 0xFF_FFFF})))
        if not isinstance(verdict, Frame) or not bench.box.open:
            continue
        events = bench.box.receive(verdict, bench.now)
        came += sum(isinstance(event, TlpCame) for event in events)
        for event in events:
            if isinstance(event, TlpCame):
                event.done()
        seq = bench.box.link.receiver.expected
        bench.turn()
    assert came > 50 and bench.box.dropped
