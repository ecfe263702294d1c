"""Frame numbers of go-back-N: frames kept until acknowledged, and the next frame expected.

No sockets and no clocks: every function gets the present time, in seconds.

Ref: docs/reference/wire-format.md; docs/explanation/retransmission.md
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum

from dxpu_model.wire import Event, Tlps

__all__ = ["MODULUS", "Receiver", "Sender", "Sent", "Verdict", "ahead"]

MODULUS = 1 << 24


def ahead(number: int, base: int) -> int:
    """Distance of ``number`` ahead of ``base``; half of :data:`MODULUS` and more means behind."""
    return (number - base) % MODULUS


@dataclass(frozen=True)
class Sent:
    """A numbered frame, as kept for retransmission."""

    seq: int
    slot: int
    body: Tlps | Event


class Sender:
    """Frames sent, but not acknowledged.

    After a NAK all of these frames are sent again; a copy of it has no effect. When nothing was
    acknowledged for ``wait``, the oldest frame is sent again, as a probe that asks for an
    acknowledgement; when the acknowledgement comes, the other frames follow. The wait doubles with
    each of :data:`TRANSMISSIONS`. After :data:`ROUNDS` such rounds the sender has ``failed``, for
    ever.

    Parameters
    ----------
    wait : float
        First wait for an acknowledgement, in seconds.
    window : int
        Largest number of unacknowledged frames.
    """

    TRANSMISSIONS = 4
    #: Rounds of transmissions on one path: a full Ethernet switch may drop a whole round.
    ROUNDS = 2

    def __init__(self, wait: float, window: int, first: int = 0) -> None:
        self._wait, self._window = wait, window
        #: Number of the next new frame, and of the oldest unacknowledged frame.
        self.next = self.oldest = first
        self.failed = False
        self._kept: deque[Sent] = deque()
        self._tries = self._round = 0
        self._probing = self._rewind = False
        #: Request of the last NAK, until a wait ends.
        self._obeyed: int | None = None
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
        """Whether frame ``seq`` lacks an acknowledgement."""
        return ahead(seq, self.oldest) < len(self._kept)

    def acknowledged(self, ack: int, now: float) -> bool:
        """Handle an ACK: all frames before ``ack`` arrived. Returns False for old or forged
        ACKs."""
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

    def back(self, request: int) -> None:
        """Handle a NAK: send all frames again, unless it is a copy of the last one."""
        if self._kept and request != self._obeyed:
            self._rewind, self._obeyed = True, request

    def again(self, now: float) -> list[tuple[Sent, bool]]:
        """Frames to be sent again now, in order, each with a flag for a probe."""
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
        self._probing, self._obeyed = True, None
        self._until = now + self._wait * 2 ** self._tries
        return [(self._kept[0], True)]

    def deadline(self) -> float | None:
        """Time of the next call of :meth:`again`, if nothing comes before."""
        return self._until if self._kept and not self.failed else None


class Verdict(Enum):
    """Verdict on a numbered frame."""

    NEXT = 0  #: the frame takes effect
    OLD = 1  #: the frame took effect before
    GAP = 2  #: earlier frames are missing


class Receiver:
    """Frames received in order, and the acknowledgements due.

    While a frame is missing, each frame behind the gap causes a NAK, as the last one may be lost.
    All of them are copies of one request. Another request begins whenever the frames behind the gap
    begin anew.

    Parameters
    ----------
    ack : float
        Longest delay of an acknowledgement, in seconds.
    """

    def __init__(self, ack: float, first: int = 0) -> None:
        self._ack = ack
        #: Number of the next frame expected.
        self.expected = first
        self._owed: float | None = None  #: latest time of the acknowledgement due
        self._slot = 0  #: slot of the frame to be answered
        self._wants_nak = False
        #: While a frame is missing: the newest frame behind the gap.
        self._newest: int | None = None
        #: Number of the last request to go back, 0 or 1.
        self.request = 0

    def take(self, seq: int, slot: int, urgent: bool, now: float) -> Verdict:
        """Handle a numbered frame; returns the verdict."""
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
        if self._newest is None or anew:
            self.request ^= 1
        self._wants_nak, self._newest = True, seq
        return Verdict.GAP

    def owe(self, slot: int, urgent: bool, now: float) -> None:
        """Note that a frame of ``slot`` must be acknowledged."""
        self._slot = slot
        until = now if urgent else now + self._ack
        self._owed = until if self._owed is None else min(self._owed, until)

    def told(self) -> None:
        """Note that a frame with the present ACK leaves."""
        self._owed = None

    def reply(self, now: float) -> tuple[int, bool] | None:
        """Slot of the answer due, and whether it is a NAK; to be called until None."""
        if self._wants_nak:
            self._wants_nak = False
            return self._slot, True
        if self._owed is not None and now >= self._owed:
            return self._slot, False
        return None

    def deadline(self) -> float | None:
        """Time of the next call of :meth:`reply`, if nothing comes before."""
        return self._owed
