"""Credits of one slot and class: the receiver's room, announced by frames that may get lost.

TLPs are not lost (the session guarantees that); limits are. Limits are not repeated, so a loss must
heal by later limits. A limit is absolute: the number of TLPs that the receiver can take in all,
since BIND. A limit travels modulo ``modulus``, together with the number of TLPs that have arrived
(the ACK of the same frame), and acts only if this ACK is not older than the newest ACK that acted.
A limit is sent when room becomes free and, to heal losses, again whenever there is nothing else to
send.

The network drops, doubles and reorders. A limit may be on its way until the sender has sent
``life`` TLPs more. Of two limits with the same ACK the older may win for a while, so the limit may
shrink. Therefore the sender reads the difference between limit and sent as a signed number; a
negative number means no room.

A receiver may withhold some of its room, so that all its senders together have less under way than
they might: it tells a limit that is less by any of the amounts in ``withheld``, another one each
time. A limit that shrinks is like an old one that comes late.

Numbers are relative to the TLPs sent so far, so the search covers infinite traffic.
"""

from typing import NamedTuple

from .search import Model, can_reach

__all__ = ["FLAWS", "Credits", "RelativeCredits"]

#: Flawed designs: name and behaviour.
FLAWS = {
    "never refreshed": "a limit is told once, when room becomes free",
    "unsigned": "a limit below what was sent is read as much room",
}


class State(NamedTuple):
    """Numbers of TLPs, relative to the last TLP sent, which is number 0."""

    flying: int = 0  #: sent, not yet arrived
    stored: int = 0  #: arrived, not yet drained
    limit: int = 0  #: last TLP that the sender may send
    newest: int = 0  #: ACK of the limit that acted last
    wire: frozenset = frozenset()  #: (ACK, limit)


class Credits(Model):
    """A sender, a receiver with room for some TLPs, and absolute limits between them.

    Parameters
    ----------
    room : int
        Capacity of the receiver, in TLPs.
    modulus : int
        Modulus of limits and ACKs; ``2 * max(room, life) + 1`` or more is enough.
    life : int
        Lifetime of a limit, in TLPs of the sender.
    aged : bool
        Refuse limits with an old ACK.
    withheld : tuple of int
        TLPs by which a limit may be less than the room; all amounts below ``room`` do.
    flaw : str
        None or a key of :data:`FLAWS`.
    """

    def __init__(self, *, room, modulus, life, aged=True, withheld=(0,), flaw=None):
        if flaw is not None and flaw not in FLAWS:
            raise ValueError(f"flaw must be None or one of {', '.join(FLAWS)}, not {flaw!r}")
        self.room, self.modulus, self.life = room, modulus, life
        self.aged, self.withheld, self.flaw = aged, withheld, flaw
        self.ways_on: dict[State, bool] = {}

    def initial(self):
        # the first limits follow BIND, repeated until they act
        return State(limit=max(1, self.room - max(self.withheld)))

    def actions(self, state):
        if self.allowed(state) > 0:
            # numbers count from the last TLP sent, so all other numbers go down by one
            yield "sender: TLP", state._replace(
                flying=state.flying + 1, limit=state.limit - 1, newest=state.newest - 1,
                wire=frozenset((ack - 1, limit - 1) for ack, limit in state.wire
                               if ack > -self.life))
        if state.flying:
            yield "a TLP arrives", state._replace(flying=state.flying - 1, stored=state.stored + 1)
        if state.stored:
            drained = state._replace(stored=state.stored - 1)
            for less in self.withheld:
                yield f"receiver drains a TLP{self._name(less)}", self._tell(drained, less)
        if self.flaw != "never refreshed":
            for less in self.withheld:
                yield (f"receiver tells its limit again{self._name(less)}",
                       self._tell(state, less))
        for ack, limit in sorted(state.wire):
            if not self.aged or self._signed(ack - state.newest) >= 0:
                yield (f"sender takes limit {limit:+}, ACK {ack:+} (counted from its last TLP)",
                       state._replace(limit=limit, newest=ack))

    def _name(self, less):
        return f", withholds {less}" if any(self.withheld) else ""

    def allowed(self, state):
        """Number of TLPs that the sender believes it may send."""
        return state.limit % self.modulus if self.flaw == "unsigned" else self._signed(state.limit)

    def _signed(self, number):
        number %= self.modulus
        return number if number <= self.modulus // 2 else number - self.modulus

    def _tell(self, state, less):
        arrived = -state.flying
        return state._replace(
            wire=state.wire | {(arrived, arrived - state.stored + self.room - less)})

    def wrong(self, state):
        if state.stored > self.room:
            return "a TLP arrives for which there is no room"
        return _goes_on(self, state._replace(wire=frozenset()))


class RelativeState(NamedTuple):
    """Numbers of TLPs and credits."""

    flying: int = 0
    stored: int = 0
    limit: int = 0  #: TLPs that the sender may still send
    wire: int = 0  #: credits on their way back


class RelativeCredits(Model):
    """The rejected scheme: a frame brings one more credit.

    Parameters
    ----------
    room : int
        Capacity of the receiver, in TLPs.
    harm : "none", "loss" or "double"
        Fault of the network for credits.
    """

    def __init__(self, *, room, harm):
        if harm not in ("none", "loss", "double"):
            raise ValueError(f"harm must be none, loss or double, not {harm!r}")
        self.room, self.harm, self.withheld = room, harm, (0,)
        self.ways_on: dict[RelativeState, bool] = {}

    def initial(self):
        return RelativeState(limit=self.room)

    def actions(self, state):
        flying, stored, limit, wire = state
        if limit:
            yield "sender: TLP", RelativeState(flying + 1, stored, limit - 1, wire)
        if flying:
            yield "a TLP arrives", RelativeState(flying - 1, stored + 1, limit, wire)
        if stored:
            yield "receiver drains a TLP, 1 credit back", RelativeState(flying, stored - 1, limit,
                                                                        wire + 1)
        if wire:
            yield "sender takes 1 credit", RelativeState(flying, stored, limit + 1, wire - 1)
            if self.harm == "loss":
                yield "1 credit is lost", RelativeState(flying, stored, limit, wire - 1)
            if self.harm == "double":
                yield "sender takes 1 credit, a copy of it follows", RelativeState(
                    flying, stored, limit + 1, wire)

    @staticmethod
    def allowed(state):
        """Number of TLPs that the sender may send."""
        return state.limit

    def wrong(self, state):
        if state.stored > self.room:
            return "a TLP arrives for which there is no room"
        if sum(state) > self.room:
            return None  # more credits than room; a TLP without room follows soon
        return _goes_on(RelativeCredits(room=self.room, harm="none"), state)


def _goes_on(model, start):
    """Whether a sequence of actions drains everything and returns all credits to the sender."""
    known = model.ways_on.get(start)
    if known is None:
        known = model.ways_on[start] = can_reach(model, start, lambda s: (
            not s.flying and not s.stored
            and model.allowed(s) == max(1, model.room - min(model.withheld))))
    return None if known else "the sender never gets all its credits back"
