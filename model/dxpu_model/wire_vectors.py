"""Known DXF frames: the check vectors of the wire contract, and frames with a single mistake."""

from typing import Any

from dxpu.fabric.wire import format as fmt
from dxpu.fabric.wire.format import DropCause

from .crc import crc32c
from .wire import Ack, Credit, Event, Fence, Frame, Hello, Sack, Tlps, build, reseal

__all__ = ["ACK", "EVENT", "MISTAKES", "ONE", "THREE", "UPDATE", "VECTORS", "edit", "read"]


def read(address: int, tag: int, dwords: int, requester: int = 0x3B00) -> bytes:
    """A memory read, from the PCIe specification's drawing (PCIe Base 5.0, 2.2.7)."""
    wide = address >> 32 != 0
    return bytes([0x20 if wide else 0, 0, dwords >> 8 & 3, dwords & 255, requester >> 8,
                  requester & 255, tag, 0xFF if dwords > 1 else 0x0F]) + address.to_bytes(
                      8 if wide else 4, "big")


UPDATE = Credit(cls=2, header_limit=0x140, data_limit=0x1340, echo=0x1234)
TO_HOST: dict[str, Any] = {"dst_node": 1, "src_node": 0x105, "dst_slot": 0, "src_slot": 3,
                           "tag": 0xBEEF, "ack": 0x77}

#: The check vectors of the contract, FCS last.
VECTORS: dict[str, tuple[Frame, str]] = {
    "V1": (
        Frame(Tlps((read(0x1_2345_6780, 0x5A, 32),)), **TO_HOST, seq=0x123, ar=True, credit=UPDATE),
        "02445800000102445800010588b512c1001105000300beef0001230000772f750200014013401234200000203b"
        "005aff00000001234567800c1d19db7f5ae423"),
    "V3": (
        Frame(Tlps((read(0x1_2345_6780, 0x5A, 32), read(0x1_2345_6800, 0x5B, 1))), **TO_HOST,
              seq=0x124, credit=UPDATE),
        "02445800000102445800010588b51282001105000300beef00012400007749fb0200014013401234200000203b"
        "005aff00000001234567800b1d19db00000000200000013b005b0f0000000123456800cfdd8aab000000008081"
        "d380"),
    "V4": (
        Frame(Tlps((read(0x2345_6800, 0x5C, 1),)), **TO_HOST, seq=0x126),
        "02445800000102445800010588b51201001105000300beef000126000077489c000000013b005c0f2345680074"
        "0127540000000000000000000000001f7cdd4f"),
    "V5": (
        Frame(Ack((Credit(0, 0, 0x10, 0x80), Credit(1, 0, 8, 8), Credit(2, 0, 0x140, 0x1340))),
              dst_node=0x105, src_node=1, dst_slot=3, src_slot=0, path=1, tag=0x1D0C, seq=0x79,
              ack=0x125),
        "02445801010502445801000188b515001050010300101d0c0000790001250c5b00000010008000000100000800"
        "08000002000140134000009c166b0adf3ead32"),
}


ONE = Frame(Tlps((read(0x2345_6800, 1, 1),)), tag=7, seq=9)
THREE = Frame(Tlps((read(0x2345_6800, 1, 1), read(0x1_0000_0000, 2, 1), read(16, 3, 4))),
              tag=7, seq=9, credit=UPDATE)
