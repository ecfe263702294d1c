"""dxpu_cli.wireshark in tshark: fields, sessions, requests and completions, and hostile frames."""

import random

import pytest
from dxpu.fabric.wire.format import EventCode, Role
from dxpu.fabric.wire.frame_types import FrameType
from dxpu_model import management
from dxpu_model import tlp as golden
from dxpu_model import wire, wire_random
from dxpu_model.wire import Ack, Credit, Data, Event, Fence, Frame, Hello, Sack, Tlps, build, split
from dxpu_model.wire_vectors import VECTORS
from dxpu_sim.ethernet.pcap import PcapWriter
from tests.support.tshark import Tshark

ENTRIES = (Credit(0, 1, 2, 3), Credit(1, 4, 5, 6), Credit(2, 7, 8, 9))
HOST = {"src_node": 1, "dst_node": 0x101, "dst_slot": 1, "tag": 0x1234}
BOX = {"src_node": 0x101, "dst_node": 1, "src_slot": 1, "tag": 0x5678}
READ = golden.Tlp(0, 0, length=1, first_be=15, address=0xF0000060, tag=3, requester_id=0x100)
ANSWER = golden.Tlp(2, 10, length=1, payload=b"\x78\x56\x34\x12", tag=3, requester_id=0x100,
                    completer_id=0x208, lower_address=0x60)


@pytest.fixture
def tshark(tmp_path):
    return Tshark(tmp_path)


def whole(value: str) -> int:
    return int(value, 0)


def test_header_fields(tshark):
    rng = random.Random(1)
    frames = [frame for frame in (wire_random.frame(rng, "any") for _ in range(200))
              if _is_good(build(frame))]
    rows = tshark.frames(map(build, frames)).rows(
        "dxf.version", "dxf.type", "dxf.crx", "dxf.ar", "dxf.count", "dxf.destination_node",
        "dxf.source_node", "dxf.destination_slot", "dxf.source_slot", "dxf.path", "dxf.stream",
        "dxf.session_tag", "dxf.seq", "dxf.ack", "dxf.drop_cause")
    assert {frame.type for frame in frames} == set(FrameType)
    for frame, row in zip(frames, rows, strict=True):
        cause = row.pop()
        assert list(map(whole, row)) == [
            1, frame.type, frame.credit is not None, frame.ar, frame.count, frame.dst_node,
            frame.src_node, frame.dst_slot, frame.src_slot, frame.path, frame.stream, frame.tag,
            frame.seq, frame.ack]
        # A management frame is judged by its own layer, and so is one DATA of a whole TLP.
        assert not cause or frame.type in (FrameType.MGMT, FrameType.DATA)


def _is_good(data: bytes) -> bool:
    try:
        wire.parse(data)
    except wire.FrameError:
        return False
    return True


def test_check_vectors_with_their_fcs(tshark):
    """Also in a capture that does not say whether there is an FCS."""
    frames = [bytes.fromhex(text) for _, text in VECTORS.values()]
    damaged = [frame[:-1] + bytes([frame[-1] ^ 1]) for frame in frames]
    rows = tshark.frames(frames + damaged).rows("dxf.fcs", "dxf.drop_cause")
    assert rows == [[f"0x{frame[-4:].hex()}", ""] for frame in frames] + [
        [f"0x{frame[-4:].hex()}", "FCS"] for frame in damaged]
    rows = tshark.frames(frames, damaged=damaged, fcs=True).rows(
        "eth.fcs", "dxf.fcs", "dxf.drop_cause")
    assert rows == [[f"0x{frame[-4:].hex()}", "", ""] for frame in frames] + [
        [f"0x{frame[-4:].hex()}", "", "FCS"] for frame in damaged]


