"""Transaction layer packets as bytes: the reference for the gateware.

Written from the text of the PCI Express Base Specification 5.0, section 2.2. Only the names of the
encodings come from :mod:`dxpu.tlp.types`. All functions take any bytes, including hostile bytes.
"""

import random
from dataclasses import dataclass
from typing import Any

from dxpu.tlp.types import CompletionStatus, Fmt, Malformed, MessageCode, Routing, TlpClass, Type

__all__ = ["Info", "Tlp", "classify", "complete", "malformed", "random_tlp"]

#: A member of an enumeration of :mod:`dxpu.tlp.types`; mypy takes such members for integers.
Code = Any

MEMORY = (Type.MEMORY, Type.MEMORY_LOCKED)
ATOMIC = (Type.FETCH_ADD, Type.SWAP, Type.CAS)
CONFIG = (Type.CONFIG_0, Type.CONFIG_1)
COMPLETION = (Type.COMPLETION, Type.COMPLETION_LOCKED)

#: Every defined pair of Fmt and Type except prefixes, by its name in 2.2.1; one routing of
#: messages.
KINDS: dict[str, tuple[int, int]] = {
    "MRd32": (0, 0b00000), "MRd64": (1, 0b00000),
    "MRdLk32": (0, 0b00001), "MRdLk64": (1, 0b00001),
    "MWr32": (2, 0b00000), "MWr64": (3, 0b00000),
    "IORd": (0, 0b00010), "IOWr": (2, 0b00010),
    "CfgRd0": (0, 0b00100), "CfgWr0": (2, 0b00100),
    "CfgRd1": (0, 0b00101), "CfgWr1": (2, 0b00101),
    "Msg": (1, 0b10000), "MsgD": (3, 0b10000),
    "Cpl": (0, 0b01010), "CplD": (2, 0b01010),
    "CplLk": (0, 0b01011), "CplDLk": (2, 0b01011),
    "FetchAdd32": (2, 0b01100), "FetchAdd64": (3, 0b01100),
    "Swap32": (2, 0b01101), "Swap64": (3, 0b01101),
    "CAS32": (2, 0b01110), "CAS64": (3, 0b01110),
}

#: Messages that must have traffic class 0, which receivers must check: locked transactions, power
#: management, INTx, errors, slot power limit (2.2.8.1 to 2.2.8.5). Also LTR (2.2.8.8) at receivers
#: with LTR. OBFF and PTM have the same rule (2.2.8.9, 2.2.8.10); no receiver here implements them.
TC0_MESSAGES = frozenset({
    0x00, 0x14, 0x18, 0x19, 0x1B, *range(0x20, 0x28), 0x30, 0x31, 0x33, 0x50,
})
LTR = 0x10

#: Most end-to-end prefixes of a TLP (2.2.10.2); most dwords of data of a non-posted TLP: 2 x 16
#: bytes.
MAX_PREFIXES, MAX_NP_DWORDS = 4, 8


MESSAGE_CODES = sorted(code for name, code in vars(MessageCode).items() if name.isupper())


def is_message(type: int) -> bool:
    """Whether a type is a message: 0b10 in the upper bits. All routing codes are defined
    (2.2.8)."""
    return type >> 3 == 0b10


def defined(fmt: int, type: int) -> bool:
    """Whether the table of 2.2.1 has this Fmt and Type; prefixes are no TLP of their own."""
    if is_message(type):
        return fmt in (1, 3)
    return (fmt, type) in KINDS.values()


