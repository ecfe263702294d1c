"""Evidence that a host has a GPU, from the link to the word of the host's agent.

Ref: docs/reference/manager.md ("Evidence")
"""

from dataclasses import dataclass, field

from .limits import Limits
from .records import Binding, Node

__all__ = ["NEVER", "WORD", "Evidence", "Sight", "Verdict"]

#: What is said of a GPU that does not come up although all else is there.
NEVER = "its link does not come up"
#: Evidence by the host's agent.
WORD = "word of the agent"


@dataclass(frozen=True)
class Evidence:
    """State of a port at a host.

    Attributes
    ----------
    present, link : bool
        A card is there; its link, and the host's own, are up.
    lost : bool
        The card has gone, and nothing but another binding brings a card back.
    session : bool
        The session with the box is open.
    runs : bool
        Firmware or an operating system has enumerated the host's ports.
    windows : bool
        The port has buses and a memory window.
    in_use : bool
        The power indicator is on: a hot-plug driver has found and configured the card.
    """

    present: bool = False
    link: bool = False
    lost: bool = False
    session: bool = False
    runs: bool = False
    windows: bool = False
    in_use: bool = False

    @property
    def came(self) -> bool:
        """The card is there. The link of a host that is off is down behind each card."""
        return self.present and (self.link or not self.runs)


@dataclass(frozen=True)
class Verdict:
    """Whether a host has a GPU.

    Attributes
    ----------
    seen : tuple of str
        All evidence so far.
    lacks : str
        What is missing; empty: the host has the GPU.
    due : float or None
        When that must be there; ``None``: it comes with time.
    since : float
        Beginning of the wait for that.
    """

    seen: tuple[str, ...] = ()
    lacks: str = ""
    due: float | None = None
    since: float = 0.0


@dataclass
class Sight:
    """What a task has seen of a GPU so far.

    Each stage has a time of its own, from the end of the stage before on.

    Parameters
    ----------
    limits : Limits
    deadline : float
        Until card and link must be there.
    """

    limits: Limits
    deadline: float
    #: Whether the power indicator was seen off; on from before, it says nothing of this card.
    was_idle: bool = False
    verdict: Verdict = field(default_factory=lambda: Verdict(lacks="nothing is known of it"))
    #: Since when the card is there, and the host runs, without a break.
    _came: float | None = None
    _runs: float | None = None
    #: When the card was seen there last.
    _last: float | None = None

    @property
    def came(self) -> bool:
        """Whether the card was there at the last look."""
        return self._came is not None

    def fails(self, why: str) -> Verdict:
        """The verdict while the card is not there, or a node does not answer."""
        due, since = self.deadline, self.deadline - self.limits.attach
        if self._last is not None:
            due, since = max(due, self._last + self.limits.attach), self._last
        self._came = None
        self.verdict = Verdict((), why, due, since)
        return self.verdict

    def rebinds(self, found: Evidence, host: Node, box: Node) -> Verdict:
        """The verdict of a host that has had the GPU before: the card is enough, as all else was
        seen then."""
        if not found.came:
            return self.fails(_absent(found, host, box))
        self.verdict = Verdict(("link" if found.link else "card",))
        return self.verdict

    def judge(self, found: Evidence, binding: Binding, host: Node, box: Node, now: float,
              ) -> Verdict:
        """The verdict of an attach, by the state of the port now.

        ``binding.learnt`` and ``binding.word`` are those of the records.
        """
        if not found.in_use:
            self.was_idle = True
        if not found.came:
            return self.fails(_absent(found, host, box))
        self._last = now
        if self._came is None:
            self._came = now
        self._runs = None if not found.runs else now if self._runs is None else self._runs
        self.verdict = self._stages(found, binding, host, now)
        return self.verdict

    def _stages(self, found: Evidence, binding: Binding, host: Node, now: float) -> Verdict:
        limits, came = self.limits, self._came or now
        seen = ["link" if found.link else "card", *("windows" for _ in range(found.windows))]
        if binding.word:
            return Verdict((*seen, WORD))
        if not found.runs:
            if not host.agent:
                # It finds the card when it starts, as a host finds all that is plugged in then.
                return Verdict((*seen, "the host has not started"))
            return Verdict(tuple(seen), f"host {host.name} has not enumerated its ports",
                           came + limits.boot, came)
        if not found.windows:
            since = max(came, self._runs or now)
            return Verdict(tuple(seen), f"host {host.name} has given port {binding.port} no memory "
                           "window", max(self.deadline, since + limits.attach), since)
        learnt = binding.learnt or now
        if host.agent:
            return Verdict(tuple(seen), f"the agent of host {host.name} has not said that it sees "
                           "the GPU", learnt + limits.word, learnt)
        if found.in_use and self.was_idle:
            return Verdict((*seen, "in use by the operating system"))
        if now >= learnt + limits.grace:
            return Verdict((*seen, f"{limits.grace:g} s of grace"))
        return Verdict(tuple(seen), f"{learnt + limits.grace - now:.1f} s of grace are left",
                       since=learnt)


def _absent(found: Evidence, host: Node, box: Node) -> str:
    """Why there is no card."""
    return NEVER if found.session else f"host {host.name} and box {box.name} have no session"
