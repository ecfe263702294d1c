"""Golden model of the two ends that open a keyed session, with their timers.

It follows ``docs/reference/keyed-sessions.md`` rule by rule; :mod:`dxpu_model.spec.keyed` shows why
the rules are as they are. No sockets and no clocks: every function gets the present time, in
microseconds.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from dxpu.fabric.wire.format import BODY_CRC_BYTES, TAG_NONE
from dxpu.fabric.wire.frame_types import Body

from .crc import crc32c
from .keyed import (
    HELLO, HELLO_ACK, HELLO_DONE, NONCE_BYTES, PARAMETER_BYTES, Ends, Opening, same,
)

__all__ = ["Answerer", "Begun", "Keys", "Opener", "OpeningFrame"]

PROOF_BYTES = 16
#: Waits for an answer, one after each transmission.
WAITS = (250, 500, 1000, 2000, 4000)
#: A candidate is not replaced, and not answered again, for so long.
YOUNG, ANSWERED = 250, 50

_TAG_OFFERED, _TAG_ECHOED = (slice(at, at + size) for at, size in (
    Body.HELLO.find("tag offered"), Body.HELLO.find("tag echoed")))


def _with_tags(parameters: bytes, nonce: bytes, offered: int, echoed: int) -> bytes:
    """The fields of HELLO with this nonce and these tags."""
    at, size = Body.HELLO.find("nonce")
    made = bytearray(parameters)
    made[at:at + size] = nonce[:size]
    made[_TAG_OFFERED], made[_TAG_ECHOED] = offered.to_bytes(2, "big"), echoed.to_bytes(2, "big")
    return bytes(made)


@dataclass(frozen=True)
class OpeningFrame:
    """A HELLO, HELLO_ACK or HELLO_DONE.

    Attributes
    ----------
    kind, ends, tag : int, Ends, int
        Of the header.
    fields, opener_nonce, answerer_nonce, proof : bytes
        Of the body: 28, 8, 8 and 16 bytes.
    path : int
    """

    kind: int
    ends: Ends
    tag: int
    fields: bytes
    opener_nonce: bytes
    answerer_nonce: bytes
    proof: bytes
    path: int = 0

    @property
    def offered(self) -> int:
        """Tag that the sender offers."""
        return int.from_bytes(self.fields[_TAG_OFFERED], "big")

    @property
    def echoed(self) -> int:
        """Tag that the sender was offered."""
        return int.from_bytes(self.fields[_TAG_ECHOED], "big")

    @property
    def sound(self) -> bool:
        """The nonce of the fields is the first half of the opener's."""
        at, size = Body.HELLO.find("nonce")
        return self.fields[at:at + size] == self.opener_nonce[:size]

    @property
    def _text(self) -> bytes:
        return self.fields + self.opener_nonce + self.answerer_nonce + self.proof

    @property
    def crc(self) -> bytes:
        """CRC-32C of the body."""
        return crc32c(self._text).to_bytes(BODY_CRC_BYTES, "little")

    def body(self) -> bytes:
        """The 64 bytes behind the header."""
        return self._text + self.crc

    @classmethod
    def parse(cls, kind: int, ends: Ends, tag: int, body: bytes, path: int = 0) -> "OpeningFrame":
        """The frame with this header and body.

        Raises
        ------
        ValueError
            If length or CRC of the body are wrong.
        """
        sizes = (PARAMETER_BYTES, NONCE_BYTES, NONCE_BYTES, PROOF_BYTES)
        size = sum(sizes)
        if len(body) != size + BODY_CRC_BYTES:
            raise ValueError(f"body must have {size + BODY_CRC_BYTES} bytes, not {len(body)}")
        if crc32c(body[:size]) != int.from_bytes(body[size:], "little"):
            raise ValueError("the CRC of the body is wrong")
        fields, opener, answerer, proof = (
            body[sum(sizes[:n]):sum(sizes[:n + 1])] for n in range(len(sizes)))
        return cls(kind, ends, tag, fields, opener, answerer, proof, path)


def _seen(answer: OpeningFrame) -> tuple[object, ...]:
    """What shows that a HELLO_ACK is the same one again: tags, nonces, proof."""
    return (answer.kind, answer.ends, answer.tag, answer.offered, answer.echoed,
            answer.opener_nonce, answer.answerer_nonce, answer.proof)


