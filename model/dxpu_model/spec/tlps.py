"""TLPs that two ends hand to each other: which came out, which were reported, which are missing.

TLPs of each end are numbered as they are handed to the link, over all its sessions. Only a model
knows these numbers.
"""

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Numbers", "lost_after", "replaced", "wrong_tlps"]


class Numbers(Protocol):
    """What a session knows of its TLPs."""

    @property
    def first(self) -> int:
        """Number of the TLP with SEQ 0."""
    @property
    def sent(self) -> int:
        """Next SEQ to send."""
    @property
    def acked(self) -> int:
        """All SEQ below are committed at the other end."""


def replaced(values: tuple, place: int, value) -> tuple:
    """``values`` with ``value`` at ``place``."""
    return (*values[:place], value, *values[place + 1:])


def lost_after(lost: tuple[frozenset, frozenset], end: int, session: Numbers):
    """``lost`` with the unacknowledged TLPs of ``session``, which end ``end`` gives up."""
    return replaced(lost, end, lost[end] | set(range(session.first + session.acked,
                                                     session.first + session.sent)))


def wrong_tlps(got: tuple, lost: tuple, sessions: Sequence[Numbers | None],
               names: Sequence[str]) -> str | None:
    """The fault in what came out, if any.

    Parameters
    ----------
    got : (tuple, tuple)
        TLPs out of the link at each end, in their order.
    lost : (frozenset, frozenset)
        TLPs that each end was told have failed.
    sessions
        What is open at each end; None for none.
    names
        Names of both ends.
    """
    for sender in (0, 1):
        out, to = got[1 - sender], names[1 - sender]
        for before, after in zip((-1, *out), out, strict=False):
            if after <= before:
                return f"TLP {after} came out twice or late at the {to}"
            for skipped in range(before + 1, after):
                if skipped not in lost[sender]:
                    return f"TLP {skipped} is lost and nobody was told"
        s = sessions[sender]
        for tlp in range(s.first, s.first + s.acked) if s else ():
            if tlp not in out:
                return f"TLP {tlp} is acknowledged and never came out at the {to}"
    return None