def test_bodies(tshark):
    hello = Hello(0x11223344, 0x1234, 0, Role.HOST, 8, 1, 0, 1518, 64, 250, 4000, 0x33, 7, 9)
    tshark.frames([
        build(Frame(hello)), build(Frame(Ack(ENTRIES), credit=Credit(2, 9, 10, 11, 12))),
        build(Frame(Sack(ENTRIES, (0x8000000000000001,), 0))), build(Frame(Sack(ENTRIES, (), 1))),
        build(Frame(Event(EventCode.ERROR, 5, 4))), build(Frame(Fence(3))),
    ])
    rows = tshark.rows(
        "dxf.hello.nonce", "dxf.hello.role", "dxf.hello.slots", "dxf.hello.largest_frame",
        "dxf.hello.boot_counter", "dxf.hello.capability_split", "dxf.hello.capability_stripe",
        "dxf.hello.capability_managed")
    assert rows[0] == ["0x11223344", "1", "8", "1518", "7", "1", "0", "1"]
    rows = tshark.rows("dxf.credit.class", "dxf.credit.header_limit", "dxf.credit.data_limit",
                       "dxf.credit.echo")
    assert rows[1] == ["2,0,1,2", "10,2,5,8", "11,3,6,9", "12,0,0,0"]
    rows = tshark.rows("dxf.sack.count", "dxf.sack.request", "dxf.sack.word")
    assert rows[2:4] == [["1", "0", "0x8000000000000001"], ["0", "1", ""]]
    rows = tshark.rows("dxf.event.code", "dxf.event.generation", "dxf.error", "dxf.fence.reason")
    assert rows[4:6] == [["9", "5", "4", ""], ["", "", "", "3"]]
    assert [row[0] for row in tshark.rows("_ws.expert.message")][4:] == [
        "Error of a slot", "Session is given up"]


def test_frames_of_management(tshark):
    identity = management.Identity(bytes.fromhex("0244581234ab"), 0x101, 0xCAFE, Role.BOX, 4, 0x30,
                                   2, 1, 5, 0xB001, 6)
    kind = management.Kind
    frames = [
        management.Message(kind.ANNOUNCE, 0, follows=identity.pack()).frame(),
        management.Message(kind.ASK, 2, manager_nonce=bytes(range(8)), follows=b"k" * 16).frame(),
        management.Message(kind.REQUEST, 2, 7, follows=b"e" * 20 + b"t" * 16).frame(),
        management.Message(kind.EVENT_ACK, 2, 8, follows=b"t" * 16).frame(),
    ]
    damaged = bytearray(frames[2])
    damaged[60] ^= 1
    tshark.frames([*frames, bytes(damaged)])
    rows = tshark.rows("dxf.mgmt.kind", "dxf.mgmt.manager", "dxf.mgmt.counter",
                       "dxf.mgmt.manager_nonce", "dxf.mgmt.knock", "dxf.mgmt.encrypted",
                       "dxf.mgmt.authentication", "dxf.drop_cause")
    nonce, none, tag = "0x0001020304050607", "0x0000000000000000", "74" * 16
    assert rows == [
        ["6", "0", "0", none, "", "", "", ""], ["0", "2", "0", nonce, "6b" * 16, "", "", ""],
        ["2", "2", "7", none, "", "65" * 20, tag, ""], ["5", "2", "8", none, "", "", tag, ""],
        ["2", "2", "7", none, "", "65" * 4 + "64" + "65" * 15, tag, "BODY"]]
    rows = tshark.rows("dxf.mgmt.identity.serial", "dxf.mgmt.identity.number",
                       "dxf.mgmt.identity.slots", "dxf.mgmt.identity.present")
    assert rows[0] == ["0x0000cafe", "0x0101", "4", "0x00000005"]


