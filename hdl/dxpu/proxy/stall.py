"""Detection of slots that take no TLPs any more."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["StallWatch"]


class StallWatch(wiring.Component):
    """Detects rows whose posted TLPs or completions wait for credits without end.

    Time counts for a row while a TLP waits, none that waited is sent, and credit limits keep coming
    from the peer: a silent peer is the link's concern. It is counted in whole intervals. A row is
    stalled after :attr:`INTERVALS` of them, if limits came in each.

    Parameters
    ----------
    rows : int
        Rows of the mapping table.

    Members
    -------
    interval : 20
        Length of an interval, in cycles minus one; 0: no row is ever stalled. It must be longer
        than the time between two frames in which a peer repeats its limits.
    waiting : ``rows``
        Bit n: a posted TLP or a completion of row n waits for credits.
    progress : ``rows``
        Strobes: one that waited was sent.
    limits_received : ``rows``
        Strobes: credit limits for row n came from its peer.
    stalled : ``rows``
        Strobes: row n is stalled. Counting starts anew.
    """

    #: Whole intervals until a row is stalled.
    INTERVALS = 8

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "interval": In(20),
            "waiting": In(rows),
            "progress": In(rows),
            "limits_received": In(rows),
            "stalled": Out(rows),
        })

    def elaborate(self, platform):
        m = Module()
        clock, tick = Signal(20), Signal()
        m.d.sync += [
            clock.eq(Mux(clock == 0, self.interval, clock - 1)),
            tick.eq((clock == 1) & (self.interval != 0)),
        ]
        for n in range(self._rows):
            # The interval in which the wait begins is not a whole one.
            count = Signal(range(self.INTERVALS + 1), name=f"count{n}")
            peer_alive = Signal(name=f"peer_alive{n}")
            with m.If(~self.waiting[n] | self.progress[n]):
                m.d.sync += [count.eq(0), peer_alive.eq(0)]
            with m.Elif(tick):
                m.d.sync += peer_alive.eq(self.limits_received[n])
                with m.If(peer_alive & (count == self.INTERVALS)):
                    m.d.comb += self.stalled[n].eq(1)
                    m.d.sync += count.eq(0)
                with m.Elif(peer_alive):
                    m.d.sync += count.eq(count + 1)
            with m.Elif(self.limits_received[n]):
                m.d.sync += peer_alive.eq(1)
        return m
