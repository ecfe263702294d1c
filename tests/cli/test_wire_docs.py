"""docs/reference/wire-format.md says what dxpu.fabric.wire.format says."""

import pytest

from dxpu.fabric.wire import format as fmt
from dxpu.fabric.wire.frame_types import FrameType
from dxpu_cli.bench.simulated import WIRE_LIMIT
from dxpu_cli.pages import wire_format as wire_docs


def test_page_is_up_to_date():
    page = wire_docs.PAGE.read_text()
    assert wire_docs.updated(page) == page, "run python -m dxpu_cli.pages.wire_format"


def test_a_part_that_is_missing_is_named():
    with pytest.raises(ValueError, match="The page has no part 'header'"):
        wire_docs.updated("")


def test_header_fields_cover_every_bit_once():
    for fields, size in ((fmt.HEADER_FIELDS, fmt.HEADER_BYTES),
                         (fmt.CREDIT_FIELDS, fmt.CREDIT_BYTES)):
        bits = [8 * (f.offset + f.size) - 1 - bit for f in fields
                for bit in range(f.lsb, f.msb + 1)]
        assert sorted(bits) == list(range(8 * size))


def test_every_open_value_is_on_the_page():
    page = wire_docs.PAGE.read_text()
    for kind in (fmt.EventCode, fmt.FenceReason, fmt.Role, fmt.ArqMode, fmt.SecurityMode,
                 fmt.Capability, fmt.DropCause, FrameType):
        for member in kind:
            assert f"| {int(member)} | {member.name} |" in page


def test_efficiency():
    """By hand: a record of 16 + 128 + 4 bytes behind 32 of header, then FCS, preamble, gap."""
    assert wire_docs.efficiency(128, 0) == 128 / (32 + 148 + 4 + 8 + 12)
    # 3 records of 152 bytes with 18 of header fit 512; one of 4 bytes is padded to 60.
    assert wire_docs.efficiency(128, 512) == 3 * 128 / (32 + 3 * 152 + 4 + 8 + 12)
    assert wire_docs.efficiency(4, 0) == 4 / (60 + 4 + 8 + 12)
    # 31 records at most.
    assert wire_docs.efficiency(4, 1500) == 31 * 4 / (32 + 31 * 24 + 4 + 8 + 12)


def test_benches_compare_with_the_page():
    for (payload, limit), value in WIRE_LIMIT.items():
        assert wire_docs.efficiency(payload, limit) == pytest.approx(value, abs=0.0005)