def test_a_session_as_an_engineer_reads_it(tshark):
    hello = Hello(1, 0x5678, 0, Role.HOST, 1, 0, 0, 1518, 64, 250, 4000, 0, 1, 0)
    offer = Hello(1, 0x1234, 0x5678, Role.BOX, 1, 0, 0, 1518, 64, 250, 4000, 0, 1, 0, answer=True)
    read, answer = Tlps((READ.pack(),)), Tlps((ANSWER.pack(),))
    tshark.frames([
        build(Frame(hello, **{**HOST, "tag": 0, "dst_slot": 0})),
        build(Frame(offer, **{**BOX, "src_slot": 0})),
        build(Frame(Event(EventCode.BIND, 1, 7), seq=0, **HOST)),
        build(Frame(read, seq=1, **HOST)), build(Frame(read, seq=1, **HOST)),
        build(Frame(answer, seq=0, ack=2, **BOX)), build(Frame(read, seq=1, **HOST)),
        build(Frame(Fence(1), seq=3, ack=1, **{**HOST, "dst_slot": 0})),
    ])
    rows = tshark.rows("dxf.session", "dxf.session.opened_in", "dxf.life", "dxf.first", "dxf.acked",
                       "dxf.missing", "tlp.req_frame", "tlp.res_frame", "tlp.response_time",
                       "_ws.col.Info")
    again = "Frame is sent again"
    assert rows == [
        ["", "", "", "", "", "", "", "", "", "HELLO | tag 0x5678"],
        ["1", "2", "", "", "", "", "", "", "", "HELLO_ACK | tag 0x1234 for 0x5678"],
        ["1", "2", "7", "", "", "", "", "", "", "EVENT seq 0 ack 0 | BIND 7"],
        ["1", "2", "7", "", "", "", "", "", "",
         "TLP seq 1 ack 0 | MRd 4 B @0xf000_0060 tag 3"],
        ["1", "2", "7", "4", "", "", "4", "", "",
         "TLP seq 1 ack 0 | MRd 4 B @0xf000_0060 tag 3 again"],
        ["1", "2", "7", "", "4", "", "4", "", "0.000002000",
         "TLP seq 0 ack 2 | CplD SC 4 B tag 3"],
        ["1", "2", "7", "4", "", "", "", "", "",
         "TLP seq 1 ack 0 | MRd 4 B @0xf000_0060 tag 3 again"],
        ["1", "2", "", "", "6", "1", "", "", "", "FENCE seq 3 ack 1 | MANAGED after 1 missing"]]
    told = [row[0] for row in tshark.rows("_ws.expert.message")]
    assert told == ["", "", "", "", again, "", f"{again}, although it was acknowledged",
                    "Session is given up,Frames are missing before this one"]
    assert tshark.run("-2", "-Y", "tlp.res_frame == 6", "-T", "fields", "-e", "frame.number") == \
        "4\n"


def test_requests_and_completions_enter_a_switch_at_different_ports(tshark):
    """And are seen again where they leave, which is no other request."""
    read = build(Frame(Tlps((READ.pack(),)), seq=0, **HOST))
    answer = build(Frame(Tlps((ANSWER.pack(),)), seq=0, ack=1, **BOX))
    with PcapWriter(tshark.capture, fcs=False) as writer:
        ports = [writer.interface(name) for name in ("host", "box")]
        for number, (port, frame) in enumerate(((0, read), (1, read), (1, answer), (0, answer))):
            writer.write(ports[port], 1000 * number, frame)
    assert tshark.rows("frame.interface_name", "dxf.copy", "tlp.req_frame", "tlp.response_time",
                       "_ws.expert.message") == [
        ["host", "", "", "", ""], ["box", "1", "1", "", ""],
        ["box", "", "1", "0.000002000", ""], ["host", "3", "", "", ""]]


def test_a_tlp_in_the_split_form(tshark):
    write = golden.Tlp(2, 0, length=4, payload=bytes(range(16)), first_be=15, last_be=15,
                       address=0x1000)
    parts = split(write.pack(), 8)
    frames = [build(Frame(body, seq=n, **HOST)) for n, body in enumerate(parts)]
    damaged = build(Frame(Data(8, parts[2].data, parts[2].crc ^ 1), seq=2, **HOST))
    rows = tshark.frames(frames).rows("tlp.name", "tlp.length", "dxf.drop_cause", "_ws.col.Info")
    assert [row[:3] for row in rows] == [["MWr", "4", ""], ["", "", ""], ["MWr", "4", ""]]
    assert rows[1][3] == "DATA seq 1 ack 0 | 20 B so far"
    assert rows[2][3] == "DATA seq 2 ack 0 | MWr 16 B @0x0000_1000"
    assert tshark.frames([*frames[:2], damaged]).rows("dxf.drop_cause")[2] == ["RECORD"]


def test_tlps_of_a_port(tshark):
    """A completion answers what went the other way."""
    tshark.tlps([(READ.pack(), True), (ANSWER.pack(), True), (ANSWER.pack(), False)])
    assert tshark.rows("frame.packet_flags_direction", "tlp.req_frame", "tlp.response_time",
                       "_ws.expert.message") == [
        ["0x00000001", "", "", ""],
        ["0x00000001", "", "", "Request of this completion is not in the capture"],
        ["0x00000002", "1", "0.000002000", ""]]


#: Field of the dissector, and member of the golden model's.
_MEMBERS = {"tlp.fmt": "fmt", "tlp.type": "type", "tlp.tc": "tc", "tlp.ep": "ep", "tlp.at": "at",
            "tlp.len_value": "length", "tlp.rq_id": "requester_id", "tlp.comp_id": "completer_id",
            "tlp.tag": "tag", "tlp.addr": "address", "tlp.code": "message_code",
            "tlp.status": "status", "tlp.lower_addr": "lower_address"}


