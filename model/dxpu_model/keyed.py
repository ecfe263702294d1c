"""What the two ends of a keyed session calculate from their common key (security mode 1).

Plain bytes in, plain bytes out. Everything is AES-128-CMAC (NIST SP 800-38B, RFC 4493) of a label
and of what the frames say, under the key of the pair. Who sends what, and when, says
``docs/reference/keyed-sessions.md``.
"""

from dataclasses import dataclass
from hmac import compare_digest

from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.cmac import CMAC
from dxpu.fabric.wire.format import VERSION
from dxpu.fabric.wire.frame_types import Body, FrameType

__all__ = ["HELLO", "HELLO_ACK", "HELLO_DONE", "KEY_BYTES", "NONCE_BYTES", "PARAMETER_BYTES",
           "Ends", "Opening", "check_value", "mac", "same", "tags"]

KEY_BYTES = 16
NONCE_BYTES = 8
#: The fields of a HELLO, without its CRC-32C.
PARAMETER_BYTES = Body.HELLO.size

#: Types of the opening frames.
HELLO, HELLO_ACK, HELLO_DONE = FrameType.HELLO, FrameType.HELLO_ACK, FrameType.HELLO_DONE


def mac(key: bytes, message: bytes) -> bytes:
    """AES-128-CMAC: 16 bytes."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"key must have {KEY_BYTES} bytes, not {len(key)}")
    cmac = CMAC(algorithms.AES128(key))
    cmac.update(message)
    return cmac.finalize()


def same(one: bytes, other: bytes) -> bool:
    """Whether two proofs are equal, in a time that does not depend on where they differ."""
    return compare_digest(one, other)


@dataclass(frozen=True)
class Ends:
    """Who opens a session with whom: the nodes of opener and answerer, and the stream."""

    opener: int
    answerer: int
    stream: int

    def __post_init__(self) -> None:
        for name, value, bits in (("opener", self.opener, 12), ("answerer", self.answerer, 12),
                                  ("stream", self.stream, 4)):
            if not 0 <= value < 1 << bits:
                raise ValueError(f"{name} must have {bits} bits, not {value:#x}")

    def header(self, kind: int) -> bytes:
        """Bytes 14 to 20 of the header of an opening frame, and the stream as a byte.

        Flags, count and slots are 0. A HELLO_ACK goes to the opener, the others to the answerer.
        """
        to, of = self.answerer, self.opener
        if kind == HELLO_ACK:
            to, of = of, to
        return bytes([VERSION << 4 | kind, 0]) + (to << 12 | of).to_bytes(3, "big") + bytes(
            2) + bytes([self.stream])

    def knock(self, key: bytes) -> bytes:
        """The proof field of a HELLO: the same in each of this stream."""
        return mac(key, b"DXFK" + self.header(HELLO))


@dataclass(frozen=True)
class Opening:
    """All that both ends say before a session is open.

    Attributes
    ----------
    hello, answer : bytes
        The 28 bytes of the fields of HELLO, and of HELLO_ACK.
    opener_nonce, answerer_nonce : bytes
        8 bytes each; the nonce of ``hello`` is the first half of the former.
    """

    ends: Ends
    hello: bytes
    answer: bytes
    opener_nonce: bytes
    answerer_nonce: bytes

    def __post_init__(self) -> None:
        for name, value, size in (("hello", self.hello, PARAMETER_BYTES),
                                  ("answer", self.answer, PARAMETER_BYTES),
                                  ("opener_nonce", self.opener_nonce, NONCE_BYTES),
                                  ("answerer_nonce", self.answerer_nonce, NONCE_BYTES)):
            if len(value) != size:
                raise ValueError(f"{name} must have {size} bytes, not {len(value)}")

    @property
    def _nonces(self) -> bytes:
        return self.opener_nonce + self.answerer_nonce

    def message(self, kind: int) -> bytes:
        """The 86 bytes that the proof of a frame of type ``kind`` covers."""
        # The tag in the header is that of the receiver, whose own frame offered it.
        offered, _ = Body.HELLO.find("tag offered")
        tag = (self.hello if kind == HELLO_ACK else self.answer)[offered:offered + 2]
        return (b"DXF1" + self.ends.header(kind) + tag + self.answer + self._nonces + self.hello)

    def proof(self, key: bytes, kind: int) -> bytes:
        """The proof field of :data:`HELLO_ACK` or :data:`HELLO_DONE`."""
        return mac(key, self.message(kind))

    def first_numbers(self, key: bytes) -> tuple[int, int]:
        """First SEQ of the opener, and of the answerer."""
        start = mac(key, b"DXFS" + self._nonces)
        return int.from_bytes(start[:3], "big"), int.from_bytes(start[3:6], "big")


def check_value(key: bytes) -> bytes:
    """Four bytes by which a manager knows which key a node has."""
    return mac(key, b"DXFV")[:4]


def tags(key: bytes, sbox: bytes, counter: int) -> int:
    """The tag of a counter: a permutation of 16 bits, a Feistel network of four rounds.

    Parameters
    ----------
    key : bytes
        One byte a round.
    sbox : bytes
        Table of SubBytes (FIPS 197, 5.1.1).
    counter : int
        16 bits.
    """
    high, low = counter >> 8, counter & 0xFF
    for byte in key:
        high, low = low, high ^ sbox[low ^ byte]
    return high << 8 | low
