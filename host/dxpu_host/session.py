"""The end of a session that opens it by HELLO, and watches it.

No sockets and no clocks, as in :mod:`.arq`.

Ref: docs/architecture.md, "Sessions"; docs/reference/fabric-spec.md (the scheme,
searched completely)
"""

import random
from enum import Enum

from dxpu.fabric.wire.format import TAG_NONE, ArqMode, Role, SecurityMode
from dxpu.fabric.wire.frame_types import FrameType
from dxpu_model.wire import Frame, Hello

from .timers import Timers

__all__ = ["LARGEST_FRAME", "WINDOW", "Phase", "Say", "Session", "TagSource"]

#: What HELLO says: the largest frame that is taken, frames that may be unacknowledged.
LARGEST_FRAME = 1514
WINDOW = 64


class TagSource:
    """Tags and nonces that do not come again while an old frame may be under way.

    Tags count up from a random number, so 65,534 sessions of this process have others. What an
    earlier process has sent fits with a chance of 1 in 65,535, and only for the time that a frame
    can live; the quiet time covers that.

    Parameters
    ----------
    rng : random.Random
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._tag = rng.getrandbits(16)

    def tag(self) -> int:
        """A fresh tag, not 0."""
        self._tag = (self._tag + 1) % (1 << 16)
        if self._tag == TAG_NONE:
            self._tag = 1
        return self._tag

    def nonce(self) -> int:
        """A fresh nonce."""
        return self._rng.getrandbits(32)


class Phase(Enum):
    """How far a session is."""

    QUIET = 0  #: keeps still
    HELLO = 1  #: sends HELLO
    CONFIRM = 2  #: has both tags; the peer has not shown that it has them
    OPEN = 3


class Say(Enum):
    """What is to be sent now."""

    HELLO = 0
    POLL = 1  #: an ACK that asks for another


class Session:
    """Phases, tags and polls of one session.

    HELLO goes out with a new nonce and a fresh tag until it is answered, again after ``hello``,
    twice that and so on up to 16 times that. Then an ACK with the peer's tag asks for another;
    with that the session is open. If none comes all begins with another nonce. A session that is
    open and silent for eight times ``hello`` is polled, four times, and then is over.

    Parameters
    ----------
    timers : :class:`~.timers.Timers`
    tags : :class:`TagSource`
    boot : int
        What HELLO says as boot counter; not 0.
    now : float
    """

    #: Polls without an answer after which the session is over; as often it is confirmed.
    POLLS = 4
    #: A poll goes out when nothing was heard for ``hello << IDLE``.
    IDLE = 3

    def __init__(self, timers: Timers, tags: TagSource, *, boot: int, now: float) -> None:
        self._timers, self._tags, self._boot = timers, tags, boot
        self.phase = Phase.QUIET
        #: Tags of frames that come, and of those that are sent; 0: there is none.
        self.rx_tag = self.tx_tag = TAG_NONE
        #: What the peer said of itself, in the newest HELLO_ACK that fitted.
        self.peer: Hello | None = None
        self._offered = self._nonce = self._tries = 0
        self._until = now + timers.quiet

    @property
    def up(self) -> bool:
        """Whether frames with our tag are taken."""
        return self.phase in (Phase.CONFIRM, Phase.OPEN)

    def end(self, now: float) -> None:
        """Forget the session; after the quiet time it opens again."""
        self.rx_tag = self.tx_tag = TAG_NONE
        self.phase, self._until = Phase.QUIET, now + self._timers.quiet

    def tick(self, now: float) -> Say | None:
        """What is to be sent now. If the session is over by that its phase is QUIET after it."""
        if now < self._until:
            return None
        last = self._tries == self.POLLS
        if self.phase is Phase.QUIET or self.phase is Phase.CONFIRM and last:
            self._offered, self._nonce = self._tags.tag(), self._tags.nonce()
            self.rx_tag = self.tx_tag = TAG_NONE
            self._begin(Phase.HELLO, now)
            return Say.HELLO
        if self.phase is Phase.OPEN and last:
            self.end(now)
            return None
        self._tries = min(self._tries + 1, self.POLLS)
        self._wait(now)
        return Say.HELLO if self.phase is Phase.HELLO else Say.POLL

    def greeted(self, frame: Frame, now: float) -> bool:
        """A HELLO or HELLO_ACK came. Whether it is the answer to our HELLO: then both ends begin
        with frame 0, and a poll is to be sent."""
        body = frame.body
        if not (isinstance(body, Hello) and frame.type == FrameType.HELLO_ACK
                and self.phase is Phase.HELLO and frame.tag == body.tag_echoed == self._offered
                and body.nonce == self._nonce and body.tag_offered != TAG_NONE
                and body.security_mode == SecurityMode.NONE):
            return False
        self.rx_tag, self.tx_tag, self.peer = self._offered, body.tag_offered, body
        self._begin(Phase.CONFIRM, now)
        return True

    def heard(self, now: float) -> bool:
        """A frame with our tag came; whether the session is open by that."""
        opens = self.phase is Phase.CONFIRM
        self._begin(Phase.OPEN, now)
        return opens

    def hello(self) -> Hello:
        """Our HELLO."""
        def microseconds(time: float) -> int:
            return min(0xFFFF, round(time * 1e6))

        return Hello(
            nonce=self._nonce, tag_offered=self._offered, tag_echoed=TAG_NONE, role=Role.HOST,
            slots=0, arq_mode=ArqMode.GO_BACK_N, security_mode=SecurityMode.NONE,
            largest_frame=LARGEST_FRAME, window=WINDOW,
            smallest_timer=microseconds(self._timers.retry),
            give_up_timer=microseconds(30 * self._timers.retry), capabilities=0,
            boot_counter=self._boot, table_generation=0)

    def deadline(self) -> float:
        """When :meth:`tick` is to be asked, if nothing comes before."""
        return self._until

    def _begin(self, phase: Phase, now: float) -> None:
        self.phase, self._tries = phase, 0
        self._wait(now)

    def _wait(self, now: float) -> None:
        if self.phase is not Phase.OPEN:
            shift = self._tries
        else:
            shift = self._tries - 1 if self._tries else self.IDLE
        self._until = now + self._timers.hello * 2 ** shift
