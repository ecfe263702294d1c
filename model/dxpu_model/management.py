"""Management: what both ends of an association calculate, and a golden model of each end.

Plain bytes in, plain bytes out, without a clock or a line: the user of an end gives frames and the
time. Frames and meanings are those of ``docs/reference/management.md``.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESCCM
from dxpu.fabric.wire.format import NODE_MANAGER, NODE_UNASSIGNED
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.management.format import (
    FOLLOWS_MAX, HEAD_BYTES, IDENTITY_BYTES, KNOCK_BYTES, LABEL_ASSOCIATION, LABEL_KNOCK, MANAGERS,
    NONCE_BYTES, OPERATIONS_MAX, PLAIN_BYTES_MAX, SEALED, TAG_BYTES, WORDS_MAX, Code, Kind, Status,
)

from .crc import crc16_ccitt_false, crc32c
from .keyed import mac
from .wire import Frame, Mgmt, build

__all__ = ["AGAIN", "SPREAD_US", "Answer", "Event", "Identity", "ManagedNode", "ManagementError",
           "ManagerEnd", "Message", "Operation", "Registers", "Request", "Wrong", "association_key",
           "first_announcement", "knock", "seal", "unseal"]

#: Microseconds after which a manager sends a request again; then it gives up.
AGAIN = (5_000, 10_000, 20_000, 40_000)
#: Microseconds from one CHALLENGE to the next one for a manager number.
CHALLENGE_US = 100
#: Microseconds after which an EVENT, or an ANNOUNCE, is sent again, at first and at most.
EVENT_US, EVENT_US_MAX = 7_812, 128 * 7_812
#: Microseconds between first announcements of two nodes with consecutive addresses.
SPREAD_US = 32.768


class Wrong(ValueError):
    """A frame is dropped; ``cause`` names the counter."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class ManagementError(ValueError):
    """An impossible wish of a manager; the message is one line."""


# What both ends calculate -------------------------------------------------------------------------

def knock(key: bytes) -> bytes:
    """Shows that an ASK is from a holder of the node's key."""
    return mac(key, LABEL_KNOCK)


def association_key(key: bytes, manager: int, node_nonce: bytes, manager_nonce: bytes) -> bytes:
    """Key of the association of a manager number and two nonces."""
    return mac(key, LABEL_ASSOCIATION + node_nonce + manager_nonce + bytes([manager]))


@dataclass(frozen=True)
class Message:
    """A frame of management.

    Attributes
    ----------
    follows : bytes
        Bytes behind the nonces, without the CRC-32C.
    dst_mac, src_mac : bytes
        MAC addresses.
    """

    kind: int
    manager: int
    counter: int = 0
    node_nonce: bytes = bytes(NONCE_BYTES)
    manager_nonce: bytes = bytes(NONCE_BYTES)
    follows: bytes = b""
    dst_node: int = NODE_MANAGER
    src_node: int = NODE_MANAGER
    dst_mac: bytes = bytes(6)
    src_mac: bytes = bytes(6)
    path: int = 0

    def head(self, follows: int | None = None) -> bytes:
        """The first 24 bytes of the body; ``follows``: how many bytes follow."""
        size = len(self.follows) if follows is None else follows
        return (bytes([self.kind, self.manager]) + size.to_bytes(2, "big")
                + self.counter.to_bytes(4, "big") + self.node_nonce + self.manager_nonce)

    def frame(self) -> bytes:
        """The bytes of the frame, without FCS."""
        body = self.head() + self.follows
        return build(Frame(
            Mgmt(body + crc32c(body).to_bytes(4, "little")), dst_node=self.dst_node,
            src_node=self.src_node, path=self.path, dst_mac=self.dst_mac, src_mac=self.src_mac))

    @classmethod
    def parse(cls, data: bytes) -> "Message":
        """The message in a frame; :func:`intact` checks the CRCs.

        Raises
        ------
        Wrong
            For a frame of another form.
        """
        header, body = data[:32], data[32:]
        if (len(body) < HEAD_BYTES + 4 or header[15] or any(header[19:21]) or header[21] & 15
                or any(header[22:30])):
            raise Wrong("damaged")
        size = int.from_bytes(body[2:4], "big")
        if size % 4 or size > FOLLOWS_MAX or len(body) != HEAD_BYTES + size + 4:
            raise Wrong("damaged")
        if body[0] not in list(Kind) or not (
                1 <= body[1] <= MANAGERS or body[0] == Kind.ANNOUNCE and body[1] == 0):
            raise Wrong("damaged")
        nodes = int.from_bytes(header[16:19], "big")
        return cls(Kind(body[0]), body[1], int.from_bytes(body[4:8], "big"), body[8:16],
                   body[16:24], body[24:-4], nodes >> 12, nodes & 0xFFF, header[:6], header[6:12],
                   header[21] >> 4)

    def back(self, kind: Kind, **changes: Any) -> "Message":
        """A message to the sender of the message."""
        return replace(self, kind=kind, dst_node=self.src_node, src_node=self.dst_node,
                       dst_mac=self.src_mac, src_mac=self.dst_mac, **changes)


