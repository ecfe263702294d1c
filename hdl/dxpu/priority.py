"""Choosing one of many requests, without a chain that grows with their number."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Turns", "encode", "first_one", "lowest_bit", "one_hot_mux", "round_robin"]


def lowest_bit(value):
    """One-hot value with only the lowest set bit of ``value``; zero if there is none.

    A carry chain (two's complement), which FPGAs have in silicon, not a chain of LUTs.
    """
    value = Value.cast(value)
    return (value & (-value)[:len(value)])[:len(value)]


def encode(one_hot):
    """Index of the set bit of a one-hot value, 0 if none is: an OR tree per index bit."""
    one_hot = Value.cast(one_hot)
    bits = max(1, (len(one_hot) - 1).bit_length())
    return Cat(Cat(one_hot[n] for n in range(len(one_hot)) if n >> b & 1).any()
               for b in range(bits))


def first_one(value):
    """Index of the lowest set bit, 0 if none is set."""
    return encode(lowest_bit(value))


def round_robin(requests, last):
    """Index of the next set bit after position ``last``, going round; ``last`` only if alone."""
    requests = Value.cast(requests)
    # Bits above `last`: all ones shifted left by last + 1.
    above = requests & (Const(~1, signed(len(requests) + 1)) << last)[:len(requests)]
    return Mux(above.any(), first_one(above), first_one(requests))


def one_hot_mux(select, values):
    """OR of ``values[n]`` whose bit ``select[n]`` is set: a mux for one-hot selects."""
    select = Value.cast(select)
    masked = [Value.cast(v) & select[n].replicate(len(Value.cast(v)))
              for n, v in enumerate(values)]
    while len(masked) > 1:
        masked = [a | b for a, b in zip(masked[::2], masked[1::2], strict=False)] + (
            masked[-1:] if len(masked) % 2 else [])
    return masked[0]


class Turns(wiring.Component):
    """Picks one request in each cycle, round and round: short paths at the price of a latency.

    While a request stands, each other is picked twice at most before it. Latency one cycle.

    Parameters
    ----------
    count : int
        Requests.

    Members
    -------
    requests : ``count``
    now : ``count``
        The bit that is picked in this cycle, or 0.
    chosen, number, valid : ``count``, ``range(count)``, 1
        What ``now`` was one cycle ago, its index, and whether it was none.
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
        # What is above the pick of two cycles ago. As if two took turns, each every other cycle.
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