@dataclass
class Tlp:
    """A TLP with all its fields in natural order; fields missing in its kind are ignored."""

    fmt: int
    type: int
    length: int = 0                #: dwords, 1 to 1024 (0 where the field is reserved)
    payload: bytes = b""
    tc: int = 0
    attr: int = 0
    ep: int = 0
    at: int = 0
    th: int = 0
    requester_id: int = 0
    tag: int = 0                   #: 10 bits
    first_be: int = 0
    last_be: int = 0
    address: int = 0
    hint: int = 0                  #: address bits 1:0 on the wire: PH if TH is set
    target_id: int = 0             #: configuration, message by ID
    register: int = 0              #: configuration, in dwords
    message_code: int = 0
    message_bytes: bytes = bytes(8)  #: bytes 8 to 15 of a message (routing by ID: 10 to 15 count)
    completer_id: int = 0
    status: int = 0
    bcm: int = 0
    byte_count: int = 4            #: 1 to 4096
    lower_address: int = 0
    prefixes: tuple[bytes, ...] = ()
    digest: bytes | None = None

    @property
    def kind(self) -> str:
        """Name of Fmt and Type in 2.2.1, or ``reserved``."""
        if is_message(self.type) and self.fmt in (1, 3):
            return "MsgD" if self.fmt == 3 else "Msg"
        for name, pair in KINDS.items():
            if pair == (self.fmt, self.type):
                return name
        return "reserved"

    def pack(self) -> bytes:
        """Bytes of the TLP on the wire."""
        if any(len(p) != 4 for p in self.prefixes) or len(self.digest or bytes(4)) != 4:
            raise ValueError("prefixes and digest must be 4 bytes each")
        tag_high = self.tag >> 9 & 1, self.tag >> 8 & 1
        length = self.length & 0x3FF
        header = bytes([
            self.fmt << 5 | self.type,
            tag_high[0] << 7 | self.tc << 4 | tag_high[1] << 3 | (self.attr >> 2) << 2 | self.th,
            (self.digest is not None) << 7 | self.ep << 6 | (self.attr & 3) << 4 | self.at << 2
            | length >> 8,
            length & 0xFF,
        ])
        header += self._pack_rest()
        return b"".join(self.prefixes) + header + self.payload + (self.digest or b"")

    def _pack_rest(self) -> bytes:
        def u16(x: int) -> bytes:
            return x.to_bytes(2, "big")

        tag = bytes([self.tag & 0xFF])
        if is_message(self.type):
            rest = self.message_bytes
            if self.type & 7 == 2:
                rest = u16(self.target_id) + rest[2:]
            return u16(self.requester_id) + tag + bytes([self.message_code]) + rest
        if self.type in COMPLETION:
            count = self.byte_count & 0xFFF
            return (u16(self.completer_id)
                    + bytes([self.status << 5 | self.bcm << 4 | count >> 8, count & 0xFF])
                    + u16(self.requester_id) + tag + bytes([self.lower_address]))
        head = u16(self.requester_id) + tag + bytes([self.last_be << 4 | self.first_be])
        if self.type in CONFIG:
            return head + u16(self.target_id) + bytes([self.register >> 6,
                                                       (self.register & 63) << 2])
        return head + (self.address & ~3 | self.hint).to_bytes(8 if self.fmt & 1 else 4, "big")

    @classmethod
    def unpack(cls, raw: bytes) -> "Tlp":
        """Read one TLP; the inverse of :meth:`pack` where all reserved bits are zero.

        Raises
        ------
        ValueError
            If the bytes end too early or Fmt or Type is reserved. Other rules are not checked.
        """
        prefixes: list[bytes] = []
        while len(raw) >= 4 and raw[0] >> 5 == Fmt.PREFIX:
            prefixes.append(raw[:4])
            raw = raw[4:]
        if len(raw) < 12 or len(raw) < (h := _header_dwords(raw) * 4):
            raise ValueError("TLP ends within its header")
        fmt, type = raw[0] >> 5, raw[0] & 31
        if not defined(fmt, type):
            raise ValueError(f"Fmt {fmt:03b} with Type {type:05b} is reserved")
        payload = _length(raw) * 4 if fmt & 2 else 0
        td = raw[2] >> 7
        if len(raw) < h + payload + 4 * td:
            raise ValueError("TLP ends within its payload")
        self = cls(fmt, type, payload=raw[h:h + payload], prefixes=tuple(prefixes),
                   digest=raw[h + payload:h + payload + 4] if td else None)
        for name, value in vars(classify(raw)).items():
            if (value is not None and name in cls.__dataclass_fields__
                    and name not in ("length", "digest")):
                setattr(self, name, value)
        has_length = bool(fmt & 2) or type in (*MEMORY, Type.IO, *CONFIG)
        self.length = _length(raw) if has_length else raw[3] | (raw[2] & 3) << 8
        self.byte_count = self.byte_count or 4096
        self.th = raw[1] & 1
        if is_message(type):
            self.message_bytes = raw[8:16]
        elif type in COMPLETION:
            self.bcm = raw[6] >> 4 & 1
        else:
            self.first_be, self.last_be = raw[7] & 15, raw[7] >> 4
            if type not in CONFIG:
                self.hint = raw[h - 1] & 3
        return self