def is_management(data: bytes) -> bool:
    """Whether a frame is of management, damaged or not."""
    return data[12:15] == b"\x88\xb5" + bytes([0x10 | FrameType.MGMT])


def intact(data: bytes) -> bool:
    """Whether both CRCs of a frame are right."""
    return (crc16_ccitt_false(data[14:30]) == int.from_bytes(data[30:32], "big")
            and crc32c(data[32:-4]) == int.from_bytes(data[-4:], "little"))


def _nonce(message: Message) -> bytes:
    return bytes([message.kind, message.manager]) + bytes(7) + message.counter.to_bytes(4, "big")


def _associated(message: Message, size: int) -> bytes:
    header = bytes([0x10 | FrameType.MGMT, 0]) + (
        message.dst_node << 12 | message.src_node).to_bytes(3, "big") + bytes(1)
    return header + message.head(size)


def seal(key: bytes, message: Message, plain: bytes) -> Message:
    """``message`` with ``plain`` under the key of the association."""
    sealed = AESCCM(key, TAG_BYTES).encrypt(
        _nonce(message), plain, _associated(message, len(plain) + TAG_BYTES))
    return replace(message, follows=sealed)


def unseal(key: bytes, message: Message) -> bytes:
    """The text in a message; raises :exc:`Wrong` if the tag is wrong."""
    try:
        return AESCCM(key, TAG_BYTES).decrypt(
            _nonce(message), message.follows, _associated(message, len(message.follows)))
    except InvalidTag:
        raise Wrong("tag") from None


def first_announcement(mac: bytes) -> int:
    """When a node first announces itself after a reset, in units of :data:`SPREAD_US`: 0 to 255,
    by the last three bytes of its address, the last but one with its bits in reverse order."""
    return mac[5] ^ int(f"{mac[4]:08b}"[::-1], 2) ^ mac[3]


# What is said -------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Operation:
    """Reads ``count`` registers from ``address`` on, or writes ``words`` there."""

    address: int
    count: int = 1
    words: tuple[int, ...] | None = None

    @classmethod
    def write(cls, address: int, *words: int) -> "Operation":
        """Writes ``words``."""
        return cls(address, len(words), words)

    def pack(self) -> bytes:
        code = Code.READ if self.words is None else Code.WRITE
        return bytes([code, self.count, 0, 0]) + self.address.to_bytes(4, "big") + b"".join(
            word.to_bytes(4, "big") for word in self.words or ())


@dataclass(frozen=True)
class Request:
    """Operations that are all done, or none of them."""

    epoch: int
    operations: tuple[Operation, ...]

    def pack(self) -> bytes:
        return self.epoch.to_bytes(4, "big") + bytes([len(self.operations), 0, 0, 0]) + b"".join(
            operation.pack() for operation in self.operations)

    @classmethod
    def unpack(cls, data: bytes) -> "Request":
        """Raises :exc:`ValueError` for anything but a request."""
        if len(data) < 8 or any(data[5:8]) or not 1 <= data[4] <= OPERATIONS_MAX:
            raise ValueError("head of the request")
        operations, rest = [], data[8:]
        for _ in range(data[4]):
            code, count = rest[:1], rest[1:2]
            if (len(rest) < 8 or any(rest[2:4]) or code[0] not in list(Code)
                    or not 1 <= count[0] <= WORDS_MAX):
                raise ValueError("head of an operation")
            address, rest = int.from_bytes(rest[4:8], "big"), rest[8:]
            if code[0] == Code.READ:
                operations.append(Operation(address, count[0]))
                continue
            if len(rest) < 4 * count[0]:
                raise ValueError("words of an operation")
            operations.append(Operation.write(address, *_words(rest[:4 * count[0]])))
            rest = rest[4 * count[0]:]
        if rest:
            raise ValueError("more than the operations")
        return cls(int.from_bytes(data[:4], "big"), tuple(operations))


