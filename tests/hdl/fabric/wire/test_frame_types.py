"""The table of frame types is one that a receiver can follow."""

import pytest

from dxpu.fabric.wire.frame_fields import body_bytes
from dxpu.fabric.wire.frame_types import (
    SEQUENCED, SESSIONLESS, UNNUMBERED, Body, End, FrameType, Handler, Numbering, handled,
)


def test_numbers_fit_the_nibble():
    assert all(kind in range(16) for kind in FrameType)


def test_bodies_are_whole_dwords():
    for body in Body:
        assert body.size % 4 == 0 and body.dwords * 4 >= body.size, body


def test_every_body_has_a_type():
    assert {kind.body for kind in FrameType} == set(Body)


def test_types_that_consume_a_number_belong_to_a_session():
    assert not set(SEQUENCED) & {*UNNUMBERED, *SESSIONLESS}
    assert set(SESSIONLESS) <= set(UNNUMBERED)
    assert {kind for kind in FrameType if kind.numbering == Numbering.CARRIES} == (
        set(FrameType) - {*SEQUENCED, *UNNUMBERED})


def test_the_split_form_adds_its_types():
    plain, split = handled(split=False), handled(split=True)
    assert split[:len(plain)] == plain
    assert {kind.handler for kind in split[len(plain):]} == {Handler.ASSEMBLY}
    assert set(FrameType) - set(split) == {kind for kind in FrameType if kind.handler in (
        Handler.NOBODY, Handler.OPENING)}


def test_keys_add_theirs():
    for split in (False, True):
        plain = handled(split=split)
        assert handled(split=split, keyed=True) == (*plain, FrameType.HELLO_DONE)


def test_a_field_is_found_by_its_name():
    assert Body.EVENT.find("argument") == (4, 4)
    assert Body.SACK.find("count") == (24, 2)
    with pytest.raises(KeyError, match="EVENT has no field 'colour'"):
        Body.EVENT.find("colour")


def test_a_receiver_of_what_is_acted_upon_finds_its_end():
    """By other means than the end of the frame: what follows a body is padding."""
    assert not [kind for kind in handled(split=True) if kind.body.end == End.FRAME]


def test_a_body_that_is_built_is_as_long_as_the_table_says():
    assert len(body_bytes(Body.EVENT, code=1, generation=2, argument=3)) == 8 * Body.EVENT.size
