"""Frames of a mirror port: every constant of their format, defined once.

Pure Python without Amaranth: the gateware, ``dxpu capture`` and the tests read the same numbers.
Offsets are in bytes from the destination MAC; fields are big endian.

Ref: docs/reference/mirror.md, "Format"
"""

from typing import NamedTuple

__all__ = ["BAD", "DESTINATION", "ETHERTYPE", "FIELDS", "HEADER_BYTES", "RECEIVED", "SOURCE",
           "VERSION", "Field", "MirrorHeader", "parse"]

#: Local Experimental Ethertype 2 (IEEE 802, 9.2.2). DXF has the first one: a proxy or a host that
#: gets a frame of a mirror drops it by its EtherType.
ETHERTYPE = 0x88B6
VERSION = 1
#: From the destination MAC to the observed frame.
HEADER_BYTES = 32
#: Everybody: the interface at the other end of the cable need not be promiscuous.
DESTINATION = b"\xff" * 6
#: No node has this address, as paths are numbered from 0 to 15.
SOURCE = b"\x02DX\xff\xff\xff"
#: Bits of the field ``flags``.
RECEIVED, BAD = 1, 2


class Field(NamedTuple):
    """A field of the header: byte offset, the bytes there, and the bits within them."""

    name: str
    offset: int
    size: int
    msb: int
    lsb: int


#: The header behind the addresses.
FIELDS = (
    Field("EtherType", 12, 2, 15, 0),
    Field("version", 14, 1, 7, 4),
    Field("flags", 14, 1, 3, 0),
    Field("path", 15, 1, 7, 0),
    Field("length", 16, 2, 15, 0),
    Field("period", 18, 2, 15, 0),
    Field("number", 20, 4, 31, 0),
    Field("lost", 24, 2, 15, 0),
    Field("time", 26, 6, 47, 0),
)


class MirrorHeader(NamedTuple):
    """What a mirror says about a frame.

    Members
    -------
    received : bool
        The observed MAC has received the frame; otherwise it was given the frame to send.
    bad : bool
        The frame ended with an error, such as a wrong FCS.
    path : int
        Path of the observed MAC.
    length : int
        Bytes of the observed frame without FCS, of which fewer may follow.
    period : int
        Picoseconds of a unit of ``time``.
    number : int
        Frames of this direction before this one since reset, modulo 2 ** 32.
    lost : int
        Those of them that the mirror had no room for, modulo 2 ** 16.
    time : int
        When the frame's first beat passed between core and MAC, modulo 2 ** 48.
    """

    received: bool
    bad: bool
    path: int
    length: int
    period: int
    number: int
    lost: int
    time: int


def parse(frame: bytes) -> tuple[MirrorHeader, bytes] | None:
    """The header of a mirror's frame, and the observed frame as far as it follows; ``None`` for any
    other frame, such as one of another version."""
    if len(frame) < HEADER_BYTES:
        return None
    value = {}
    for name, offset, size, msb, lsb in FIELDS:
        word = int.from_bytes(frame[offset:offset + size], "big")
        value[name] = word >> lsb & (1 << msb - lsb + 1) - 1
    if value["EtherType"] != ETHERTYPE or value["version"] != VERSION or not value["period"]:
        return None
    header = MirrorHeader(
        bool(value["flags"] & RECEIVED), bool(value["flags"] & BAD),
        *(value[name] for name in ("path", "length", "period", "number", "lost", "time")))
    # Behind a frame that is shorter than the least Ethernet frame is padding.
    return header, frame[HEADER_BYTES:HEADER_BYTES + header.length]
