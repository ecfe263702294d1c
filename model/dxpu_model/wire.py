"""DXF v1 frames: build and parse, straight from the wire contract (docs/reference/wire-format.md).

:func:`build` makes the bytes of a :class:`Frame`. :func:`parse` returns the frame, or raises
:exc:`FrameError` with the cause that a receiver counts. Both know every frame type. Numbers come
from :mod:`dxpu.fabric.wire.format`, the layouts of bodies from :mod:`dxpu.fabric.wire.frame_types`.

Choices where the contract is open:

HDR
    The body is the TLP's prefixes and header, then the CRC-32C of exactly these bytes, least
    significant byte first and without binding (HCRC guards tag and SEQ).
DATA
    Offset and length are multiples of four; the length is 4 to 4100 (LENGTH else). The body ends
    with the running CRC, bound to tag and SEQ of this frame, in place of a CRC over the body.
    Offset and length need no CRC: a receiver knows both beforehand, from the bytes received so far
    and from the length of the frame. The digest counts as the last data bytes, in offset and in
    length, so a TLP with a digest but no data has one DATA frame of four bytes at offset 0. A TLP
    with neither has no DATA frame. Frames of the split form have count 0.
MGMT
    The body is opaque: everything after the header, padding included. The management layer knows
    and checks the length.
Entries of ACK and SACK
    The class byte of an entry must equal its position (0, 1, 2).
SACK
    The zero field must be zero; the length must fit the count.
HELLO, HELLO_ACK
    SEQ and ACK must be zero. The link judges the values of the body.
MAC addresses
    Not checked.
Order of the causes
    As in :class:`~dxpu.fabric.wire.format.DropCause`: a frame with several mistakes is counted
    once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from dxpu.fabric.wire import format as fmt
from dxpu.fabric.wire.format import DropCause, binding_word, node_mac
from dxpu.fabric.wire.frame_types import Body as Layout
from dxpu.fabric.wire.frame_types import End, FrameType, Numbering, types_with

from .crc import crc16_ccitt_false, crc32c, fcs

__all__ = ["BODIES", "Ack", "Body", "Credit", "Data", "Event", "Fence", "Frame", "FrameError",
           "Hdr", "Hello", "Joiner", "Mgmt", "Sack", "Tlps", "build", "header_length", "parse",
           "reseal", "split", "tlp_length"]


class FrameError(ValueError):
    """A receiver drops the frame; ``cause`` is the counter of the drop."""

    def __init__(self, cause: DropCause, detail: str = "") -> None:
        super().__init__(f"{cause.name}{': ' if detail else ''}{detail}")
        self.cause = cause


# TLPs ---------------------------------------------------------------------------------------------

def header_length(data: bytes, offset: int = 0) -> int:
    """Bytes of prefixes and header of the TLP at ``offset`` (PCIe Base 5.0, 2.2.1).

    Raises :exc:`FrameError` (LENGTH) if the bytes do not tell.
    """
    start = offset
    while True:
        if offset + 4 > len(data):
            raise FrameError(DropCause.LENGTH, "frame ends before the TLP header")
        kind = data[offset] >> 5
        if kind > 4:
            raise FrameError(DropCause.LENGTH, f"reserved Fmt {kind}")
        if kind != 4:  # not a prefix
            return offset - start + (16 if kind & 1 else 12)
        offset += 4


def tlp_length(data: bytes, offset: int = 0) -> int:
    """Bytes of the whole TLP at ``offset``, prefixes and digest included; raises like
    :func:`header_length`.
    """
    size = header_length(data, offset)
    while data[offset] >> 5 == 4:
        offset += 4
    if offset + 4 > len(data):  # pragma: no cover (header_length has checked)
        raise FrameError(DropCause.LENGTH)
    if data[offset] >> 6 & 1:
        size += 4 * (((data[offset + 2] & 3) << 8 | data[offset + 3]) or 1024)
    if data[offset + 2] >> 7:  # TD
        size += 4
    return size


# Bodies -------------------------------------------------------------------------------------------

def _sealed(body: bytes) -> bytes:
    return body + crc32c(body).to_bytes(4, "little")


def _unsealed(data: bytes, size: int) -> bytes:
    """The first ``size`` bytes of a body, checked by the CRC-32C behind them."""
    if crc32c(data[:size]) != int.from_bytes(data[size:size + 4], "little"):
        raise FrameError(DropCause.BODY, "CRC-32C")
    return data[:size]


def _u(data: bytes, offset: int, size: int) -> int:
    return int.from_bytes(data[offset:offset + size], "big")


def _p(*fields: tuple[int, int]) -> bytes:
    return b"".join(value.to_bytes(size, "big") for value, size in fields)


@dataclass(frozen=True)
class Credit:
    """A credit extension, or an entry of ACK and SACK."""

    cls: int
    generation: int = 0
    header_limit: int = 0
    data_limit: int = 0
    echo: int = 0

    def pack(self) -> bytes:
        return _p((self.cls, 1), (self.generation, 1), (self.header_limit, 2),
                  (self.data_limit, 2), (self.echo, 2))

    @classmethod
    def unpack(cls, data: bytes) -> "Credit":
        return cls(data[0], data[1], _u(data, 2, 2), _u(data, 4, 2), _u(data, 6, 2))


@dataclass(frozen=True)
class Tlps:
    """1 to 31 TLPs, each with the bytes that PCIe carries between sequence number and LCRC."""

    tlps: tuple[bytes, ...]
    kind: ClassVar[FrameType] = FrameType.TLP

    def pack(self, tag: int, seq: int) -> bytes:
        body = b""
        for tlp in self.tlps:
            body += tlp + (crc32c(tlp) ^ binding_word(tag, seq)).to_bytes(4, "little")
            if len(self.tlps) > 1:
                body += bytes(-len(body) % fmt.RECORD_ALIGN)
        return body


@dataclass(frozen=True)
class Ack:
    """Credit limits of all classes; the acknowledgement is in the frame's header."""

    entries: tuple[Credit, Credit, Credit]
    kind: ClassVar[FrameType] = FrameType.ACK

    def pack(self, tag: int, seq: int) -> bytes:
        return _sealed(b"".join(entry.pack() for entry in self.entries))


