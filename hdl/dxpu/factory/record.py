"""The factory record: format shared by gateware, tools and docs (docs/reference/boards.md, "Factory
record").
"""

import hashlib
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from amaranth.lib import enum

__all__ = ["DEFAULT_MAC", "FIELDS", "KEY_BYTES", "MAGIC", "OFFSETS", "RECORD_BYTES", "VERSION",
           "FactoryRecord", "FactoryState", "RecordError", "fingerprint_of", "is_record",
           "mac_text"]

MAGIC = b"DXPF"
VERSION = 1
KEY_BYTES = 32
#: MAC address of a device without a record: locally administered, with a node number that no node
#: has (docs/reference/wire-format.md).
DEFAULT_MAC = bytes.fromhex("024458ffffff")


class Field(NamedTuple):
    """A field of ``size`` bytes, big endian, behind the field before."""

    name: str
    size: int
    doc: str


FIELDS = (
    Field("magic", 4, '"DXPF"'),
    Field("version", 1, "1; another one may have another layout from here on"),
    Field("flags", 1, "bit 0: there is a key; others zero"),
    Field("mac", 6, "factory address, of one device: bit 0 of its first byte is zero"),
    Field("serial", 4, "serial number; 0: none"),
    Field("key", 32, "zeros if there is none"),
    Field("fingerprint", 4, "first bytes of the SHA-256 of the key; zeros if there is none"),
    Field("crc", 4, "CRC-32 (IEEE 802.3) of all before it"),
)
#: Byte offset of each field, by name.
OFFSETS = {f.name: sum(g.size for g in FIELDS[:n]) for n, f in enumerate(FIELDS)}
RECORD_BYTES = sum(f.size for f in FIELDS)


class FactoryState(enum.Enum, shape=3):
    """Result of the last reading."""

    #: A reading is under way; the other outputs keep the result of the reading before, or the
    #: default.
    READING = 0
    VALID = 1
    #: All ones or all zeros: the flash is erased, does not answer, or is missing.
    ABSENT = 2
    DAMAGED = 3
    #: The record was written by tools of another version.
    VERSION = 4


class RecordError(ValueError):
    """The data is no good record; the message is one line. ``state`` is the gateware's verdict."""

    def __init__(self, state, message):
        super().__init__(message)
        self.state = state


def fingerprint_of(key: bytes | None) -> int:
    """Identifies a key without revealing it; 0 without a key."""
    return int.from_bytes(hashlib.sha256(key).digest()[:4], "big") if key else 0


def mac_text(mac: bytes) -> str:
    """Text of a MAC address."""
    return mac.hex(":")


def is_record(data: bytes) -> bool:
    """Whether the data begins with the magic number of a record, damaged or not."""
    return data.startswith(MAGIC)


@dataclass(frozen=True)
class FactoryRecord:
    """Content of a record.

    Parameters
    ----------
    mac : bytes
        Six bytes; no group address.
    serial : int
        32 bits; 0 for none.
    key : bytes, optional
        32 bytes; never displayed.

    Raises
    ------
    ValueError
        If a value does not fit its field.
    """

    mac: bytes
    serial: int = 0
    key: bytes | None = field(default=None, repr=False)

    def __post_init__(self):
        if len(self.mac) != 6 or self.mac[0] & 1:
            raise ValueError(f"mac must be six bytes and of one device, not {self.mac.hex()!r}")
        if not 0 <= self.serial < 1 << 32:
            raise ValueError(f"serial must have 32 bits, not {self.serial!r}")
        if self.key is not None and len(self.key) != KEY_BYTES:
            raise ValueError(f"key must be {KEY_BYTES} bytes, not {len(self.key)}")

    @property
    def fingerprint(self) -> int:
        """Fingerprint of the key (:func:`fingerprint_of`)."""
        return fingerprint_of(self.key)

    def to_bytes(self) -> bytes:
        """Bytes of the record in flash."""
        values = {"magic": MAGIC, "version": VERSION, "flags": self.key is not None,
                  "mac": self.mac, "serial": self.serial, "key": self.key or bytes(KEY_BYTES),
                  "fingerprint": self.fingerprint}
        body = b"".join(v if isinstance(v := values[f.name], bytes) else int(v).to_bytes(
            f.size, "big") for f in FIELDS[:-1])
        return body + crc32(body).to_bytes(4, "big")

    @classmethod
    def from_bytes(cls, data: bytes) -> "FactoryRecord":
        """Parse a record at the beginning of ``data``; raises :exc:`RecordError`.

        The gateware applies the same checks, except for the fingerprint, which it cannot compute.
        """
        data = data[:RECORD_BYTES]
        if data in (bytes(len(data)), b"\xFF" * len(data)):
            raise RecordError(FactoryState.ABSENT, "there is no record")
        if not is_record(data):
            raise RecordError(FactoryState.DAMAGED, "it is no factory record")
        if data[4:5] not in (b"", bytes([VERSION])):
            raise RecordError(FactoryState.VERSION, f"it is of version {data[4]}, not {VERSION}")
        parts = {f.name: data[OFFSETS[f.name]:][:f.size] for f in FIELDS}
        flags, mac = parts["flags"], parts["mac"]
        if (len(data) < RECORD_BYTES or crc32(data[:-4]).to_bytes(4, "big") != parts["crc"]
                or flags[0] > 1 or mac[0] & 1):
            raise RecordError(FactoryState.DAMAGED, "the record is damaged")
        record = cls(mac, int.from_bytes(parts["serial"], "big"),
                     parts["key"] if flags[0] else None)
        if record.fingerprint != int.from_bytes(parts["fingerprint"], "big"):
            raise RecordError(FactoryState.DAMAGED, "the record's fingerprint is of another key")
        return record
