"""What happens in a capture, in words."""

import pytest
from dxpu.fabric.wire.format import EventCode
from dxpu_cli.waves.story import HOLD_NS, tell
from dxpu_model.tlp import Tlp
from dxpu_model.wire import Ack, Credit, Event, Fence, Frame, Hello, Mgmt, Tlps, build
from dxpu_sim.ethernet.pcap import INTERRUPT, TLP, PcapWriter

NAMES = {1: "host", 0x101: "box0"}
HOST = {"src_node": 1, "dst_node": 0x101, "tag": 0x1234}
BOX = {"src_node": 0x101, "dst_node": 1, "tag": 0x5678}
READ = Tlp(0, 0, length=1, first_be=15, address=0xF0000060, tag=3, requester_id=0x100).pack()
ACK = Ack((Credit(0), Credit(1), Credit(2)))
HELLO = Hello(1, 2, 3, 0, 0, 0, 0, 1500, 64, 1, 10, 0, 1, 0)
STEP = 10_000


class File:
    """A capture with something every 10 us; ``host path 0`` and ``box0 path 0`` are the ports."""

    def __init__(self, path):
        self._path, self._writer, self.time = path, PcapWriter(path, fcs=False), 0
        self._lines = {end: self._writer.interface(f"{end} path 0") for end in ("host", "box0")}
        self._ports = {name: self._writer.interface(name, TLP) for name in ("gpu0", "host")}

    def frame(self, body, seq=0, ack=0, *, end="host", comment="", **fields):
        self.time += STEP
        frame = Frame(body, seq=seq, ack=ack, **{**(HOST if end == "host" else BOX), **fields})
        self._writer.write(self._lines[end], self.time, build(frame), comment)

    def raw(self, data):
        self.time += STEP
        self._writer.write(self._lines["host"], self.time, data)

    def tlp(self, port, raw, inbound, comment=""):
        self.time += STEP
        self._writer.write(self._ports[port], self.time, raw, comment, inbound=inbound)

    def story(self):
        self._writer.close()
        return tell(self._path, NAMES)


@pytest.fixture
def file(tmp_path):
    return File(tmp_path / "x.pcapng")


def row(story, group, label):
    one, = (row for row in story.rows[group] if row.label == label)
    return one.changes