@dataclass(frozen=True)
class Sack:
    """An ACK with a bitmap of the stored frames behind ACK, in one word.

    Without a word: the NAK of go-back-N; ``request``, 0 or 1, tells a request from the one before
    it. A frame with more words is wrong.
    """

    entries: tuple[Credit, Credit, Credit]
    words: tuple[int, ...] = ()
    request: int = 0
    kind: ClassVar[FrameType] = FrameType.SACK

    def pack(self, tag: int, seq: int) -> bytes:
        return _sealed(b"".join(entry.pack() for entry in self.entries)
                       + _p((len(self.words), 2), (self.request, 2),
                            *((w, fmt.SACK_WORD_BYTES) for w in self.words)))


@dataclass(frozen=True)
class Hello:
    """HELLO, or HELLO_ACK if ``answer``, or HELLO_DONE if ``done``. Times in microseconds.

    ``keyed`` are nonces and proof of a keyed session (32 bytes).
    """

    nonce: int
    tag_offered: int
    tag_echoed: int
    role: int
    slots: int
    arq_mode: int
    security_mode: int
    largest_frame: int
    window: int
    smallest_timer: int
    give_up_timer: int
    capabilities: int
    boot_counter: int
    table_generation: int
    answer: bool = False
    done: bool = False
    keyed: bytes = b""

    #: Field names and sizes in bytes, in wire order.
    FIELDS: ClassVar[tuple[tuple[str, int], ...]] = tuple(
        (name.replace(" ", "_"), size) for name, size in Layout.HELLO.fields)

    @property
    def kind(self) -> FrameType:
        if self.done:
            return FrameType.HELLO_DONE
        return FrameType.HELLO_ACK if self.answer else FrameType.HELLO

    def pack(self, tag: int, seq: int) -> bytes:
        return _sealed(_p(*((getattr(self, name), size) for name, size in self.FIELDS))
                       + self.keyed)


@dataclass(frozen=True)
class Event:
    """A sequenced control event; see :class:`dxpu.fabric.wire.format.EventCode`."""

    code: int
    generation: int = 0
    argument: int = 0
    kind: ClassVar[FrameType] = FrameType.EVENT

    def pack(self, tag: int, seq: int) -> bytes:
        return _sealed(_p((self.code, 1), (0, 1), (self.generation, 2), (self.argument, 4)))


@dataclass(frozen=True)
class Fence:
    """The sender has given up the session; see :class:`dxpu.fabric.wire.format.FenceReason`."""

    reason: int
    kind: ClassVar[FrameType] = FrameType.FENCE

    def pack(self, tag: int, seq: int) -> bytes:
        return _sealed(_p((self.reason, 1), (0, 7)))


