"""Data widths of a test: some always, the rest in the long tests."""

import pytest

from dxpu.stream import WIDTHS

__all__ = ["every_width", "some_widths"]


def some_widths(*quick, of=WIDTHS):
    """All widths; widths not in ``quick`` only in the long tests."""
    return [pytest.param(w, marks=() if w in quick else pytest.mark.long) for w in of]


def every_width(*values):
    """Each value with each width: with a single width, in turn, always; with the others only in the
    long tests.
    """
    return [pytest.param(width, value, marks=() if n % len(WIDTHS) == k else pytest.mark.long)
            for n, value in enumerate(values) for k, width in enumerate(WIDTHS)]
