"""How long to wait for what."""

from dataclasses import dataclass, replace

__all__ = ["Timers"]


@dataclass(frozen=True)
class Timers:
    """All times are in seconds, of whatever clock the host is given.

    The defaults suit a network card and a box with the timers of hardware. A process may be stopped
    for longer than a box is patient (7.5 ms): see docs/reference/host.md, "The box's timers".

    Attributes
    ----------
    retry : float
        First wait for an acknowledgement. It doubles with each of four transmissions, twice over;
        then the session fails: after 30 times this.
    hello : float
        First wait for an answer to HELLO or a poll; it doubles up to four times. A session that is
        silent for eight times this is polled, and lost after 15 times this more.
    quiet : float
        How long nothing is sent or answered at first, and after a session was lost: twice the
        longest life of a frame.
    ack : float
        How long a frame that came may wait for one of ours that carries its acknowledgement; 0: to
        the end of the turn in which it came.
    refresh : float
        All limits of a slot are told again after this; a change once more after an eighth of it.
    completion : float
        How long a request may be without completion.
    attach : float
        How long a box may take to answer HELLO, and then a slot to answer BIND.
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
        """The same for a box that runs so many times slower, such as a simulated one."""
        return replace(self, **{name: value * factor for name, value in vars(self).items()})
