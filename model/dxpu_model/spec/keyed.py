"""Keyed sessions: two ends that share a key open a session among strangers that do not have it.

The host sends a HELLO with a nonce of its own and the tag of frames to it. The box keeps a
candidate, and answers with a nonce and a tag of *its* own and a proof: a MAC under the key over all
that both ends have said. The host checks the proof, and shows by a HELLO_DONE with a second proof
that it has seen the same. Only this makes the candidate the box's session. The host sends nothing
else until a frame of the new session has come.

A MAC is a term here: who does not have the key can repeat a MAC that was sent, and can make none.
The numbers of a session begin at a value that only the holders of the key can calculate (``space``:
both nonces), so a frame acts only if its tag and its space are right.

Three kinds of network:

no stranger
    Old frames come again in any order (:class:`~.wire.Wire`). Tags never repeat, and a frame acts
    by its tag alone: what holds here needs no keyed numbers.
``"blind"``
    Besides, a stranger sends anything, and sees nothing that is sent to others. He hits tags, as
    they have 16 bits only; nonces, proofs and numbers he does not hit.
``"sniffer"``
    A stranger sees each frame, and puts new opening frames together from what he has seen. Tags
    repeat. There are no TLPs: in a session that is open such a stranger can inject frames in this
    mode, and only a mode that authenticates each frame could stop him.
"""

from collections.abc import Iterator
from typing import NamedTuple

from .search import Model, can_reach
from .tlps import lost_after, replaced, wrong_tlps
from .wire import Wire

__all__ = ["BOX", "FLAWS", "HOST", "STRANGERS", "Keyed"]

HOST, BOX = 0, 1
NAMES = ("host", "box")

#: Kinds of strangers.
STRANGERS = ("blind", "sniffer")

#: Flawed schemes: name and behaviour.
FLAWS = {
    "counter nonce": "nonces are counted from the reset of their node",
    "proof over one nonce": "each proof covers the nonce of the other end, not its own",
    "stream not bound": "proofs and knock do not cover the stream",
    "parameters not bound": "proofs do not cover what the HELLO said of its sender",
    "tags not bound": "proofs do not cover the tags",
    "one proof for both": "HELLO_ACK and HELLO_DONE have the same proof",
    "any frame with the tag opens": "a frame with the offered tag makes the candidate the session",
    "data before the confirmation": "the host sends TLPs as soon as it has the proof of the box",
    "mode taken from the frame": "a HELLO without proof opens as a row without key does",
    "a pause as lock-out": "after a wrong proof the box hears no opening frame for some time",
    "no knock": "a HELLO needs no knock",
    "numbers from 0": "a session's numbers begin at 0",
    "a FENCE has no number": "a FENCE needs the right tag only",
    "candidate kept": "the box keeps a candidate that has become its session",
    "candidate kept for ever": "no HELLO replaces a candidate",
    "another answer taken": "the host takes another HELLO_ACK for the HELLO that it has opened by",
    "one key at a time": "a new key takes the place of the old one as it is written",
    "new key tried alone": "a host that was given the next key does not use the old one any more",
}


class Opening(NamedTuple):
    """All that host and box say to each other in order to open a session."""

    stream: int
    key: int
    hello: int  #: nonce of the host
    to_host: int  #: tag of frames to the host
    parameters: int  #: what the HELLO says of its sender; 0 unless a stranger wrote it
    answer: int  #: nonce of the box
    to_box: int  #: tag of frames to the box

    def __str__(self):
        return f"nonces {self.hello} and {self.answer}, tags {self.to_host} and {self.to_box}"


class Attempt(NamedTuple):
    """A HELLO for which the host awaits the answer."""

    hello: int
    to_host: int
    key: int


class Session(NamedTuple):
    """State of one end of a session."""

    opening: Opening
    confirmed: bool  #: a frame of this session has come; at the box always
    first: int  #: number of the TLP with SEQ 0
    sent: int = 0  #: next SEQ to send
    acked: int = 0  #: all SEQ below are committed at the other end
    taken: int = 0  #: next SEQ to be committed here


