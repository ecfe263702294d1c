"""Waiting times of a host."""

from dataclasses import dataclass, replace

__all__ = ["Timers"]


@dataclass(frozen=True)
class Timers:
    """All times are in seconds, of the clock given to the host.

    The defaults suit a network card and a box with the timers of hardware. A process may be stopped
    for longer than a box waits (7.5 ms): see docs/reference/host.md, "The box's timers".

    Attributes
    ----------
    retry : float
        First wait for an acknowledgement. It doubles with each of four transmissions, twice over;
        then the session fails, after 30 times ``retry``.
    hello : float
        First wait for an answer to HELLO or a poll; it doubles up to four times. A session that is
        silent for eight times ``hello`` is polled, and lost after 15 times ``hello`` more.
    quiet : float
        Time without sending or answering at first, and after the loss of a session: twice the
        longest life of a frame.
    ack : float
        Longest time that an acknowledgement waits for a frame to carry it; 0: until the end of the
        turn in which the frame came.
    refresh : float
        All limits of a slot are sent again after this time; a changed limit once more after an
        eighth.
    completion : float
        Longest time until the completion of a request.
    attach : float
        Longest time until a box answers HELLO, and then until a slot answers BIND.
    """

    retry: float = 0.005
    hello: float = 0.005
    quiet: float = 0.1
    ack: float = 0.0
    refresh: float = 0.04
    completion: float = 1.0
    attach: float = 5.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0 or not value and name not in ("ack", "quiet"):
                raise ValueError(f"{name} must be a positive time, not {value!r}")

    def slower(self, factor: float) -> "Timers":
        """The same timers for a box that is slower by ``factor``, such as a simulated box."""
        return replace(self, **{name: value * factor for name, value in vars(self).items()})
