"""Frame types of DXF v1, one row each.

Pure Python without Amaranth, like :mod:`~.format`. These blocks derive from the table: the walk
over received frames, the checks of headers and bodies, sequence numbers, the bodies of sent frames,
the golden model, and the tables of ``docs/reference/wire-format.md``.

A new type needs a row in :class:`FrameType`, a layout in :class:`Body` if no other fits, and a
class in :mod:`dxpu_model.wire`. A type whose body goes to somebody new also needs a stream at
:class:`~dxpu.fabric.receive.frame_judge.FrameJudge`.
"""

from enum import Enum, IntEnum, unique
from typing import NamedTuple

from .format import BODY_CRC_BYTES, CREDIT_BYTES, CreditClass

__all__ = ["LIMITED", "SEQUENCED", "SESSIONLESS", "UNNUMBERED", "Body", "BodyField", "End",
           "FrameType", "Handler", "Numbering", "handled", "types_with"]


class BodyField(NamedTuple):
    """A field of a body, ``size`` bytes long. A field with the name ``zero`` must be zero."""

    name: str
    size: int


class End(Enum):
    """What tells a receiver where a body ends."""

    RECORDS = "the header's count of TLP records"
    FIXED = "fixed size"
    WORDS = "the number of words, in field `count`"
    KEYED = "the security mode: if it is not 0, nonces and proof follow"
    HEADER = "the TLP's own Fmt"
    LENGTH = "field `length`"
    FRAME = "the end of the frame"


#: Entries of ACK and SACK: one credit extension for each class.
_ENTRIES = tuple((cls.name, CREDIT_BYTES) for cls in CreditClass)
_HELLO = (
    ("nonce", 4), ("tag offered", 2), ("tag echoed", 2), ("role", 1), ("slots", 1),
    ("arq mode", 1), ("security mode", 1), ("largest frame", 2), ("window", 2),
    ("smallest timer", 2), ("give up timer", 2), ("capabilities", 2), ("boot counter", 2),
    ("table generation", 4))
#: What follows in keyed sessions.
_KEYED = (("opener nonce", 8), ("answerer nonce", 8), ("proof", 16))


@unique
class Body(Enum):
    """Layouts of bodies: what tells the end, the fields from the first byte on, and the rest in
    words. A receiver compares a type with the layouts in this order.
    """

    RECORDS = (End.RECORDS, (), "1 to 31 TLP records, see above; each has its own CRC")
    LIMITS = (End.FIXED, _ENTRIES, "an entry of each class, in this order")
    EVENT = (End.FIXED, (("code", 1), ("zero", 1), ("generation", 2), ("argument", 4)),
             "the generation is that of the row")
    FENCE = (End.FIXED, (("reason", 1), ("zero", 7)),
             "the sender has given the session up. Slots of the header are 0, the tag is the "
             "session's")
    SACK = (End.WORDS, (*_ENTRIES, ("count", 2), ("request", 2)),
            "the entries of ACK; behind them nothing if the count is 0, which asks for go-back-N, "
            "or a 64-bit word if it is 1: frame ACK + 1 + i came if bit i is set, least "
            "significant 0. Requests to go back are numbered 0 and 1 in turn, and copies of one "
            "have its number; 0 with a word")
    HELLO = (End.KEYED, _HELLO, "see below")
    KEYED = (End.FIXED, _HELLO + _KEYED, "the fields of HELLO, nonces and proof, see below")
    HEADER = (End.HEADER, (), "prefixes and header of a TLP")
    DATA = (End.LENGTH, (("offset", 2), ("length", 2)),
            "the offset from the first data byte, and that many bytes; then, in place of a CRC "
            "over the body, CRC-32C of the whole TLP up to here, with the binding word of this "
            "frame")
    OPAQUE = (End.FRAME, (), "opaque on this level, up to the end of the frame, without CRC")

    def __init__(self, end: End, fields: tuple[tuple[str, int], ...], text: str) -> None:
        self.end = end
        self.fields = tuple(BodyField(*field) for field in fields)
        self.text = text

    @property
    def size(self) -> int:
        """Bytes of the fields alone, without what follows them."""
        return sum(field.size for field in self.fields)

    @property
    def sealed(self) -> bool:
        """Whether the body ends in a CRC-32C over its own bytes."""
        return self.end in (End.FIXED, End.WORDS, End.KEYED, End.HEADER)

    @property
    def dwords(self) -> int:
        """Dwords of the fields and, if the body is sealed, of its CRC-32C."""
        return (self.size + BODY_CRC_BYTES * self.sealed) // 4

    def find(self, name: str) -> tuple[int, int]:
        """Byte offset and size of a field."""
        offset = 0
        for field in self.fields:
            if field.name == name:
                return offset, field.size
            offset += field.size
        raise KeyError(f"{self.name} has no field {name!r}")