@dataclass(frozen=True)
class Answer:
    """A node's answer to a request."""

    epoch: int
    status: Status
    number: int  #: of operations, or of the one that cannot be done
    words: tuple[int, ...] = ()

    def pack(self) -> bytes:
        return self.epoch.to_bytes(4, "big") + bytes([self.number, self.status, 0, 0]) + b"".join(
            word.to_bytes(4, "big") for word in self.words)

    @classmethod
    def unpack(cls, data: bytes) -> "Answer":
        """Raises :exc:`ValueError` for anything but an answer."""
        if len(data) < 8 or len(data) % 4 or any(data[6:8]):
            raise ValueError("head of the answer")
        return cls(int.from_bytes(data[:4], "big"), Status(data[5]), data[4], _words(data[8:]))


def _words(data: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(data[n:n + 4], "big") for n in range(0, len(data), 4))


@dataclass(frozen=True)
class Event:
    """News of a node, unasked."""

    code: int  #: a :class:`~dxpu.management.format.Subject`
    where: int = 0  #: row or path
    argument: int = 0

    def pack(self) -> bytes:
        return bytes([self.code, self.where, 0, 0]) + self.argument.to_bytes(4, "big")

    @classmethod
    def unpack(cls, data: bytes) -> "Event":
        """Raises :exc:`ValueError` for anything but an event."""
        if len(data) != 8 or any(data[2:4]):
            raise ValueError("event")
        return cls(data[0], data[1], int.from_bytes(data[4:], "big"))


@dataclass(frozen=True)
class Identity:
    """A node's description for anybody."""

    mac: bytes
    number: int = NODE_UNASSIGNED
    serial: int = 0
    role: int = 0
    slots: int = 0
    capabilities: int = 0
    boot: int = 0
    links: int = 0
    present: int = 0
    build: int = 0
    table: int = 0

    _SIZES = (("number", 2), ("serial", 4), ("role", 1), ("slots", 1), ("capabilities", 2),
              ("boot", 2), ("links", 1), ("zero", 1), ("present", 4), ("build", 4),
              ("table", 4))

    def pack(self) -> bytes:
        return self.mac + b"".join(
            int(getattr(self, name, 0)).to_bytes(size, "big") for name, size in self._SIZES)

    @classmethod
    def unpack(cls, data: bytes) -> "Identity":
        """Raises :exc:`ValueError` for anything but an identity."""
        if len(data) != IDENTITY_BYTES:
            raise ValueError("identity")
        values, offset = {}, 6
        for name, size in cls._SIZES:
            values[name] = int.from_bytes(data[offset:offset + size], "big")
            offset += size
        if values.pop("zero"):
            raise ValueError("identity")
        return cls(data[:6], **values)


# The node -----------------------------------------------------------------------------------------

class Registers(Protocol):
    """Registers of a node, by byte address."""

    def has(self, address: int, *, write: bool) -> bool:
        """Whether there is a register, and, if ``write``, one for writing."""

    def read(self, address: int) -> int:
        """Value of a register."""

    def write(self, address: int, value: int) -> None:
        """Write a register."""


@dataclass
class _Association:
    """Memory of a node for a manager number."""

    key: bytes
    message: Message  #: the newest request
    answer: Message


