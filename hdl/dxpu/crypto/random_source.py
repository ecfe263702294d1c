"""Random words from the bits of a noise source.

This file only wires. Ref: docs/reference/crypto.md
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from .aes import CipherUse
from .cmac import MacUse
from .conditioner import Conditioner
from .drbg import CtrDrbg
from .health import HealthTests

__all__ = ["RandomSource"]


class RandomSource(wiring.Component):
    """Tests noise, makes seeds of it, and draws words from these.

    There is no word before the start-up test is over and the first seed is made, and none from the
    bit on at which a test has failed: nothing takes the place of a source that has failed, until
    reset.

    Parameters
    ----------
    claim, exponent : float, int
        Of :class:`~.health.HealthTests`.
    draws : int
        Of :class:`~.drbg.CtrDrbg`.

    Members
    -------
    noise : stream of 1
        Raw bits, at any pace.
    column, key_column : 2 out, 32 in
        Of :class:`~.conditioner.Conditioner`.
    cmac, cipher : :class:`~.cmac.MacUse`, :class:`~.aes.CipherUse`
        The conditioner's and the generator's.
    o : stream of 32
        Words. One that was offered before a failure may still be taken.
    started, stuck, biased : 1
        Of :class:`~.health.HealthTests`.
    """

    def __init__(self, *, claim=0.25, exponent=30, draws=1 << 16):
        self._health = HealthTests(claim=claim, exponent=exponent)
        self._drbg = CtrDrbg(draws=draws)
        super().__init__({
            "noise": In(stream.Signature(1)),
            "column": Out(2),
            "key_column": In(32),
            "cmac": Out(MacUse()),
            "cipher": Out(CipherUse()),
            "o": Out(stream.Signature(32)),
            "started": Out(1),
            "stuck": Out(1),
            "biased": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.health, m.submodules.drbg = health, drbg = self._health, self._drbg
        m.submodules.conditioner = conditioner = Conditioner()
        wiring.connect(m, flipped(self.noise), health.i)
        wiring.connect(m, health.o, conditioner.i)
        wiring.connect(m, conditioner.cmac, flipped(self.cmac))
        wiring.connect(m, drbg.cipher, flipped(self.cipher))
        good = Signal()
        m.d.comb += [
            good.eq(~(health.stuck | health.biased)),
            self.column.eq(conditioner.column), conditioner.key_column.eq(self.key_column),
            self.started.eq(health.started),
            self.stuck.eq(health.stuck), self.biased.eq(health.biased),
        ]
        for name, giver, taker in (("seed", conditioner.o, drbg.seed), ("word", drbg.o, self.o)):
            passes, offered = Signal(name=f"{name}_passes"), Signal(name=f"{name}_offered")
            m.d.comb += [
                passes.eq(good | offered), taker.payload.eq(giver.payload),
                taker.valid.eq(giver.valid & passes), giver.ready.eq(taker.ready & passes),
            ]
            m.d.sync += offered.eq(taker.valid & ~taker.ready)
        return m
