"""Sessions: two ends that lose their state agree on the start of numbering, despite old frames.

The host opens by a HELLO with a nonce that is new each time. The nonce is also the tag of frames to
the host. The box answers each nonce with a HELLO_ACK with a *fresh* tag of its own. This tag is
only a candidate: as the HELLO may be an old frame, the box keeps its session until a frame with the
offered tag arrives. From then on every frame carries its receiver's tag. A reset end has forgotten
everything. An end that gives up reports its unacknowledged TLPs to its PCIe side, and only then
opens anew.

TLPs are numbered over all sessions as they are handed to the link. Only the model knows this
number, and ``born`` (the host's session in which a frame was sent). The properties in
:meth:`Sessions.wrong` use both.

Inside a session this model accepts frames strictly in order; :mod:`.arq` examines ARQ. Frames live
for ever and tags never repeat; :mod:`.quiet` justifies this assumption.
"""

from typing import NamedTuple

from .search import Model, can_reach
from .tlps import lost_after, replaced, wrong_tlps
from .wire import Wire

__all__ = ["SCHEMES", "Sessions"]

HOST, BOX = 0, 1
NAMES = ("host", "box")

#: Flawed schemes: name and behaviour.
SCHEMES = {
    "no tag": "DATA and ACK carry no tag: every frame is of the session that is open",
    "no tag in ACK": "DATA carries the tag, ACK does not",
    "silent resync": "a peer that has lost its state is met with a new tag, and the rest is resent",
    "resumed": "an end that was reset takes its old session up again, from number 0",
    "new space at fail-over": "what is not acknowledged is sent again in a new session",
    "1-bit epoch": "tags are the number of the session modulo 2",
    "tag per boot": "an end has one tag from reset to reset",
    "one tag for two candidates": "the box takes a fresh tag when a session opens, not for a nonce",
    "two-way open": "a HELLO replaces the box's session at once",
    "no report": "an end that gives up opens anew without a word to its PCIe side",
}


class Session(NamedTuple):
    """State of one end of a session."""

    mine: int  #: tag in frames to this end
    theirs: int  #: tag in frames to the other end
    born: int  #: host: number of its HELLO; box: ``born`` of the frame that opened the session
    again: bool  #: the box has had another session with frames of the same ``born``
    first: int  #: number of the TLP with SEQ 0
    sent: int = 0  #: next SEQ to send
    acked: int = 0  #: all SEQ below are committed at the other end
    taken: int = 0  #: next SEQ to be committed here


class State(NamedTuple):
    """Both ends, the network, and the events at the PCIe sides."""

    ends: tuple[Session | None, Session | None] = (None, None)
    hello: tuple[int, int] | None = None  #: (nonce, born) for which the host awaits an answer
    candidate: tuple[int, int] | None = None  #: the box offered (nonce, tag)
    wire: int = 0
    made: tuple[int, int] = (0, 0)  #: TLPs handed to the link at host, box
    got: tuple[tuple, tuple] = ((), ())  #: TLPs out of the link at host, box
    lost: tuple[frozenset, frozenset] = (frozenset(), frozenset())  #: reported as failed
    hellos: int = 0  #: sessions opened so far
    offers: int = 0  #: tags offered by the box so far
    resets: tuple[int, int] = (0, 0)
    gave_up: tuple[int, int] = (0, 0)
    newest: int = 0  #: newest session of the host from which the box has taken a frame
    fault: str | None = None


