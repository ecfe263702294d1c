"""DXF v1, the frames between two proxies: every constant of the format, defined once. What a frame
type is says :mod:`~.frame_types`.

Pure Python without Amaranth, so that the RTL, the golden model, the dissector, the manager and the
documentation (``docs/reference/wire-format.md``) all read the same numbers. Offsets are in bytes
from the destination MAC; multi-byte fields are big endian unless said otherwise; sizes exclude the
FCS.
"""

from enum import IntEnum, IntFlag
from typing import NamedTuple

__all__ = [
    "ACK_ENTRIES", "BODY_CRC_BYTES", "COUNT_MAX", "CREDIT_BYTES", "CREDIT_FIELDS", "DATA_BYTES_MAX",
    "ETHERNET_BYTES", "ETHERTYPE", "HCRC_INIT", "HCRC_OFFSET", "HCRC_POLY", "HCRC_START",
    "HEADER_BYTES", "HEADER_FIELDS", "MAC_PREFIX", "MIN_FRAME_BYTES", "NODE_MANAGER",
    "NODE_UNASSIGNED", "REACH", "RECORD_ALIGN", "RECORD_CRC_BYTES", "SACK_WORD_BYTES", "SLOT_HOST",
    "TAG_NONE", "VERSION", "ArqMode", "Capability", "CreditClass", "DropCause", "ErrorCode",
    "EventCode", "FenceReason", "Field", "Role", "SecurityMode", "binding_word", "node_mac",
]

ETHERTYPE = 0x88B5
VERSION = 1
#: First three bytes of every node MAC: locally administered, then "DX".
MAC_PREFIX = b"\x02\x44\x58"

MIN_FRAME_BYTES = 60
#: MAC addresses and EtherType; behind them is the Ethernet payload.
ETHERNET_BYTES = 14
#: Fixed header, from the destination MAC up to and including HCRC.
HEADER_BYTES = 32
CREDIT_BYTES = 8

HCRC_POLY = 0x1021
HCRC_INIT = 0xFFFF
#: HCRC covers the bytes from here to :data:`HCRC_OFFSET` and then the credit extension.
HCRC_START = ETHERNET_BYTES
HCRC_OFFSET = 30

COUNT_MAX = 31
RECORD_CRC_BYTES = 4
#: Records of a frame that has more than one are padded to a multiple of this.
RECORD_ALIGN = 8
#: Data and digest of the largest TLP.
DATA_BYTES_MAX = 4096 + 4

#: Entries of ACK and SACK: one for each class.
ACK_ENTRIES = 3
#: Follows the fields of a SACK, if its count is 1; more than one is not used.
SACK_WORD_BYTES = 8
#: CRC-32C that ends a body.
BODY_CRC_BYTES = 4

#: A frame of a session acts only if its SEQ is from -REACH to REACH - 1 from the expected number,
#: and its ACK acknowledges nothing that was not sent, nor is more than REACH older than the newest
#: one. That is farther than any window, and 2^13 guesses of SEQ, and as many of ACK, for a stranger
#: who sees no frames.
REACH = 1 << 10

NODE_MANAGER = 0x000
#: No number yet (as a source), or everybody (as a destination).
NODE_UNASSIGNED = 0xFFF
#: Slot number of a host; the slots of a box count from 1.
SLOT_HOST = 0
#: Session tag before one was offered; never offered itself.
TAG_NONE = 0


class Field(NamedTuple):
    """A field of a frame: byte offset, and the bits inside the ``size`` bytes from there."""

    name: str
    offset: int
    size: int
    msb: int
    lsb: int


#: The fixed header.
HEADER_FIELDS = (
    Field("destination MAC", 0, 6, 47, 0),
    Field("source MAC", 6, 6, 47, 0),
    Field("EtherType", 12, 2, 15, 0),
    Field("version", 14, 1, 7, 4),
    Field("type", 14, 1, 3, 0),
    Field("CRX", 15, 1, 7, 7),
    Field("AR", 15, 1, 6, 6),
    Field("zero", 15, 1, 5, 5),
    Field("count", 15, 1, 4, 0),
    Field("destination node", 16, 3, 23, 12),
    Field("source node", 16, 3, 11, 0),
    Field("destination slot", 19, 1, 7, 0),
    Field("source slot", 20, 1, 7, 0),
    Field("path", 21, 1, 7, 4),
    Field("stream", 21, 1, 3, 0),
    Field("session tag", 22, 2, 15, 0),
    Field("SEQ", 24, 3, 23, 0),
    Field("ACK", 27, 3, 23, 0),
    Field("HCRC", 30, 2, 15, 0),
)

#: The credit extension, which is also the form of an entry of ACK and SACK (offsets within it).
CREDIT_FIELDS = (
    Field("class", 0, 1, 7, 0),
    Field("generation", 1, 1, 7, 0),
    Field("header limit", 2, 2, 15, 0),
    Field("data limit", 4, 2, 15, 0),
    Field("echo", 6, 2, 15, 0),
)


