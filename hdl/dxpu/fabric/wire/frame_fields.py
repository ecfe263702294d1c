"""Fields of headers and bodies: from the lanes of a stream to values in natural order, and back.
"""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data

from .format import (
    CREDIT_FIELDS, ETHERTYPE, HCRC_OFFSET, HCRC_START, HEADER_BYTES, HEADER_FIELDS, VERSION,
)
from .frame_types import Body
from .types import Hello

__all__ = ["any_of", "body_bytes", "body_field", "credit_bytes", "credit_fields", "guarded_bytes",
           "header_bytes", "header_field", "header_fields", "hello_fields", "natural", "wire"]

_HEADER = {field.name: field for field in HEADER_FIELDS}

#: Members of :class:`~.types.FrameHeader` and of :class:`~.types.Credit`.
_MEMBERS = {
    "type": "type", "crx": "CRX", "ar": "AR", "count": "count", "dst_node": "destination node",
    "src_node": "source node", "dst_slot": "destination slot", "src_slot": "source slot",
    "path": "path", "stream": "stream", "tag": "session tag", "seq": "SEQ", "ack": "ACK",
}
_CREDIT_MEMBERS = ("cls", "generation", "header_limit", "data_limit", "echo")


def natural(bits, offset, size):
    """The big-endian field of ``size`` bytes at byte ``offset`` of ``bits`` (byte 0 lowest)."""
    return Cat(bits[8 * n:8 * n + 8] for n in reversed(range(offset, offset + size)))


def wire(value, size):
    """``value`` as ``size`` bytes, big endian, the first byte in the low bits."""
    value = Value.cast(value)
    assert len(value) <= 8 * size
    value = Cat(value, Const(0, 8 * size - len(value)))
    return Cat(value.word_select(n, 8) for n in reversed(range(size)))


def _placed(fields, values):
    """The bytes that these fields fill without a gap; ``values`` by their names."""
    parts = {}  # bits of one value in one byte, by the first bit
    for field in fields:
        value = Cat(values[field.name], Const(0, 8 * field.size))
        for n in range(field.lsb // 8, field.msb // 8 + 1):
            first, last = max(8 * n, field.lsb), min(8 * n + 7, field.msb)
            byte = field.offset + field.size - 1 - n
            parts[8 * byte + first % 8] = value[first - field.lsb:last + 1 - field.lsb]
    return Cat(parts[n] for n in sorted(parts))


def any_of(frame_type, types):
    """Whether ``frame_type`` is one of ``types``."""
    return reduce(or_, (frame_type == t for t in types))


def body_field(bits, body, name):
    """The field ``name`` of a :class:`~.frame_types.Body`; ``bits`` starts the body."""
    return natural(bits, *body.find(name))


def header_field(bits, name):
    """Header field ``name`` (as in :data:`~.format.HEADER_FIELDS`); ``bits`` starts the frame."""
    field = _HEADER[name]
    return natural(bits, field.offset, field.size)[field.lsb:field.msb + 1]


def guarded_bytes(**members):
    """The bytes of a header that HCRC covers, from members of a :class:`~.types.FrameHeader`."""
    values = {_MEMBERS[member]: value for member, value in members.items()}
    return _placed([field for field in HEADER_FIELDS if HCRC_START <= field.offset < HCRC_OFFSET],
                   {"version": Const(VERSION, 4), "zero": Const(0, 1), **values})


def header_bytes(guarded, *, dst_mac, src_mac, hcrc):
    """The bytes of a whole header around its :func:`guarded_bytes`. MAC addresses are numbers of
    48 bits."""
    before = _placed([field for field in HEADER_FIELDS if field.offset < HCRC_START], {
        "destination MAC": dst_mac, "source MAC": src_mac, "EtherType": Const(ETHERTYPE, 16)})
    behind = _placed([field for field in HEADER_FIELDS if field.offset >= HCRC_OFFSET],
                     {"HCRC": hcrc})
    return Cat(before, guarded, behind)


def body_bytes(body, **values):
    """The bytes of a :class:`~.frame_types.Body` with these values of its fields."""
    return Cat(wire(Const(0) if field.name == "zero" else values[field.name], field.size)
               for field in body.fields)


def credit_bytes(credit):
    """A :class:`~.types.Credit` as a credit extension or an entry of an ACK."""
    return Cat(wire(credit[member], field.size)
               for member, field in zip(_CREDIT_MEMBERS, CREDIT_FIELDS, strict=True))


def credit_fields(bits, offset=0):
    """Members of a :class:`~.types.Credit` whose wire form is at byte ``offset`` of ``bits``."""
    return {member: natural(bits, offset + field.offset, field.size)
            for member, field in zip(_CREDIT_MEMBERS, CREDIT_FIELDS, strict=True)}


def header_fields(bits):
    """Members of a :class:`~.types.FrameHeader`; ``bits`` starts the frame, extension included."""
    return {
        **{member: header_field(bits, name) for member, name in _MEMBERS.items()},
        "credit": credit_fields(bits, HEADER_BYTES),
    }


def hello_fields(body):
    """Members of a :class:`~.types.Hello`; ``body`` is that of the frame."""
    members = [member for member, _ in data.Layout.cast(Hello)]
    return {member: body_field(body, Body.HELLO, field.name)
            for member, field in zip(members, Body.HELLO.fields, strict=True)}