@dataclass
class Info:
    """The members of :class:`dxpu.tlp.types.TlpInfo`; ``None`` where the TLP has no such field."""

    cls: Code      #: TlpClass
    routing: Code  #: Routing
    fmt: int
    type: int
    prefix_dwords: int
    header_dwords: int
    payload_dwords: int
    digest: int
    dwords: int
    tc: int
    attr: int
    ep: int
    at: int
    length: int
    requester_id: int
    tag: int
    is_memory: int = 0
    is_io: int = 0
    is_config: int = 0
    is_type1: int = 0
    is_message: int = 0
    is_atomic: int = 0
    is_locked: int = 0
    is_write: int = 0
    completer_id: int | None = None
    first_be: int | None = None
    last_be: int | None = None
    address: int | None = None
    target_id: int | None = None
    register: int | None = None
    message_code: int | None = None
    status: int | None = None
    byte_count: int | None = None
    lower_address: int | None = None
    bcm: int | None = None


def _header_dwords(raw: bytes) -> int:
    return 4 if raw[0] >> 5 & 1 else 3


def _length(raw: bytes) -> int:
    return (raw[2] & 3) << 8 | raw[3] or 1024


def _u16(raw: bytes, offset: int) -> int:
    return int.from_bytes(raw[offset:offset + 2], "big")


def _prefixes(raw: bytes) -> int:
    """Number of leading prefix dwords, at most four; any further prefix is taken for the header."""
    n = 0
    while n < MAX_PREFIXES and 4 * n < len(raw) and raw[4 * n] >> 5 == Fmt.PREFIX:
        n += 1
    return n


def classify(raw: bytes) -> Info:
    """Fields of the header. ``raw`` must hold a whole header of a defined Fmt and Type."""
    prefixes = _prefixes(raw)
    raw = raw[4 * prefixes:]
    fmt, type = raw[0] >> 5, raw[0] & 31
    header = _header_dwords(raw)
    payload = _length(raw) if fmt & 2 else 0
    digest = raw[2] >> 7
    completion = type in COMPLETION
    if completion:
        kind: Code = TlpClass.CPL
    elif is_message(type) or (type == Type.MEMORY and fmt & 2):
        kind = TlpClass.P
    else:
        kind = TlpClass.NP
    if is_message(type):
        routing: Code = Routing(type & 7) if type & 7 < 6 else Routing.LOCAL
    elif completion or type in CONFIG:
        routing = Routing.ID
    else:
        routing = Routing.ADDRESS
    tag_high = (raw[1] >> 7) << 9 | (raw[1] >> 3 & 1) << 8
    info = Info(
        cls=kind, routing=routing, fmt=fmt, type=type, prefix_dwords=prefixes,
        header_dwords=header, payload_dwords=payload, digest=digest,
        dwords=prefixes + header + payload + digest,
        tc=raw[1] >> 4 & 7, attr=(raw[1] >> 2 & 1) << 2 | raw[2] >> 4 & 3, ep=raw[2] >> 6 & 1,
        at=raw[2] >> 2 & 3, length=(raw[2] & 3) << 8 | raw[3],
        requester_id=_u16(raw, 8 if completion else 4),
        tag=tag_high | raw[10 if completion else 6],
        is_memory=int(type in MEMORY or type in ATOMIC), is_io=int(type == Type.IO),
        is_config=int(type in CONFIG), is_type1=int(type == Type.CONFIG_1),
        is_message=int(is_message(type)), is_atomic=int(type in ATOMIC),
        is_locked=int(type in (Type.MEMORY_LOCKED, Type.COMPLETION_LOCKED)),
        is_write=int(bool(fmt & 2) and type in (Type.MEMORY, Type.IO, *CONFIG)),
    )
    if completion:
        info.completer_id = _u16(raw, 4)
        info.status = raw[6] >> 5
        info.byte_count = (raw[6] & 15) << 8 | raw[7]
        info.lower_address = raw[11] & 0x7F
        info.bcm = raw[6] >> 4 & 1
        info.target_id = info.requester_id
    elif is_message(type):
        info.message_code = raw[7]
        if routing is Routing.ID:
            info.target_id = _u16(raw, 8)
    else:
        if type in MEMORY and not fmt & 2 and raw[1] & 1:
            # Byte 7 holds a steering tag; the byte enables are implied (2.2.5).
            info.first_be, info.last_be = 15, 15 if info.length != 1 else 0
        elif type not in ATOMIC:
            info.first_be, info.last_be = raw[7] & 15, raw[7] >> 4
        if type in CONFIG:
            info.target_id = _u16(raw, 8)
            info.register = (raw[10] & 15) << 6 | raw[11] >> 2
        else:
            info.address = int.from_bytes(raw[8:4 * header], "big") & ~3
    return info