class CreditClass(IntEnum):
    """Flow-control class of a credit extension or entry. All other values: dropped."""

    P = 0
    NP = 1
    CPL = 2


class EventCode(IntEnum):
    """First byte of an EVENT's body. Codes not listed are committed and then ignored."""

    BIND = 1
    """To a box: the slot belongs to the sender from here on, with the row's generation, after a hot
    reset. Argument: number of the life that begins."""
    UNBIND = 2
    """To a box: the binding ends here. Argument: zero."""
    RESET = 3
    """To a box: hot reset of the slot, its queues are flushed. Argument: number of the life that
    begins."""
    RESET_DONE = 4
    """To a host: the hot reset of a BIND or RESET is over, the link is up. Argument: that of the
    event."""
    LINK_DOWN = 6
    """To a host: the slot's PCIe link is down. Argument: zero."""
    PRESENCE = 7
    """To a host. Argument: bit 0, a GPU is in the slot."""
    ERROR = 9
    """To a host. Argument: :class:`ErrorCode`."""
    HEADER = 10
    """To a host: of the TLP that the slot's next ERROR is about, the next dword of the header, the
    first four times. Argument: the dword, its byte 0 least significant."""


class ErrorCode(IntEnum):
    """Argument of :attr:`EventCode.ERROR`."""

    OVERFLOW = 3
    """A TLP came that no credit had been granted for; the slot is closed and reset."""
    MALFORMED = 4
    """The slot sent a malformed TLP, which was removed."""


class FenceReason(IntEnum):
    """First byte of a FENCE's body."""

    MANAGED = 1
    """Software asked for it."""
    SESSION_LOST = 3
    """Frames were not acknowledged, or polls not answered."""


class Role(IntEnum):
    """Role byte of HELLO."""

    MANAGER = 0
    HOST = 1
    BOX = 2


class ArqMode(IntEnum):
    """ARQ byte of HELLO: how the sender is built. Either works with either."""

    GO_BACK_N = 0
    SELECTIVE_REPEAT = 1


class SecurityMode(IntEnum):
    """Security byte of HELLO. Both ends must have the same mode for their session."""

    NONE = 0
    KEYED = 1
    """Opened under a key (``docs/reference/keyed-sessions.md``)."""
    KEYED_AES_GCM = 2
    """The same, and each frame under AES-GCM; reserved."""


class Capability(IntFlag):
    """Capability bits of HELLO; all others zero when sent and ignored when received."""

    SPLIT = 1 << 0
    """Takes the split form (HDR and DATA)."""
    SACK = 1 << 1
    """Takes and sends SACK with a word."""
    STRIPE = 1 << 3
    """Takes the frames of one stream over several paths at a time."""
    KEYS = 1 << 4
    """Can open sessions under keys."""
    MANAGED = 1 << 5
    """Managers reach the node's registers by frames."""


class DropCause(IntEnum):
    """Why a frame was dropped. One that is wrong in several ways counts once, as the first."""

    FCS = 0
    """The MAC found a wrong FCS, and counts it."""
    RUNT = 1
    """Shorter than 60 bytes."""
    ETHERTYPE = 2
    """Not 0x88B5."""
    VERSION = 3
    """Version nibble not 1."""
    HCRC = 4
    """Header CRC wrong."""
    TYPE = 5
    """Type not in :class:`~.frame_types.FrameType`."""
    FIELD = 6
    """Zero bit set, count not fit for the type, credit class above 2, or SEQ or ACK of a HELLO,
    HELLO_ACK or HELLO_DONE not zero."""
    LENGTH = 7
    """Not exactly ``max(60, end of body)`` bytes, or no end follows (reserved Fmt, more records
    than bytes). DATA: also if it does not continue the TLP; counted so only if nothing else is
    wrong."""
    PADDING = 8
    """Padding after a record or after the body not zero."""
    RECORD = 9
    """A record's CRC-32C, with its binding word, is wrong; or that of DATA, if the link accepts
    it: behind a gap nobody can tell."""
    BODY = 10
    """A body's CRC-32C is wrong, or a zero field in it is not zero, or an entry's class is not
    that of its place."""
    OVERFLOW = 11
    """Larger than the receive queue; HDR: the whole TLP is."""
    REFUSED = 12
    """Valid, but the link refused it (node, session, sequence)."""
    UNHANDLED = 13
    """Its header is valid, but nothing here handles the type; its body was not looked at."""


def node_mac(path: int, node: int) -> bytes:
    """MAC address of ``node`` on ``path``: ``02:44:58:PP:NN:NN``."""
    return MAC_PREFIX + bytes([path]) + node.to_bytes(2, "big")


def binding_word(tag: int, seq: int) -> int:
    """What a record's CRC-32C is XORed with before it is sent."""
    return (tag & 0xFFFF) << 16 | (seq & 0xFFFF)
