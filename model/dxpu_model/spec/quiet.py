"""Quiet time: silence needed after the reset of a node whose tags begin anew.

:mod:`.session` assumes that tags never repeat. A node that was reset no longer knows its used tags,
so it may repeat a tag unless tags are random. Then all frames with the old tag must be gone before
the first answer. This model has a clock, and determines the time needed.

The box is reset once, at any time. Frames that the box sent before may reach the host up to one
lifetime later, and make the host believe that the box is there. The host gives up after ``give_up``
ticks of silence; until then it may send frames with the old tag, which live for one more lifetime.
So the quiet time must be two lifetimes plus the time to give up.
"""

from typing import NamedTuple

from .search import Model

__all__ = ["FLAWS", "Quiet"]

#: Flawed hosts: name and behaviour.
FLAWS = {
    "idle hosts wait": "a host that has nothing under way does not notice that the box is silent",
}

HELLO_1, DATA_1, ACK_1, HELLO_2 = range(4)


class State(NamedTuple):
    """State of host and box; both begin in session 1, with tag 1."""

    host: int = 1  #: session of the host
    silence: int = 0  #: ticks since the host last heard the box in session 1
    was_reset: bool = False
    quiet: int = 0  #: ticks of quiet time left at the box
    tag: int = 1  #: tag that the box has offered, or has open
    offered: int = 0  #: nonce of that offer, since the reset
    lives: tuple[int, ...] = (0, 0, 0, 0)  #: ticks left for the youngest copy of each frame
    opened: bool = False  #: session 2 is open
    fault: str | None = None


class Quiet(Model):
    """A host and a box, old frames, and a clock.

    Parameters
    ----------
    lifetime, give_up, quiet : int
        In ticks: lifetime of a frame; time that a host waits for a sign of the box; quiet time of
        the box after a reset.
    fresh : bool
        The box never offers a tag used before the reset.
    flaw : str
        None or a key of :data:`FLAWS`.
    """

    def __init__(self, *, lifetime, give_up, quiet, fresh=False, flaw=None):
        if flaw is not None and flaw not in FLAWS:
            raise ValueError(f"flaw must be None or one of {', '.join(FLAWS)}, not {flaw!r}")
        self.lifetime, self.give_up, self.quiet = lifetime, give_up, quiet
        self.fresh, self.flaw = fresh, flaw

    def initial(self):
        return self._sent(State(), HELLO_1)

    def actions(self, state):
        if state.opened:
            return
        if state.host == 1:
            yield "host: DATA of session 1", self._sent(state, DATA_1)
            if state.lives[ACK_1]:
                yield "host takes ACK of session 1", state._replace(silence=0)
            yield "host: gives up session 1", state._replace(host=2, silence=0)
        else:
            yield "host: HELLO 2", self._sent(state, HELLO_2)
        if not state.was_reset:
            yield "box: ACK of session 1", self._sent(state, ACK_1)
            yield "box: reset", state._replace(was_reset=True, quiet=self.quiet, tag=0)
        elif not state.quiet:
            yield from self._answer(state)
        patient = state.host == 1 and self.flaw != "idle hosts wait"
        if not patient or state.silence < self.give_up:
            yield "a tick passes", state._replace(
                silence=state.silence + 1 if patient else 0, quiet=max(0, state.quiet - 1),
                lives=tuple(max(0, left - 1) for left in state.lives))

    def _answer(self, state):
        """Actions of the box after its quiet time."""
        for frame, nonce in ((HELLO_1, 1), (HELLO_2, 2)):
            if state.lives[frame] and state.offered != nonce:
                tag = 1 + (self.fresh and 1)
                yield (f"box takes HELLO {nonce}, offers tag {tag}",
                       state._replace(offered=nonce, tag=tag))
        if state.lives[DATA_1] and state.tag == 1:
            yield "box takes DATA of session 1", state._replace(
                fault="a frame from before the reset acts after it")
        if state.host == state.offered == 2:
            yield "host and box open session 2", state._replace(opened=True)

    def _sent(self, state, frame):
        lives = list(state.lives)
        lives[frame] = self.lifetime
        return state._replace(lives=tuple(lives))

    def wrong(self, state):
        return state.fault
