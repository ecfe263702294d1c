"""Bandwidths: golden figures computed by hand, and what must hold for any input."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dxpu_performance.bandwidth import (
    Cable,
    PCIeLink,
    aggregate_gb_s,
    read_gb_s,
    tags_gb_s,
    write_gb_s,
)
from dxpu_performance.errors import ModelError

TRIPS = st.floats(0.1, 1000)
TAGS = st.integers(1, 4096)
SIZES = st.sampled_from([64, 128, 256, 512, 1024])


@pytest.mark.parametrize("trip, gb_s", [(6.8, 2.635), (4.9, 3.657), (1.2, 14.933)])
def test_equation_1(trip, gb_s):
    """140 x 128 B = 17920 B: in 6.8 us 2.635 GB/s, in 4.9 us 3.657, in 1.2 us 14.933."""
    assert tags_gb_s(140, 128, trip) == pytest.approx(gb_s, abs=5e-4)


def test_a_link_carries_what_coding_headers_and_dllps_leave():
    """16 lanes of 8 Gbit/s, 128 of 130 bits: 15.754 GB/s; 95 %: 14.966; 64 of 84 bytes: 11.403;
    writes of 128 of 152 bytes: 12.603."""
    assert PCIeLink().gb_s == pytest.approx(11.403, abs=1e-3)
    assert write_gb_s(PCIeLink(), 128) == pytest.approx(12.603, abs=1e-3)
    assert PCIeLink(generation=4).gb_s == pytest.approx(2 * PCIeLink().gb_s)


def test_a_cable_carries_what_overhead_leaves():
    """12.5 GB/s x 64 / (64 + 20.7) = 9.445."""
    assert Cable(20.7).gb_s(64) == pytest.approx(9.445, abs=1e-3)
    assert Cable(20.7, line_gbit_s=10, lines=2).gb_s(64) == pytest.approx(1.889, abs=1e-3)


def test_reads_are_capped_by_the_link_and_the_cable():
    link = PCIeLink()
    assert read_gb_s(140, 128, 1.2, link) == link.gb_s
    assert read_gb_s(140, 128, 6.8, link) == tags_gb_s(140, 128, 6.8)
    slow = Cable(20, line_gbit_s=1)
    assert read_gb_s(140, 128, 6.8, link, slow) == slow.gb_s(64)
    assert write_gb_s(link, 128, slow) == slow.gb_s(128)


@given(TAGS, SIZES, TRIPS, TRIPS)
@settings(deadline=None)
def test_a_longer_round_trip_and_fewer_tags_are_never_faster(tags, size, one, other):
    near, far = sorted((one, other))
    assert read_gb_s(tags, size, near, PCIeLink()) >= read_gb_s(tags, size, far, PCIeLink())
    assert read_gb_s(tags + 1, size, near, PCIeLink()) >= read_gb_s(tags, size, near, PCIeLink())
    assert read_gb_s(tags, 2 * size, near, PCIeLink()) >= read_gb_s(tags, size, near, PCIeLink())


@given(st.integers(1, 64), st.floats(0.1, 20), st.floats(0.1, 100))
@settings(deadline=None)
def test_gpus_together_get_what_they_ask_for_until_the_proxy_is_full(gpus, one, capacity):
    together = aggregate_gb_s(gpus, one, capacity)
    assert together <= min(gpus * one, capacity) * (1 + 1e-9)
    assert together >= 0.7 * min(gpus * one, capacity)
    assert aggregate_gb_s(gpus + 1, one, capacity) >= together


@pytest.mark.parametrize("call, text", [
    (lambda: tags_gb_s(0, 128, 1), "tags must be a whole number from 1 to 1048576, not 0"),
    (lambda: tags_gb_s(1, 128, 0), "round_trip_us must be above 0, not 0"),
    (lambda: tags_gb_s(1, 128, float("nan")), "round_trip_us must be above 0, not nan"),
    (lambda: PCIeLink(generation=2), "generation must be a whole number from 3 to 5, not 2"),
    (lambda: PCIeLink(dllp_share=2), "dllp_share must be from 0 to 1, not 2"),
    (lambda: Cable(-1), "tlp_overhead_bytes must be at least 0, not -1"),
    (lambda: Cable(1, line_gbit_s=-5), "line_gbit_s must be above 0, not -5")])
def test_what_makes_no_sense_is_one_line(call, text):
    with pytest.raises(ModelError) as error:
        call()
    assert str(error.value) == text
