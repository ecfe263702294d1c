"""Frequency of Python's garbage collection."""

import gc
from concurrent.futures import ThreadPoolExecutor

__all__ = ["collect_rarely", "keep", "undisturbed"]


def collect_rarely() -> None:
    """Collect cyclic garbage after 100,000 new objects instead of 700.

    A design is some million objects that all stay, and Python would scan them again and again
    during elaboration. The Verilog of the demo's system takes 34 s with this setting, and 50 s
    without.
    """
    gc.set_threshold(100_000, 10, 5)


def keep() -> None:
    """Keep all present objects for ever; no later collection scans them.

    For a program that has made its models and now runs: most objects at that time stay.
    """
    gc.collect()
    gc.freeze()


def undisturbed(function, *arguments):
    """Result of a function, called in a thread of its own while no garbage is collected.

    CPython 3.11 cannot parse a large source in a thread in which a coroutine was closed while
    running, as happens in the Amaranth simulator. The collector of garbage closes coroutines in any
    thread.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(function, *arguments).result()
    finally:
        if collects:
            gc.enable()
