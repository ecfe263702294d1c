"""Choice of one of many requests, in logic whose depth grows with the logarithm of their number."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Turns", "encode", "first_one", "lowest_bit", "one_hot_mux", "pick",
           "round_robin"]


#: Most bits of which the lowest set one is found without a carry chain: two levels of logic.
SHORT = 8


def lowest_bit(value):
    """One-hot value with only the lowest set bit of ``value``; zero if there is none.

    The logic of more than :data:`SHORT` bits is a carry chain (two's complement), which FPGAs have
    in silicon. Of fewer bits, lookup tables are as fast and smaller: each use of a part of the
    result would get a chain of its own.
    """
    value = Value.cast(value)
    if len(value) <= SHORT:
        return Cat(value[n] & ~value[:n].any() for n in range(len(value)))
    return (value & (-value)[:len(value)])[:len(value)]


def encode(one_hot):
    """Index of the set bit of a one-hot value, 0 if there is none: an OR tree per index bit."""
    one_hot = Value.cast(one_hot)
    bits = max(1, (len(one_hot) - 1).bit_length())
    return Cat(Cat(one_hot[n] for n in range(len(one_hot)) if n >> b & 1).any()
               for b in range(bits))


def first_one(value):
    """Index of the lowest set bit, 0 if there is none."""
    return encode(lowest_bit(value))


def round_robin(requests, last):
    """Index of the next set bit above ``last``, else of the lowest; ``last`` only if alone."""
    requests = Value.cast(requests)
    # Bits above `last`: all ones shifted left by last + 1.
    above = requests & (Const(~1, signed(len(requests) + 1)) << last)[:len(requests)]
    return Mux(above.any(), first_one(above), first_one(requests))


def one_hot_mux(select, values):
    """OR of those ``values[n]`` whose ``select[n]`` is set: a multiplexer for one-hot selects."""
    select = Value.cast(select)
    masked = [Value.cast(v) & select[n].replicate(len(Value.cast(v)))
              for n, v in enumerate(values)]
    while len(masked) > 1:
        masked = [a | b for a, b in zip(masked[::2], masked[1::2], strict=False)] + (
            masked[-1:] if len(masked) % 2 else [])
    return masked[0]


def pick(values, index):
    """Value number ``index``, by a tree of multiplexers, one level for each bit. That is less than
    what becomes of a case for each number. For a number too large it is any value."""
    values = [Value.cast(value) for value in values]
    for bit in Value.cast(index):
        values = [Mux(bit, high, low) for low, high in zip(
            values[::2], values[1::2], strict=False)] + (
            values[-1:] if len(values) % 2 else [])
    return values[0]


class Turns(wiring.Component):
    """Picks one request in each cycle, in turn; pipelined for short paths.

    Before a waiting request is picked, each other is picked twice at most. Latency one cycle.

    Parameters
    ----------
    count : int
        Requests.

    Members
    -------
    requests : ``count``
        Bit n: request n waits.
    now : ``count``
        One-hot: the request that is picked in this cycle; 0 if there is none.
    chosen, number, valid : ``count``, ``range(count)``, 1
        ``now`` of the cycle before, its index, and whether there was a request.
    """

    def __init__(self, *, count):
        super().__init__({
            "requests": In(count),
            "now": Out(count),
            "chosen": Out(count),
            "number": Out(range(count)),
            "valid": Out(1),
        })
        self._count = count

    def elaborate(self, platform):
        m = Module()
        # Requests above the pick of two cycles ago: two independent rounds, in alternate cycles.
        mask, above = Signal(self._count), Signal(self._count)
        m.d.comb += [
            above.eq(self.requests & mask),
            self.now.eq(Mux(above.any(), lowest_bit(above), lowest_bit(self.requests))),
        ]
        m.d.sync += [
            self.chosen.eq(self.now),
            self.number.eq(encode(self.now)),
            self.valid.eq(self.requests.any()),
        ]
        with m.If(self.valid):
            m.d.sync += mask.eq(Cat(C(0), *(self.number < n for n in range(1, self._count))))
        return m