class Numbering(Enum):
    """What SEQ and ACK of a header are."""

    CONSUMES = "consumes a sequence number"
    CARRIES = "carries the next number and consumes none"
    NONE = "outside of the numbers: SEQ and ACK are 0"


class Handler(Enum):
    """Who acts upon a good frame. A receiver compares a type with the handlers in this order."""

    ROW = "the row that the slots name"
    LINK = "the link and its credit accounts"
    BINDING = "the binding of the row"
    KEEPER = "the keeper of sessions"
    ASSEMBLY = "the assembly of TLPs, in a build with the split form"
    OPENING = "the agent of keyed sessions, in a build with keys"
    NOBODY = "nobody"


@unique
class FrameType(IntEnum):
    """Low nibble of byte 14. All other values: the frame is dropped."""

    body: Body
    numbering: Numbering
    handler: Handler
    #: Whether the frame belongs to a session, open or about to open.
    in_session: bool
    text: str

    def __new__(cls, number: int, body: Body, numbering: Numbering, handler: Handler,
                in_session: bool, text: str) -> "FrameType":
        """One row of the table."""
        row = int.__new__(cls, number)
        row._value_ = number
        row.body, row.numbering, row.handler = body, numbering, handler
        row.in_session, row.text = in_session, text
        return row

    TLP = (2, Body.RECORDS, Numbering.CONSUMES, Handler.ROW, True, "TLPs of a row.")
    HDR = (3, Body.HEADER, Numbering.CONSUMES, Handler.ASSEMBLY, True,
           "Begins a TLP in the split form.")
    DATA = (4, Body.DATA, Numbering.CONSUMES, Handler.ASSEMBLY, True,
            "Goes on with a TLP in the split form.")
    EVENT = (8, Body.EVENT, Numbering.CONSUMES, Handler.BINDING, True,
             "Something happened to a row, or shall.")
    ACK = (5, Body.LIMITS, Numbering.CARRIES, Handler.LINK, True,
           "Acknowledges frames and tells credits.")
    SACK = (6, Body.SACK, Numbering.CARRIES, Handler.LINK, True,
            "An ACK that asks for frames to be repeated.")
    MGMT = (10, Body.OPAQUE, Numbering.NONE, Handler.NOBODY, False,
            "Management, for the unit beside the receiver.")
    HELLO = (0, Body.HELLO, Numbering.NONE, Handler.KEEPER, False, "Opens a session.")
    HELLO_ACK = (1, Body.HELLO, Numbering.NONE, Handler.KEEPER, False, "Answers a HELLO.")
    HELLO_DONE = (11, Body.KEYED, Numbering.NONE, Handler.OPENING, False,
                  "Opens a keyed session, as the answer to a HELLO_ACK.")
    FENCE = (9, Body.FENCE, Numbering.CARRIES, Handler.KEEPER, True, "Ends a session.")


def types_with(*bodies: Body) -> tuple[FrameType, ...]:
    """The types that have one of these bodies."""
    return tuple(kind for kind in FrameType if kind.body in bodies)


def handled(*, split: bool, keyed: bool = False) -> tuple[FrameType, ...]:
    """The types that a receiver acts upon; HDR and DATA only if it has the split form, HELLO_DONE
    only if it has keys."""
    without = {Handler.NOBODY, *[Handler.ASSEMBLY] * (not split), *[Handler.OPENING] * (not keyed)}
    return tuple(kind for handler in Handler if handler not in without
                 for kind in FrameType if kind.handler == handler)


#: Types that consume a sequence number.
SEQUENCED = tuple(kind for kind in FrameType if kind.numbering == Numbering.CONSUMES)
#: Types whose SEQ and ACK are 0.
UNNUMBERED = tuple(kind for kind in FrameType if kind.numbering == Numbering.NONE)
#: Types that belong to no session.
SESSIONLESS = tuple(kind for kind in FrameType if not kind.in_session)
#: Types whose body has credit entries.
LIMITED = types_with(Body.LIMITS, Body.SACK)
