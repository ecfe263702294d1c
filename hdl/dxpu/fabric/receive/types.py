"""Structures of frames on their way in: what the walk over a frame yields, and the verdict on
it."""

from amaranth import *
from amaranth.lib import data

from dxpu.fabric.wire.format import DATA_BYTES_MAX
from dxpu.fabric.wire.types import FrameHeader, Hello

__all__ = ["DATA_DWORDS", "TLP_DWORDS", "Committed", "PartSize", "Piece", "Refused", "Verdict",
           "Verdicts"]

#: Most dwords of data and digest of a TLP.
DATA_DWORDS = DATA_BYTES_MAX // 4
#: Most dwords of a TLP, with four prefixes.
TLP_DWORDS = 4 + 4 + DATA_DWORDS


class Piece(data.StructLayout):
    """Part of a record or body, aligned to its start.

    Members
    -------
    valid : 1
    data : ``width``
        Zero behind ``dwords``.
    dwords : ``range(width // 32 + 1)``
        Dwords, the CRC-32C included if ``end``.
    first, end : 1
        The record or body starts, ends (with its CRC-32C) in this piece.
    binding : 32
        Binding word of the frame; zero in a body.
    record : 1
        A TLP record, not a body.
    part : 1
        Of a HDR or DATA frame. A body, and to be stored, if HDR; a record if DATA.
    resume : 1
        With ``first``, of DATA: the CRC runs on from the part before. At widths above 32 the first
        lane is not the TLP's then (and counts in ``dwords``).
    write : 1
        TLP dwords are in this piece and are to be stored.
    last : 1
        The last dword of the TLP is in this piece.
    eof : 1
        The frame ends here; also without ``valid``.
    """

    def __init__(self, width):
        super().__init__({
            "valid": 1, "data": width, "dwords": range(width // 32 + 1), "first": 1, "end": 1,
            "binding": 32, "record": 1, "part": 1, "resume": 1, "write": 1, "last": 1, "eof": 1,
        })


class PartSize(data.Struct):
    """What HDR and DATA frames say about their TLP, in dwords.

    ``header`` (of HDR): prefixes and header; its top bit stays set once it was. ``data`` (of HDR):
    data and digest to come. ``offset``, ``length`` (of DATA): as in the frame.
    """

    header: 12
    data: 11
    offset: 14
    length: 11


class Verdicts(data.Struct):
    """What the walk found wrong with a frame (:class:`~dxpu.fabric.wire.format.DropCause`), and
    whether it was taken back by its source."""

    taken_back: 1
    runt: 1
    length: 1
    padding: 1
    overflow: 1


class Refused(data.Struct):
    """A frame that is good, and that the link has refused; ``hello`` means something if its type is
    HELLO or HELLO_ACK."""

    strobe: 1
    header: FrameHeader
    hello: Hello


class Verdict(data.Struct):
    """The link's answer to a :class:`FrameHeader`: take the frame or drop it; row it is for. With
    ``hold`` a good frame is to be kept for later, and has no effect now."""

    accept: 1
    row: 6
    hold: 1


class Committed(data.Struct):
    """A frame that took effect: its header, and the row that the verdict named."""

    row: 6
    header: FrameHeader
