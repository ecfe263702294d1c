"""Closed forms of kernels and copies."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dxpu_performance.kernels import (
    copy_slowdown,
    kernel_slowdown,
    longest_delay_us,
    round_trips_of,
    share_kept,
)

DELAYS = st.floats(0, 1000)
MEANS = st.floats(0.5, 1e5)


@pytest.mark.parametrize("mean, kept", [(56.0, 0.9091), (102.3, 0.9481), (193.0, 0.9718)])
def test_the_rule_of_the_paper(mean, kept):
    """1 / (1 + 5.6 / 56) = 0.9091; 1 / (1 + 5.6 / 102.3) = 0.9481; 1 / (1 + 5.6 / 193) = 0.9718."""
    assert share_kept(kernel_slowdown(5.6, mean)) == pytest.approx(kept, abs=5e-5)


def test_copies_take_longer_and_wait():
    """16.7 % of the time, 11.2 / 2.7 as long, 5.6 us for each copy of 11.3 us:
    0.167 x (3.148 + 0.4956) = 0.6085."""
    assert copy_slowdown(0.167, 11.2 / 2.7, 5.6, 11.3) == pytest.approx(0.6085, abs=5e-5)
    assert copy_slowdown(0.167, 11.2 / 2.7, 5.6, 11.3, 0) == pytest.approx(0.0828, abs=5e-5)
    assert copy_slowdown(0.5, 0.5, 0, 1) == 0


@given(DELAYS, DELAYS, MEANS, st.floats(0, 10))
@settings(deadline=None)
def test_a_share_falls_with_delay_and_is_a_share(one, other, mean, trips):
    near, far = sorted((one, other))
    less = share_kept(kernel_slowdown(far, mean, trips))
    assert 0 < less <= share_kept(kernel_slowdown(near, mean, trips)) <= 1


@given(st.floats(0.01, 100), MEANS, st.floats(0.01, 5))
@settings(deadline=None)
def test_round_trips_are_those_that_were_put_in(delay, mean, trips):
    kept = share_kept(kernel_slowdown(delay, mean, trips))
    assert round_trips_of(kept, delay, mean) == pytest.approx(trips, rel=1e-6, abs=1e-6)


def test_the_longest_delay_keeps_just_the_share():
    """Kernels of 72 us keep 90 % at 8 us: 72 x (1 / 0.9 - 1)."""
    assert longest_delay_us(0.9, kernel_slowdown(5.6, 72), 5.6) == pytest.approx(8)
    assert longest_delay_us(0.9, 0, 5.6) == float("inf")
