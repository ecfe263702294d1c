"""When something that nobody has answered is sent again."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Backoff"]


class Backoff(wiring.Component):
    """Waits that become twice as long each time.

    Parameters
    ----------
    first : int
        Ticks of the first wait.
    doubled : int
        Times that a wait is twice the one before; later ones stay as long.
    delay : int
        Greatest ``delay``.

    Members
    -------
    tick : 1
        Strobe: time goes on.
    sent : 1
        Strobe: it is sent, and a wait begins.
    anew : 1
        Strobe: waits begin with the first one again, and it is due after ``delay`` ticks.
    delay : as large as the greatest one
        With ``anew``.
    due : 1
        No wait is under way. It follows the strobes a cycle later.
    """

    def __init__(self, *, first, doubled, delay=0):
        self._first, self._doubled = first, doubled
        self._longest = max(first << doubled, delay)
        super().__init__({"tick": In(1), "sent": In(1), "anew": In(1),
                          "delay": In(range(delay + 1)), "due": Out(1)})

    def elaborate(self, platform):
        m = Module()
        rest = Signal(range(self._longest + 1))
        wait = Signal(range((self._first << self._doubled) + 1), init=self._first)
        sent, anew, delay = Signal(), Signal(), Signal.like(self.delay)
        m.d.sync += [sent.eq(self.sent), anew.eq(self.anew), delay.eq(self.delay)]
        m.d.comb += self.due.eq((rest == 0) & ~(sent | anew))
        with m.If(anew):
            m.d.sync += [rest.eq(delay), wait.eq(self._first)]
        with m.Elif(sent):
            m.d.sync += [rest.eq(wait),
                         wait.eq(Mux(wait == self._first << self._doubled, wait, wait << 1))]
        with m.Elif(self.tick & ~self.due):
            m.d.sync += rest.eq(rest - 1)
        return m