class State(NamedTuple):
    """Both ends, stream by stream, and what has happened."""

    host: tuple[Attempt | Session | None, ...]
    candidate: tuple[Opening | None, ...]
    box: tuple[Session | None, ...]
    keys: tuple[tuple[int, int | None], tuple[int, int | None]] = ((1, None), (1, None))
    wire: int = 0
    nonces: tuple[int, int] = (0, 0)  #: newest nonce of each end
    hellos: int = 0  #: attempts so far
    offers: int = 0  #: candidates so far
    paused: bool = False  #: the box hears no opening frame
    made: tuple[int, int] = (0, 0)  #: TLPs handed to the link at host, box
    got: tuple[tuple, tuple] = ((), ())  #: TLPs out of the link at host, box
    lost: tuple[frozenset, frozenset] = (frozenset(), frozenset())  #: reported as failed
    resets: tuple[int, int] = (0, 0)
    gave_up: int = 0  #: of the host
    fault: str | None = None


#: A nonce and a proof that a stranger made up.
MADE_UP = -1


class Keyed(Model):
    """A host, a box, a network that replays every frame ever sent, and a stranger.

    Parameters
    ----------
    flaw : str
        None for the scheme of the project, or a key of :data:`FLAWS`.
    stranger : str
        None or one of :data:`STRANGERS`.
    streams : int
        Streams with a session each. TLPs are sent in stream 0 only.
    tlps, resets : (int, int)
        Numbers of TLPs sent, and of resets, by host and box.
    gave_up : int
        How often the host gives a session or an attempt up.
    offers : int
        Largest number of candidates that the box makes.
    window : int
        Largest number of unacknowledged frames.
    renewed : bool
        A manager gives both ends the next key, first either of them.
    foretold : bool
        The sniffer knows the next nonce of each end.
    """

    def __init__(self, flaw=None, *, stranger=None, streams=1, tlps=(0, 0), resets=(0, 0),
                 gave_up=1, offers=2, window=2, renewed=False,
                 foretold=False, calm=False):
        if flaw is not None and flaw not in FLAWS:
            raise ValueError(f"flaw must be None or one of {', '.join(FLAWS)}, not {flaw!r}")
        if stranger is not None and stranger not in STRANGERS:
            raise ValueError(f"stranger must be None, blind or sniffer, not {stranger!r}")
        if stranger == "sniffer" and tlps != (0, 0):
            raise ValueError("a sniffer can inject TLPs, so there must be none")
        self.flaw, self.stranger, self.streams = flaw, stranger, streams
        self.tlps, self.resets, self.gave_up = tlps, resets, gave_up
        self.offers, self.window, self.calm = offers, window, calm
        self.renewed, self.foretold = renewed, foretold
        self.wire = Wire()
        self._seen: dict[int, _Seen] = {0: _Seen()}
        self._ways_back: dict[tuple, bool] = {}

    def initial(self):
        none = (None,) * self.streams
        return State(none, none, none)

    # What everyone calculates

    def proof(self, kind, opening):
        """The MAC in a HELLO_ACK or HELLO_DONE, as the tuple of what it covers."""
        told = opening._asdict()
        for flaw, *names in (("stream not bound", "stream"), ("parameters not bound", "parameters"),
                             ("tags not bound", "to_host", "to_box")):
            if self.flaw == flaw:
                for name in names:
                    del told[name]
        if self.flaw == "proof over one nonce":
            del told["answer" if kind == "HELLO_ACK" else "hello"]
        return ("" if self.flaw == "one proof for both" else kind, *told.values())

    def knock(self, key, stream):
        """The MAC in a HELLO."""
        return (key, 0 if self.flaw == "stream not bound" else stream)

    def space(self, opening):
        """Where the numbers of a session begin."""
        return 0 if self.flaw == "numbers from 0" else (opening.hello, opening.answer)

    # Actions

    def actions(self, state):
        for stream in range(self.streams):
            yield from self._host_alone(state, stream)
            if state.box[stream] is not None:
                yield from self._send(state, BOX, stream)
        for end in (HOST, BOX):
            if state.resets[end] < self.resets[end]:
                yield f"{NAMES[end]}: reset", self._reset(state, end)
            if self.renewed and not self.calm and state.keys[end] == (1, None):
                yield f"{NAMES[end]} gets the next key", self._renew(state, end)
        if state.paused:
            yield "the pause ends", state._replace(paused=False)
        if self.calm:
            yield "sent again", self._resend(state)
        for frame in self.wire.frames(state.wire):
            yield from self.take(state, *frame)
        if self.stranger == "blind":
            yield from self._blind(state)
        elif self.stranger == "sniffer":
            yield from self._sniffer(state)

    def _host_alone(self, state, stream):
        now = state.host[stream]
        if now is None:
            yield from self._open(state, stream)
            return
        if isinstance(now, Session) and (now.confirmed
                                         or self.flaw == "data before the confirmation"):
            yield from self._send(state, HOST, stream)
        if state.gave_up < self.gave_up:
            yield "host: gives up", self._give_up(state, stream)

    def _open(self, state, stream):
        current, following = state.keys[HOST]
        keys = {current} if following is None else {current, following}
        if self.flaw == "new key tried alone":
            keys = {max(keys)}
        nonce = state.nonces[HOST] + 1
        for key in sorted(keys):
            for tag in self._tags(state.hellos + 1, ()):
                attempt = Attempt(nonce, tag, key)
                yield (f"host: HELLO(nonce {nonce}, tag {tag}){_in(stream)}{_under(key)}",
                       self._put(state, ("HELLO", BOX, stream, *attempt))._replace(
                           host=replaced(state.host, stream, attempt), hellos=state.hellos + 1,
                           nonces=replaced(state.nonces, HOST, nonce)))

    def _tags(self, fresh, used) -> tuple[int, ...]:
        """Tags that may be drawn. Before a sniffer, who has time, they repeat."""
        if self.stranger == "sniffer":
            return tuple(tag for tag in (1, 2) if tag not in used) or (3,)
        return (fresh,)

    def _send(self, state, end, stream):
        s = (state.host, state.box)[end][stream]
        if stream == 0 and s.sent - s.acked < self.window and state.made[end] < self.tlps[end]:
            tlp = s.first + s.sent
            after = self._put(state, ("DATA", 1 - end, s.opening, s.sent, tlp))
            yield (f"{NAMES[end]}: DATA(tag {_tag(s.opening, 1 - end)}, seq {s.sent}), TLP {tlp}",
                   self._with(after, end, stream, s._replace(sent=s.sent + 1))._replace(
                       made=replaced(state.made, end, tlp + 1)))

    def _give_up(self, state, stream):
        s = state.host[stream]
        after = self._report(state, HOST, stream)._replace(gave_up=state.gave_up + 1)
        if isinstance(s, Session) and s.confirmed:
            after = self._put(after, ("FENCE", BOX, s.opening, 0, 0))
        return self._with(after, HOST, stream, None)

    def _reset(self, state, end):
        for stream in range(self.streams):
            state = self._with(self._report(state, end, stream), end, stream, None)
        if end == BOX:
            state = state._replace(candidate=(None,) * self.streams, paused=False)
        if self.flaw == "counter nonce":
            state = state._replace(nonces=replaced(state.nonces, end, 0))
        return state._replace(resets=replaced(state.resets, end, state.resets[end] + 1))

    def _renew(self, state, end):
        keys = (2, None) if self.flaw == "one key at a time" else (1, 2)
        return state._replace(keys=replaced(state.keys, end, keys))

    # Frames

    def take(self, state, kind, end, *told):
        """Deliver one frame that was sent: the steps that it may lead to."""
        if kind == "HELLO":
            stream, nonce, tag, key = told
            name = f"box takes HELLO(nonce {nonce}, tag {tag}){_in(stream)}{_under(key)}"
            for after in self._take_hello(state, self.knock(key, stream), stream, nonce, tag, 0):
                yield name, after
        elif kind == "HELLO_ACK":
            (opening,) = told
            yield (f"host takes HELLO_ACK({opening}){_in(opening.stream)}",
                   self._take_answer(state, opening, self.proof(kind, opening)))
        elif kind == "HELLO_DONE":
            (opening,) = told
            yield (f"box takes HELLO_DONE({opening}){_in(opening.stream)}",
                   self._take_done(state, opening, self.proof(kind, opening)))
        else:
            opening, number, tlp = told
            tag = _tag(opening, end)
            what = {"DATA": f", seq {number}", "ACK": f", next {number}"}.get(kind, "")
            yield (f"{NAMES[end]} takes {kind}(tag {tag}{what}){_in(opening.stream)}",
                   self._take(state, kind, end, opening.stream, tag, self.space(opening), number,
                              tlp))

    def _take_hello(self, state, knock, stream, nonce, tag, parameters) -> Iterator[State]:
        """The states after a HELLO: a young candidate is not replaced, an old one is."""
        keys = [key for key in state.keys[BOX] if key is not None
                and (knock == self.knock(key, stream) or self.flaw == "no knock")]
        if not keys or state.paused:
            return
        key, old = keys[0], state.candidate[stream]
        if old and (old.key, old.hello, old.to_host, old.parameters) == (key, nonce, tag,
                                                                         parameters):
            yield self._put(state, ("HELLO_ACK", HOST, old))
            return
        if old:
            yield state  # too young
        if state.offers == self.offers or (old and self.flaw == "candidate kept for ever"):
            return
        answer = state.nonces[BOX] + 1
        used = [o.to_box for o in state.candidate if o and o is not old]
        used += [s.opening.to_box for s in state.box if s]
        for fresh in self._tags(state.offers + 1, used):
            offer = Opening(stream, key, nonce, tag, parameters, answer, fresh)
            yield self._put(state, ("HELLO_ACK", HOST, offer))._replace(
                candidate=replaced(state.candidate, stream, offer), offers=state.offers + 1,
                nonces=replaced(state.nonces, BOX, answer))

    def _take_answer(self, state, claimed, proof):
        """A HELLO_ACK that claims to be of ``claimed``: parameters and key are the host's own."""
        stream = claimed.stream
        now = state.host[stream]
        if isinstance(now, Session) and self.flaw == "another answer taken":
            o = now.opening
            if (o.answer, o.to_box) != (claimed.answer, claimed.to_box):
                now = Attempt(o.hello, o.to_host, o.key)
        if not isinstance(now, Attempt) or (now.hello, now.to_host) != (claimed.hello,
                                                                        claimed.to_host):
            return state
        opening = claimed._replace(parameters=0, key=now.key)
        if proof != self.proof("HELLO_ACK", opening):
            return state
        if self._sent(state, "HELLO_DONE", opening):
            state = state._replace(fault="the host begins a session for the second time")
        elif not self._sent(state, "HELLO_ACK", opening):
            state = state._replace(fault="the host begins a session that the box did not offer")
        state = self._torn_down(self._report(state, HOST, stream), HOST, stream)
        after = self._put(state, ("HELLO_DONE", BOX, opening))
        return self._with(after, HOST, stream, Session(opening, False, state.made[HOST]))

    def _take_done(self, state, claimed, proof):
        """A HELLO_DONE that claims to be of ``claimed``; only its nonces and tag are compared."""
        stream = claimed.stream
        told = (claimed.hello, claimed.answer, claimed.to_box)
        opened, offer = state.box[stream], state.candidate[stream]
        if opened and self.flaw != "candidate kept" and _told(opened.opening) == told:
            return self._put(state, ("ACK", HOST, opened.opening, 0, 0))
        if offer is None or _told(offer) != told:
            return state
        right = proof == self.proof("HELLO_DONE", offer)
        if state.paused:
            return state._replace(fault="the right HELLO_DONE is refused") if right else state
        if right:
            return self._begin(state, offer)
        return state._replace(paused=self.flaw == "a pause as lock-out")

    def _begin(self, state, offer):
        """The box makes its candidate the session."""
        stream = offer.stream
        if self._sent(state, "ACK", offer):
            state = state._replace(fault="the box begins a session for the second time")
        elif not self._sent(state, "HELLO_DONE", offer):
            state = state._replace(fault="the box begins a session that the host did not accept")
        state = self._torn_down(self._report(state, BOX, stream), BOX, stream)
        if self.flaw != "candidate kept":
            state = state._replace(candidate=replaced(state.candidate, stream, None))
        if offer.key == state.keys[BOX][1]:
            state = state._replace(keys=replaced(state.keys, BOX, (offer.key, None)))
        after = self._put(state, ("ACK", HOST, offer, 0, 0))
        return self._with(after, BOX, stream, Session(offer, True, state.made[BOX]))

    def _take(self, state, kind, end, stream, tag, space, number, tlp):
        """A frame of a session."""
        offer = state.candidate[stream]
        if (end == BOX and offer and offer.to_box == tag and kind != "FENCE"
                and (self.flaw == "any frame with the tag opens" or offer.key == MADE_UP)):
            state = self._begin(state, offer)
        s = (state.host, state.box)[end][stream]
        if not isinstance(s, Session) or _tag(s.opening, end) != tag:
            return state
        numbered = self.stranger is not None and not (
            kind == "FENCE" and self.flaw == "a FENCE has no number")
        if numbered and space != self.space(s.opening):
            return state
        if not s.confirmed:
            if kind == "FENCE":
                return state
            if not self._sent(state, "ACK", s.opening):
                state = state._replace(fault="the host is in a session that the box did not begin")
            s = s._replace(confirmed=True)
            state = self._with(state, end, stream, s)
            if s.opening.key == state.keys[HOST][1]:
                state = state._replace(keys=replaced(state.keys, HOST, (s.opening.key, None)))
        if kind == "FENCE":
            return self._with(self._report(state, end, stream), end, stream, None)
        if kind == "ACK":
            return self._with(state, end, stream, s._replace(acked=number)) \
                if s.acked < number <= s.sent else state
        if number > s.taken:
            return state  # a gap: the frame comes again
        if number == s.taken:
            state = state._replace(got=replaced(state.got, end, (*state.got[end], tlp)))
            s = s._replace(taken=number + 1)
        return self._with(self._put(state, ("ACK", 1 - end, s.opening, s.taken, 0)), end, stream, s)

    # Strangers

    def _blind(self, state):
        """Frames of one who sees nothing: he hits tags, and nothing that is longer."""
        for stream in range(self.streams):
            told = {"HELLO": list(self._take_hello(state, MADE_UP, stream, MADE_UP, 9, 1))}
            now, offer, opened = state.host[stream], state.candidate[stream], state.box[stream]
            if isinstance(now, Attempt):
                told["HELLO_ACK"] = [self._take_answer(state, Opening(
                    stream, MADE_UP, MADE_UP, now.to_host, 0, MADE_UP, 9), MADE_UP)]
            if isinstance(now, Session):
                for kind in ("DATA", "ACK", "FENCE"):
                    told[f"{kind} to the host"] = [self._take(
                        state, kind, HOST, stream, now.opening.to_host, 0, 0, MADE_UP)]
            for name, o in (("candidate", offer), ("session", opened and opened.opening)):
                if o is None:
                    continue
                # The nonces are right only to examine what a wrong proof does: he has no such luck.
                lucky = o if self.flaw == "a pause as lock-out" else o._replace(hello=MADE_UP)
                told[f"HELLO_DONE with the tag of the {name}"] = [
                    self._take_done(state, lucky, MADE_UP)]
                for kind in ("DATA", "ACK", "FENCE"):
                    told[f"{kind} with the tag of the {name}"] = [self._take(
                        state, kind, BOX, stream, o.to_box, 0, 0, MADE_UP)]
            for kind, states in told.items():
                for after in states:
                    if after._replace(paused=state.paused) != state:
                        after = after._replace(
                            fault=after.fault or f"a {kind} of a stranger has an effect")
                    yield f"stranger: {kind}", after
            if self.flaw == "mode taken from the frame" and not offer:
                yield "stranger: HELLO without proof", state._replace(candidate=replaced(
                    state.candidate, stream, Opening(stream, MADE_UP, MADE_UP, 9, 1, MADE_UP, 8)))

    def _sniffer(self, state):
        """Opening frames put together from all that was seen."""
        seen = self._knowledge(state.wire)
        nonces = {MADE_UP, *seen.nonces}
        if self.foretold:
            nonces |= {nonce + 1 for nonce in state.nonces}
        for stream in range(self.streams):
            for key in (1, 2):
                if (knock := self.knock(key, stream)) not in seen.knocks:
                    continue
                for nonce in sorted(nonces):
                    for tag in (1, 2):
                        for parameters in (0, 1):
                            for after in self._take_hello(state, knock, stream, nonce, tag,
                                                          parameters):
                                yield (f"stranger: HELLO(nonce {nonce}, tag {tag}){_in(stream)}"
                                       f"{_under(key)}", after)
            now = state.host[stream]
            answered = self.flaw == "another answer taken" and isinstance(now, Session)
            if isinstance(now, Attempt) or answered:
                mine = now.opening if isinstance(now, Session) else now
                for nonce in sorted(nonces):
                    for tag in (1, 2, 3):
                        o = Opening(stream, mine.key, mine.hello, mine.to_host, 0, nonce, tag)
                        if (proof := self.proof("HELLO_ACK", o)) in seen.proofs:
                            yield (f"stranger: HELLO_ACK({o}){_in(stream)}",
                                   self._take_answer(state, o, proof))
            offer = state.candidate[stream]
            if offer and (proof := self.proof("HELLO_DONE", offer)) in seen.proofs:
                yield (f"stranger: HELLO_DONE({offer}){_in(stream)}",
                       self._take_done(state, offer, proof))
            if isinstance(now, Session) and not now.confirmed:
                for space in (0, *seen.spaces):
                    yield (f"stranger: ACK(tag {now.opening.to_host}){_in(stream)}",
                           self._take(state, "ACK", HOST, stream, now.opening.to_host, space, 0, 0))

    def _knowledge(self, wire):
        known = self._seen.get(wire)
        if known is None:
            top = wire.bit_length() - 1
            before = self._knowledge(wire & ~(1 << top))
            kind, _, *told = self.wire.frames(wire)[-1]
            if kind == "HELLO":
                stream, nonce, _, key = told
                known = before._replace(nonces=before.nonces | {nonce},
                                        knocks=before.knocks | {self.knock(key, stream)})
            elif kind in ("HELLO_ACK", "HELLO_DONE"):
                (opening,) = told
                known = before._replace(nonces=before.nonces | {opening.hello, opening.answer},
                                        proofs=before.proofs | {self.proof(kind, opening)})
            else:
                known = before._replace(spaces=before.spaces | {self.space(told[0])})
            self._seen[wire] = known
        return known

    # Helpers

    def _put(self, state, *frames):
        return state._replace(wire=self.wire.put(state.wire, *frames))

    def _sent(self, state, kind, opening):
        """Whether such a frame of this opening was ever sent by the right end."""
        return any(frame[0] == kind and frame[2] == opening
                   and (kind != "ACK" or frame[1] == HOST)
                   for frame in self.wire.frames(state.wire))

    @staticmethod
    def _with(state, end, stream, session):
        if end == HOST:
            return state._replace(host=replaced(state.host, stream, session))
        return state._replace(box=replaced(state.box, stream, session))

    def _report(self, state, end, stream):
        """Report the unacknowledged TLPs of a session to their PCIe side as failed."""
        s = (state.host, state.box)[end][stream]
        if not isinstance(s, Session) or s.sent == s.acked:
            return state
        state = state._replace(lost=lost_after(state.lost, end, s))
        if end == HOST and not self._sent(state, "ACK", s.opening):
            state = state._replace(fault="TLPs are lost in a session that the box did not begin")
        return state

    @staticmethod
    def _torn_down(state, end, stream):
        """Note if a session that works is replaced at ``end``."""
        host, box = state.host[stream], state.box[stream]
        if (isinstance(host, Session) and box and host.confirmed and host.opening == box.opening):
            state = state._replace(fault="a session that both ends have open is torn down"
                                   f" at the {NAMES[end]}")
        return state

    # Properties

    def wrong(self, state):
        if state.fault is None:
            host = state.host[0] if isinstance(state.host[0], Session) else None
            if fault := wrong_tlps(state.got, state.lost, (host, state.box[0]), NAMES):
                return fault
            if not self._way_back(state):
                return "no way back to an open session"
        return state.fault

    def _way_back(self, state):
        """Whether the ends alone get into one session in each stream, without a stranger, over a
        network that loses nothing. The only timers needed are the host's.

        Where the box still has what the host has accepted, the host need not give it up.
        """
        for stream in range(self.streams):
            ends = _renamed(state.host[stream], state.candidate[stream], state.box[stream],
                            state.keys)
            known = self._ways_back.get(ends)
            if known is None:
                host, candidate, box = ends[:3]
                agreed = isinstance(host, Session) and host.opening in (candidate,
                                                                        box and box.opening)
                calm = type(self)(self.flaw, tlps=self.tlps, gave_up=0 if agreed else 2, offers=12,
                                  window=self.window, calm=True)
                start = State((host,), (candidate,), (box,), keys=state.keys, made=self.tlps,
                              nonces=(50, 50), hellos=50, offers=8)
                known = self._ways_back[ends] = can_reach(calm, start, _settled)
            if not known:
                return False
        return True

    def _resend(self, state):
        """Send again all frames that have timers; only needed where frames do not live for ever."""
        frames = []
        host, box = state.host[0], state.box[0]
        if isinstance(host, Attempt):
            frames += [("HELLO", BOX, 0, *host)]
        elif isinstance(host, Session) and not host.confirmed:
            frames += [("HELLO_DONE", BOX, host.opening)]
        for end, s in enumerate((host, box)):
            if isinstance(s, Session) and s.confirmed:
                frames += [("DATA", 1 - end, s.opening, seq, s.first + seq)
                           for seq in range(s.acked, s.sent)]
        return self._put(state, *frames)


