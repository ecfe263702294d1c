"""How much a proxy grants, and lets wait.

Ref: docs/explanation/flow-control.md
"""

from .class_queues import ClassSpace
from .credits import OVERHEAD_BYTES, grants_for

__all__ = ["GRANTS", "LARGEST", "MOST_TLPS", "FlowControl", "beats_for", "grants_in",
           "host_grants", "space_for"]

#: Data units of the largest TLP: 512 bytes, as the switch advertises.
LARGEST = 32
#: Most TLPs of a row and class that :func:`grants_in` grants at once.
MOST_TLPS = 32
#: Headers and data units that each row grants at first: posted, non-posted, completions.
GRANTS = ((12, 76), (8, 8), (12, 76))
#: The same where the line is faster, and block RAM is not that of a small FPGA.
WIDE_GRANTS = ((32, 160), (8, 8), (32, 160))


def beats_for(width, headers, units):
    """Beats that hold so many TLPs with so much data, however they are mixed."""
    size = width // 8
    # A TLP with data wastes less than a beat.
    each = -(-(OVERHEAD_BYTES + size - 4) // size) if size > 4 else OVERHEAD_BYTES // 4
    return headers * each + -(-16 * units // size)


def grants_in(width, regions):
    """Grants for three regions of so many beats: up to 32 TLPs each, 16 non-posted ones, and 16
    completions if the width is that of a small region."""
    most = (MOST_TLPS, 16, 16 if width <= 64 else MOST_TLPS)
    return tuple(
        grants_for(width, beats, headers=max(
            n for n in range(1, headers + 1) if n == 1 or beats_for(width, n, units) <= beats))
        for beats, headers, units in zip(regions, most, (LARGEST, 2, LARGEST), strict=True))


def host_grants(width):
    """What a host proxy of this width grants each row."""
    return GRANTS if width <= 64 else WIDE_GRANTS


def space_for(width, grants=GRANTS):
    """:class:`~.class_queues.ClassSpace` for what is granted."""
    p, np, cpl = (beats_for(width, *grant) * width // 8 for grant in grants)
    return ClassSpace(width, p=p, np=np, cpl=cpl)


class FlowControl:
    """Flow control of an engine: what it is built for.

    Parameters
    ----------
    queues : :class:`~.class_queues.ClassSpace`
        Space of each row for TLPs that wait for credits.
    grants : three pairs of int
        Headers and units that each row grants, for each class.
    period, again, refresh : int
        Of :class:`~.grants.CreditGrants`. A change is mostly told by the ACK of the frame whose
        TLPs have left; what else there is to tell has time.
    """

    def __init__(self, queues, grants=GRANTS, period=1024, again=16, refresh=4):
        for headers, units in (grants[0], grants[2]):
            if headers < 1 or units < LARGEST:
                raise ValueError(f"grants must be enough for the largest payload, not {grants!r}")
        self.queues, self.grants = queues, grants
        self.period, self.again, self.refresh = period, again, refresh

    @classmethod
    def of(cls, width, grants=GRANTS):
        """What the proxies are built with.

        One posted TLP of each row may wait, and one completion, and what may be under way behind
        it when it has to, as small as it may be: 20 beats. Of non-posted ones as many as a slot has
        credits for, and three that may be under way.
        """
        each = beats_for(width, 1, LARGEST) + 20
        p, np = each * width // 8, beats_for(width, 8, 14) * width // 8
        return cls(ClassSpace(width, p=p, np=np, cpl=p), grants)
