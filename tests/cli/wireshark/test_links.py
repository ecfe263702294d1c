"""dxpu_cli.wireshark: what frames and TLPs have to do with those before them."""

import itertools
from types import SimpleNamespace

import pytest
from dxpu.fabric.wire.format import EventCode, Role
from dxpu_model import tlp as golden
from dxpu_model.wire import Ack, Credit, Event, Fence, Frame, Hello, Tlps, build
from tests.support import dissector_lua

ENTRIES = (Credit(0), Credit(1), Credit(2))
HOST, BOX = 1, 0x101
#: Tags of the frames to the box, and of those to the host.
TO_BOX, TO_HOST = 0x1234, 0x5678


class Look:
    """Looks at frames one by one."""

    def __init__(self):
        self.parts = dissector_lua.load("lua54")
        self.numbers = itertools.count(1)

    def frame(self, body, *, back=False, seq=0, ack=0, place="0", **fields):
        """A frame from host to box, or back."""
        ends = {"src_node": BOX, "dst_node": HOST, "src_slot": 1, "tag": TO_HOST} if back else \
            {"src_node": HOST, "dst_node": BOX, "dst_slot": 1, "tag": TO_BOX}
        data = build(Frame(body, **{**ends, "seq": seq, "ack": ack, **fields}))
        info = self.parts.frame.read(data.decode("latin-1"))
        assert info.cause is None
        event = None
        if isinstance(body, Event):
            event = SimpleNamespace(name=EventCode(body.code).name, argument=body.argument)
        offered, echoed = ((body.tag_offered, body.tag_echoed) if isinstance(body, Hello)
                           else (None, None))
        return self.parts.links.frame(next(self.numbers), place, info, offered, echoed, event)

    def tlp(self, tlp, time=0.0, scope="down", answers="up", again=False, number=None):
        number = next(self.numbers) if number is None else number
        raw = tlp.pack().decode("latin-1")
        info = self.parts.tlp.read(raw, 0, len(raw))
        return self.parts.links.tlp(f"{number}.1", number, time, info, scope, answers, again)


@pytest.fixture
def look():
    return Look()


def write(n: int = 1) -> Tlps:
    return Tlps((golden.Tlp(2, 0, length=1, payload=bytes(4), first_be=15,
                            address=4 * n).pack(),))


def read_request(tag: int = 3, dwords: int = 1) -> golden.Tlp:
    return golden.Tlp(0, 0, length=dwords, first_be=15, last_be=15 if dwords > 1 else 0,
                      address=0xF0000060, tag=tag, requester_id=0x100)


def completion(tag: int = 3, dwords: int = 1, count: int = 4, status: int = 0) -> golden.Tlp:
    payload = bytes(4 * dwords)
    return golden.Tlp(2 if payload else 0, 10, length=dwords, payload=payload, tag=tag,
                      requester_id=0x100, completer_id=0x200, byte_count=count, status=status)


def hello(offered, echoed=0, **which) -> Hello:
    return Hello(1, offered, echoed, Role.HOST, 1, 0, 0, 1518, 64, 250, 4000, 0, 1, 0, **which)


def test_numbers_in_order_say_nothing(look):
    for seq in (0, 1, 2):
        found = look.frame(write(), seq=seq)
        assert (found.first, found.gap, found.is_late) == (None, None, None)
    found = look.frame(Ack(ENTRIES), seq=3)
    assert (found.first, found.gap) == (None, None)


def test_numbers_turn_over(look):
    assert look.frame(write(), seq=0xFFFFFF).gap is None
    found = look.frame(write(), seq=0)
    assert (found.gap, found.is_late) == (None, None)


def test_missing_frames_are_counted_and_those_that_come_late_are_told(look):
    look.frame(write(), seq=0)
    assert look.frame(write(), seq=3).gap == 2
    assert look.frame(write(), seq=4).gap is None
    found = look.frame(write(), seq=1)
    assert (found.is_late, found.gap, found.first) == (True, None, None)


def test_frames_missing_at_the_end_are_seen_by_an_ack(look):
    look.frame(write(), seq=0)
    assert look.frame(Ack(ENTRIES), seq=2).gap == 1
    assert look.frame(Ack(ENTRIES), seq=2).gap is None


def test_a_frame_sent_again_names_the_first(look):
    look.frame(write(), seq=0)
    look.frame(write(), seq=1)
    again = look.frame(write(), seq=0)
    assert (again.first, again.is_again, again.is_duplicate) == (1, True, False)


def test_a_frame_sent_again_after_its_ack_is_a_duplicate(look):
    look.frame(write(), seq=0)
    look.frame(write(), seq=1)
    acked = look.frame(Ack(ENTRIES), back=True, ack=1)
    assert acked.acked == 1
    again = look.frame(write(), seq=0)
    assert (again.first, again.is_again, again.is_duplicate) == (1, False, True)
    assert look.frame(write(), seq=1).is_again


