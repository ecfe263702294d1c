"""Frames of management: every constant of the format, defined once.

Pure Python without Amaranth, like :mod:`dxpu.fabric.wire.format`. Offsets are in bytes from the
first one of the body.

Ref: docs/reference/management.md
"""

from enum import IntEnum

__all__ = [
    "ANSWER_BYTES", "ASSOCIATED_BYTES", "BODY_BYTES_MAX", "FOLLOWS_MAX", "HEAD_BYTES",
    "IDENTITY_BYTES", "KNOCK_BYTES", "LABEL_ASSOCIATION", "LABEL_KNOCK", "MANAGERS", "NONCE_BYTES",
    "OPERATIONS_MAX", "OPERATION_BYTES", "PLAIN_BYTES_MAX", "REQUEST_BYTES", "SEALED", "TAG_BYTES",
    "WORDS_MAX", "Code", "Kind", "Status", "Subject",
]

#: Manager numbers are 1 to this.
MANAGERS = 4
#: Kind, manager number, length; counter; the nonces.
HEAD_BYTES = 24
NONCE_BYTES, TAG_BYTES, KNOCK_BYTES = 8, 16, 16
#: Of the whole body, with its CRC-32C, and of what follows the head.
BODY_BYTES_MAX = 384
FOLLOWS_MAX = BODY_BYTES_MAX - HEAD_BYTES - 4
#: Of what is encrypted.
PLAIN_BYTES_MAX = FOLLOWS_MAX - TAG_BYTES
#: Bytes 14 to 19 of the header, and the head.
ASSOCIATED_BYTES = 6 + HEAD_BYTES
#: Of a request before its operations, of an operation before its words, of an answer before its
#: words.
REQUEST_BYTES, OPERATION_BYTES, ANSWER_BYTES = 8, 8, 8
OPERATIONS_MAX, WORDS_MAX = 40, 80
IDENTITY_BYTES = 32

#: Beginnings of the messages that the node's key authenticates.
LABEL_KNOCK, LABEL_ASSOCIATION = b"DXFA", b"DXFM"


class Kind(IntEnum):
    """First byte of a body. All other values: the frame is dropped."""

    ASK = 0
    CHALLENGE = 1
    REQUEST = 2
    ANSWER = 3
    EVENT = 4
    EVENT_ACK = 5
    ANNOUNCE = 6


#: Kinds under the key of an association.
SEALED = (Kind.REQUEST, Kind.ANSWER, Kind.EVENT, Kind.EVENT_ACK)


class Code(IntEnum):
    """What an operation does. All other values: the request is refused."""

    READ = 0
    WRITE = 1


class Status(IntEnum):
    """What became of a request."""

    DONE = 0
    """All operations were done, in order."""
    STALE = 1
    """There is a write, and the manager's epoch is lower than the node's."""
    REFUSED = 2
    """The request has not the form of one, or has a write and no epoch, or its answer would be too
    long."""
    ADDRESS = 3
    """An operation names a register that is not there, or cannot be written."""


class Subject(IntEnum):
    """What an event is about."""

    PATH = 1
    """A link; bit 0 of the argument: there is one."""
    SESSION = 2
    """Bits 0 to 15 of the argument: number of the session. Bit 31: it is open now. Bit 30: one that
    was open has ended."""
    SLOT = 3
    """The slot of a row. Bit 0 of the argument: bound; 1: a GPU is there, or seen by the host; 2:
    TLPs may pass; 3: of a host, the card was lost; of a box, the GPU must be scrubbed."""
    ERROR = 4
    """What has failed. 0, the noise source: bit 0 of the argument."""
    LOST = 5
    """Changes that have no event of their own since the last LOST: bits 0 to 15 of the argument,
    65,535 for as many or more."""