def kinds(story, *kinds):
    return [(event.time_ns // STEP, event.kind, event.text) for event in story.events
            if not kinds or event.kind in kinds]


def test_a_row_for_each_port(file):
    file.tlp("host", READ, True)
    file.tlp("gpu0", READ, False)
    file.frame(Tlps((READ, READ, READ)), 12, 7)
    file.frame(ACK, 7, 13, end="box0")
    story = file.story()
    # PCIe ports are in the order in which they were seen.
    assert [one.label for one in story.rows["PCIe"]] == ["host in", "gpu0 out"]
    assert [one.name for one in story.rows["PCIe"]] == ["host_in", "gpu0_out"]
    assert row(story, "PCIe", "host in") == [
        (STEP, "MRd 4 B @0xf000_0060 tag 3"), (STEP + HOLD_NS, "")]
    assert row(story, "Frames", "host path 0")[0] == (3 * STEP, "TLP seq 12 ack 7 x3")
    assert row(story, "Frames", "box0 path 0")[0] == (4 * STEP, "ACK seq 7 ack 13")


def test_texts_that_follow_each_other_at_once(file):
    file.tlp("host", READ, True)
    file.time -= STEP - 8
    file.tlp("host", READ, True)
    # Each is a change, even if the words are the same.
    assert row(file.story(), "PCIe", "host in") == [
        (STEP, "MRd 4 B @0xf000_0060 tag 3"), (STEP + 8, "MRd 4 B @0xf000_0060 tag 3"),
        (STEP + 8 + HOLD_NS, "")]


def test_a_session_counts_what_is_not_acknowledged(file):
    top = (1 << 24) - 1
    for number in (top - 1, top, 0):
        file.frame(Tlps((READ,)), number, 5)
    file.frame(Tlps((READ,)), 5, 0, end="box0")  # acknowledges two, over the end of the numbers
    file.frame(ACK, 6, 1, end="box0")
    file.frame(ACK, 1, 6)
    file.frame(Fence(1), 1, 6)
    story = file.story()
    assert row(story, "Sessions", "host - box0 stream 0") == [
        (STEP, "open, 1 + 0 not acknowledged"), (2 * STEP, "open, 2 + 0 not acknowledged"),
        (3 * STEP, "open, 3 + 0 not acknowledged"), (4 * STEP, "open, 1 + 1 not acknowledged"),
        (5 * STEP, "open, 0 + 1 not acknowledged"), (6 * STEP, "open"), (7 * STEP, "ended")]
    assert kinds(story) == [(1, "session", "host to box0: open, tag 1234h"),
                            (4, "session", "box0 to host: open, tag 5678h"),
                            (7, "session", "host to box0: ended")]


def test_a_session_opens_by_hello_and_again_by_another_tag(file):
    file.frame(HELLO, tag=0)
    file.frame(ACK, 0, 0)
    file.frame(Tlps((READ,)), 9, 0, tag=0x4444)
    file.frame(Mgmt(bytes(8)), src_node=0xFFF, tag=0)
    story = file.story()
    session, = story.rows["Sessions"]
    assert session.changes == [(STEP, "opens: HELLO"), (2 * STEP, "open"),
                               (3 * STEP, "open, 1 + 0 not acknowledged")]
    assert [event.text for event in story.events] == [
        "host to box0: open, tag 1234h", "host to box0: open, tag 4444h"]


def test_a_frame_that_is_dropped_and_sent_again(file):
    file.frame(ACK, 0, 0, end="box0")
    file.frame(Tlps((READ,)), 0, comment="dropped by an injected fault")
    file.frame(Tlps((READ,)), 1)
    file.frame(Tlps((READ,)), 0)
    file.frame(Tlps((READ,)), 1)
    file.frame(ACK, 0, 2, end="box0", comment="dropped by an injected fault")
    file.frame(ACK, 0, 2, end="box0")
    story = file.story()
    assert kinds(story, "fault", "resend") == [
        (2, "fault", "host path 0: TLP seq 0 ack 0: dropped by an injected fault"),
        (4, "resend", "host path 0: TLP seq 0 ack 0 again"),
        (5, "resend", "host path 0: TLP seq 1 ack 0 again"),
        (6, "fault", "box0 path 0: ACK seq 0 ack 2: dropped by an injected fault")]
    changes = row(story, "Sessions", "host - box0 stream 0")
    # The acknowledgement that is dropped changes nothing.
    assert changes[-2:] == [(4 * STEP, "open, 2 + 0 not acknowledged, host sends again"),
                            (7 * STEP, "open")]
    assert row(story, "Frames", "host path 0")[0][1] == (
        "TLP seq 0 ack 0 (dropped by an injected fault)")


def test_the_life_of_a_slot(file):
    def event(code, seq, argument=0, *, back=False, comment=""):
        file.frame(Event(code, 4, argument), seq, end="box0" if back else "host", comment=comment,
                   **{"src_slot" if back else "dst_slot": 2})

    event(EventCode.BIND, 0, 7, comment="dropped by an injected fault")
    event(EventCode.BIND, 0, 7)
    event(EventCode.BIND, 0, 7)  # a copy of it
    event(EventCode.RESET_DONE, 0, 7, back=True)
    event(EventCode.LINK_DOWN, 1, back=True)
    event(EventCode.PRESENCE, 2, 0, back=True)
    event(EventCode.PRESENCE, 3, 1, back=True)
    event(EventCode.RESET, 1, 8)
    event(EventCode.UNBIND, 2)
    story = file.story()
    assert row(story, "Slots", "box0 slot 2") == [
        (2 * STEP, "in reset"), (4 * STEP, "up"), (5 * STEP, "link down"), (6 * STEP, "empty"),
        (8 * STEP, "in reset"), (9 * STEP, "free")]
    assert row(story, "Lives", "box0 slot 2 life") == [
        (2 * STEP, "life 7 of host, generation 4"), (8 * STEP, "life 8 of host, generation 4"),
        (9 * STEP, "")]
    assert kinds(story, "bind", "up", "down", "reset", "unbind") == [
        (2, "bind", "box0 slot 2: life 7 of host"), (4, "up", "box0 slot 2: life 7 of host"),
        (5, "down", "box0 slot 2: link down"), (6, "down", "box0 slot 2: no card"),
        (8, "reset", "box0 slot 2: life 8 of host"), (9, "unbind", "box0 slot 2: from host")]
    assert row(story, "Frames", "host path 0")[0][1].startswith("EVENT seq 0 ack 0: BIND life 7 (")


def test_interrupts_and_damaged_frames(file):
    file.tlp("host", READ, False, INTERRUPT)
    file.raw(build(Frame(ACK, **HOST))[:23] + b"\xff" + bytes(50))
    story = file.story()
    assert kinds(story) == [
        (1, "interrupt", "host: MRd 4 B @0xf000_0060 tag 3"),
        (2, "fault", "host path 0: damaged (HCRC)")]
    told, = story.rows["Events"]
    assert told.changes == [
        (STEP, "interrupt: host: MRd 4 B @0xf000_0060 tag 3"), (STEP + HOLD_NS, ""),
        (2 * STEP, "fault: host path 0: damaged (HCRC)"), (2 * STEP + HOLD_NS, "")]


def test_events_of_one_time_are_one_text(file):
    file.frame(Event(EventCode.BIND, 4, 7), dst_slot=2)
    told, = file.story().rows["Events"]
    assert told.changes[0] == (STEP, "session: host to box0: open, tag 1234h; "
                                     "bind: box0 slot 2: life 7 of host")