class Sessions(Model):
    """A host, a box, and a network that replays every frame ever sent.

    Parameters
    ----------
    scheme : str
        None for the correct scheme, or a key of :data:`SCHEMES`.
    tlps, resets, gave_up : (int, int)
        Numbers of TLPs sent, of resets, and of sessions given up, by host and box.
    window : int
        Largest number of unacknowledged frames.
    offers : int
        Largest number of tags that the box offers (each costs a replayed HELLO).
    """

    def __init__(self, scheme=None, *, tlps=(2, 0), resets=(1, 1), gave_up=(1, 0), window=2,
                 offers=4, calm=False):
        if scheme is not None and scheme not in SCHEMES:
            raise ValueError(f"scheme must be None or one of {', '.join(SCHEMES)}, not {scheme!r}")
        self.scheme, self.tlps, self.window, self.offers = scheme, tlps, window, offers
        self.resets, self.gave_up, self.calm = resets, gave_up, calm
        self.wire = Wire()
        self._ways_back: dict[State, bool] = {}

    def initial(self):
        return State()

    # Actions

    def actions(self, state):
        if state.ends[HOST] is None and state.hello is None:
            yield self._open(state)
        for end in (HOST, BOX):
            if state.ends[end] is not None:
                yield from self._send(state, end)
            if state.gave_up[end] < self.gave_up[end]:
                yield from self._give_up(state, end)
            if state.resets[end] < self.resets[end]:
                yield f"{NAMES[end]}: reset", self._reset(state, end)
        if self.calm:
            yield "sent again", self._resend(state)
        for frame in self.wire.frames(state.wire):
            yield from self.take(state, *frame)

    def _open(self, state):
        born = state.hellos + 1
        nonce = {"1-bit epoch": 1 + born % 2, "tag per boot": 1 + state.resets[HOST]}.get(
            self.scheme, born)
        return f"host: HELLO(nonce {nonce})", state._replace(
            hello=(nonce, born), hellos=born,
            wire=self.wire.put(state.wire, ("HELLO", BOX, 0, nonce, 0, born)))

    def _send(self, state, end):
        s = state.ends[end]
        if s.sent - s.acked < self.window and state.made[end] < self.tlps[end]:
            tlp = s.first + s.sent
            wire = self.wire.put(state.wire, ("DATA", 1 - end, s.theirs, s.sent, tlp, s.born))
            yield (f"{NAMES[end]}: DATA(tag {s.theirs}, seq {s.sent}), TLP {tlp}",
                   self._with(state, end, s._replace(sent=s.sent + 1))._replace(
                       wire=wire, made=replaced(state.made, end, tlp + 1)))

    def _give_up(self, state, end):
        s = state.ends[end]
        if s is None and not (end == HOST and state.hello):
            return
        gone = state._replace(gave_up=replaced(state.gave_up, end, state.gave_up[end] + 1))
        if s is not None and self.scheme == "new space at fail-over":
            gone = gone._replace(made=replaced(state.made, end, s.first + s.acked))
        elif self.scheme != "no report":
            gone = self._report(gone, end)
        gone = self._end(gone, end)
        if s is not None:
            gone = gone._replace(wire=self.wire.put(gone.wire,
                                                    ("FENCE", 1 - end, s.theirs, 0, 0, s.born)))
        yield f"{NAMES[end]}: gives up", gone

    def _reset(self, state, end):
        s = state.ends[end]
        after = self._report(state, end)._replace(
            resets=replaced(state.resets, end, state.resets[end] + 1))
        if s is not None and self.scheme == "resumed":
            s = Session(s.mine, s.theirs, s.born, s.again, after.made[end])
        else:
            s = None
        return self._with(self._end(after, end), end, s)

    def take(self, state, kind, end, tag, number, tlp, born):
        """Deliver one frame. ``number`` is its nonce, SEQ or ACK; only the model knows ``tlp``,
        ``born``."""
        name = f"{NAMES[end]} takes {kind}"
        if kind == "HELLO":
            yield f"{name}(nonce {number})", self._take_hello(state, number, born)
            return
        if kind == "HELLO_ACK":
            yield f"{name}(nonce {tag}, tag {number})", self._take_offer(state, tag, number)
            return
        # A FENCE confirms nothing: what its sender gave up need not open here first.
        if (kind != "FENCE" and end == BOX and state.candidate
                and self._fits(tag, state.candidate[1])
                and not (state.ends[BOX] and self._fits(tag, state.ends[BOX].mine))):
            state = self._confirm(state, born)
        s = state.ends[end]
        if s is None or not self._fits(tag, s.mine, kind):
            return
        if kind == "FENCE":
            after = self._end(self._report(state, end), end)
        else:
            after = self._take(state, end, s, kind, number, tlp)
            if after is not state and born != s.born:
                after = after._replace(
                    fault=f"{kind} of session {born} acted in a session with frames of {s.born}")
        what = f"seq {number}" if kind == "DATA" else f"next {number}"
        yield f"{name}(tag {tag}{'' if kind == 'FENCE' else ', ' + what})", after

    def _take_hello(self, state, nonce, born):
        s = state.ends[BOX]
        if s is not None and s.theirs == nonce:  # the answer was lost
            return state._replace(wire=self.wire.put(
                state.wire, ("HELLO_ACK", HOST, nonce, s.mine, 0, born)))
        if state.candidate and state.candidate[0] == nonce:
            return state._replace(wire=self.wire.put(
                state.wire, ("HELLO_ACK", HOST, nonce, state.candidate[1], 0, born)))
        if state.offers == self.offers:
            return state
        fresh = {"1-bit epoch": 1 + state.offers % 2, "tag per boot": 1 + state.resets[BOX],
                 "one tag for two candidates": 1 + (s.mine if s else 0)}.get(
                     self.scheme, 1 + state.offers)
        after = state._replace(
            candidate=(nonce, fresh), offers=state.offers + 1,
            wire=self.wire.put(state.wire, ("HELLO_ACK", HOST, nonce, fresh, 0, born)))
        return self._confirm(after, born) if self.scheme == "two-way open" else after

    def _confirm(self, state, born):
        """A frame of the host's session ``born`` turns the candidate into the box's session."""
        old, host = state.ends[BOX], state.ends[HOST]
        state = self._report(state, BOX)
        nonce, tag = state.candidate
        state = self._with(state, BOX, Session(tag, nonce, born, born <= state.newest,
                                              state.made[BOX]))
        if old and host and (old.mine, old.theirs, old.born) == (host.theirs, host.mine, host.born):
            state = state._replace(fault="a session that both ends have open was torn down")
        return state._replace(candidate=None, newest=max(born, state.newest))

    def _take_offer(self, state, nonce, tag):
        s = state.ends[HOST]
        if state.hello and state.hello[0] == nonce:
            s = Session(nonce, tag, state.hello[1], False, state.made[HOST])
            return self._with(state, HOST, s)._replace(
                hello=None, wire=self.wire.put(state.wire, ("ACK", BOX, tag, 0, 0, s.born)))
        if s and self.scheme == "silent resync" and s.mine == nonce and s.theirs != tag:
            frames = [("DATA", BOX, tag, seq, s.first + seq, s.born)
                      for seq in range(s.acked, s.sent)]
            return self._with(state, HOST, s._replace(theirs=tag))._replace(
                wire=self.wire.put(state.wire, *frames))
        return state

    def _take(self, state, end, s, kind, number, tlp):
        if kind == "ACK":
            return self._with(state, end, s._replace(acked=number)) \
                if s.acked < number <= s.sent else state
        if number > s.taken:
            return state  # a gap: the frame comes again
        if number == s.taken:
            state = state._replace(got=replaced(state.got, end, (*state.got[end], tlp)))
            if s.again:
                state = state._replace(fault=f"TLP {tlp} of an old session came out in a new one")
            s = s._replace(taken=number + 1)
        return self._with(state, end, s)._replace(
            wire=self.wire.put(state.wire, ("ACK", 1 - end, s.theirs, s.taken, 0, s.born)))

    # Helpers

    def _fits(self, tag, mine, kind=None):
        return (tag == mine or self.scheme == "no tag"
                or (self.scheme == "no tag in ACK" and kind == "ACK"))

    @staticmethod
    def _with(state, end, session):
        return state._replace(ends=replaced(state.ends, end, session))

    def _end(self, state, end):
        """End the session of ``end``, if it has one: it forgets its HELLO or candidate, too."""
        after = self._with(state, end, None)
        return after._replace(hello=None) if end == HOST else after._replace(candidate=None)

    @staticmethod
    def _report(state, end):
        """Report the unacknowledged TLPs of ``end`` to its PCIe side as failed."""
        s = state.ends[end]
        if s is None or s.sent == s.acked:
            return state
        return state._replace(lost=lost_after(state.lost, end, s))

    # Properties

    def wrong(self, state):
        if fault := wrong_tlps(state.got, state.lost, state.ends, NAMES):
            return fault
        if state.fault is None and not self._way_back(state):
            return "no way back to an open session"
        return state.fault

    def _way_back(self, state):
        """Whether the ends alone get into one session, over a network without further faults.

        The only timer needed is the give-up timer of the host.
        """
        ends, hello, candidate = _renamed(state)
        start = State(ends, hello, candidate, made=self.tlps, hellos=8, offers=8)
        known = self._ways_back.get(start)
        if known is None:
            calm = type(self)(self.scheme, tlps=self.tlps, resets=(0, 0), gave_up=(1, 0),
                              window=self.window, offers=12, calm=True)
            known = self._ways_back[start] = can_reach(calm, start, _settled)
        return known

    def _resend(self, state):
        """Send again all frames that have timers; only needed where frames do not live for ever."""
        frames = []
        if state.hello:
            frames += [("HELLO", BOX, 0, state.hello[0], 0, state.hello[1])]
        for end, s in enumerate(state.ends):
            if s is not None:
                frames += [("ACK", 1 - end, s.theirs, s.taken, 0, s.born)]
                frames += [("DATA", 1 - end, s.theirs, seq, s.first + seq, s.born)
                           for seq in range(s.acked, s.sent)]
        return state._replace(wire=self.wire.put(state.wire, *frames))


def _settled(state):
    host, box = state.ends
    return bool(host and box and (host.mine, host.theirs) == (box.theirs, box.mine)
                and host.sent == host.acked and box.sent == box.acked)


def _renamed(state):
    """Ends, HELLO and candidate, with tags renumbered by first appearance and TLPs counted from 0.

    The next actions depend only on the equality of tags, so few different situations remain.
    """
    host, box = state.ends
    nonces: dict[int, int] = {}
    tags: dict[int, int] = {}

    def number(names, tag):
        return names.setdefault(tag, len(names) + 1)

    if host:
        host = host._replace(mine=number(nonces, host.mine), theirs=number(tags, host.theirs),
                             born=0, first=0)
    hello = state.hello and (number(nonces, state.hello[0]), 0)
    if box:
        box = box._replace(mine=number(tags, box.mine), theirs=number(nonces, box.theirs),
                           born=0, first=0)
    candidate = state.candidate and (number(nonces, state.candidate[0]),
                                     number(tags, state.candidate[1]))
    return (host, box), hello, candidate
