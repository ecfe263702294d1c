"""Slots that take nothing any more."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["StallWatch"]


class StallWatch(wiring.Component):
    """Notices rows whose posted TLPs or completions wait for credits without end.

    Time counts for a row while something waits, nothing leaves, and the peer says again and again
    how much it takes: a peer that is silent is the link's concern. It is counted in intervals; in
    each of :attr:`INTERVALS` the peer must have been heard.

    Parameters
    ----------
    rows : int

    Members
    -------
    interval : 20
        Cycles; 0: never. Not shorter than limits take to be told again.
    waiting : ``rows``
        A posted TLP or a completion waits.
    moved : ``rows``
        Strobes: one that waited has left.
    told : ``rows``
        Strobes: the peer has told its limits.
    stuck : ``rows``
        Strobes: the time is over.
    """

    #: Whole intervals until a row is stuck.
    INTERVALS = 8

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "interval": In(20),
            "waiting": In(rows),
            "moved": In(rows),
            "told": In(rows),
            "stuck": Out(rows),
        })

    def elaborate(self, platform):
        m = Module()
        clock, tick = Signal(20), Signal()
        m.d.sync += [
            clock.eq(Mux(clock == 0, self.interval, clock - 1)),
            tick.eq((clock == 1) & (self.interval != 0)),
        ]
        for n in range(self._rows):
            # The first interval was under way when the wait began.
            count = Signal(range(self.INTERVALS + 1), name=f"count{n}")
            heard = Signal(name=f"heard{n}")
            with m.If(~self.waiting[n] | self.moved[n]):
                m.d.sync += [count.eq(0), heard.eq(0)]
            with m.Elif(tick):
                m.d.sync += heard.eq(self.told[n])
                with m.If(heard & (count == self.INTERVALS)):
                    m.d.comb += self.stuck[n].eq(1)
                    m.d.sync += count.eq(0)
                with m.Elif(heard):
                    m.d.sync += count.eq(count + 1)
            with m.Elif(self.told[n]):
                m.d.sync += heard.eq(1)
        return m
