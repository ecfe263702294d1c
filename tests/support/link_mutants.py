"""Links that are wrong, for tests that must find them: proofs and the campaign of faults."""

from amaranth import *

from dxpu.fabric.session.arrivals import Arrivals
from dxpu.fabric.session.link import Link


class Eager(Link):
    """Mutant: takes what comes behind a gap."""

    class ARRIVALS(Arrivals):
        def _judge_headers(self, m):
            super()._judge_headers(m)
            with m.If(self.stat_gap):
                m.d.sync += self.verdict.payload.accept.eq(1)


class Repetitive(Link):
    """Mutant: takes what took effect before."""

    class ARRIVALS(Arrivals):
        def _judge_headers(self, m):
            super()._judge_headers(m)
            with m.If(self.stat_duplicate):
                m.d.sync += self.verdict.payload.accept.eq(1)
