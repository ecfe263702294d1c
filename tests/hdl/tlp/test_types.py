"""dxpu.tlp.types: sizes, lane order, encodings."""

import pytest
from amaranth import Const, Signal

from dxpu.tlp import types
from dxpu.tlp.types import (
    CompletionHeader1, CompletionHeader2, ConfigHeader2, Fmt, HeaderCommon, MessageHeader1,
    RequestHeader1, Type, swap_bytes,
)

# A 4 DW read of 128 B at 0x1_2345_6780, requester 3b:00.0, tag 0x5a.
READ = bytes.fromhex("200000203b005aff0000000123456780")


@pytest.mark.parametrize("struct", [HeaderCommon, RequestHeader1, MessageHeader1, ConfigHeader2,
                                    CompletionHeader1, CompletionHeader2])
def test_header_words_are_dwords(struct):
    assert Signal(struct).as_value().shape().width == 32


def test_lane_order():
    common = HeaderCommon.from_bits(int.from_bytes(READ[0:4], "little"))
    assert (common.fmt, common.type) == (Fmt.HEADER_4, Type.MEMORY)
    assert common.length_high << 8 | common.length_low == 32
    request = RequestHeader1.from_bits(int.from_bytes(READ[4:8], "little"))
    assert (request.requester_id, request.tag, request.first_be, request.last_be) == \
        (0x003B, 0x5A, 15, 15)
    everything = HeaderCommon.from_bits(int.from_bytes(bytes([0x4A, 0xFB, 0xEE, 0x01]), "little"))
    assert everything.th and everything.ln == 1 and everything.attr_high == 0
    assert (everything.t9, everything.tc, everything.t8) == (1, 7, 1)
    assert (everything.td, everything.ep, everything.attr_low, everything.at) == (1, 1, 2, 3)
    assert everything.length_high << 8 | everything.length_low == 0x201


def test_swap_bytes():
    assert repr(swap_bytes(Const(0, 16)))
    with pytest.raises(ValueError, match="value must be whole bytes, not 12 bits"):
        swap_bytes(Const(0, 12))


def test_every_name_is_exported():
    assert all(hasattr(types, name) for name in types.__all__)
