"""dxpu_cli.wireshark: what the dissector finds in bytes, without Wireshark, in each version of
Lua."""

import random

import pytest
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.tlp.types import Malformed
from dxpu_model import tlp as golden
from dxpu_model import wire, wire_random
from dxpu_model.crc import fcs
from dxpu_model.text import frame_text, tlp_text
from dxpu_model.wire_vectors import VECTORS
from tests.support import dissector_lua

#: Bits with a library, signed as in Wireshark; with none, the operators of the language count.
SIGNED = """
local unsigned = bit32
bit = {bxor = function(a, b)
  local value = unsigned.bxor(a, b)
  return value >= 2147483648 and value - 4294967296 or value
end}
"""


@pytest.fixture(scope="module", params=[*dissector_lua.VERSIONS, "signed"])
def parts(request):
    if request.param == "signed":
        return dissector_lua.load("lua52", SIGNED)
    return dissector_lua.load(request.param)


@pytest.fixture(scope="module")
def newest():
    return dissector_lua.load("lua54")


def text(data: bytes) -> str:
    """Bytes as a string of Lua."""
    return data.decode("latin-1")


def test_crcs_have_the_published_check_values(parts):
    """Of the nine digits: RFC 3720 and the catalogue of CRCs."""
    numbers, digits = parts.numbers, "123456789"
    assert numbers.crc32c(digits, 0, 9) == 0xE3069283
    assert numbers.crc16(digits, 0, 9) == 0x29B1
    assert numbers.fcs(digits, 0, 9) == 0xCBF43926
    assert numbers.crc32c(digits, 4, 9, numbers.crc32c(digits, 0, 4)) == 0xE3069283


def test_a_frame_is_dropped_for_the_cause_of_the_golden_model(parts):
    rng, causes = random.Random(1), set()
    for _ in range(400):
        data = wire.build(wire_random.frame(rng, "any"))
        if rng.random() < 0.7:
            data = wire_random.mutate(rng, data)
        try:
            wire.parse(data)
            cause = None
        except wire.FrameError as error:
            cause = error.cause.name
        if cause != "ETHERTYPE":  # Wireshark gives no such frame
            causes.add(cause)
            assert parts.frame.read(text(data)).cause == cause, data.hex()
    assert causes >= {None, "HCRC", "TYPE", "FIELD", "LENGTH", "PADDING", "RECORD", "BODY"}


@pytest.mark.long
def test_a_hundred_thousand_frames_are_dropped_for_their_causes(newest):
    rng = random.Random(2)
    for _ in range(100_000):
        data = wire_random.mutate(rng, wire.build(wire_random.frame(rng, "any")))
        try:
            wire.parse(data)
            cause = None
        except wire.FrameError as error:
            cause = error.cause.name
        if cause != "ETHERTYPE":
            assert newest.frame.read(text(data)).cause == cause, data.hex()


def test_fields_of_a_frame_are_those_of_the_golden_model(parts):
    rng = random.Random(3)
    for _ in range(200):
        frame = wire_random.frame(rng, "any")
        data = wire.build(frame)
        try:
            wire.parse(data)
        except wire.FrameError:
            continue
        read = parts.frame.read(text(data))
        for name in ("dst_node", "src_node", "dst_slot", "src_slot", "path", "stream", "tag", "seq",
                     "ack", "count"):
            assert read[name] == getattr(frame, name), name
        assert parts.frame.text(read) == frame_text(frame)
        assert (read.name, read.ar, read.has_credit) == (frame.type.name, frame.ar,
                                                         frame.credit is not None)
        records = [text(data)[record.start:record.crc] for record in read.records.values()]
        if frame.type == FrameType.TLP:
            assert records == [text(tlp) for tlp in frame.body.tlps]


@pytest.mark.parametrize("name", VECTORS)
def test_the_fcs_of_a_frame_is_found(newest, name):
    data = bytes.fromhex(VECTORS[name][1])
    wrong = data[:-1] + bytes([data[-1] ^ 1])
    read = newest.frame.read_captured
    assert read(text(data[:-4]), "automatic").fcs is None
    for ends in ("automatic", "always"):
        good, bad = read(text(data), ends), read(text(wrong), ends)
        assert (good.cause, good.fcs, good.fcs_is_right) == (None, len(data) - 4, True)
        assert (bad.cause, bad.fcs, bad.fcs_is_right) == ("FCS", len(data) - 4, False)
    assert read(text(data), "never").cause == "LENGTH"


def test_an_fcs_behind_a_damaged_body_is_found(newest):
    """The length cannot be told from the body: the FCS is there if it is right."""
    data = bytearray.fromhex(VECTORS["V1"][1])[:-4]
    data[40] ^= 0xE0  # Fmt
    assert newest.frame.read_captured(text(bytes(data) + fcs(bytes(data))),
                                      "automatic").cause == "LENGTH"
    assert newest.frame.read_captured(text(bytes(data)), "automatic").fcs is None


