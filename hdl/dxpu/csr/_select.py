"""Balanced selection trees."""

from amaranth import *

__all__ = ["any_of", "select", "tree"]


def tree(operation, values):
    """``values`` combined by ``operation`` of two, as a balanced tree."""
    values = list(values)
    while len(values) > 1:
        pairs = [operation(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[len(pairs) * 2:]
    return values[0]


def select(one_hot, values):
    """The one of ``values`` whose bit in ``one_hot`` is set; 0 if none is."""
    values = [Value.cast(v) for v in values]
    if not values:
        return C(0, 1)
    return tree(lambda a, b: a | b, [v & bit.replicate(len(v))
                                     for v, bit in zip(values, one_hot, strict=True)])


def any_of(bits):
    """Whether any bit is set (also of a value without bits)."""
    return bits.any() if len(bits) else C(0)
