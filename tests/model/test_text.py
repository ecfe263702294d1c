"""dxpu_model.text: what no TLP or frame of a random draw has."""

import pytest
from dxpu.tlp.types import MessageCode
from dxpu_model.text import frame_text, id_text, message_name, tlp_text
from dxpu_model.wire import Ack, Credit, Frame, Hello, Tlps


def test_messages_have_the_names_of_the_specification():
    """2.2.8 and annex F."""
    assert {message_name(code) for code in MessageCode} >= {
        "Unlock", "LTR", "OBFF", "PM_Active_State_Nak", "PM_PME", "PME_Turn_Off", "PME_TO_Ack",
        "Assert_INTA", "Deassert_INTD", "ERR_COR", "ERR_FATAL", "Set_Slot_Power_Limit",
        "PTM_Request", "Vendor_Defined_0"}
    assert message_name(0x99) == "code 99h"


@pytest.mark.parametrize("raw, line", [
    (b"", "malformed TLP (TRUNCATED)"),
    (bytes.fromhex("c0000001 0000000f 00001000"), "malformed TLP (FORMAT)"),
    (bytes.fromhex("00000002 0100000f 00001000"), "MRd 4 B @0x0000_1000 tag 0 malformed "
     "(BYTE_ENABLE)"),
])
def test_a_malformed_tlp(raw, line):
    assert tlp_text(raw) == line


def test_an_id():
    assert id_text(0x1AFF) == "1a:1f.7"


def test_frames():
    entries = (Credit(0), Credit(1), Credit(2))
    assert frame_text(Frame(Ack(entries), seq=5, ack=9)) == "ACK seq 5 ack 9"
    assert frame_text(Frame(Tlps((b"", b"")), seq=12, ack=7)) == "TLP seq 12 ack 7 x2"
    assert frame_text(Frame(Tlps((b"",)), seq=12, ack=7)) == "TLP seq 12 ack 7"
    assert frame_text(Frame(Hello(*[0] * 14))) == "HELLO"