@dataclass(frozen=True)
class Hdr:
    """First frame of a TLP in the split form: prefixes and header."""

    header: bytes
    kind: ClassVar[FrameType] = FrameType.HDR

    def pack(self, tag: int, seq: int) -> bytes:
        return _sealed(self.header)


@dataclass(frozen=True)
class Data:
    """Data bytes (and digest) of a TLP in the split form.

    ``crc`` is the CRC-32C of the TLP from its byte 0 up to the last byte of this frame, without
    binding. A single frame cannot be checked alone; :class:`Joiner` checks the sequence.
    """

    offset: int
    data: bytes
    crc: int
    kind: ClassVar[FrameType] = FrameType.DATA

    def pack(self, tag: int, seq: int) -> bytes:
        return (_p((self.offset, 2), (len(self.data), 2)) + self.data
                + (self.crc ^ binding_word(tag, seq)).to_bytes(4, "little"))


@dataclass(frozen=True)
class Mgmt:
    """Body of a management frame, unparsed, padding included."""

    data: bytes
    kind: ClassVar[FrameType] = FrameType.MGMT

    def pack(self, tag: int, seq: int) -> bytes:
        return self.data


Body = Tlps | Ack | Sack | Hello | Event | Fence | Hdr | Data | Mgmt

#: The class of each type's body.
BODIES: dict[FrameType, Callable[..., Body]] = {
    **{kind: Hello for kind in types_with(Layout.HELLO, Layout.KEYED)},
    **{cls.kind: cls for cls in (Tlps, Ack, Sack, Event, Fence, Hdr, Data, Mgmt)},
}


# Frames -------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Frame:
    """A frame: body and header fields. The type follows from the body.

    MAC addresses of ``None`` are derived from the nodes and the path.
    """

    body: Body
    dst_node: int = 0
    src_node: int = 0
    dst_slot: int = 0
    src_slot: int = 0
    path: int = 0
    stream: int = 0
    tag: int = 0
    seq: int = 0
    ack: int = 0
    ar: bool = False
    credit: Credit | None = None
    dst_mac: bytes | None = field(default=None)
    src_mac: bytes | None = field(default=None)

    @property
    def type(self) -> FrameType:
        return self.body.kind

    @property
    def count(self) -> int:
        return len(self.body.tlps) if isinstance(self.body, Tlps) else 0


def build(frame: Frame, *, with_fcs: bool = False) -> bytes:
    """The bytes of ``frame`` from the destination MAC on, padded to 60 bytes.

    Nothing is checked: a test may build frames that :func:`parse` refuses.
    """
    extension = frame.credit.pack() if frame.credit else b""
    guarded = bytes([
        fmt.VERSION << 4 | frame.type,
        bool(frame.credit) << 7 | frame.ar << 6 | frame.count,
    ]) + _p((frame.dst_node << 12 | frame.src_node, 3), (frame.dst_slot, 1), (frame.src_slot, 1),
            (frame.path << 4 | frame.stream, 1), (frame.tag, 2), (frame.seq, 3), (frame.ack, 3))
    data = (
        (node_mac(frame.path, frame.dst_node) if frame.dst_mac is None else frame.dst_mac)
        + (node_mac(frame.path, frame.src_node) if frame.src_mac is None else frame.src_mac)
        + _p((fmt.ETHERTYPE, 2)) + guarded
        + _p((crc16_ccitt_false(guarded + extension), 2)) + extension
        + frame.body.pack(frame.tag, frame.seq)
    ).ljust(fmt.MIN_FRAME_BYTES, b"\0")
    return data + fcs(data) if with_fcs else data


def reseal(data: bytes) -> bytes:
    """``data`` (without FCS) with a matching HCRC: for hostile frames in tests."""
    end = 40 if data[15] & 0x80 else 32
    hcrc = crc16_ccitt_false(data[14:30] + data[32:end])
    return data[:30] + _p((hcrc, 2)) + data[32:]


def _records(data: bytes, count: int) -> Iterator[tuple[int, int]]:
    """Start and length of the TLP of each record in a body, as every receiver finds them."""
    offset = 0
    for _ in range(count):
        size = tlp_length(data, offset)
        yield offset, size
        offset += size + fmt.RECORD_CRC_BYTES
        if count > 1:
            offset += -offset % fmt.RECORD_ALIGN
        if offset > len(data):
            raise FrameError(DropCause.LENGTH, "a record goes beyond the frame")


