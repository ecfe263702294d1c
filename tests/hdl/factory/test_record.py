"""dxpu.factory: the record is what the docs say, and what is no record is told apart."""

import random
import re
import struct
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import pytest

from dxpu.factory import (
    DEFAULT_MAC, FIELDS, RECORD_BYTES, FactoryRecord, FactoryState, RecordError, is_record,
)
from tests.support.testbench import seed

MAC, KEY = bytes.fromhex("001122334455"), bytes(range(32))
DOCS = Path(__file__).parents[3] / "docs/reference/boards.md"


@pytest.mark.parametrize("key", [KEY, None])
def test_a_record_by_hand(key):
    body = struct.pack(">4sBB6sI32s4s", b"DXPF", 1, bool(key), MAC, 7, key or b"",
                       sha256(key).digest() if key else b"")
    record = FactoryRecord(MAC, 7, key)
    assert record.to_bytes() == body + struct.pack(">I", crc32(body))
    assert FactoryRecord.from_bytes(record.to_bytes() + b"more") == record
    assert is_record(record.to_bytes()) and len(record.to_bytes()) == RECORD_BYTES <= 128
    # A key is not shown by accident.
    assert "key" not in repr(record) and KEY.hex() not in repr(record)


def test_each_damaged_bit_is_found():
    good = FactoryRecord(MAC, 7, KEY).to_bytes()
    for n in range(8 * len(good)):
        bad = bytearray(good)
        bad[n // 8] ^= 1 << n % 8
        with pytest.raises(RecordError) as error:
            FactoryRecord.from_bytes(bytes(bad))
        assert error.value.state == (
            FactoryState.VERSION if n // 8 == 4 else FactoryState.DAMAGED)


@pytest.mark.parametrize("data, state", [
    (b"", FactoryState.ABSENT), (b"\xFF" * 56, FactoryState.ABSENT),
    (bytes(56), FactoryState.ABSENT), (b"DXP", FactoryState.DAMAGED),
    (b"DXPF", FactoryState.DAMAGED), (b"DXPF\1" + bytes(51), FactoryState.DAMAGED),
    (FactoryRecord(MAC, 7, KEY).to_bytes()[:-1], FactoryState.DAMAGED),
    (b"DXPF\2", FactoryState.VERSION)])
def test_no_records(data, state):
    with pytest.raises(RecordError) as error:
        FactoryRecord.from_bytes(data)
    assert error.value.state == state and "\n" not in str(error.value)


def test_a_fingerprint_of_another_key():
    body = struct.pack(">4sBB6sI32s4s", b"DXPF", 1, 1, MAC, 7, KEY, b"abcd")
    with pytest.raises(RecordError, match="fingerprint is of another key"):
        FactoryRecord.from_bytes(body + struct.pack(">I", crc32(body)))


def test_garbage():
    rng = random.Random(seed())
    for _ in range(1000):
        with pytest.raises(RecordError):
            FactoryRecord.from_bytes(rng.choice((b"", b"DXPF")) + rng.randbytes(rng.randrange(80)))


@pytest.mark.parametrize("values, message", [
    ({"mac": MAC[:5]}, "mac must be six bytes and of one device, not '0011223344'"),
    ({"mac": b"\1" + MAC[1:]}, "mac must be six bytes and of one device, not '011122334455'"),
    ({"serial": 1 << 32}, "serial must have 32 bits, not 4294967296"),
    ({"serial": -1}, "serial must have 32 bits, not -1"),
    ({"key": KEY[:31]}, "key must be 32 bytes, not 31")])
def test_values(values, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        FactoryRecord(**{"mac": MAC, **values})


def test_the_docs_have_it():
    text, offset = DOCS.read_text(), 0
    for field in FIELDS:
        bytes_ = f"{offset}-{offset + field.size - 1}" if field.size > 1 else f"{offset}"
        assert f"| {bytes_} | {field.name} | {field.doc} |\n" in text
        offset += field.size
    assert DEFAULT_MAC.hex(":").upper() in text
