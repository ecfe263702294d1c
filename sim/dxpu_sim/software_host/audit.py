"""Watches the frames of a host, and reports violations of the wire format.

Independent of the host's code: the audit knows only the frames that the host received and sent.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from dxpu.fabric.wire.format import ErrorCode, EventCode
from dxpu.fabric.wire.frame_types import SEQUENCED, FrameType, handled
from dxpu.tlp.types import TlpClass
from dxpu_model.keyed import PARAMETER_BYTES, Ends, Opening
from dxpu_model.receiver import judge
from dxpu_model.tlp import Tlp, classify
from dxpu_model.wire import Ack, Credit, Event, Frame, Hello, Sack, Tlps

__all__ = ["AuditFailed", "HostAudit"]


MODULUS = 1 << 24


def _fields(hello: Hello) -> bytes:
    """The fields of a HELLO that proofs cover."""
    return hello.pack(0, 0)[:PARAMETER_BYTES]


class AuditFailed(AssertionError):
    """The host sent a wrong frame."""


@dataclass
class _Life:
    """A life of a slot: largest credits granted, credits used, requests by tag."""

    generation: int
    limits: dict[int, tuple[int, int]] = field(default_factory=dict)
    used: dict[int, tuple[int, int]] = field(default_factory=lambda: dict.fromkeys(range(3),
                                                                                   (0, 0)))
    requests: dict[int, Tlp] = field(default_factory=dict)


class HostAudit:
    """Checker of all frames that reach the host, and of all frames that the host sends, in this
    order of time.

    Raises :exc:`AuditFailed` if the host

    - sends a frame that a receiver drops, or with a tag that no HELLO_ACK has offered;
    - acknowledges a frame that has not come in its turn;
    - sends a number other than the next, or another frame under an old number;
    - sends a TLP before the box has opened the slot, or without credits, counted from the largest
      limit received so far;
    - uses a PCIe tag again before its request was completed;
    - confirms a keyed session by a wrong proof, or does not begin it with the numbers that follow
      from the nonces.

    A session must not have 2^24 frames, and limits must not wrap.

    Parameters
    ----------
    key : bytes, optional
        Key of the host and its boxes; without it sessions are opened in clear.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key
        self._handled = handled(split=False, keyed=key is not None)
        #: Fields of HELLOs and of their answers, by the tag that the host offered.
        self._hellos: dict[int, bytes] = {}
        self._answers: dict[int, bytes] = {}
        self._first = (0, 0)  #: numbers of the first frames of the host and of the box
        self._tags: dict[int, int] = {}  #: tags offered by the host, to tags of the box
        self._theirs = 0  #: tag of the session in which frames are sent
        self._mine = 0
        self._next = 0  #: number of the host's next frame
        self._bodies: dict[int, object] = {}
        self._came: set[int] = set()
        self._prefix = 0  #: all numbers before this number have come
        self._lives: dict[int, _Life] = {}
        self._ready: set[int] = set()
        #: Number of TLPs of slots sent by the host.
        self.tlps = 0
        #: Number of frames of each kind.
        self.frames: dict[str, int] = defaultdict(int)

    def came(self, raw: bytes) -> None:
        """Check a frame that reaches the host."""
        frame = judge(raw, self._handled)
        if not isinstance(frame, Frame):
            return
        if isinstance(frame.body, Hello):
            if frame.type == FrameType.HELLO_ACK:
                self._tags[frame.tag] = frame.body.tag_offered
                self._answers[frame.tag] = _fields(frame.body)
            return
        if frame.tag != self._mine:
            if self._tags.get(frame.tag) != self._theirs:
                return
            self._mine = frame.tag
        if frame.type in SEQUENCED:
            # Frames count when they come in their turn, not ahead.
            number = (frame.seq - self._first[1]) % MODULUS
            if number == self._prefix:
                self._prefix += 1
                self._takes(frame)
            elif number > self._prefix:
                return
        self._learn(frame)

    def _takes(self, frame: Frame) -> None:
        body, life = frame.body, self._lives.get(frame.src_slot)
        if life is None:
            return
        if isinstance(body, Event):
            if body.code == EventCode.RESET_DONE:
                self._ready.add(frame.src_slot)
            elif body.code in (EventCode.LINK_DOWN, EventCode.PRESENCE) or (
                    body.code == EventCode.ERROR and body.argument == ErrorCode.OVERFLOW):
                life.requests.clear()
                self._ready.discard(frame.src_slot)
        elif isinstance(body, Tlps):
            for raw in body.tlps:
                if classify(raw).cls is TlpClass.CPL:
                    self._completed(life, Tlp.unpack(raw))

    @staticmethod
    def _completed(life: _Life, completion: Tlp) -> None:
        bytes_here = 4 * completion.length - (completion.lower_address & 3)
        if completion.status or bytes_here >= completion.byte_count or (
                not completion.payload):
            life.requests.pop(completion.tag, None)

    def _learn(self, frame: Frame) -> None:
        life, body = self._lives.get(frame.src_slot), frame.body
        entries: tuple[Credit, ...] = (frame.credit,) if frame.credit else ()
        if isinstance(body, Ack | Sack):
            entries += body.entries
        for entry in entries if life else ():
            if entry.generation == life.generation & 0xFF:
                old = life.limits.get(entry.cls, (0, 0))
                life.limits[entry.cls] = (max(old[0], entry.header_limit),
                                          max(old[1], entry.data_limit))

    def sent(self, raw: bytes) -> None:
        """Check a frame that the host sends."""
        frame = judge(raw, self._handled)
        if not isinstance(frame, Frame):
            raise AuditFailed(f"the host sends a frame that is dropped: {frame.name}")
        self.frames[frame.type.name] += 1
        if isinstance(frame.body, Hello):
            if frame.type == FrameType.HELLO:
                self._hellos[frame.body.tag_offered] = _fields(frame.body)
            elif frame.tag != self._theirs:
                self._begin(frame.tag, self._confirmed(frame))
            return
        if frame.tag != self._theirs:
            if self._key is not None:
                raise AuditFailed(f"the host has not confirmed the session of tag {frame.tag:#06x}")
            self._begin(frame.tag, (0, 0))
        seq, ack = ((number - first) % MODULUS
                    for number, first in zip((frame.seq, frame.ack), self._first, strict=True))
        if ack > self._prefix:
            raise AuditFailed(f"the host acknowledges {ack - 1}; {self._prefix} has not come")
        if frame.type not in SEQUENCED:
            return
        if seq < self._next:
            if self._bodies[seq] != frame.body:
                raise AuditFailed(f"frame {seq} is another when it is sent again")
            return
        if seq > self._next:
            raise AuditFailed(f"frame {seq} follows {self._next - 1}")
        self._next, self._bodies[seq] = self._next + 1, frame.body
        self._new(frame)

    def _confirmed(self, frame: Frame) -> tuple[int, int]:
        """Check a HELLO_DONE; the first numbers of its session."""
        body = frame.body
        assert isinstance(body, Hello) and self._key is not None
        opener, answerer, proof = body.keyed[:8], body.keyed[8:16], body.keyed[16:]
        opening = Opening(Ends(frame.src_node, frame.dst_node, frame.stream),
                          self._hellos[body.tag_offered], self._answers[body.tag_offered],
                          opener, answerer)
        if proof != opening.proof(self._key, FrameType.HELLO_DONE):
            raise AuditFailed("the proof of a HELLO_DONE is wrong")
        return opening.first_numbers(self._key)

    def _begin(self, tag: int, first: tuple[int, int]) -> None:
        if tag not in self._tags.values():
            raise AuditFailed(f"nobody has offered tag {tag:#06x}")
        self._theirs, self._mine, self._next, self._prefix = tag, 0, 0, 0
        self._first = first
        self._bodies.clear()
        self._lives.clear()
        self._ready.clear()

    def _new(self, frame: Frame) -> None:
        slot, body = frame.dst_slot, frame.body
        if isinstance(body, Event):
            self._ready.discard(slot)
            if body.code == EventCode.UNBIND:
                self._lives.pop(slot, None)
            else:
                self._lives[slot] = _Life(body.generation)
            return
        assert isinstance(body, Tlps)
        for raw in body.tlps:
            self.tlps += 1
            if slot not in self._ready:
                raise AuditFailed(f"a TLP to slot {slot}, which has no life")
            self._spend(slot, self._lives[slot], raw)

    @staticmethod
    def _spend(slot: int, life: _Life, raw: bytes) -> None:
        info = classify(raw)
        cls, units = int(info.cls.value), (info.payload_dwords + 3) // 4
        headers, data = life.used[cls]
        life.used[cls] = headers + 1, data + units
        limit = life.limits.get(cls, (0, 0))
        if headers + 1 > limit[0] or data + units > limit[1]:
            raise AuditFailed(f"slot {slot} has no credits of class {cls} for {life.used[cls]}: "
                              f"{limit} granted")
        if info.cls is TlpClass.NP:
            tlp = Tlp.unpack(raw)
            if tlp.tag in life.requests:
                raise AuditFailed(f"slot {slot}: tag {tlp.tag} is in use")
            life.requests[tlp.tag] = tlp
