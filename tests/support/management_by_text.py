"""A second implementation of docs/reference/management.md, as an oracle for tests.

It was written from the text of that page and of docs/reference/wire-format.md alone, without a
look at any other implementation. It only builds frames and what is in them, and checks nothing:
so a test can also build what is wrong.
"""

from collections.abc import Sequence
from typing import Literal

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

Read = tuple[Literal["read"], int, int]
Write = tuple[Literal["write"], int, Sequence[int]]

ASK, CHALLENGE, REQUEST, ANSWER, EVENT, EVENT_ACK, ANNOUNCE = range(7)
DONE, STALE, REFUSED, ADDRESS = range(4)

ETHERTYPE = 0x88B5
VERSION = 1
MGMT = 10
TAG_BYTES = 16


def crc16(data: bytes) -> int:
    """CRC-16/CCITT-FALSE of the data."""
    crc = 0xFFFF
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1) ^ (0x11021 if crc & 0x8000 else 0)
    return crc


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) of the data."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _aes(key: bytes, block: bytes) -> bytes:
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(block) + encryptor.finalize()


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 16)


def _doubled(block: bytes) -> bytes:
    value = int.from_bytes(block, "big") << 1
    if value >> 128:
        value ^= (1 << 128) | 0x87
    return value.to_bytes(16, "big")


def _cbc_mac(key: bytes, data: bytes) -> bytes:
    state = bytes(16)
    for at in range(0, len(data), 16):
        state = _aes(key, _xor(state, data[at : at + 16]))
    return state


def cmac(key: bytes, message: bytes) -> bytes:
    """AES-CMAC (RFC 4493) of the message."""
    subkey = _doubled(_aes(key, bytes(16)))
    if not message or len(message) % 16:
        subkey = _doubled(subkey)
        message = _padded(message + b"\x80")
    return _cbc_mac(key, message[:-16] + _xor(message[-16:], subkey))


def ccm(key: bytes, nonce: bytes, associated: bytes, plain: bytes, tag_bytes: int = 16) -> bytes:
    """AES-CCM (RFC 3610) with L = 2 and a nonce of 13 bytes: the ciphertext, then the tag."""
    flags = (0x40 if associated else 0) | (tag_bytes - 2) // 2 << 3 | 1
    blocks = bytes([flags]) + nonce + len(plain).to_bytes(2, "big")
    if associated:
        blocks += _padded(len(associated).to_bytes(2, "big") + associated)
    mac = _cbc_mac(key, blocks + _padded(plain))

    stream = b"".join(
        _aes(key, b"\x01" + nonce + number.to_bytes(2, "big"))
        for number in range(1 + (len(plain) + 15) // 16)
    )
    cipher = _xor(plain, stream[16 : 16 + len(plain)])
    return cipher + _xor(mac, stream[:16])[:tag_bytes]


def header(dst_mac: bytes, src_mac: bytes, dst_node: int, src_node: int, path: int) -> bytes:
    """The 32 bytes of header of an MGMT frame, with HCRC."""
    covered = (
        bytes([VERSION << 4 | MGMT, 0])  # flags and count
        + (dst_node << 12 | src_node).to_bytes(3, "big")
        + bytes(2)  # slots
        + bytes([path << 4])  # stream
        + bytes(2 + 3 + 3)  # tag, SEQ, ACK
    )
    ethernet = dst_mac + src_mac + ETHERTYPE.to_bytes(2, "big")
    return ethernet + covered + crc16(covered).to_bytes(2, "big")


def _opening(
    kind: int, manager: int, length: int, counter: int, node_nonce: bytes, manager_nonce: bytes
) -> bytes:
    return (
        bytes([kind, manager])
        + length.to_bytes(2, "big")
        + counter.to_bytes(4, "big")
        + node_nonce
        + manager_nonce
    )


def frame(
    header: bytes,
    kind: int,
    manager: int,
    counter: int,
    node_nonce: bytes,
    manager_nonce: bytes,
    follows: bytes,
) -> bytes:
    """The whole frame, without FCS."""
    body = _opening(kind, manager, len(follows), counter, node_nonce, manager_nonce) + follows
    whole = header + body + crc32c(body).to_bytes(4, "little")
    return whole + bytes(max(0, 60 - len(whole)))


def knock(node_key: bytes) -> bytes:
    """What an ASK shows to a node, so that the node answers."""
    return cmac(node_key, b"DXFA")


def association_key(
    node_key: bytes, manager: int, node_nonce: bytes, manager_nonce: bytes
) -> bytes:
    """The key of the association that these two nonces and this manager number make."""
    return cmac(node_key, b"DXFM" + node_nonce + manager_nonce + bytes([manager]))


def sealed(
    key: bytes,
    header: bytes,
    kind: int,
    manager: int,
    counter: int,
    node_nonce: bytes,
    manager_nonce: bytes,
    plain: bytes,
) -> bytes:
    """Ciphertext and tag, as they follow the nonces of a frame with this header."""
    length = len(plain) + TAG_BYTES
    nonce = bytes([kind, manager]) + bytes(7) + counter.to_bytes(4, "big")
    opening = _opening(kind, manager, length, counter, node_nonce, manager_nonce)
    return ccm(key, nonce, header[14:20] + opening, plain, TAG_BYTES)


def _words(words: Sequence[int]) -> bytes:
    return b"".join(word.to_bytes(4, "big") for word in words)


def _operation(operation: Read | Write) -> bytes:
    _, address, what = operation
    if isinstance(what, int):
        return bytes([0, what, 0, 0]) + address.to_bytes(4, "big")
    return bytes([1, len(what), 0, 0]) + address.to_bytes(4, "big") + _words(what)


def request(epoch: int, operations: Sequence[Read | Write]) -> bytes:
    """A request: ("read", address, count) and ("write", address, [words]), in order."""
    start = epoch.to_bytes(4, "big") + bytes([len(operations), 0, 0, 0])
    return start + b"".join(_operation(operation) for operation in operations)


def answer(epoch: int, number: int, status: int, words: Sequence[int]) -> bytes:
    """An answer: number is that of operations, or of the one that could not be done."""
    return epoch.to_bytes(4, "big") + bytes([number, status, 0, 0]) + _words(words)


def event(code: int, where: int, argument: int) -> bytes:
    """An event at a slot or path."""
    return bytes([code, where, 0, 0]) + argument.to_bytes(4, "big")


def identity(
    *,
    mac: bytes,
    number: int,
    serial: int,
    role: int,
    slots: int,
    capabilities: int,
    boot: int,
    links: int,
    present: int,
    build: int,
    table: int,
) -> bytes:
    """What a node says of itself: links and present are masks of paths and of slots."""
    return (
        mac
        + number.to_bytes(2, "big")
        + serial.to_bytes(4, "big")
        + bytes([role, slots])
        + capabilities.to_bytes(2, "big")
        + boot.to_bytes(2, "big")
        + bytes([links, 0])
        + present.to_bytes(4, "big")
        + build.to_bytes(4, "big")
        + table.to_bytes(4, "big")
    )
