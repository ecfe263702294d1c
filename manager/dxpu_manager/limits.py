"""Times and numbers by which a manager goes."""

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """Times, in seconds, and numbers.

    Parameters
    ----------
    attach : float
        Until card and link must be there; and from then on, until the host must have given the
        port a memory window.
    boot : float
        From the link on, until a host with an agent must have enumerated the switch.
    word : float
        From the windows on, until the agent of a host must have said that it sees the GPU.
    grace : float
        From the windows on, for a host without an agent whose operating system does not show that
        it uses the GPU.
    consent : float
        Until the host's operating system must have let go of a GPU.
    patience : float
        A host without an answer for so long does not keep a GPU from others: the host's row is of
        an old generation then, and is released with the next answer.
    again : float
        Between two attempts.
    look : float
        Between two looks at all nodes.
    calm : float
        A path that has a link again must keep the link for so long before GPUs return to it.
    admits : bool
        Clean GPUs are free without a word of an operator.
    events : int
        So many of the newest events are kept.
    events_for : float
        Older events are forgotten: 90 days.
    forget : float
        Between two times that events are forgotten.
    """

    attach: float = 10.0
    boot: float = 600.0
    word: float = 60.0
    grace: float = 5.0
    consent: float = 60.0
    patience: float = 10.0
    again: float = 0.25
    look: float = 60.0
    calm: float = 10.0
    admits: bool = False
    events: int = 100_000
    events_for: float = 90 * 86400.0
    forget: float = 3600.0