@dataclass(frozen=True)
class Begun:
    """A session begins anew at this end.

    Attributes
    ----------
    opening : Opening
    to_opener, to_answerer : int
        Tags of frames to either end.
    opener_seq, answerer_seq : int
        Number of the first frame of either end.
    """

    opening: Opening
    to_opener: int
    to_answerer: int
    opener_seq: int
    answerer_seq: int

    @classmethod
    def under(cls, key: bytes, opening: Opening) -> "Begun":
        """The session that ``opening`` makes."""
        to_opener, to_answerer = (int.from_bytes(fields[_TAG_OFFERED], "big")
                                  for fields in (opening.hello, opening.answer))
        return cls(opening, to_opener, to_answerer, *opening.first_numbers(key))


@dataclass
class Keys:
    """Keys of a pair at one end: the current one, and the next one or None."""

    current: bytes
    following: bytes | None = None

    def made_current(self, key: bytes) -> None:
        """A session was opened under ``key``."""
        if key == self.following:
            self.current, self.following = key, None


#: Draws so many random bytes, or a tag that is neither in use nor offered.
Draw = Callable[[int], bytes]
DrawTag = Callable[[], int]


class Opener:
    """The host's end of a session.

    Parameters
    ----------
    ends : Ends
    keys : Keys
    parameters : bytes
        The fields of its HELLO; nonce and tags are filled in.
    paths : int
    draw, draw_tag : function
    now : float

    Attributes
    ----------
    session : Begun or None
        Begun, and perhaps not ``confirmed`` yet.
    counters : Counter
        Frames that fit nothing (``stale``), and with a wrong proof (``proof``).
    """

    def __init__(self, ends: Ends, keys: Keys, parameters: bytes, *, paths: int, draw: Draw,
                 draw_tag: DrawTag, now: float) -> None:
        self.ends, self.keys = ends, keys
        self._parameters, self._paths = parameters, paths
        self._draw, self._draw_tag = draw, draw_tag
        self.session: Begun | None = None
        self.confirmed = False
        self.counters: Counter[str] = Counter()
        self._sends: OpeningFrame | None = None
        self._answer: tuple[object, ...] | None = None  # the HELLO_ACK of the session
        self._key, self._alternate, self._path = keys.current, False, 0
        self._tries, self._at = 0, now

    def tick(self, now: float) -> list[OpeningFrame]:
        """What is to be sent by now."""
        if self.confirmed or now < self._at:
            return []
        if self._sends is None or self._tries == len(WAITS):
            self._attempt()
        return self._transmit(now)

    def deadline(self) -> float | None:
        """Time of the next call of :meth:`tick`, if nothing comes before."""
        return None if self.confirmed else self._at

    def take(self, frame: OpeningFrame, now: float) -> list[OpeningFrame]:
        """Handle an opening frame for this end; returns what is sent at once. If it begins a
        session this is :attr:`session`."""
        hello = self._sends
        if self.session is not None:
            if not self.confirmed and frame.sound and self._answer == _seen(frame):
                return self._transmit(now, again=True)
            self.counters["stale"] += 1
            return []
        if (hello is None or frame.kind != HELLO_ACK or frame.ends != self.ends
                or (frame.tag, frame.echoed) != (hello.offered, hello.offered)
                or frame.opener_nonce != hello.opener_nonce or not frame.sound):
            self.counters["stale"] += 1
            return []
        opening = Opening(self.ends, hello.fields, frame.fields, hello.opener_nonce,
                          frame.answerer_nonce)
        if not same(frame.proof, opening.proof(self._key, HELLO_ACK)):
            self.counters["proof"] += 1
            return []
        self.session, self._answer = Begun.under(self._key, opening), _seen(frame)
        self._sends = OpeningFrame(
            HELLO_DONE, self.ends, frame.offered,
            _with_tags(hello.fields, hello.opener_nonce, hello.offered, frame.offered),
            hello.opener_nonce, frame.answerer_nonce, opening.proof(self._key, HELLO_DONE))
        self._tries = 0
        return self._transmit(now)

    def heard(self) -> None:
        """A frame with tag and numbers of :attr:`session` came."""
        if self.session is not None and not self.confirmed:
            self.confirmed = True
            self.keys.made_current(self._key)

    def end(self, now: float) -> None:
        """The session is given up, or this end was reset."""
        self._forget()
        self._at = now

    def _forget(self) -> None:
        self.session, self.confirmed, self._sends, self._answer = None, False, None, None
        self._tries = 0

    def _attempt(self) -> None:
        """Another HELLO, with the other key while there are two."""
        self._forget()
        self._key = self.keys.current
        if self.keys.following is not None and self._alternate:
            self._key = self.keys.following
        self._alternate = not self._alternate
        nonce, tag = self._draw(NONCE_BYTES), self._draw_tag()
        self._sends = OpeningFrame(
            HELLO, self.ends, TAG_NONE, _with_tags(self._parameters, nonce, tag, TAG_NONE), nonce,
            bytes(NONCE_BYTES), self.ends.knock(self._key))

    def _transmit(self, now: float, again: bool = False) -> list[OpeningFrame]:
        assert self._sends is not None
        sent = replace(self._sends, path=self._path)
        self._path = (self._path + 1) % self._paths
        if not again:
            self._at = now + WAITS[self._tries]
            self._tries += 1
        return [sent]