#: Members of both, by the names of the dissector.
SAME = {"requester_id": "requester_id", "completer_id": "completer_id", "tag": "tag", "tc": "tc",
        "attr": "attr", "ep": "ep", "at": "at", "len_value": "length", "first_be": "first_be",
        "last_be": "last_be", "target_id": "target_id", "status": "status",
        "lower_address": "lower_address", "code": "message_code"}


def test_fields_of_a_tlp_are_those_of_the_golden_model(parts):
    rng, kinds = random.Random(4), set()
    for _ in range(400):
        tlp = golden.random_tlp(rng)
        raw = tlp.pack()
        info, read = golden.classify(raw), parts.tlp.read(text(raw), 0, len(raw))
        kinds.add(tlp.kind)
        assert read.name == tlp.kind.removesuffix("32").removesuffix("64")
        for mine, theirs in SAME.items():
            wanted = getattr(info, theirs)
            if mine == "target_id" and (info.is_message or read.is_completion):
                continue  # that of a message is shown by its kind; a completion has one ID for both
            assert read[mine] == wanted, (mine, tlp)
        if info.address is not None:
            assert read.address_high << 32 | int(read.address_low) == info.address
        if info.register is not None:
            assert read.register == 4 * info.register
        if info.byte_count is not None:
            assert read.byte_count == (info.byte_count or 4096)
        if tlp.kind.startswith("MRd"):
            assert parts.tlp.asked(read) == golden.byte_count(info.first_be, info.last_be,
                                                              info.length or 1024)
        assert parts.tlp.text(read) == tlp_text(raw)
        assert read.size == len(raw)
        assert parts.tlp.length(text(raw), 0, len(raw)) == len(raw)
    assert kinds == set(golden.KINDS)


def test_a_malformed_tlp_is_named_as_by_the_golden_model(parts):
    rng, causes = random.Random(5), set()
    for _ in range(1500):
        raw = bytearray(golden.random_tlp(rng, max_payload=12).pack())
        for _ in range(rng.choice([0, 1, 1, 2])):
            raw[rng.randrange(min(20, len(raw)))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            del raw[4 * rng.randrange(len(raw) // 4):]
        wanted = golden.malformed(bytes(raw)).name
        info, *rest = (found if isinstance(found := parts.tlp.read(text(bytes(raw)), 0, len(raw)),
                                           tuple) else (found,))
        cause = rest[0] if info is None else parts.tlp.malformed(info)
        if info is not None:
            assert tlp_text(bytes(raw)).startswith(parts.tlp.text(info))
        causes.add(wanted)
        assert (cause or "NONE") == wanted, raw.hex()
    assert causes == {cause.name for cause in Malformed} - {"PAYLOAD"}


@pytest.mark.parametrize(("raw", "line"), [
    ("00000001 0100030f f0000060", "MRd 4 B @0xf000_0060 tag 3"),
    ("20000002 01000437 00000001 80000008", "MRd 6 B @0x1_8000_0008 tag 4"),
    ("60000001 0100000f da9379df 6c312000 00000000", "MWr 4 B @0xda93_79df_6c31_2000"),
    ("00000001 01000300 f0000060", "MRd 0 B @0xf000_0060 tag 3"),
    ("00000000 010003ff f0000000", "MRd 4096 B @0xf000_0000 tag 3"),
    ("40000001 0100000f f0000060 12345678", "MWr 4 B @0xf000_0060"),
    ("00880001 0100030f f0000060", "MRd 4 B @0xf000_0060 tag 771"),
    ("02000001 00000101 00000cf8", "IORd 1 B @0x0000_0cf8 tag 1"),
    ("05000001 0000020f 02080104", "CfgRd1 02:01.0 +104 tag 2"),
    ("4a000001 02000004 01000320 12345678", "CplD SC 4 B tag 3"),
    ("4a000001 02000008 01000320 12345678", "CplD SC 4 B of 8 tag 3"),
    ("0a000000 02002004 01000300", "Cpl UR tag 3"),
    ("4a004001 02000004 01000320 12345678", "CplD SC 4 B tag 3 poisoned"),
    ("34000000 01000020 00000000 00000000", "Msg Assert_INTA"),
    ("74000001 00000050 00000000 00000000 19000000", "MsgD Set_Slot_Power_Limit 4 B"),
    ("4c000001 01000700 f0000060 00000001", "FetchAdd 4 B @0xf000_0060 tag 7"),
    ("74004001 00000050 00000000 00000000 19000000", "MsgD Set_Slot_Power_Limit 4 B poisoned"),
    ("900000aa 8e000000 00000001 0100030f f0000060", None),
])
def test_a_tlp_in_one_line(newest, raw, line):
    data = bytes.fromhex(raw)
    read = newest.tlp.read(text(data), 0, len(data))
    if line is None:
        assert read[0] is None
        assert tlp_text(data) == "malformed TLP (PREFIX)"
    else:
        assert newest.tlp.text(read) == tlp_text(data) == line
