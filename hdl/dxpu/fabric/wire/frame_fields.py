"""Fields of a frame's header as values in natural order, taken from the lanes of a stream."""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data

from .format import CREDIT_FIELDS, HEADER_BYTES, HEADER_FIELDS
from .frame_types import Body
from .types import Hello

__all__ = ["any_of", "body_field", "credit_fields", "header_field", "header_fields",
           "hello_fields", "natural"]

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
