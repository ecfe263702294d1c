"""Wrong links that tests must detect: proofs and the campaign of faults."""

from amaranth import *

from dxpu.fabric.session.arrivals import Arrivals
from dxpu.fabric.session.link import Link


class Eager(Link):
    """Mutant: takes frames behind a gap."""

    class ARRIVALS(Arrivals):
        def _judge_headers(self, m):
            super()._judge_headers(m)
            with m.If(self.stat_gap):
                m.d.sync += self.verdict.payload.accept.eq(1)


class Repetitive(Link):
    """Mutant: takes duplicates."""

    class ARRIVALS(Arrivals):
        def _judge_headers(self, m):
            super()._judge_headers(m)
            with m.If(self.stat_duplicate):
                m.d.sync += self.verdict.payload.accept.eq(1)
