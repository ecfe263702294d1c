"""Link over one stream to one peer: frames of a session, in both directions.

No sockets and no clocks: input are frames and the time, output are frames and events.

Ref: docs/reference/wire-format.md; docs/explanation/link.md
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dxpu.fabric.wire.format import REACH, SLOT_HOST, TAG_NONE, FenceReason
from dxpu.fabric.wire.frame_types import SEQUENCED
from dxpu_model.wire import Ack, Body, Credit, Event, Fence, Frame, Hello, Sack, Tlps, build

from .arq import MODULUS, Receiver, Sender, Sent, Verdict
from .credits import Entries
from .session import WINDOW, Phase, Say, Session, TagSource
from .timers import Timers

if TYPE_CHECKING:
    from dxpu_model.opening import Keys

__all__ = ["Address", "Closed", "EventCame", "Happened", "Limits", "LimitsCame", "Link", "Opened",
           "TlpsCame"]


@dataclass(frozen=True)
class Address:
    """Ends of a link: own node, peer's node, stream, and path of the frames."""

    node: int
    peer: int
    stream: int = 0
    path: int = 0


class Limits(Protocol):
    """Source of the limits of a slot for the peer."""

    def extension(self, slot: int) -> Credit | None:
        """A limit not yet sent; counts as sent afterwards."""

    def entries(self, slot: int) -> Entries:
        """All limits; count as sent afterwards."""


@dataclass(frozen=True)
class Opened:
    """The session is open; both ends begin with frame 0."""


@dataclass(frozen=True)
class Closed:
    """The open session has ended."""

    reason: str


@dataclass(frozen=True)
class TlpsCame:
    """TLPs of a slot, in their turn."""

    slot: int
    tlps: tuple[bytes, ...]


@dataclass(frozen=True)
class EventCame:
    """An event of a slot, in its turn."""

    slot: int
    event: Event


@dataclass(frozen=True)
class LimitsCame:
    """Limits of a slot, from a frame with this ACK, which is not older than the newest ACK."""

    slot: int
    ack: int
    entries: tuple[Credit, ...]


Happened = Opened | Closed | TlpsCame | EventCame | LimitsCame