def test_fields_of_tlps(tshark):
    rng = random.Random(6)
    tlps = [golden.random_tlp(rng, max_payload=8) for _ in range(300)]
    rows = tshark.tlps((tlp.pack(), None) for tlp in tlps).rows(
        *_MEMBERS, "tlp.first_be", "tlp.last_be", "tlp.register", "tlp.byte_count", "tlp.data",
        "tlp.digest", "tlp.prefix", "tlp.attr", "tlp.attr.ido", "tlp.attr.ro", "tlp.attr.ns",
        "tlp.malformed.length")
    assert {tlp.kind for tlp in tlps} == set(golden.KINDS)
    for tlp, row in zip(tlps, rows, strict=True):
        info = golden.classify(tlp.pack())
        values = dict(zip([*_MEMBERS, "first_be", "last_be", "register", "byte_count", "data",
                           "digest", "prefix", "attr", "ido", "ro", "ns", "malformed"], row,
                          strict=True))
        for name, member in _MEMBERS.items():
            wanted = getattr(info, member)
            assert (values[name] == "") == (wanted is None), (name, tlp)
            assert wanted is None or whole(values[name]) == wanted, (name, tlp)
        steered = tlp.th and tlp.kind.startswith("MRd")
        if info.first_be is not None and not steered:
            assert (whole(values["first_be"]), whole(values["last_be"])) == (tlp.first_be,
                                                                             tlp.last_be)
        if info.register is not None:
            # The field has bits 11:2 of the byte address.
            assert whole(values["register"]) == info.register
        if info.byte_count is not None:
            assert whole(values["byte_count"]) == tlp.byte_count
        assert values["data"] == tlp.payload.hex()
        assert values["digest"] == (f"0x{tlp.digest.hex()}" if tlp.digest is not None else "")
        assert values["prefix"].count(",") + bool(values["prefix"]) == len(tlp.prefixes)
        assert [whole(values[name]) for name in ("ido", "ro", "ns")] == [
            tlp.attr >> 2, tlp.attr >> 1 & 1, tlp.attr & 1]
        assert values["malformed"] == ""


