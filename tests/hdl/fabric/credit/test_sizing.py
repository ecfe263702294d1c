"""dxpu.fabric.credit.sizing: what proxies grant has its place, and deep ones grant enough."""

import pytest

from dxpu.fabric.credit.sizing import (
    DEEP_CELLS, FlowControl, beats_for, grants_in, host_grants, packets_in,
)
from dxpu.proxy.box import BoxCore
from dxpu.stream import WIDTHS
from dxpu.tlp.types import TlpClass

P, NP, CPL = (cls.value for cls in TlpClass)


def beats(width, deep=False):
    """Of the regions of a box."""
    sizes = BoxCore.DEEP_REGIONS if deep else BoxCore.REGIONS
    least = (0, 0, BoxCore.DEEP_COMPLETIONS if deep else 0)
    return [8 * max(size * max(1, width // 64), most) // width
            for size, most in zip(sizes, least, strict=True)]


@pytest.mark.parametrize("width, fast, deep", [
    *((width, fast, False) for width in WIDTHS for fast in (False, True)),
    (64, True, True), (256, True, True), (512, True, True)])
def test_a_box_has_room_for_what_it_grants(width, fast, deep):
    regions = beats(width, deep)
    grants = grants_in(width, regions, fast=fast, deep=deep)
    for (headers, units), room in zip(grants, regions, strict=True):
        assert headers <= packets_in(fast=fast, deep=deep)
        assert beats_for(width, headers, units) <= room


def test_deep_proxies_grant_what_fills_a_long_line():
    """140 reads of 128 bytes of the paper, with completions of 64 bytes, in the box and in the
    host; writes of 128 bytes that fill 100 Gb/s for 2 us both ways; frames that are not
    acknowledged for 7 us."""
    host = host_grants(512, fast=True, deep=True)
    box = grants_in(512, beats(512, deep=True), fast=True, deep=True)
    assert host[NP][0] >= 140
    assert box[CPL][0] >= 2 * 140 and box[CPL][1] >= 140 * 128 // 16
    for headers, units in (host[P], box[P]):
        assert 128 * headers >= 25_000 and 16 * units >= 25_000
    assert 256 * DEEP_CELLS >= 12.5 * 7_000
    assert FlowControl.of(512, box, end="box", fast=True).shares(8)[0] == box
    # Not withheld while eight slots are busy; and the same completions at 64 bits.
    assert FlowControl.of(512, box, end="box", fast=True, deep=True).shares(8) is None
    slow = grants_in(64, beats(64, deep=True), fast=True, deep=True)
    assert slow[CPL][0] >= 2 * 136 and slow[CPL][1] >= 136 * 128 // 16