def _body_end(kind: FrameType, data: bytes, count: int) -> int:
    """Length of the body at the beginning of ``data``."""
    layout = kind.body
    if layout.end == End.RECORDS:
        end = [start + size for start, size in _records(data, count)][-1] + fmt.RECORD_CRC_BYTES
        return end + (-end % fmt.RECORD_ALIGN if count > 1 else 0)
    if layout.end == End.HEADER:
        return header_length(data) + fmt.BODY_CRC_BYTES
    if layout.end == End.LENGTH:
        offset, size = _u(data, 0, 2), _u(data, 2, 2)
        if offset % 4 or size not in range(4, fmt.DATA_BYTES_MAX + 1, 4):
            raise FrameError(DropCause.LENGTH, f"{size} bytes at offset {offset}")
        return 4 + size + fmt.RECORD_CRC_BYTES
    if layout.end == End.WORDS:
        words = _u(data, *layout.find("count"))
        if words > 1:
            raise FrameError(DropCause.LENGTH, f"{words} words")
        return layout.size + fmt.SACK_WORD_BYTES * words + fmt.BODY_CRC_BYTES
    if layout.end == End.KEYED:
        keyed = _u(data, *layout.find("security mode")) != 0
        return (Layout.KEYED if keyed else layout).size + fmt.BODY_CRC_BYTES
    if layout.end == End.FRAME:
        return len(data)
    return layout.size + fmt.BODY_CRC_BYTES


def _entries(data: bytes) -> tuple[Credit, Credit, Credit]:
    p, np, cpl = (Credit.unpack(data[n:n + 8]) for n in (0, 8, 16))
    if (p.cls, np.cls, cpl.cls) != (0, 1, 2):
        raise FrameError(DropCause.BODY, "class of an entry")
    return p, np, cpl


def _fields(layout: Layout, data: bytes) -> dict[str, int]:
    """Values of the fields that ``data`` starts with."""
    values = {name.replace(" ", "_"): _u(data, *layout.find(name)) for name, _ in layout.fields}
    if values.pop("zero", 0):
        raise FrameError(DropCause.BODY, "zero field")
    return values


def _body(kind: FrameType, data: bytes, count: int, tag: int, seq: int) -> Body:
    """The body of a frame of correct length."""
    if kind == FrameType.TLP:
        tlps, bad_crc, bad_padding = [], False, False
        for start, size in _records(data, count):
            end = start + size
            tlps.append(data[start:end])
            bad_crc |= (crc32c(tlps[-1]) ^ binding_word(tag, seq)
                        != int.from_bytes(data[end:end + 4], "little"))
            if count > 1:
                bad_padding |= any(data[end + 4:end + 4 + -(end + 4) % fmt.RECORD_ALIGN])
        if bad_padding:
            raise FrameError(DropCause.PADDING, "between records")
        if bad_crc:
            raise FrameError(DropCause.RECORD, "CRC-32C")
        return Tlps(tuple(tlps))
    if kind == FrameType.DATA:
        body = data[4:4 + _u(data, 2, 2)]
        crc = int.from_bytes(data[4 + len(body):][:4], "little") ^ binding_word(tag, seq)
        return Data(_u(data, 0, 2), body, crc)
    if kind.body.end == End.FRAME:
        return Mgmt(data)
    data = _unsealed(data, _body_end(kind, data, count) - fmt.BODY_CRC_BYTES)
    if kind == FrameType.HDR:
        return Hdr(data)
    if kind.body in (Layout.HELLO, Layout.KEYED):
        size = Layout.HELLO.size
        return Hello(**_fields(Layout.HELLO, data), answer=kind == FrameType.HELLO_ACK,
                     done=kind == FrameType.HELLO_DONE, keyed=data[size:])
    fields = _fields(kind.body, data)
    if kind == FrameType.ACK:
        return Ack(_entries(data))
    if kind == FrameType.SACK:
        words = range(kind.body.size, len(data), fmt.SACK_WORD_BYTES)
        request = _u(data, *kind.body.find("request"))
        if request > 1:
            raise FrameError(DropCause.BODY, f"request {request}")
        return Sack(_entries(data), tuple(_u(data, n, fmt.SACK_WORD_BYTES) for n in words), request)
    return BODIES[kind](**fields)


_TYPES = {int(kind): kind for kind in FrameType}