class Answerer:
    """The box's end of a session.

    Parameters
    ----------
    ends, keys, draw, draw_tag
        Of :class:`Opener`.
    parameters : bytes
        The fields of its HELLO_ACK; nonce and tags are filled in.

    Attributes
    ----------
    session : Begun or None
    counters : Counter
        HELLOs with a wrong knock (``knock``), HELLO_DONEs with a wrong proof (``proof``), and what
        fits nothing (``stale``).
    """

    def __init__(self, ends: Ends, keys: Keys, parameters: bytes, *, draw: Draw,
                 draw_tag: DrawTag) -> None:
        self.ends, self.keys = ends, keys
        self._parameters, self._draw, self._draw_tag = parameters, draw, draw_tag
        self.session: Begun | None = None
        self.counters: Counter[str] = Counter()
        self._done: bytes | None = None  # proof of the HELLO_DONE of the session
        self._candidate: _Candidate | None = None

    def take(self, frame: OpeningFrame, now: float) -> tuple[list[OpeningFrame], bool]:
        """Handle an opening frame for this end: what is sent, and whether an ACK of
        :attr:`session` goes out at once, which may have begun just now."""
        if frame.ends != self.ends or frame.kind not in (HELLO, HELLO_DONE):
            self.counters["stale"] += 1
            return [], False
        if frame.kind == HELLO:
            return self._hello(frame, now), False
        return [], self._is_done(frame)

    def end(self) -> None:
        """The session is given up, or this end was reset."""
        self.session, self._done, self._candidate = None, None, None

    def _hello(self, frame: OpeningFrame, now: float) -> list[OpeningFrame]:
        key = next((key for key in (self.keys.current, self.keys.following)
                    if key is not None and same(frame.proof, self.ends.knock(key))), None)
        if key is None:
            self.counters["knock"] += 1
            return []
        if (frame.tag, frame.echoed) != (TAG_NONE, TAG_NONE) or frame.offered == TAG_NONE or (
                frame.answerer_nonce != bytes(NONCE_BYTES) or not frame.sound):
            self.counters["stale"] += 1
            return []
        old = self._candidate
        if old and (frame.opener_nonce, frame.crc) == (old.hello.opener_nonce, old.hello.crc):
            if now < old.answered + ANSWERED:
                return []
        elif old and now < old.made + YOUNG:
            self.counters["stale"] += 1
            return []
        else:
            self._candidate = old = self._offer(frame, key, now)
        old.answered = now
        return [replace(old.answer, path=frame.path)]

    def _offer(self, hello: OpeningFrame, key: bytes, now: float) -> "_Candidate":
        nonce, tag = self._draw(NONCE_BYTES), self._draw_tag()
        fields = _with_tags(self._parameters, hello.opener_nonce, tag, hello.offered)
        opening = Opening(self.ends, hello.fields, fields, hello.opener_nonce, nonce)
        answer = OpeningFrame(HELLO_ACK, self.ends, hello.offered, fields, hello.opener_nonce,
                              nonce, opening.proof(key, HELLO_ACK))
        return _Candidate(hello, answer, opening, key, opening.proof(key, HELLO_DONE), now, now)

    def _is_done(self, frame: OpeningFrame) -> bool:
        def fits(offer: "_Candidate") -> bool:
            tag, opening = offer.answer.offered, offer.opening
            return frame.sound and (
                frame.tag, frame.offered, frame.echoed, frame.opener_nonce, frame.answerer_nonce
            ) == (tag, offer.hello.offered, tag, opening.opener_nonce, opening.answerer_nonce)

        offer = self._candidate
        if self._done and same(frame.proof, self._done):
            return True
        if offer is None or not fits(offer):
            self.counters["stale"] += 1
            return False
        if not same(frame.proof, offer.done):
            self.counters["proof"] += 1
            return False
        self.session, self._done = Begun.under(offer.key, offer.opening), offer.done
        self._candidate = None
        self.keys.made_current(offer.key)
        return True


@dataclass
class _Candidate:
    """What the box offers, with the times at which it did."""

    hello: OpeningFrame
    answer: OpeningFrame
    opening: Opening
    key: bytes
    done: bytes
    made: float
    answered: float
