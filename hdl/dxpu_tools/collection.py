"""Frequency of Python's garbage collection."""

import gc

__all__ = ["collect_rarely"]


def collect_rarely() -> None:
    """Collect cyclic garbage after 100,000 new objects instead of 700.

    A design is some million objects that all stay, and Python would scan them again and again
    during elaboration. The Verilog of the demo's system takes 34 s with this setting, and 50 s
    without.
    """
    gc.set_threshold(100_000, 10, 5)
