"""The end of a session that opens it by HELLO, and watches it.

No sockets and no clocks, as in :mod:`.arq`.

Ref: docs/explanation/sessions.md; docs/reference/fabric-spec.md (the scheme, searched
completely)
"""

import random
from enum import Enum

from dxpu.fabric.wire.format import TAG_NONE, ArqMode, Role, SecurityMode
from dxpu.fabric.wire.frame_types import FrameType
from dxpu_model.wire import Frame, Hello

from .timers import Timers

__all__ = ["LARGEST_FRAME", "WINDOW", "Phase", "Say", "Session", "TagSource"]

#: Values in HELLO: largest frame accepted, window of unacknowledged frames.
LARGEST_FRAME = 1514
WINDOW = 64


class TagSource:
    """Tags and nonces that are not repeated while an old frame may be under way.

    Tags count up from a random number, so 65,534 sessions of this process have different tags. A
    frame of an earlier process matches with a probability of 1 in 65,535, and only within the
    lifetime of a frame; the quiet time covers this.

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
    """Phase of a session."""

    QUIET = 0  #: nothing is sent
    HELLO = 1  #: HELLO is being sent
    CONFIRM = 2  #: both tags are known here; the peer has not confirmed them
    OPEN = 3


class Say(Enum):
    """Message to be sent now."""

    HELLO = 0
    POLL = 1  #: an ACK that requests an ACK


class Session:
    """Phases, tags and polls of one session.

    HELLO is sent with a new nonce and a fresh tag until answered, after ``hello``, twice ``hello``
    and so on up to 16 times ``hello``. Then an ACK with the peer's tag requests an ACK, which opens
    the session. Without that ACK everything begins again with another nonce. An open session that
    is silent for eight times ``hello`` is polled, four times, and then is over.

    Parameters
    ----------
    timers : :class:`~.timers.Timers`
    tags : :class:`TagSource`
    boot : int
        Boot counter of HELLO; not 0.
    now : float
        Present time, in seconds.
    """

    #: Polls without an answer after which the session is over; also attempts of a confirmation.
    POLLS = 4
    #: A poll is sent when nothing was received for ``hello << IDLE``.
    IDLE = 3

    def __init__(self, timers: Timers, tags: TagSource, *, boot: int, now: float) -> None:
        self._timers, self._tags, self._boot = timers, tags, boot
        self.phase = Phase.QUIET
        #: Tags of received frames, and of sent frames; 0: none.
        self.rx_tag = self.tx_tag = TAG_NONE
        #: Body of the newest matching HELLO_ACK of the peer.
        self.peer: Hello | None = None
        #: Numbers of the first frame of this end, and of the peer.
        self.first = (0, 0)
        #: Why :meth:`greeted` has refused a frame; name of a counter.
        self.refusal = "stale"
        self._offered = self._nonce = self._tries = 0
        self._until = now + timers.quiet

    @property
    def up(self) -> bool:
        """Whether frames with this end's tag are accepted."""
        return self.phase in (Phase.CONFIRM, Phase.OPEN)

    def end(self, now: float) -> None:
        """Forget the session; after the quiet time it opens again."""
        self.rx_tag = self.tx_tag = TAG_NONE
        self.phase, self._until = Phase.QUIET, now + self._timers.quiet

    def tick(self, now: float) -> Say | None:
        """Message to be sent now. If this ends the session, its phase is QUIET afterwards."""
        if now < self._until:
            return None
        last = self._tries == self.POLLS
        if self.phase is Phase.QUIET or self.phase is Phase.CONFIRM and last:
            self._attempt()
            self.rx_tag = self.tx_tag = TAG_NONE
            self._begin(Phase.HELLO, now)
            return Say.HELLO
        if self.phase is Phase.OPEN and last:
            self.end(now)
            return None
        self._tries = min(self._tries + 1, self.POLLS)
        self._wait(now)
        return Say.HELLO if self.phase is Phase.HELLO else Say.POLL

    def _attempt(self) -> None:
        """What is new in each attempt to open the session."""
        self._offered, self._nonce = self._tags.tag(), self._tags.nonce()

    def greeted(self, frame: Frame, now: float) -> bool:
        """Handle an opening frame; returns whether it answers this end's HELLO.

        Then both ends begin with :attr:`first`, and :meth:`confirmation` must be sent.
        """
        if not self._answers(frame, SecurityMode.NONE):
            return False
        assert isinstance(frame.body, Hello)
        self._begins(frame.body, now)
        return True

    def _answers(self, frame: Frame, mode: SecurityMode) -> bool:
        """Whether a frame is the HELLO_ACK to this end's newest HELLO, in that mode."""
        body = frame.body
        return (isinstance(body, Hello) and frame.type == FrameType.HELLO_ACK
                and self.phase is Phase.HELLO and frame.tag == body.tag_echoed == self._offered
                and body.nonce == self._nonce and body.tag_offered != TAG_NONE
                and body.security_mode == mode)

    def _begins(self, answer: Hello, now: float) -> None:
        self.rx_tag, self.tx_tag, self.peer = self._offered, answer.tag_offered, answer
        self._begin(Phase.CONFIRM, now)

    def repeats(self, frame: Frame) -> bool:
        """Whether an opening frame is the answer again, and wants the confirmation again."""
        return False

    def confirmation(self) -> Hello | None:
        """What confirms the answer; None: a poll."""
        return None

    def heard(self, now: float) -> bool:
        """Handle a frame with this end's tag; returns whether it opens the session."""
        opens = self.phase is Phase.CONFIRM
        self._begin(Phase.OPEN, now)
        return opens

    def hello(self) -> Hello:
        """HELLO of this end."""
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
        """Time of the next call of :meth:`tick`, if nothing comes before."""
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
