"""Numbers of frames: what is kept until it is acknowledged, and what comes next (go-back-N).

No sockets and no clocks: every function is told what time it is, in seconds.

Ref: docs/reference/wire-format.md; docs/architecture.md, "Retransmission"
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum

from dxpu_model.wire import Event, Tlps

__all__ = ["MODULUS", "Receiver", "Sender", "Sent", "Verdict", "ahead"]

MODULUS = 1 << 24


def ahead(number: int, base: int) -> int:
    """How far ``number`` is ahead of ``base``; half of :data:`MODULUS` and more means behind."""
    return (number - base) % MODULUS


@dataclass(frozen=True)
class Sent:
    """A frame with a number, as it is kept."""

    seq: int
    slot: int
    body: Tlps | Event


class Sender:
    """Frames that were sent and are not acknowledged.

    After a NAK all of them are sent again. When nothing was acknowledged for ``wait`` the oldest is
    sent again, as a probe that asks for an acknowledgement; when that comes, so are the others.
    The wait doubles with each of :data:`TRANSMISSIONS`; after so many rounds of that the sender has
    ``failed``, for ever.

    Parameters
    ----------
    wait : float
    window : int
        Frames that may be unacknowledged.
    """

    TRANSMISSIONS = 4
    #: Round on one path: an Ethernet switch that is full may drop so many.
    ROUNDS = 2

    def __init__(self, wait: float, window: int) -> None:
        self._wait, self._window = wait, window
        #: Number of the next new frame, and of the oldest that is not acknowledged.
        self.next = self.oldest = 0
        self.failed = False
        self._kept: deque[Sent] = deque()
        self._tries = self._round = 0
        self._probing = self._rewind = False
        self._until = 0.0

    @property
    def room(self) -> bool:
        """Whether a new frame may be sent."""
        return not self.failed and not self._rewind and len(self._kept) < self._window

    def add(self, slot: int, body: Tlps | Event, now: float) -> Sent:
        """Number and keep a new frame, which the caller sends."""
        sent = Sent(self.next, slot, body)
        if not self._kept:
            self._until = now + self._wait
        self._kept.append(sent)
        self.next = (self.next + 1) % MODULUS
        return sent

    def has(self, seq: int) -> bool:
        """Whether frame ``seq`` is not acknowledged."""
        return ahead(seq, self.oldest) < len(self._kept)

    def acknowledged(self, ack: int, now: float) -> bool:
        """All before ``ack`` arrived. Whether that is not old news, and no forgery."""
        count = ahead(ack, self.oldest)
        if count > len(self._kept):
            return False
        for _ in range(count):
            self._kept.popleft()
        self.oldest = ack
        if count:
            self._rewind = bool(self._kept) and (self._rewind or self._probing)
            self._probing, self._tries, self._round = False, 0, 0
            self._until = now + self._wait
        return True

    def back(self) -> None:
        """A NAK: send all again."""
        self._rewind = bool(self._kept)

    def again(self, now: float) -> list[tuple[Sent, bool]]:
        """What is to be sent again now, in order, and whether it is a probe."""
        if self.failed:
            return []
        if self._rewind:
            self._rewind = False
            self._until = now + self._wait * 2 ** self._tries
            return [(sent, False) for sent in self._kept]
        if not self._kept or now < self._until:
            return []
        self._tries += 1
        if self._tries == self.TRANSMISSIONS:
            self._tries, self._round = 0, self._round + 1
            if self._round == self.ROUNDS:
                self.failed = True
                return []
        self._probing = True
        self._until = now + self._wait * 2 ** self._tries
        return [(self._kept[0], True)]

    def deadline(self) -> float | None:
        """When :meth:`again` is to be asked, if nothing comes before."""
        return self._until if self._kept and not self.failed else None


class Verdict(Enum):
    """What becomes of a frame with a number."""

    NEXT = 0  #: takes effect
    OLD = 1  #: took effect before
    GAP = 2  #: frames before it are missing


class Receiver:
    """What came in its turn, and what the peer is to be told of that.

    There is one NAK for each missing frame, another one each time that the frames behind it begin
    anew, and another one if they do not after ``nak``, since then the NAK was lost.

    Parameters
    ----------
    ack, nak : float
        How long an acknowledgement may wait; when a NAK is repeated.
    """

    def __init__(self, ack: float, nak: float) -> None:
        self._ack, self._nak = ack, nak
        #: Number of the next frame.
        self.expected = 0
        self._owed: float | None = None  #: an acknowledgement, not later than that
        self._slot = 0  #: of the frame to be answered
        self._wants_nak = False
        #: While a frame is missing: the newest after it, and when it was asked for.
        self._newest: int | None = None
        self._asked = 0.0

    def take(self, seq: int, slot: int, urgent: bool, now: float) -> Verdict:
        """A frame with a number came."""
        distance = ahead(seq, self.expected)
        if distance == 0:
            self.expected = (seq + 1) % MODULUS
            self._newest, self._wants_nak = None, False
            self.owe(slot, urgent, now)
            return Verdict.NEXT
        self._slot = slot
        if distance >= MODULUS // 2:
            self.owe(slot, True, now)
            return Verdict.OLD
        anew = self._newest is not None and ahead(self._newest, seq) < MODULUS // 2
        if self._newest is None or anew or now >= self._asked + self._nak:
            self._wants_nak, self._asked = True, now
        self._newest = seq
        return Verdict.GAP

    def owe(self, slot: int, urgent: bool, now: float) -> None:
        """A frame of ``slot`` is to be acknowledged."""
        self._slot = slot
        until = now if urgent else now + self._ack
        self._owed = until if self._owed is None else min(self._owed, until)

    def told(self) -> None:
        """A frame that leaves acknowledges all that came."""
        self._owed = None

    def reply(self, now: float) -> tuple[int, bool] | None:
        """Slot of the answer that is due, and whether it is a NAK; asked until there is none."""
        if self._wants_nak:
            self._wants_nak = False
            return self._slot, True
        if self._owed is not None and now >= self._owed:
            return self._slot, False
        return None

    def deadline(self) -> float | None:
        """When :meth:`reply` is to be asked, if nothing comes before."""
        return self._owed