class ManagedNode:
    """A node before managers.

    Parameters
    ----------
    key : bytes
        16 bytes.
    mac : bytes
        Factory address.
    registers : Registers
    fence_epoch : int
        Address of the register with the node's epoch.
    random : callable
        Random words of 32 bits, the first byte in the lowest bits.

    Attributes
    ----------
    number : int
        The node's.
    identity : Identity
        Content of a CHALLENGE; address and number are always the node's.
    counters : Counter
        Dropped frames: ``damaged``, ``knock``, ``early``, ``stale``, ``tag``.
    calculations : int
        Number of frames that have cost a calculation.
    """

    def __init__(self, key: bytes, mac: bytes, registers: Registers, fence_epoch: int,
                 random: Callable[[], int], *, number: int = NODE_UNASSIGNED) -> None:
        self.mac, self.number, self.registers = mac, number, registers
        self.identity, self.calculations = Identity(mac), 0
        self.counters: Counter[str] = Counter()
        self._key, self._knock, self._random = key, knock(key), random
        self._fence_epoch = fence_epoch
        self._offered = {n: self._draw() for n in range(1, MANAGERS + 1)}
        self._asked: dict[int, float] = dict.fromkeys(self._offered, -CHALLENGE_US)
        self._open: dict[int, _Association] = {}
        self._writer: int | None = None
        self._events: list[Event] = []
        self._acknowledged = 0
        self._due, self._wait = 0.0, EVENT_US
        #: When the next announcement is due, and the wait after it.
        self._announces: tuple[float, int] | None = None
        self._path = 0

    def _draw(self) -> bytes:
        return b"".join(self._random().to_bytes(4, "little") for _ in range(NONCE_BYTES // 4))

    def take(self, data: bytes, now: float = 0) -> bytes | None:
        """A frame has come, ``now`` in microseconds; returns the answer."""
        if not is_management(data):
            return None
        nodes = int.from_bytes(data[16:19], "big")
        if nodes & 0xFFF != NODE_MANAGER or not (
                nodes >> 12 == self.number != NODE_UNASSIGNED
                or nodes >> 12 == NODE_UNASSIGNED and data[:6] == self.mac):
            return None
        try:
            message = Message.parse(data)
            if message.kind == Kind.ASK:
                return self._asks(message, data, now).frame()
            if message.kind == Kind.REQUEST:
                return self._requests(message, data).frame()
            if message.kind != Kind.EVENT_ACK:
                raise Wrong("damaged")
            self._acknowledges(message, data, now)
        except Wrong as wrong:
            self.counters[wrong.cause] += 1
        return None

    def _asks(self, message: Message, data: bytes, now: float) -> Message:
        if message.counter or any(message.node_nonce) or len(message.follows) != KNOCK_BYTES:
            raise Wrong("damaged")
        if message.follows != self._knock:
            raise Wrong("knock")
        if not intact(data):
            raise Wrong("damaged")
        if now - self._asked[message.manager] < CHALLENGE_US:
            raise Wrong("early")
        self._asked[message.manager] = now
        return message.back(
            Kind.CHALLENGE, node_nonce=self._offered[message.manager],
            follows=replace(self.identity, mac=self.mac, number=self.number).pack())

    def _requests(self, message: Message, data: bytes) -> Message:
        if len(message.follows) < TAG_BYTES:
            raise Wrong("damaged")
        kept = self._open.get(message.manager)
        told = (message.dst_node, message.node_nonce, message.manager_nonce)
        if kept is not None and told == (kept.message.dst_node, kept.message.node_nonce,
                                         kept.message.manager_nonce):
            if message.counter == kept.message.counter:
                if message.follows[-TAG_BYTES:] != kept.message.follows[-TAG_BYTES:]:
                    raise Wrong("stale")
                if not intact(data):
                    raise Wrong("damaged")
                return replace(kept.answer, dst_mac=message.src_mac, src_mac=message.dst_mac,
                               path=message.path)
            if message.counter != kept.message.counter + 1:
                raise Wrong("stale")
            key = kept.key
        elif message.counter == 1 and message.node_nonce == self._offered[message.manager]:
            key = association_key(self._key, message.manager, message.node_nonce,
                                  message.manager_nonce)
            kept = None
        else:
            raise Wrong("stale")
        if not intact(data):
            raise Wrong("damaged")
        self.calculations += 1
        plain = unseal(key, message)
        if kept is None:
            self._offered[message.manager] = self._draw()
        answer = seal(key, message.back(Kind.ANSWER), self._run(message.manager, plain).pack())
        self._open[message.manager] = _Association(key, message, answer)
        return answer

    def _run(self, manager: int, plain: bytes) -> Answer:
        """Do a request."""
        epoch = self.registers.read(self._fence_epoch)
        try:
            request = Request.unpack(plain)
        except ValueError:
            return Answer(epoch, Status.REFUSED, 0)
        reads = sum(o.count for o in request.operations if o.words is None)
        writes = any(o.words is not None for o in request.operations)
        if 8 + 4 * reads > PLAIN_BYTES_MAX or writes and not request.epoch:
            return Answer(epoch, Status.REFUSED, 0)
        if writes and request.epoch < epoch:
            return Answer(epoch, Status.STALE, 0)
        for n, o in enumerate(request.operations):
            if not all(self.registers.has(o.address + 4 * k, write=o.words is not None)
                       for k in range(o.count)):
                return Answer(epoch, Status.ADDRESS, n)
        if writes:
            self._writer = manager
            if request.epoch > epoch:
                self.registers.write(self._fence_epoch, request.epoch)
        words: list[int] = []
        for o in request.operations:
            for k in range(o.count):
                if o.words is None:
                    words.append(self.registers.read(o.address + 4 * k))
                else:
                    self.registers.write(o.address + 4 * k, o.words[k])
        return Answer(self.registers.read(self._fence_epoch), Status.DONE,
                      len(request.operations), tuple(words))

    # Announcements

    def announcement(self, path: int = 0) -> bytes:
        """The frame of a node without a number."""
        return Message(
            Kind.ANNOUNCE, 0, follows=replace(self.identity, mac=self.mac,
                                              number=self.number).pack(),
            src_node=self.number, dst_mac=b"\xff" * 6, src_mac=self.mac, path=path).frame()

    def announce(self, now: float, paths: int = 1) -> tuple[bytes | None, float]:
        """The frame of an announcement, if one is due, and the time of the next one; to be asked
        from the node's reset on. Infinite for a node with a number."""
        if self.number != NODE_UNASSIGNED:
            self._announces = None
            return None, float("inf")
        if self._announces is None:
            self._announces = now + SPREAD_US * first_announcement(self.mac), EVENT_US
        due, wait = self._announces
        if now < due:
            return None, due
        self._announces = now + wait, min(2 * wait, EVENT_US_MAX)
        frame, self._path = self.announcement(self._path), (self._path + 1) % paths
        return frame, now + wait

    # Events

    def happens(self, event: Event) -> None:
        """There are news for managers."""
        self._events.append(event)

    def tell(self, now: float) -> bytes | None:
        """The frame of an event, if one is due."""
        association = self._open.get(self._writer or 0)
        if not self._events or association is None or now < self._due:
            return None
        self._due, self._wait = now + self._wait, min(2 * self._wait, EVENT_US_MAX)
        message = association.message.back(Kind.EVENT, counter=self._acknowledged + 1)
        return seal(association.key, message, self._events[0].pack()).frame()

    def tells(self) -> float:
        """When :meth:`tell` has a frame; infinite if there is nothing to tell, or nobody."""
        if not self._events or (self._writer or 0) not in self._open:
            return float("inf")
        return self._due

    def _acknowledges(self, message: Message, data: bytes, now: float) -> None:
        if len(message.follows) != TAG_BYTES:
            raise Wrong("damaged")
        kept = self._open.get(message.manager)
        if (kept is None or message.manager != self._writer or not self._events
                or message.counter != self._acknowledged + 1
                or (message.dst_node, message.node_nonce, message.manager_nonce)
                != (kept.message.dst_node, kept.message.node_nonce, kept.message.manager_nonce)):
            raise Wrong("stale")
        if not intact(data):
            raise Wrong("damaged")
        self.calculations += 1
        unseal(kept.key, message)
        self._events.pop(0)
        self._acknowledged += 1
        self._due, self._wait = now, EVENT_US


# The manager --------------------------------------------------------------------------------------

class ManagerEnd:
    """A manager's end of the association with one node.

    One request is under way at a time. The user sends each frame again after the waits of
    :data:`AGAIN`, and then begins anew with :meth:`ask`.

    Parameters
    ----------
    key : bytes
        Key of the node, 16 bytes.
    number : int
        Manager number.
    random : callable
        Gives a number of random bytes.
    node, node_mac, own_mac
        The node's number, or FFFh; the MAC addresses of both ends.
    path : int
    """

    def __init__(self, key: bytes, number: int, random: Callable[[int], bytes], *,
                 node: int = NODE_UNASSIGNED, node_mac: bytes, own_mac: bytes,
                 path: int = 0) -> None:
        if not 1 <= number <= MANAGERS:
            raise ManagementError(f"manager number must be 1 to {MANAGERS}, not {number}")
        self._key, self._random = key, random
        self._blank = Message(Kind.ASK, number, dst_node=node, dst_mac=node_mac, src_mac=own_mac,
                              path=path)
        #: The nonces of the association that is asked for, or open.
        self._told = self._blank
        self._km: bytes | None = None
        self._counter, self._waits = 0, False
        self._heard = 0
        #: What the node said of itself, unproven.
        self.identity: Identity | None = None

    @property
    def open(self) -> bool:
        """Whether there is a key, so that requests can be made."""
        return self._km is not None

    def ask(self) -> bytes:
        """The frame for a new association; an old one is over."""
        self._told = replace(self._blank, manager_nonce=self._random(NONCE_BYTES))
        self._km, self._counter, self._waits, self._heard = None, 0, False, 0
        return replace(self._told, follows=knock(self._key)).frame()

    def close(self) -> None:
        """There is no association any more, until :meth:`ask`."""
        self._km = None

    def request(self, epoch: int, operations: Sequence[Operation]) -> bytes:
        """The frame of the next request; the same bytes must be sent until it is answered.

        Raises
        ------
        ManagementError
            Without an association, before the answer to the last request, or for a request that is
            too long.
        """
        if self._km is None:
            raise ManagementError("there is no association: ask first")
        if self._waits:
            raise ManagementError("the last request is not answered: send it again, or ask anew")
        plain = Request(epoch, tuple(operations)).pack()
        if len(plain) > PLAIN_BYTES_MAX:
            raise ManagementError(f"a request has {PLAIN_BYTES_MAX} bytes at most, not "
                                  f"{len(plain)}: make two of it")
        self._counter, self._waits = self._counter + 1, True
        return seal(self._km, replace(self._told, kind=Kind.REQUEST, counter=self._counter),
                    plain).frame()

    def take(self, data: bytes) -> Answer | tuple[Event, bool, bytes] | None:
        """A frame has come: an answer; or an event, whether the event is new, and the frame of
        acknowledgement; None for anything wrong or for others."""
        try:
            message = Message.parse(data) if is_management(data) and intact(data) else None
            if message is None or self._theirs(message) != self._theirs(
                    self._told.back(Kind(message.kind))):
                return None
            if message.kind == Kind.CHALLENGE and self._km is None:
                self._challenged(message)
                return None
            if self._km is None or message.node_nonce != self._told.node_nonce:
                return None
            if message.kind == Kind.ANSWER and self._waits and message.counter == self._counter:
                answer = Answer.unpack(unseal(self._km, message))
                self._waits = False
                return answer
            if message.kind == Kind.EVENT:
                return self._take_event(self._km, message)
        except ValueError:
            pass
        return None

    @staticmethod
    def _theirs(message: Message) -> tuple[int, bytes, int, int]:
        return message.manager, message.manager_nonce, message.dst_node, message.src_node

    def _challenged(self, message: Message) -> None:
        self.identity = Identity.unpack(message.follows)
        self._told = replace(self._told, node_nonce=message.node_nonce)
        self._km = association_key(self._key, message.manager, message.node_nonce,
                                   message.manager_nonce)

    def _take_event(self, key: bytes, message: Message) -> tuple[Event, bool, bytes]:
        event = Event.unpack(unseal(key, message))
        fresh, self._heard = message.counter > self._heard, max(message.counter, self._heard)
        acknowledges = seal(key, message.back(Kind.EVENT_ACK), b"")
        return event, fresh, acknowledges.frame()


assert set(SEALED) < set(Kind)
