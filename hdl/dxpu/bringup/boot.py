"""A boot counter for boards without non-volatile memory for one."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["BootCounter"]


class BootCounter(wiring.Component):
    """Generates the value of ``control.boot``: 16 bits, never 0, a new value after each reset.

    The first value is the number of cycles since configuration, modulo 2^16, at the first ``take``.
    After each further reset the value goes up by one. Neither register is reset.

    Guaranteed: over resets without a new configuration the values count up like those of a real
    boot counter, so the tags of seven boots in a row differ
    (:class:`~dxpu.fabric.session.session.SessionKeeper`).

    Not guaranteed: after a new configuration the value may be any. The value depends on the arrival
    time of a frame from elsewhere, which repeats to the cycle with a chance of about 1 in 65,535;
    overlaps with the tags of an earlier configuration are more frequent. Still no old frame is
    accepted, as long as ``control.quiet`` is longer than the life of a frame: all frames from
    before the reset are gone by the time this end offers its first tag.

    Members
    -------
    take : 1
        Strobe. The first strobe after a reset takes a new value; further strobes do nothing.
    boot : 16
        Valid from the cycle after ``take`` on. After a configuration 0 until then.
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
            # 0: no value was taken since configuration.
            value.eq(Mux(boot == 0, cycles, boot + 1)),
        ]
        with m.If(self.take & ~taken):
            m.d.sync += [taken.eq(1), boot.eq(Mux(value == 0, 1, value))]
        return m