EVENT = Frame(Event(fmt.EventCode.BIND, 3, 4), seq=3)
ACK = VECTORS["V5"][0]
_ENTRIES = (Credit(0), Credit(1), Credit(2))
_HELLO = Hello(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def edit(frame: Frame, *changes: tuple[int, int], seal: bool = True) -> bytes:
    """Bytes of ``frame`` with each ``(offset, value)`` XORed in, and a matching HCRC."""
    data = bytearray(build(frame))
    for offset, value in changes:
        data[offset] ^= value
    return reseal(bytes(data)) if seal else bytes(data)


def _resealed_body(frame: Frame, *changes: tuple[int, int]) -> bytes:
    """As :func:`edit`, but also with a matching CRC-32C of a fixed-size body."""
    data = bytearray(edit(frame, *changes))
    size = frame.type.body.size
    data[32 + size:36 + size] = crc32c(bytes(data[32:32 + size])).to_bytes(4, "little")
    return bytes(data)


#: Frames (no FCS) that a receiver must drop, with the cause.
MISTAKES: dict[str, tuple[bytes, DropCause]] = {
    "runt": (build(ONE)[:56], DropCause.RUNT),
    "empty": (b"", DropCause.RUNT),
    "EtherType": (edit(ONE, (12, 1)), DropCause.ETHERTYPE),
    "version 0": (edit(ONE, (14, 0x10)), DropCause.VERSION),
    "version 2": (edit(ONE, (14, 0x30)), DropCause.VERSION),
    "HCRC": (edit(ONE, (31, 1), seal=False), DropCause.HCRC),
    "header without new HCRC": (edit(ONE, (19, 1), seal=False), DropCause.HCRC),
    "credit without new HCRC": (edit(THREE, (39, 1), seal=False), DropCause.HCRC),
    "type 12": (edit(ONE, (14, 14)), DropCause.TYPE),
    "type 15": (edit(ONE, (14, 13)), DropCause.TYPE),
    "zero bit": (edit(ONE, (15, 0x20)), DropCause.FIELD),
    "count 0 in TLP": (edit(ONE, (15, 1)), DropCause.FIELD),
    "count in EVENT": (edit(EVENT, (15, 1)), DropCause.FIELD),
    "count in ACK": (edit(ACK, (15, 16)), DropCause.FIELD),
    "credit class 3": (edit(THREE, (32, 1)), DropCause.FIELD),
    "credit class 0x42": (edit(THREE, (32, 0x40)), DropCause.FIELD),
    "one record too many": (edit(THREE, (15, 3 ^ 4)), DropCause.LENGTH),
    "one record too few": (edit(THREE, (15, 3 ^ 2)), DropCause.LENGTH),
    "TLP Length": (edit(ONE, (32, 0x40), (35, 9)), DropCause.LENGTH),
    "TLP Fmt": (edit(ONE, (32, 0xA0)), DropCause.LENGTH),
    "only prefixes": (edit(ONE, *((n, build(ONE)[n] ^ 0x80) for n in range(32, 60))),
                      DropCause.LENGTH),
    "a dword too long": (build(ONE) + bytes(4), DropCause.LENGTH),
    "a dword too long, three records": (build(THREE) + bytes(4), DropCause.LENGTH),
    "a dword too short": (build(THREE)[:-4], DropCause.LENGTH),
    "padding of the frame": (edit(ONE, (59, 1)), DropCause.PADDING),
    "padding of a record": (edit(THREE, (40 + 16 + 23, 0x80)), DropCause.PADDING),
    "TLP": (edit(ONE, (43, 1)), DropCause.RECORD),
    "record CRC": (edit(ONE, (44, 1)), DropCause.RECORD),
    "third TLP": (edit(THREE, (40 + 16 + 24 + 9, 1)), DropCause.RECORD),
    "record under another SEQ": (edit(ONE, (26, 1)), DropCause.RECORD),
    "record under another tag": (edit(ONE, (22, 1)), DropCause.RECORD),
    "EVENT body": (edit(EVENT, (39, 1)), DropCause.BODY),
    "EVENT CRC": (edit(EVENT, (40, 1)), DropCause.BODY),
    "ACK body": (edit(ACK, (34, 1)), DropCause.BODY),
    "EVENT zero field": (_resealed_body(EVENT, (33, 1)), DropCause.BODY),
    "FENCE zero field": (_resealed_body(Frame(Fence(1)), (39, 1)), DropCause.BODY),
    "ACK entries in another order": (_resealed_body(ACK, (32, 1), (40, 1)), DropCause.BODY),
    "ACK class 3": (_resealed_body(ACK, (48, 1)), DropCause.BODY),
    "request 256 of a SACK": (_resealed_body(Frame(Sack(_ENTRIES)), (58, 1)), DropCause.BODY),
    "request 2 of a SACK": (_resealed_body(Frame(Sack(_ENTRIES)), (59, 2)), DropCause.BODY),
    "SACK count": (edit(Frame(Sack(_ENTRIES)), (57, 1)), DropCause.LENGTH),
    "SEQ of a HELLO": (edit(Frame(_HELLO), (26, 1)), DropCause.FIELD),
}