class Link:
    """Opens the session, numbers and repeats frames, and accepts each received frame once, in
    order.

    In each turn: :meth:`receive` the frames that came, :meth:`tick`, :meth:`send` while there is
    :attr:`room`, :meth:`reply`; then send the frames of :meth:`take`.

    Parameters
    ----------
    address : :class:`Address`
    timers : :class:`~.timers.Timers`
    tags : :class:`~.session.TagSource`
    boot : int
        Boot counter of HELLO.
    limits : :class:`Limits`
    now : float
        Present time, in seconds.
    keys : Keys, optional
        Those of the pair; without them the session is opened in clear.

    Attributes
    ----------
    counters : Counter
        Frames sent, repeated, taken, and refused by cause.
    """

    #: Classes of the parts, for tests.
    SENDER, RECEIVER = Sender, Receiver

    def __init__(self, address: Address, *, timers: Timers, tags: TagSource, boot: int,
                 limits: Limits, now: float, keys: "Keys | None" = None) -> None:
        self.address = address
        self._timers, self._limits = timers, limits
        self.session = Session(timers, tags, boot=boot, now=now)
        if keys is not None:
            # Only this one needs a cipher.
            from dxpu_model.keyed import Ends

            from .keyed import KeyedSession
            self.session = KeyedSession(
                timers, tags, boot=boot, now=now, keys=keys,
                ends=Ends(address.node, address.peer, address.stream))
        self.counters: Counter[str] = Counter()
        self._out: list[bytes] = []
        self._begin()

    def _begin(self) -> None:
        peer, (ours, theirs) = self.session.peer, self.session.first
        self.sender = self.SENDER(
            self._timers.retry, min(WINDOW, peer.window or 1) if peer else WINDOW, ours)
        self.receiver = self.RECEIVER(self._timers.ack, theirs)

    @property
    def open(self) -> bool:
        """Whether numbered frames may be sent and received."""
        return self.session.phase is Phase.OPEN

    @property
    def room(self) -> bool:
        """Whether :meth:`send` may be called."""
        return self.open and self.sender.room

    def receive(self, frame: Frame, now: float) -> list[Happened]:
        """Handle a valid frame for this node, from the peer and stream."""
        if isinstance(frame.body, Hello):
            if self.session.greeted(frame, now):
                self._begin()
                self._confirm()
            elif self.session.repeats(frame):
                self._confirm()
            else:
                self.counters[self.session.refusal] += 1
            return []
        if not self.session.up or frame.tag != self.session.rx_tag:
            self.counters["wrong_tag"] += 1
            return []
        if not self._near(frame):
            self.counters["stray"] += 1
            return []
        if isinstance(frame.body, Fence):
            self.counters["fenced"] += 1
            return self._end("the box has given it up", now)
        if frame.type in SEQUENCED:
            verdict = self.receiver.take(frame.seq, frame.src_slot, frame.ar, now)
            if verdict is not Verdict.NEXT:
                self.counters["duplicate" if verdict is Verdict.OLD else "gap"] += 1
                return []
        elif frame.ar:
            self.receiver.owe(frame.src_slot, True, now)
        self.counters["taken"] += 1
        return self._taken(frame, now)

    def _near(self, frame: Frame) -> bool:
        """Whether the numbers of a frame can be those of the session."""
        seq = (frame.seq - self.receiver.expected + REACH) % MODULUS - REACH
        ack = (frame.ack - self.sender.oldest + REACH) % MODULUS - REACH
        sent = (self.sender.next - self.sender.oldest) % MODULUS
        return -REACH <= seq < REACH and -REACH <= ack <= sent

    def _taken(self, frame: Frame, now: float) -> list[Happened]:
        """Let a frame take effect."""
        happened: list[Happened] = [Opened()] if self.session.heard(now) else []
        body = frame.body
        credits: tuple[Credit, ...] = (frame.credit,) if frame.credit else ()
        if self.sender.acknowledged(frame.ack, now):
            if isinstance(body, Ack | Sack):
                credits += body.entries
            if isinstance(body, Sack):
                self.counters["nak"] += 1
                self.sender.back(body.request)
            if credits:
                happened.append(LimitsCame(frame.src_slot, frame.ack, credits))
        if isinstance(body, Tlps) and frame.dst_slot == SLOT_HOST:
            happened.append(TlpsCame(frame.src_slot, body.tlps))
        elif isinstance(body, Event) and frame.dst_slot == SLOT_HOST:
            happened.append(EventCame(frame.src_slot, body))
        return happened

    def tick(self, now: float) -> list[Happened]:
        """Let timers act; repeat frames if due."""
        was_open, tag = self.open, self.session.tx_tag
        say = self.session.tick(now)
        if was_open and not self.open:
            self._put(SLOT_HOST, Fence(FenceReason.SESSION_LOST), tag=tag)
            return self._closed("the box does not answer polls")
        if say is Say.HELLO:
            self._put(SLOT_HOST, self.session.hello())
        elif say is Say.POLL:
            if self.session.phase is Phase.CONFIRM:
                self._confirm()
            else:
                self._poll()
        for sent, probe in self.sender.again(now) if self.session.up else ():
            self.counters["repeated"] += 1
            self._put(sent.slot, sent.body, seq=sent.seq, ar=probe)
        if self.sender.failed and self.session.up:
            return self.close("frames are not acknowledged", now)
        return []

    def close(self, reason: str, now: float) -> list[Happened]:
        """End the session with a FENCE; after the quiet time another session opens."""
        if self.session.up:
            self._put(SLOT_HOST, Fence(FenceReason.SESSION_LOST))
        return self._end(reason, now)

    def _end(self, reason: str, now: float) -> list[Happened]:
        was_open = self.open
        self.session.end(now)
        return self._closed(reason) if was_open else []

    def _closed(self, reason: str) -> list[Happened]:
        self.counters["lost"] += 1
        self._begin()
        return [Closed(reason)]

    def send(self, slot: int, body: Tlps | Event, now: float) -> Sent:
        """Send a new frame; only while there is :attr:`room`."""
        sent = self.sender.add(slot, body, now)
        self._put(slot, body, seq=sent.seq, credit=self._limits.extension(slot))
        return sent

    def reply(self, now: float) -> None:
        """Send acknowledgements due, unless another frame carried them."""
        while self.session.up and (answer := self.receiver.reply(now)) is not None:
            slot, is_nak = answer
            entries = self._limits.entries(slot)
            nak = Sack(entries, request=self.receiver.request)
            self._put(slot, nak if is_nak else Ack(entries))

    def tell(self, slot: int) -> None:
        """Send the limits of a slot; only while the session is :attr:`open`."""
        self._put(slot, Ack(self._limits.entries(slot)))

    def _confirm(self) -> None:
        done = self.session.confirmation()
        if done is None:
            self._poll()
        else:
            self._put(SLOT_HOST, done)

    def _poll(self) -> None:
        self._put(SLOT_HOST, Ack(self._limits.entries(SLOT_HOST)), ar=True)

    def _put(self, slot: int, body: Body, *, seq: int | None = None, ar: bool = False,
             credit: Credit | None = None, tag: int | None = None) -> None:
        """Build a frame with the present ACK, tag and limits."""
        a, outside = self.address, isinstance(body, Hello)
        if isinstance(body, Hello) and not body.done:
            tag = TAG_NONE
        if not outside:
            self.receiver.told()
        self.counters["sent"] += 1
        self._out.append(build(Frame(
            body, dst_node=a.peer, src_node=a.node, dst_slot=slot, src_slot=SLOT_HOST,
            path=a.path, stream=a.stream, tag=self.session.tx_tag if tag is None else tag,
            seq=0 if outside else self.sender.next if seq is None else seq,
            ack=0 if outside else self.receiver.expected, ar=ar, credit=credit)))

    def take(self) -> list[bytes]:
        """Frames to be sent, without FCS."""
        out, self._out = self._out, []
        return out

    def deadline(self) -> float:
        """Time of the next turn, if nothing comes before."""
        parts: Iterable[float | None] = [self.session.deadline()]
        if self.session.up:
            parts = (*parts, self.sender.deadline(), self.receiver.deadline())
        return min(part for part in parts if part is not None)
