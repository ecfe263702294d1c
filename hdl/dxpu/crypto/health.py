"""Health tests of a noise source (NIST SP 800-90B, 4.4).

Ref: docs/reference/crypto.md
"""

from math import ceil, comb

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["HealthTests", "proportion_cutoff", "repetition_cutoff"]

#: Samples of a window of the adaptive proportion test, of a binary source (4.4.2).
WINDOW = 1024


def repetition_cutoff(claim, exponent):
    """Equal samples in a row at which a source with ``claim`` bits of entropy a sample fails; a
    good one does with a probability of 2^-``exponent`` (4.4.1)."""
    return 1 + ceil(exponent / claim)


def proportion_cutoff(claim, exponent):
    """Samples of a window that are equal to its first one at which the source fails (4.4.2)."""
    most = 2 ** -claim
    # 1 + CRITBINOM(W, 2^-H, 1 - alpha): the smallest number that is exceeded with a probability of
    # at most alpha.
    exceeded = 0.0
    for n in range(WINDOW, -1, -1):
        exceeded += comb(WINDOW, n) * most ** n * (1 - most) ** (WINDOW - n)
        if exceeded > 2 ** -exponent:
            return 1 + n
    raise ValueError(f"claim must be above 0 and at most 1, not {claim}")


class HealthTests(wiring.Component):
    """Passes on the bits of a noise source while they look like noise.

    The repetition count test sees a source that is stuck, the adaptive proportion test one that has
    lost much of its entropy. The first 1024 bits are tested and go no further; so do those after
    ``restart``. A failure is latched: from that bit on, nothing is passed on.

    A bit is passed on in the cycle in which it comes. It counts in the tests as it is taken.

    Parameters
    ----------
    claim : float
        Bits of entropy that a sample has at least.
    exponent : int
        A good source fails a test once in 2^``exponent`` times; 20 to 40 (4.4).

    Members
    -------
    i, o : stream of 1
    restart : 1
        The start-up test begins anew. It does not forget a failure.
    started : 1
        The start-up test is over.
    stuck, biased : 1
        The repetition count test, or the adaptive proportion test, has failed.
    """

    def __init__(self, *, claim=0.25, exponent=30):
        if not 0 < claim <= 1:
            raise ValueError(f"claim must be above 0 and at most 1, not {claim}")
        if exponent not in range(20, 41):
            raise ValueError(f"exponent must be 20 to 40, not {exponent}")
        self.cutoffs = repetition_cutoff(claim, exponent), proportion_cutoff(claim, exponent)
        super().__init__({
            "i": In(stream.Signature(1)),
            "o": Out(stream.Signature(1)),
            "restart": In(1),
            "started": Out(1),
            "stuck": Out(1),
            "biased": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        repeated, equal = self.cutoffs
        bit, takes = self.i.payload, Signal()
        last, row = Signal(), Signal(range(repeated + 1))
        first, count, place = Signal(), Signal(range(WINDOW + 1)), Signal(range(WINDOW))
        fails = Signal(2)
        good = Signal()
        m.d.comb += [
            good.eq(self.started & ~(self.stuck | self.biased) & ~fails.any()),
            self.o.payload.eq(bit), self.o.valid.eq(self.i.valid & good),
            # What is not good is taken, and dropped.
            self.i.ready.eq(self.o.ready | ~good),
            takes.eq(self.i.valid & self.i.ready),
            fails.eq(Cat((row >= repeated - 1) & (bit == last),
                         (place != 0) & (count >= equal - 1) & (bit == first))
                     & self.i.valid.replicate(2)),
        ]
        with m.If(takes):
            m.d.sync += [
                last.eq(bit), row.eq(Mux(bit == last, Mux(row >= repeated, repeated, row + 1), 1)),
                place.eq(place + 1), count.eq(count + (bit == first)),
                self.stuck.eq(self.stuck | fails[0]), self.biased.eq(self.biased | fails[1]),
            ]
            with m.If(place == 0):
                m.d.sync += [first.eq(bit), count.eq(1)]
            with m.If(place == WINDOW - 1):
                m.d.sync += self.started.eq(1)
        with m.If(self.restart):
            m.d.sync += [self.started.eq(0), place.eq(0), row.eq(0)]
        return m
