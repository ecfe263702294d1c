"""Generations of bindings: 16 bits, in serial order.

Ref: docs/reference/mapping.md ("Commit")
"""

__all__ = ["generation_after", "is_newer"]


def is_newer(one: int, other: int) -> bool:
    """Whether a generation is serially newer than another one."""
    return 0 < (one - other) & 0xFFFF < 0x8000


def generation_after(*held: int) -> int:
    """The oldest generation that is newer than all of ``held``; 1 if there is none.

    If two of ``held`` are half of all generations apart, no generation is newer than both, and the
    result is newer than the later argument.
    """
    after = held[0] + 1 & 0xFFFF if held else 1
    for generation in held[1:]:
        if not is_newer(after, generation):
            after = generation + 1 & 0xFFFF
    return after
