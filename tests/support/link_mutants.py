"""Wrong links that tests must detect: proofs and the campaign of faults."""

from dxpu.fabric.session.arrivals import Arrivals
from dxpu.fabric.session.link import Link
from tests.support.mutate import mutant

_ACCEPT = "accept.eq(valid & ~(numbered & ((ahead != 0) | copy)))"


class Eager(Link):
    """Mutant: takes frames behind a gap."""

    ARRIVALS = mutant(Arrivals, (
        _ACCEPT, "accept.eq(valid & ~(numbered & (ahead[-1] | copy & (ahead == 0))))"))


class Repetitive(Link):
    """Mutant: takes duplicates."""

    ARRIVALS = mutant(Arrivals, (_ACCEPT, "accept.eq(valid & ~gap)"))
