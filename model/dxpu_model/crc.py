"""The three CRCs of DXF, from their published parameters.

Deliberately unlike the gateware: no matrices. Two are in Python's library; the third, which is not,
has a table of bytes.
"""

import binascii
import zlib
from functools import cache

__all__ = ["crc16_ccitt_false", "crc32c", "fcs"]


def crc16_ccitt_false(data: bytes) -> int:
    """CRC-16/CCITT-FALSE: polynomial 0x1021, initial value 0xFFFF, not reflected."""
    return binascii.crc_hqx(data, 0xFFFF)


@cache
def _crc32c_table() -> tuple[int, ...]:
    table = []
    for crc in range(256):
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1
        table.append(crc)
    return tuple(table)


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C (RFC 3720): reflected, initial value and final XOR 0xFFFFFFFF.

    ``crc`` is the CRC of the bytes before ``data``, as in :func:`zlib.crc32`.
    """
    table = _crc32c_table()
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def fcs(frame: bytes) -> bytes:
    """Ethernet frame check sequence (IEEE 802.3, 3.2.9) as the four bytes on the wire."""
    return zlib.crc32(frame).to_bytes(4, "little")
