"""Bits in place of a noise source, for simulations.

Ref: docs/reference/crypto.md
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import Out

__all__ = ["PretendedNoise"]

#: x^64 + x^63 + x^61 + x^60 + 1 has the longest period, 2^64 - 1.
_TAPS = (63, 62, 60, 59)


class PretendedNoise(wiring.Component):
    """The same bits after each reset: a shift register with feedback. One a cycle.

    Who knows ``seed``, or has seen 64 bits, knows all of them. It looks random enough for the tests
    of a noise source, and is for simulations only.

    Parameters
    ----------
    seed : int
        1 to 2^64 - 1.

    Members
    -------
    o : stream of 1
    """

    def __init__(self, *, seed):
        if not isinstance(seed, int) or not 1 <= seed < 1 << 64:
            raise ValueError(f"seed must be 1 to 2^64 - 1, not {seed!r}")
        self._seed = seed
        super().__init__({"o": Out(stream.Signature(1))})

    def elaborate(self, platform):
        m = Module()
        state = Signal(64, init=self._seed)
        m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(state[63])]
        with m.If(self.o.ready):
            m.d.sync += state.eq(Cat(Cat(state[tap] for tap in _TAPS).xor(), state[:63]))
        return m