def malformed(raw: bytes, max_payload: int = 4096, *, completer: bool = False) -> Code:
    """The rule of 2.2 and 2.3 that a TLP breaks; of several rules the first in the order of the
    codes.

    ``max_payload``: Max_Payload_Size of the port, in bytes. ``completer``: the receiver is the
    completer of the request, not a switch.
    """
    prefixes = _prefixes(raw)
    body = raw[4 * prefixes:]
    if not body or len(body) < 4 * _header_dwords(body):
        return Malformed.TRUNCATED
    end_to_end = [raw[4 * n] >> 4 & 1 for n in range(prefixes)]
    if body[0] >> 5 == Fmt.PREFIX or not all(end_to_end):
        return Malformed.PREFIX  # no local prefix is supported (2.2.10.1)
    fmt, type = body[0] >> 5, body[0] & 31
    if not defined(fmt, type):
        return Malformed.FORMAT
    info = classify(raw)
    # Attr[2] is reserved in these TLPs.
    if type in (Type.IO, *CONFIG) and (info.length != 1 or info.tc or info.attr & 3 or info.at):
        return Malformed.FIXED
    length = info.length or 1024
    if type in ATOMIC and not _operands_legal(info, length, completer):
        return Malformed.ATOMIC
    if info.first_be is not None and not _byte_enables_legal(info, length):
        return Malformed.BYTE_ENABLE
    # The Length of a CAS is not the number of bytes accessed, and a translation request has no
    # address within a page. An aligned AtomicOp does not cross a page.
    translation = info.at == 1 and not fmt & 2
    if type in MEMORY and not translation:
        assert info.address is not None
        if info.address % 4096 + 4 * length > 4096:
            return Malformed.BOUNDARY
    if info.tc and (info.message_code in TC0_MESSAGES
                    or info.message_code == LTR and not completer):
        return Malformed.TRAFFIC_CLASS
    if 4 * info.payload_dwords > max_payload:
        return Malformed.PAYLOAD
    if len(raw) != 4 * info.dwords:
        return Malformed.LENGTH
    return Malformed.NONE


def _operands_legal(info: Info, length: int, completer: bool) -> bool:
    """Operand rules of AtomicOps: size and natural alignment at completers (2.2.7.1); at a port
    only a size that fits the queues.
    """
    if not completer:
        return length <= MAX_NP_DWORDS
    cas = info.type == Type.CAS
    assert info.address is not None
    return (length in ((2, 4, 8) if cas else (1, 2))
            and info.address % (2 * length if cas else 4 * length) == 0)


def _byte_enables_legal(info: Info, length: int) -> bool:
    """First/Last DW Byte Enables Rules (2.2.5)."""
    first, last = info.first_be or 0, info.last_be or 0
    if length == 1:
        return last == 0
    if not first or not last:
        return False
    if length == 2 and info.address is not None and info.address % 8 == 0:
        return True
    return first in (0b1000, 0b1100, 0b1110, 0b1111) and last in (0b0001, 0b0011, 0b0111, 0b1111)


def byte_count(first_be: int, last_be: int, length: int) -> int:
    """Byte count of the (first) completion of a memory read: table of 2.3.1.1."""
    enables = [bool(first_be >> n & 1) for n in range(4)]
    if length > 1:
        enables += [True] * 4 * (length - 2) + [bool(last_be >> n & 1) for n in range(4)]
    if True not in enables:
        return 1  # a read of zero length
    first = enables.index(True)
    return len(enables) - enables[::-1].index(True) - first


def lower_address(address: int, first_be: int) -> int:
    """Lower address of the first completion of a memory read: table of 2.3.1.1."""
    first = next((n for n in range(4) if first_be >> n & 1), 0)
    return address + first & 0x7F


def complete(request: Tlp, status: CompletionStatus, completer_id: int,
             data: bytes = b"") -> Tlp:
    """The first (or only) completion of a non-posted request (2.2.9 and 2.3.1.1)."""
    info = classify(request.pack())
    if info.cls is not TlpClass.NP:
        raise ValueError(f"{request.kind} is not completed")
    count, lower = 4, 0
    if info.is_atomic:
        count = info.length * 4 // (2 if request.type == Type.CAS else 1)
    elif info.is_memory:
        assert info.first_be is not None and info.last_be is not None
        count = byte_count(info.first_be, info.last_be, info.length or 1024)
        lower = lower_address(request.address, info.first_be)
    return Tlp(
        fmt=Fmt.HEADER_3_DATA if data else Fmt.HEADER_3,
        type=Type.COMPLETION_LOCKED if info.is_locked else Type.COMPLETION,
        length=len(data) // 4, payload=data, tc=request.tc, attr=request.attr,
        completer_id=completer_id, requester_id=request.requester_id, tag=request.tag,
        status=status.value, byte_count=count, lower_address=lower,
    )


