"""Speed of a downstream port's link, as software sees and steers it."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["LinkSpeed"]

#: Speeds of 8.0 GT/s and more need equalization.
EQUALIZED = 3


class LinkSpeed(wiring.Component):
    """Current Link Speed of a virtual link, which trains in no time.

    A link trains to Target Link Speed, or to the fastest speed that there is if that is less: when
    it becomes active, and when it is retrained. Otherwise a new target changes nothing. The outputs
    follow in the next cycle; without a link they are unspecified.

    Ref: PCIe Base 6.0, 7.5.3.7 (Retrain Link), 7.5.3.19 (Target Link Speed), 7.5.3.20
    (Equalization 8.0 GT/s Complete)

    Parameters
    ----------
    fastest : int
        Max Link Speed, as in Link Capabilities.

    Members
    -------
    target : 4
        Target Link Speed. Values that are not supported are taken for the nearest that is.
    active : 1
        The link is active.
    retrain : 1
        Pulse: it is retrained.
    speed : 4
    equalized : 1
        It has been at 8.0 GT/s or more since it became active.
    """

    def __init__(self, fastest):
        self._fastest = fastest
        super().__init__({
            "target": In(4),
            "active": In(1),
            "retrain": In(1),
            "speed": Out(4),
            "equalized": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        trained = Signal(range(self._fastest + 1))
        speed = Signal.like(trained, init=self._fastest)
        m.d.comb += [
            trained.eq(Mux(self.target > self._fastest, self._fastest,
                           Mux(self.target == 0, 1, self.target))),
            self.speed.eq(speed),
        ]
        with m.If(~self.active | self.retrain):
            m.d.sync += speed.eq(trained)
        if self._fastest >= EQUALIZED:
            before = Signal()
            m.d.comb += self.equalized.eq(before | (speed >= EQUALIZED))
            m.d.sync += before.eq(self.active & self.equalized)
        return m
