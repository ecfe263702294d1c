"""Resets of the endpoint, and the state of its link.

Ref: PCIe Base 5.0, 6.6.1 (hot reset), 6.6.2 (Function Level Reset)
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Lifetime"]


class Lifetime(wiring.Component):
    """Lets the TLP that is being sent end, then resets.

    Hot reset: the link goes down after the last TLP has ended, and comes up in the cycle after
    ``reset`` has fallen, and the memory has been wiped. A Function Level Reset waits for the end of
    the TLP as well, and lasts until the memory has been wiped. Requests that come meanwhile are
    discarded, as 6.6.2 permits.

    Members
    -------
    reset : 1
        Level: hot reset.
    function_reset : 1
        Level, until ``clear``: Function Level Reset.
    idle : 1
        No TLP is being sent.
    wipe, wiping : 1
        To the memory: strobe, forget all; and from the next cycle on: that goes on. It goes on
        after a reset of the whole GPU, too.
    hold : 1
        The sender must not begin a TLP.
    link_up : 1
    down : 1
        Inverse of ``link_up``: resets everything but the credit counts.
    clear : 1
        Resets the function: high while the link is down, and during a Function Level Reset.
    """

    reset: In(1)
    function_reset: In(1)
    idle: In(1)
    wipe: Out(1)
    wiping: In(1)
    hold: Out(1)
    link_up: Out(1)
    down: Out(1)
    clear: Out(1)

    def elaborate(self, platform):
        m = Module()
        down = Signal(init=1)
        m.d.comb += [
            self.down.eq(down),
            self.link_up.eq(~down),
            self.hold.eq(down | self.reset | self.function_reset | self.wiping),
            self.clear.eq(down | self.function_reset & self.idle | self.wiping),
            self.wipe.eq(~down & (self.reset | self.function_reset) & self.idle),
        ]
        with m.If(down):
            m.d.sync += down.eq(self.reset | self.wiping)
        with m.Elif(self.reset & self.idle):
            m.d.sync += down.eq(1)
        return m