def random_tlp(rng: random.Random, *, max_payload: int = 32,
               kinds: tuple[str, ...] | None = None) -> Tlp:
    """A random well-formed TLP, all kinds equally likely, with up to ``max_payload`` dwords of
    payload.
    """
    fmt, type = KINDS[rng.choice(kinds or tuple(KINDS))]
    tlp = Tlp(fmt, type, requester_id=rng.getrandbits(16), tag=rng.getrandbits(10),
              tc=rng.getrandbits(3), attr=rng.getrandbits(3), ep=rng.getrandbits(1),
              prefixes=_random_prefixes(rng))
    if type in MEMORY or type in ATOMIC:
        _random_memory(tlp, rng, max_payload)
    elif type in (Type.IO, *CONFIG):
        tlp.tc = tlp.attr = 0
        tlp.length, tlp.first_be = 1, rng.getrandbits(4)
        tlp.address = rng.getrandbits(30) << 2 if type == Type.IO else 0
        if type in CONFIG:
            tlp.target_id, tlp.register = rng.getrandbits(16), rng.getrandbits(10)
    elif is_message(type):
        tlp.type |= rng.choice([0, 1, 2, 3, 4, 5, 5, 6, 7])
        tlp.message_code = rng.choice([*MESSAGE_CODES, rng.getrandbits(8)])
        tlp.message_bytes = rng.getrandbits(64).to_bytes(8, "big")
        if tlp.type & 7 == 2:
            tlp.target_id = int.from_bytes(tlp.message_bytes[:2], "big")
        if tlp.message_code in (*TC0_MESSAGES, LTR):
            tlp.tc = 0
    else:
        tlp.completer_id, tlp.status = rng.getrandbits(16), rng.choice([0, 0, 0, 1, 2, 4])
        tlp.byte_count, tlp.lower_address = rng.randint(1, 4096), rng.getrandbits(7)
        tlp.bcm = rng.getrandbits(1)
    if fmt & 2:
        if not tlp.length:
            tlp.length = rng.randint(1, max_payload)
        tlp.payload = rng.getrandbits(32 * tlp.length).to_bytes(4 * tlp.length, "big")
    if not rng.getrandbits(2):
        tlp.digest = rng.getrandbits(32).to_bytes(4, "big")
    return tlp


def _random_prefixes(rng: random.Random) -> tuple[bytes, ...]:
    if rng.getrandbits(1):
        return ()

    return tuple(bytes([Fmt.PREFIX << 5 | 16 | rng.getrandbits(4)])
                 + rng.getrandbits(24).to_bytes(3, "big")
                 for _ in range(rng.randint(0, MAX_PREFIXES)))


def _random_memory(tlp: Tlp, rng: random.Random, max_payload: int) -> None:
    """Length, address and byte enables of a memory or AtomicOp request."""
    tlp.at = rng.choice([0, 0, 0, 1, 2])
    tlp.th = int(not rng.getrandbits(2))
    tlp.hint = rng.getrandbits(2) if tlp.th else 0
    page = rng.getrandbits(52 if tlp.fmt & 1 else 20) << 12
    if tlp.type in ATOMIC:
        tlp.length = rng.choice((2, 4, 8) if tlp.type == Type.CAS else (1, 2))
        step = tlp.length * (2 if tlp.type == Type.CAS else 4)
        tlp.address = page | rng.randrange(4096 // step) * step
        return
    longest = max_payload if tlp.fmt & 2 else 1024
    tlp.length = rng.choice([1, 2, rng.randint(1, longest), longest])
    tlp.address = page | rng.randint(0, 1024 - tlp.length) << 2
    if tlp.length == 1:
        tlp.first_be = rng.getrandbits(4)
    elif tlp.length == 2 and tlp.address % 8 == 0:
        tlp.first_be, tlp.last_be = rng.randint(1, 15), rng.randint(1, 15)
    else:
        tlp.first_be = rng.choice([0b1000, 0b1100, 0b1110, 0b1111])
        tlp.last_be = rng.choice([0b0001, 0b0011, 0b0111, 0b1111])
    if tlp.th and not tlp.fmt & 2:
        tlp.first_be, tlp.last_be = rng.getrandbits(4), rng.getrandbits(4)  # a steering tag