class _Seen(NamedTuple):
    """What a sniffer has seen."""

    nonces: frozenset = frozenset()
    knocks: frozenset = frozenset()
    proofs: frozenset = frozenset()
    spaces: frozenset = frozenset()


def _settled(state):
    (host,), (box,) = state.host, state.box
    return bool(isinstance(host, Session) and host.confirmed and box
                and host.opening == box.opening
                and host.sent == host.acked and box.sent == box.acked)


def _tag(opening, end):
    """The tag of frames to ``end``."""
    return opening.to_box if end == BOX else opening.to_host


def _told(opening):
    """What a HELLO_DONE says that is compared before its proof."""
    return opening.hello, opening.answer, opening.to_box


def _in(stream):
    return f" in stream {stream}" if stream else ""


def _under(key):
    return " under the next key" if key == 2 else ""


def _renamed(host, candidate, box, keys):
    """The ends in stream 0, with nonces and tags numbered by first appearance and TLPs counted
    from 0, and the keys.

    What happens next depends only on which of them are equal, so few different situations remain.
    """
    names: tuple[dict[int, int], ...] = ({}, {}, {}, {})

    def number(which, value):
        return names[which].setdefault(value, len(names[which]) + 1)

    def opening(o):
        return o._replace(stream=0, hello=number(0, o.hello), to_host=number(1, o.to_host),
                          answer=number(2, o.answer), to_box=number(3, o.to_box))

    if isinstance(host, Attempt):
        host = host._replace(hello=number(0, host.hello), to_host=number(1, host.to_host))
    elif host:
        host = host._replace(opening=opening(host.opening), first=0)
    if box:
        box = box._replace(opening=opening(box.opening), first=0)
    return host, candidate and opening(candidate), box, keys
