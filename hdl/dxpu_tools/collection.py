"""How often Python looks for garbage."""

import gc

__all__ = ["collect_rarely"]


def collect_rarely() -> None:
    """Look for cycles of garbage after 100,000 new objects, not after 700.

    A design is some million objects that all stay, and Python would go through them again and again
    while they are made. The Verilog of the demo's system takes 34 s so, and 50 s otherwise.
    """
    gc.set_threshold(100_000, 10, 5)
