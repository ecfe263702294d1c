"""How much a proxy grants, and lets wait.

Ref: docs/explanation/flow-control.md
"""

from .class_queues import ClassSpace
from .credits import OVERHEAD_BYTES, grants_for

__all__ = ["DEEP_CELLS", "GRANTS", "LARGEST", "LARGEST_REQUEST", "LINE_BYTES", "MOST_TLPS",
           "FlowControl", "beats_for", "grants_in", "host_grants", "packets_in", "shares_of",
           "space_for"]

#: Data units of the largest TLP: 512 bytes, as the switch advertises.
LARGEST = 32
#: The same of a non-posted one: 32 bytes.
LARGEST_REQUEST = 2
#: Most TLPs of a row and class that :func:`grants_in` grants at once; for a line above 1 Gb/s.
MOST_TLPS, FAST_TLPS = 32, 48
#: Headers and data units that each row grants at first: posted, non-posted, completions.
GRANTS = ((12, 76), (8, 8), (12, 76))
#: The same where block RAM is not that of a small FPGA; for a line above 1 Gb/s, where at 64 bits
#: a row takes 16 KiB of it, and not 4.
WIDE_GRANTS = ((32, 160), (8, 8), (32, 160))
FAST_GRANTS = ((48, 352), (8, 8), (48, 352))
#: The same for a line of 100 Gb/s whose round trip is microseconds, also to a host's memory: 32 KiB
#: of writes, and 160 reads of a GPU, 140 of which are under way in the paper (section 4.2). At 512
#: bits a row takes 128 KiB of block RAM.
DEEP_GRANTS = ((256, 2048), (160, 160), (48, 352))
#: TLPs of a row that a box grants at most then, posted and completions: 160 reads of 128 bytes have
#: two completions each.
DEEP_TLPS = (256, 320)
#: Cells of the replay memory then: 128 KiB.
DEEP_CELLS = 512
#: Bytes that may be under way to a box of 64 bits while many hosts send to it: the port of an
#: Ethernet switch that holds 16 KiB has room for them, and for acknowledgements.
LINE_BYTES = 13 << 10
#: Bytes on the line that a TLP takes beside its data, in frames of some TLPs.
LINE_OVERHEAD = 36
#: Data for each header of a share, in bytes.
SHARE_DATA = 100


def beats_for(width, headers, units):
    """Beats that hold so many TLPs with so much data, however they are mixed."""
    size = width // 8
    # A TLP with data wastes less than a beat.
    each = -(-(OVERHEAD_BYTES + size - 4) // size) if size > 4 else OVERHEAD_BYTES // 4
    return headers * each + -(-16 * units // size)


def grants_in(width, regions, *, fast=False, deep=False):
    """Grants for three regions of so many beats: up to 32 TLPs each (48 if ``fast``), 16 non-posted
    ones, and 16 completions if the width is that of a small region; :data:`DEEP_TLPS` if
    ``deep``."""
    most = FAST_TLPS if fast else MOST_TLPS
    most = (DEEP_TLPS[0], 16, DEEP_TLPS[1]) if deep else (most, 16, 16 if width <= 64 else most)
    return tuple(
        grants_for(width, beats, headers=max(
            n for n in range(1, headers + 1) if n == 1 or beats_for(width, n, units) <= beats))
        for beats, headers, units in zip(
            regions, most, (LARGEST, LARGEST_REQUEST, LARGEST), strict=True))


def packets_in(*, fast=False, deep=False):
    """TLPs that a region holds for what :func:`grants_in` grants: a power of two."""
    return 512 if deep else MOST_TLPS << fast


def host_grants(width, *, fast=False, deep=False):
    """What a host proxy of this width grants each row; ``fast``: for a line above 1 Gb/s;
    ``deep``: for a long one of 100 Gb/s."""
    if deep:
        return DEEP_GRANTS
    if fast:
        return FAST_GRANTS
    return GRANTS if width <= 64 else WIDE_GRANTS


def space_for(width, grants=GRANTS):
    """:class:`~.class_queues.ClassSpace` for what is granted."""
    p, np, cpl = (beats_for(width, *grant) * width // 8 for grant in grants)
    return ClassSpace(width, p=p, np=np, cpl=cpl)


def shares_of(grants, rows, line_bytes):
    """Headers and units that a row grants while 1, 2, 4, 8 ... rows are busy.

    All busy rows together have ``line_bytes`` of a class under way, unless that is less than a TLP
    of the largest payload for each. Non-posted requests are not restricted: they carry no data.

    Returns
    -------
    tuple or None
        For each number of rows three pairs, as in ``grants``; None: they are never less.
    """
    shares = []
    for n in range((rows - 1).bit_length() + 1):
        each = line_bytes >> n
        headers = max(4, each // (LINE_OVERHEAD + SHARE_DATA))
        units = max(LARGEST + LARGEST // 4, (each - LINE_OVERHEAD * headers) // 16)
        shares.append(tuple(
            grant if cls == 1 else (min(grant[0], headers), min(grant[1], units))
            for cls, grant in enumerate(grants)))
    return None if all(share == tuple(grants) for share in shares) else tuple(shares)


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
    line_bytes : int, optional
        Bytes that may be under way to this proxy while many send to it (:func:`shares_of`).
    """

    def __init__(self, queues, grants=GRANTS, period=1024, again=16, refresh=4, line_bytes=None):
        for headers, units in (grants[0], grants[2]):
            if headers < 1 or units < LARGEST:
                raise ValueError(f"grants must be enough for the largest payload, not {grants!r}")
        self.queues, self.grants = queues, grants
        self.period, self.again, self.refresh = period, again, refresh
        self.line_bytes = line_bytes

    def shares(self, rows):
        """:func:`shares_of` for so many rows; None: nothing is withheld."""
        return self.line_bytes and shares_of(self.grants, rows, self.line_bytes)

    @classmethod
    def of(cls, width, grants=GRANTS, *, end="host", fast=False, deep=False):
        """What the proxies are built with, at this ``end``; ``fast``: for a line above 1 Gb/s;
        ``deep``: for a long one, whose switches hold megabytes.

        A box withholds credits while many hosts send to it, unless ``deep``. A host grants each row
        so little that it need not.

        One posted TLP of each row may wait, and one completion, and what may be under way behind
        it when it has to, as small as it may be: 20 beats. Of non-posted ones as many as a slot has
        credits for, and three that may be under way.
        """
        each = beats_for(width, 1, LARGEST) + 20
        p, np = each * width // 8, beats_for(width, 8, 14) * width // 8
        line_bytes = (LINE_BYTES * max(1, width // 64) << fast if end == "box" and not deep
                      else None)
        return cls(ClassSpace(width, p=p, np=np, cpl=p), grants, line_bytes=line_bytes)