def parse(data: bytes, *, with_fcs: bool = False) -> Frame:
    """The frame in ``data``, which starts at the destination MAC.

    Raises
    ------
    FrameError
        If a receiver must drop the frame. Node, session and sequence are not checked here.
    """
    if with_fcs:
        if len(data) < 4 or fcs(data[:-4]) != data[-4:]:
            raise FrameError(DropCause.FCS)
        data = data[:-4]
    if len(data) < fmt.MIN_FRAME_BYTES:
        raise FrameError(DropCause.RUNT, f"{len(data)} bytes")
    if _u(data, 12, 2) != fmt.ETHERTYPE:
        raise FrameError(DropCause.ETHERTYPE, f"0x{_u(data, 12, 2):04x}")
    if data[14] >> 4 != fmt.VERSION:
        raise FrameError(DropCause.VERSION, str(data[14] >> 4))
    start = fmt.HEADER_BYTES + (fmt.CREDIT_BYTES if data[15] & 0x80 else 0)
    if crc16_ccitt_false(data[14:30] + data[32:start]) != _u(data, 30, 2):
        raise FrameError(DropCause.HCRC)
    if data[14] & 15 not in _TYPES:
        raise FrameError(DropCause.TYPE, str(data[14] & 15))
    kind, count = _TYPES[data[14] & 15], data[15] & 31
    seq, ack, tag = _u(data, 24, 3), _u(data, 27, 3), _u(data, 22, 2)
    credit = Credit.unpack(data[32:40]) if data[15] & 0x80 else None
    if data[15] & 0x20 or bool(count) != (kind.body.end == End.RECORDS):
        raise FrameError(DropCause.FIELD, f"byte 15 is 0x{data[15]:02x}")
    if credit and credit.cls > 2:
        raise FrameError(DropCause.FIELD, f"credit class {credit.cls}")
    if kind.numbering == Numbering.NONE and (seq or ack):
        raise FrameError(DropCause.FIELD, f"SEQ or ACK of a {kind.name}")
    rest = data[start:]
    end = _body_end(kind, rest, count)
    if len(data) != max(fmt.MIN_FRAME_BYTES, start + end):
        raise FrameError(DropCause.LENGTH, f"{len(data)} bytes, body of {end}")
    if any(rest[end:]):
        raise FrameError(DropCause.PADDING, "after the body")
    body = _body(kind, rest, count, tag, seq)
    nodes, path = _u(data, 16, 3), data[21] >> 4
    return Frame(
        body, dst_node=nodes >> 12, src_node=nodes & 0xFFF, dst_slot=data[19], src_slot=data[20],
        path=path, stream=data[21] & 15, tag=tag, seq=seq, ack=ack, ar=bool(data[15] & 0x40),
        credit=credit,
        dst_mac=None if data[:6] == node_mac(path, nodes >> 12) else data[:6],
        src_mac=None if data[6:12] == node_mac(path, nodes & 0xFFF) else data[6:12],
    )


# Split form ---------------------------------------------------------------------------------------

def split(tlp: bytes, largest: int) -> list[Hdr | Data]:
    """``tlp`` in the split form, with at most ``largest`` data bytes (a multiple of 4) in a
    frame."""
    if largest < 4 or largest % 4:
        raise ValueError(f"largest must be a positive multiple of 4, not {largest!r}")
    start = header_length(tlp)
    bodies: list[Hdr | Data] = [Hdr(tlp[:start])]
    for offset in range(start, len(tlp), largest):
        data = tlp[offset:offset + largest]
        bodies.append(Data(offset - start, data, crc32c(tlp[:offset + len(data)])))
    return bodies


class Joiner:
    """Joins TLPs in the split form, from the frames of one stream in order.

    A frame that does not continue the open TLP raises :exc:`FrameError` and changes nothing.
    """

    def __init__(self) -> None:
        self._tlp = b""
        self._start = 0

    def take(self, body: Hdr | Data) -> bytes | None:
        """The whole TLP if ``body`` is its last part, else None."""
        if isinstance(body, Hdr):
            if self._tlp:
                raise FrameError(DropCause.LENGTH, "HDR before the last TLP's end")
            self._start, tlp = len(body.header), body.header
        else:
            if not self._tlp:
                raise FrameError(DropCause.LENGTH, "DATA without HDR")
            tlp = self._tlp + body.data
            if (not body.data or body.offset != len(self._tlp) - self._start
                    or len(tlp) > tlp_length(self._tlp)):
                raise FrameError(DropCause.LENGTH, "DATA does not continue the TLP")
            if crc32c(tlp) != body.crc:
                raise FrameError(DropCause.RECORD, "running CRC-32C")
        done = len(tlp) == tlp_length(tlp)
        self._tlp = b"" if done else tlp
        return tlp if done else None