def test_the_same_frame_at_another_port_is_none_sent_again(look):
    assert look.frame(write(), seq=0, place="0").copy is None
    found = look.frame(write(), seq=0, place="1")
    assert (found.first, found.copy) == (None, 1)


def test_each_direction_may_be_captured_at_a_port_of_its_own(look):
    """As at the entries of an Ethernet switch."""
    look.frame(write(), seq=0, place="0")
    assert look.frame(Ack(ENTRIES), back=True, ack=1, place="1").acked == 1
    assert look.frame(write(), seq=0, place="0").is_duplicate


def test_streams_have_numbers_of_their_own(look):
    look.frame(write(), seq=0, stream=0)
    assert look.frame(write(), seq=0, stream=1).first is None


def test_a_session_is_that_of_its_two_tags(look):
    look.frame(hello(TO_HOST), tag=0)
    offered = look.frame(hello(TO_BOX, TO_HOST, answer=True), back=True).session
    assert (offered.number, offered.hello) == (1, 2)
    for found in (look.frame(write(), seq=0), look.frame(Ack(ENTRIES), back=True)):
        assert (found.session.number, found.session.hello) == (1, 2)
    assert look.frame(write(), seq=0, tag=7).session is None
    assert look.frame(hello(TO_BOX, TO_HOST, answer=True), back=True).session.number == 1
    later = look.frame(hello(0x4444, 0x5555, answer=True), back=True, tag=0x5555).session
    assert later.number == 2


def test_a_frame_of_a_former_session_is_told(look):
    look.frame(write(), seq=5, tag=1)
    assert look.frame(write(), seq=0, tag=2).gap is None
    found = look.frame(write(), seq=6, tag=1)
    assert (found.is_former, found.gap) == (True, None)
    assert look.frame(write(), seq=1, tag=2).is_former is None


def test_a_life_goes_from_its_event_to_the_next(look):
    assert look.frame(write(), seq=0).life is None
    began = look.frame(Event(EventCode.BIND, 1, 7), seq=1).life
    assert (began.number, began.began) == (7, 2)
    assert look.frame(write(), back=True).life.number == 7
    assert look.frame(Event(EventCode.BIND, 1, 7), seq=1).life.began == 2
    assert look.frame(Event(EventCode.RESET, 1, 8), seq=2).life.number == 8
    assert look.frame(write(), seq=3, dst_slot=2).life is None
    assert look.frame(Event(EventCode.UNBIND, 1, 0), seq=4).life.number == 8
    assert look.frame(write(), seq=5).life is None


def test_a_fence_has_numbers_but_no_life(look):
    look.frame(write(), seq=0)
    found = look.frame(Fence(1), seq=1)
    assert (found.gap, found.life) == (None, None)


def test_a_completion_finds_its_request_and_the_time(look):
    look.tlp(read_request(), 1.0)
    found = look.tlp(completion(), 1.25, "up", "down")
    assert (found.request.number, found.time, found.is_last) == (1, 0.25, True)
    assert [(answer.number, answer.time) for answer in look.parts.links.answers("1.1").values()] \
        == [(2, 0.25)]


def test_a_read_is_answered_by_several_completions(look):
    look.tlp(read_request(dwords=4))
    assert look.tlp(completion(dwords=2, count=16), 1.0, "up", "down").is_last is None
    assert look.tlp(completion(dwords=2, count=8), 2.0, "up", "down").is_last is True
    assert look.tlp(completion(), 3.0, "up", "down").is_unexpected


def test_an_unsuccessful_completion_ends_a_read(look):
    look.tlp(read_request(dwords=4))
    assert look.tlp(completion(dwords=0, count=16, status=1), 1.0, "up", "down").is_last
    assert look.tlp(read_request(dwords=4)).is_reused is False


def test_a_tag_in_use_is_told(look):
    look.tlp(read_request())
    assert look.tlp(read_request()).is_reused
    assert look.tlp(read_request(tag=4)).is_reused is False


def test_ids_of_another_place_are_others(look):
    look.tlp(read_request(), scope="down", answers="up")
    assert look.tlp(completion(), 1.0, "up 2", "down 2").is_unexpected
    assert look.tlp(completion(), 1.0, "down", "up").is_unexpected


def test_a_request_sent_again_is_the_same(look):
    look.tlp(read_request(), 1.0)
    again = look.tlp(read_request(), 2.0, again=True)
    assert (again.request.number, again.is_reused) == (1, None)
    assert look.tlp(completion(), 3.0, "up", "down").time == 2.0
    assert look.tlp(completion(), 4.0, "up", "down", again=True).is_unexpected is False


def test_a_frame_looked_at_twice_is_found_as_the_first_time(look):
    look.tlp(read_request(), 1.0, number=1)
    look.tlp(completion(), 2.0, "up", "down", number=2)
    assert look.tlp(read_request(), 1.0, number=1).is_reused is False
    assert look.tlp(completion(), 2.0, "up", "down", number=2).time == 1.0
    look.parts.links.reset()
    assert look.tlp(completion(), 2.0, "up", "down", number=2).is_unexpected