#: The bytes of a message, and lines that its details have; sections are those of PCIe Base 5.0.
MESSAGES = {
    "LTR, 2.2.8.8": ("34000000 01000010 00000000 880a9401", [
        "No-snoop latency", "1... .... .... .... = Required: True",
        "...0 10.. .... .... = Scale: x 1024 ns (2)", ".... ..00 0000 1010 = Value: 10",
        "...1 01.. .... .... = Scale: x 33554432 ns (5)", ".... ..00 0000 0001 = Value: 1"]),
    "OBFF, 2.2.8.9": ("34000000 01000012 00000000 0000000f", [
        ".... 1111 = OBFF code: CPU Active (0xf)"]),
    "PTM, 2.2.8.10": ("74000001 00000053 00000000 00000064 00000005", [
        "Master time in ns: 100", "Propagation delay in ns: 5"]),
    "slot power, 2.2.8.5": ("74000001 00000050 00000000 00000000 fa010000", [
        "Slot power limit: 250", ".... ..01 = Scale: x 0.1 W (1)"]),
    "vendor, 2.2.8.6": ("32000000 0100007f 02081af4 01020304", [
        "Routing: by ID (2)", "Target ID: 0x0208 (02:01.0)", "Vendor ID: 0x1af4",
        "Vendor's content: 01020304"]),
    "function readiness, 2.2.8.6.4": ("30000000 0100007f 00000001 09000001", [
        "Vendor ID: 0x0001", "Subtype: Function Readiness Status (0x09)"]),
    "invalidate request, 10.3.1": ("72000002 01001f01 02080000 00000000 00000000 00000000", [
        "...1 1111 = ITag: 31", "Target ID: 0x0208 (02:01.0)"]),
    "invalidate completion, 10.3.2": ("32000000 02080002 01000003 80000001", [
        ".... .011 = Completion count: 3", "ITag vector: 0x80000001"]),
    "page request, 10.4.1": ("30000000 02080004 00000001 80000ffe", [
        "Page address: 0x0000000180000000", ".... 1111 1111 1... = Page request group: 511",
        ".1.. = Last request of the group: True", ".... ..1. = Write: True",
        ".... ...0 = Read: False"]),
    "group response, 10.4.2": ("32000000 01000005 020811ff 00000000", [
        "0001 .... = Response code: invalid request (1)",
        ".... ...1 1111 1111 = Page request group: 511"]),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_to_their_last_field(tshark, name):
    raw, lines = MESSAGES[name]
    text = tshark.tlps([(bytes.fromhex(raw), None)]).details()
    assert not [line for line in lines if line not in text]


def test_prefixes_and_operands(tshark):
    cas = "920000aa 913abcde 4e000002 01000700 f0000060 00000001 00000002"
    # 2.2.10.2.1 has no type 2: its content is shown as it is.
    text = tshark.tlps([(bytes.fromhex(cas), None)]).details()
    lines = ("Prefix: reserved", "Content: 0x0000aa", "Prefix: PASID",
             "..1. .... .... .... .... .... = Privileged mode requested: True",
             "...1 .... .... .... .... .... = Execute requested: True",
             ".... 1010 1011 1100 1101 1110 = PASID: 0xabcde", "Compare value: 00000001",
             "Operand: 00000002")
    assert not [line for line in lines if line not in text]


def test_hints(tshark):
    steered = golden.Tlp(0, 0, length=1, th=1, hint=2, first_be=0xB, last_be=0xA, address=0x1000)
    text = tshark.tlps([(steered.pack(), None)]).details()
    assert "Steering tag, bits 7:0: 0xab" in text and "Processing hint: target (2)" in text
    assert "byte enables" not in text


def hostile(rng: random.Random, count: int):
    """Frames with any damage, and with none, of any length."""
    for _ in range(count):
        data = build(wire_random.frame(rng, "any"))
        if rng.random() < 0.2:
            # A whole TLP of a defined kind, with everything that it can have.
            data = build(Frame(Tlps((golden.random_tlp(rng, max_payload=16).pack(),)), **HOST))
        data = data[:12] + b"\x88\xb5" + wire_random.mutate(rng, data)[14:]
        yield data[:rng.randrange(14, len(data) + 1)] if rng.random() < 0.1 else data


def judge_hostile(tshark, seed, count):
    frames = list(hostile(random.Random(seed), count))
    tshark.frames(frames)
    tshark.details()
    rows = tshark.rows("dxf.drop_cause", "dxf.type", options=("-o", "dxf.fcs:Never"))
    for data, (cause, code) in zip(frames, rows, strict=True):
        if code == str(int(FrameType.MGMT)) or code == str(int(FrameType.DATA)):
            continue  # these are judged further than by the layer of frames
        try:
            wire.parse(data)
            wanted = ""
        except wire.FrameError as error:
            wanted = error.cause.name
        assert cause == wanted, data.hex()


def test_hostile_frames(tshark):
    judge_hostile(tshark, 7, 1500)


@pytest.mark.long
def test_a_hundred_thousand_hostile_frames(tshark):
    for seed in range(10):
        judge_hostile(tshark, 100 + seed, 10_000)


def test_hostile_tlps(tshark):
    rng = random.Random(8)
    tlps, causes = [], []
    for _ in range(1000):
        raw = bytearray(golden.random_tlp(rng, max_payload=8).pack())
        for _ in range(rng.choice([0, 1, 1, 3])):
            raw[rng.randrange(len(raw))] = rng.getrandbits(8)
        if rng.random() < 0.3:
            del raw[rng.randrange(1, len(raw)):]
        tlps.append((bytes(raw), rng.choice([None, True, False])))
        causes.append(golden.malformed(bytes(raw)).name)
    text = tshark.tlps(tlps).details()
    assert "malformed" in text
    names = [cause for cause in set(causes) if cause not in ("NONE", "PAYLOAD")]
    rows = tshark.rows(*(f"tlp.malformed.{name.lower()}" for name in names))
    for (raw, _), cause, row in zip(tlps, causes, rows, strict=True):
        found = [name for name, value in zip(names, row, strict=True) if value]
        assert found == ([] if cause == "NONE" else [cause]), raw.hex()


def test_a_frame_that_was_not_captured_whole_is_said_to_be_so(tshark):
    tshark.frames([build(Frame(Ack(ENTRIES)))])
    data = bytearray(tshark.capture.read_bytes())
    at = data.index(build(Frame(Ack(ENTRIES)))[:12])
    data[at - 4:at] = (1000).to_bytes(4, "little")  # the length on the wire
    tshark.capture.write_bytes(data)
    assert tshark.rows("_ws.expert.message") == [["Frame was not captured whole"]]
