"""Noise of an ECP5: rings of inverters that run free, sampled.

No entropy is claimed: nobody has measured these bits in silicon. The tests of
:class:`~dxpu.crypto.health.HealthTests` find rings that stand still or run with the clock.
Ref: NIST SP 800-90B, 3.1
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import Out

__all__ = ["LENGTHS", "RingOscillators"]

#: Inverters of each ring. These numbers have no common divisor, so that rings that are coupled
#: through the supply lock to each other less easily.
LENGTHS = (3, 5, 7, 11, 13, 17, 19, 23)

#: LUT4 as an inverter of A; and as one that B lets run (NAND).
_INVERTER, _GATE = 0x5555, 0x7777


class RingOscillators(wiring.Component):
    """The parity of all rings, sampled now and then.

    A ring is an odd number of LUT cells, kept as they are. It is a combinational loop, so timing
    analysis must be told to ignore loops. Each ring is sampled by two registers in a row, and
    stands still during reset.

    Parameters
    ----------
    every : int
        Cycles between two bits, so that jitter adds up; 2 or more.
    lengths : sequence of int
        Inverters of each ring: odd, 3 or more.

    Members
    -------
    o : stream of 1
        A bit that is not taken is replaced by the next one.
    """

    def __init__(self, *, every=256, lengths=LENGTHS):
        if not isinstance(every, int) or every < 2:
            raise ValueError(f"every must be an integer of at least 2, not {every!r}")
        if not lengths or any(length < 3 or length % 2 == 0 for length in lengths):
            raise ValueError(f"lengths must be odd numbers of at least 3, not {lengths!r}")
        self._every, self._lengths = every, tuple(lengths)
        super().__init__({"o": Out(stream.Signature(1))})

    def elaborate(self, platform):
        m = Module()
        runs, rings = Signal(), Signal(len(self._lengths))
        sampled = Signal.like(rings)
        m.d.sync += runs.eq(1)
        for n, length in enumerate(self._lengths):
            nodes = Signal(length, name=f"ring{n}")
            for k in range(length):
                m.submodules[f"ring{n}_{k}"] = Instance(
                    "LUT4", a_keep=1, p_INIT=Const(_INVERTER if k else _GATE, 16),
                    i_A=nodes[k - 1], i_B=C(0) if k else runs, i_C=C(0), i_D=C(0), o_Z=nodes[k])
            m.d.comb += rings[n].eq(nodes[0])
        m.submodules.sampled = FFSynchronizer(rings, sampled)
        count = Signal(range(self._every))
        m.d.sync += count.eq(Mux(count == self._every - 1, 0, count + 1))
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(count == self._every - 1):
            m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(sampled.xor())]
        return m
