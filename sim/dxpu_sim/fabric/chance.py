"""Pseudo-random numbers in hardware; simulation only."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Chance"]


class Chance(wiring.Component):
    """A 64-bit random number, new in each cycle (xorshift by 13, 7, 17).

    Parameters
    ----------
    seed : int
        Generators with different seeds are independent.

    Members
    -------
    salt : 32
        While not 0, the sequence restarts, with another sequence for each salt.
    value : 64
    """

    salt: In(32)
    value: Out(64)

    def __init__(self, *, seed):
        super().__init__()
        # Small seeds differ in few bits, which xorshift spreads only slowly.
        self._init = (seed * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) % (1 << 64) or 1

    def elaborate(self, platform):
        m = Module()
        state, a, b = Signal(64, init=self._init), Signal(64), Signal(64)
        m.d.comb += [
            a.eq(state ^ (state << 13)[:64]),
            b.eq(a ^ (a >> 7)),
            self.value.eq(state),
        ]
        m.d.sync += state.eq(b ^ (b << 17)[:64])
        with m.If(self.salt != 0):
            # Odd, so never 0.
            m.d.sync += state.eq((self._init ^ (self.salt * 0x9E3779B97F4A7C15)[:64]) | 1)
        return m
