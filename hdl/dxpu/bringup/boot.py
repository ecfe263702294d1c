"""A boot counter where there is no memory that outlives the configuration of an FPGA."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["BootCounter"]


class BootCounter(wiring.Component):
    """Makes the value of ``control.boot``: 16 bits, never 0, another after each reset.

    The first value is the number of cycles since configuration, modulo 2^16, when it is asked for;
    each further one, after a reset, is the one before plus one. Neither register is reset.

    What that guarantees: values of resets without a new configuration count up as those of somebody
    who counts boots, so the tags of seven in a row differ (:class:`~dxpu.fabric.SessionKeeper`).

    What it does not: after a new configuration the value may be any. It comes from when a frame of
    somebody else arrived, which repeats to the cycle with a chance of about 1 in 65,535, and tags
    may be among those of an earlier configuration more often than that. No old frame fits all the
    same, as long as ``control.quiet`` is longer than a frame can live: by the time at which this
    end offers its first tag all frames from before the reset are gone.

    Members
    -------
    take : 1
        Strobe. The first one after a reset takes a value; others do nothing.
    boot : 16
        From the cycle after it on. 0 before, after a configuration.
    """

    take: In(1)
    boot: Out(16)

    def elaborate(self, platform):
        m = Module()
        cycles, boot, value = (Signal(16, name=name, reset_less=True)
                               for name in ("cycles", "kept", "value"))
        taken = Signal()
        m.d.sync += cycles.eq(cycles + 1)
        m.d.comb += [
            self.boot.eq(boot),
            # 0: never asked since configuration.
            value.eq(Mux(boot == 0, cycles, boot + 1)),
        ]
        with m.If(self.take & ~taken):
            m.d.sync += [taken.eq(1), boot.eq(Mux(value == 0, 1, value))]
        return m
