"""Transaction layer packets: encodings, header words, and the decoded header.

Ref: PCI Express Base Specification 5.0, section 2.2 (cited below as "PCIe Base 5.0, 2.2.x").

A TLP is zero or more prefix dwords, a header of 3 or 4 dwords, the payload, and the digest dword if
TD is set. The specification draws dwords most significant byte first, byte 0 at the left; streams
carry byte 0 in the *least* significant lane. The header structs below follow the lanes, and the
first field of an Amaranth struct is the least significant one: within one byte their fields read in
the opposite order of the drawings, and a field of several bytes (IDs, addresses) has its bytes
swapped; :func:`swap_bytes` brings it to its natural value.
"""

from amaranth import *
from amaranth.lib import data, enum

__all__ = ["AddressType", "CompletionHeader1", "CompletionHeader2", "CompletionRequest",
           "CompletionStatus", "ConfigHeader2", "Fmt", "HeaderCommon", "MAX_END_END_PREFIXES",
           "MAX_NP_DWORDS", "Malformed", "MessageCode", "MessageHeader1", "NO_LIMIT", "PrefixType",
           "RequestHeader1", "Routing", "TlpClass", "TlpInfo", "Type", "swap_bytes"]

#: Most end-to-end prefixes of a TLP (PCIe Base 5.0, 2.2.10.2). Local prefixes (2.2.10.1) cross no
#: port, and none is supported.
MAX_END_END_PREFIXES = 4

#: Dwords of data of the largest non-posted TLP, a CAS of 16 bytes (PCIe Base 5.0, 2.2.7.1, 2.6.1).
MAX_NP_DWORDS = 8


class TlpClass(enum.Enum, shape=unsigned(2)):
    """Flow control class: posted, non-posted, completion."""

    P = 0
    NP = 1
    CPL = 2


class Routing(enum.Enum, shape=unsigned(3)):
    """Routing of a TLP: the codes of message routing, used here for all TLPs.

    PCIe Base 5.0, 2.2.4 and 2.2.8. The reserved codes 6 and 7 end at the receiver, so a message
    that carries one is reported as ``LOCAL``.
    """

    TO_ROOT = 0
    ADDRESS = 1
    ID = 2
    BROADCAST = 3
    LOCAL = 4
    GATHER = 5


class CompletionStatus(enum.Enum, shape=unsigned(3)):
    """PCIe Base 5.0, 2.2.9. The other codes are reserved; receivers take them as ``UR``."""

    SC = 0
    UR = 1
    CRS = 2
    CA = 4


class Fmt(enum.IntEnum, shape=unsigned(3)):
    """Format of a TLP (PCIe Base 5.0, 2.2.1). Bit 0: header of 4 dwords, bit 1: with data.

    The codes 5 to 7 are reserved.
    """

    HEADER_3 = 0b000
    HEADER_4 = 0b001
    HEADER_3_DATA = 0b010
    HEADER_4_DATA = 0b011
    PREFIX = 0b100


class Type(enum.IntEnum, shape=unsigned(5)):
    """Type of a TLP (PCIe Base 5.0, 2.2.1). All others are reserved.

    0b11011 (trusted configuration, deprecated; deferrable memory write in later specifications) is
    not defined in 5.0 any more and is taken as reserved.
    """

    MEMORY = 0b00000             #: MRd (no data), MWr (data)
    MEMORY_LOCKED = 0b00001      #: MRdLk (no data only)
    IO = 0b00010                 #: IORd, IOWr
    CONFIG_0 = 0b00100           #: CfgRd0, CfgWr0
    CONFIG_1 = 0b00101           #: CfgRd1, CfgWr1
    COMPLETION = 0b01010         #: Cpl, CplD
    COMPLETION_LOCKED = 0b01011  #: CplLk, CplDLk
    FETCH_ADD = 0b01100          #: AtomicOps always carry data
    SWAP = 0b01101
    CAS = 0b01110
    MESSAGE_TO_ROOT = 0b10000    #: Msg, MsgD: 0b10 and the three routing bits
    MESSAGE_ADDRESS = 0b10001
    MESSAGE_ID = 0b10010
    MESSAGE_BROADCAST = 0b10011
    MESSAGE_LOCAL = 0b10100
    MESSAGE_GATHER = 0b10101
    MESSAGE_RESERVED_6 = 0b10110
    MESSAGE_RESERVED_7 = 0b10111


class PrefixType(enum.IntEnum, shape=unsigned(5)):
    """Type of a prefix, with ``Fmt.PREFIX`` (PCIe Base 5.0, 2.2.10). Bit 4: end-to-end."""

    MR_IOV = 0b00000
    VENDOR_LOCAL_0 = 0b01110
    VENDOR_LOCAL_1 = 0b01111
    TPH = 0b10000
    PASID = 0b10001
    VENDOR_END_END_0 = 0b11110
    VENDOR_END_END_1 = 0b11111


class AddressType(enum.IntEnum, shape=unsigned(2)):
    """AT field of memory requests (PCIe Base 5.0, 2.2.4.1)."""

    UNTRANSLATED = 0
    TRANSLATION_REQUEST = 1
    TRANSLATED = 2


class MessageCode(enum.IntEnum, shape=unsigned(8)):
    """Message codes (PCIe Base 5.0, 2.2.8 and annex F; ATS: 10.2 to 10.4)."""

    UNLOCK = 0x00
    INVALIDATE_REQUEST = 0x01
    INVALIDATE_COMPLETION = 0x02
    PAGE_REQUEST = 0x04
    PAGE_RESPONSE = 0x05
    LTR = 0x10
    OBFF = 0x12
    PM_ACTIVE_STATE_NAK = 0x14
    PM_PME = 0x18
    PME_TURN_OFF = 0x19
    PME_TO_ACK = 0x1B
    ASSERT_INTA = 0x20
    ASSERT_INTB = 0x21
    ASSERT_INTC = 0x22
    ASSERT_INTD = 0x23
    DEASSERT_INTA = 0x24
    DEASSERT_INTB = 0x25
    DEASSERT_INTC = 0x26
    DEASSERT_INTD = 0x27
    ERR_COR = 0x30
    ERR_NONFATAL = 0x31
    ERR_FATAL = 0x33
    IGNORED_40 = 0x40
    IGNORED_41 = 0x41
    IGNORED_43 = 0x43
    IGNORED_44 = 0x44
    IGNORED_45 = 0x45
    IGNORED_47 = 0x47
    IGNORED_48 = 0x48
    SET_SLOT_POWER_LIMIT = 0x50
    PTM_REQUEST = 0x52
    PTM_RESPONSE = 0x53
    VENDOR_DEFINED_0 = 0x7E
    VENDOR_DEFINED_1 = 0x7F


#: Max_Payload_Size of 4096 bytes, which no TLP can exceed.
NO_LIMIT = 5


class Malformed(enum.IntEnum, shape=unsigned(4)):
    """Cause for which a TLP is malformed; the first in this order if there are several.

    ``TRUNCATED``: ends within its prefixes or header. ``PREFIX``: a local prefix, or more than four
    end-to-end ones. ``FORMAT``: reserved Fmt or Type. ``FIXED``: I/O or configuration request with
    a length other than 1 dword, or a traffic class, Attr[1:0] or address type other than 0.
    ``ATOMIC``: AtomicOp with too much data; at a completer, illegal operand size or alignment.
    ``BYTE_ENABLE``: PCIe Base 5.0, 2.2.5. ``BOUNDARY``: memory request across a multiple of 4 KiB.
    ``TRAFFIC_CLASS``: message that must have traffic class 0. ``PAYLOAD``: more data than the
    Max_Payload_Size of the port that it came to. ``LENGTH``: size differs from what prefixes, Fmt,
    Length and TD say. Which port checks what: docs/reference/tlp-checks.md.
    """

    NONE = 0
    TRUNCATED = 1
    PREFIX = 2
    FORMAT = 3
    FIXED = 4
    ATOMIC = 5
    BYTE_ENABLE = 6
    BOUNDARY = 7
    TRAFFIC_CLASS = 8
    PAYLOAD = 9
    LENGTH = 10


class HeaderCommon(data.Struct):
    """First dword of every header, in lane order (first field least significant).

    Bytes 0 to 3 of the drawing in PCIe Base 5.0, 2.2.1: ``type`` and ``fmt`` are byte 0, ``th`` to
    ``t9`` byte 1, ``length_high`` to ``td`` byte 2, ``length_low`` byte 3.
    """

    type: 5
    fmt: 3
    th: 1            #: TLP processing hints present
    ln: 1            #: lightweight notification
    attr_high: 1     #: attr[2]: ID-based ordering
    t8: 1            #: tag[8]
    tc: 3
    t9: 1            #: tag[9]
    length_high: 2
    at: 2
    attr_low: 2      #: attr[1:0]: relaxed ordering, no snoop
    ep: 1            #: poisoned
    td: 1            #: digest present
    length_low: 8


class RequestHeader1(data.Struct):
    """Second dword of memory, I/O, configuration and AtomicOp requests, in lane order."""

    requester_id: 16  #: bytes swapped
    tag: 8
    first_be: 4
    last_be: 4


class MessageHeader1(data.Struct):
    """Second dword of messages, in lane order."""

    requester_id: 16  #: bytes swapped
    tag: 8
    message_code: 8


class ConfigHeader2(data.Struct):
    """Third dword of configuration requests, in lane order."""

    target_id: 16  #: bytes swapped
    register_high: 4
    reserved_high: 4
    reserved_low: 2
    register_low: 6


class CompletionHeader1(data.Struct):
    """Second dword of completions, in lane order."""

    completer_id: 16  #: bytes swapped
    byte_count_high: 4
    bcm: 1
    status: 3
    byte_count_low: 8


class CompletionHeader2(data.Struct):
    """Third dword of completions, in lane order."""

    requester_id: 16  #: bytes swapped
    tag: 8
    lower_address: 7
    reserved: 1


class TlpInfo(data.Struct):
    """Decoded header of a TLP, in natural (host) byte order.

    Members that a TLP of its kind does not have (a byte count in a write, an address in a
    completion) are unspecified; so is everything but ``prefix_dwords`` in a malformed TLP with a
    reserved Fmt or Type or an incomplete header. ``cls`` and ``routing`` always hold a code of
    their enumeration.
    """

    cls: TlpClass
    routing: Routing
    fmt: 3
    type: 5
    prefix_dwords: 3     #: 0 to 4, all end-to-end
    header_dwords: 3     #: 3 or 4
    payload_dwords: 11   #: 0 to 1024
    digest: 1            #: TD: one more dword at the end
    dwords: 12           #: whole TLP with prefixes and digest
    tc: 3
    attr: 3              #: [2] ID-based ordering, [1] relaxed ordering, [0] no snoop
    ep: 1                #: poisoned
    at: 2                #: address type
    requester_id: 16     #: of requests, messages and completions
    completer_id: 16     #: of completions
    tag: 10              #: of requests, messages and completions
    first_be: 4          #: memory, I/O and configuration; as implied when a read carries hints
    last_be: 4
    address: 64          #: memory, AtomicOp, I/O; bits 1:0 zero, 32-bit addresses zero-extended
    target_id: 16        #: ID for routing by ID; the requester ID in completions
    register: 10         #: configuration: dword number in the function's 4 KiB
    message_code: 8
    status: 3            #: completion status, any code
    byte_count: 12       #: completion; 0 is 4096
    lower_address: 7     #: completion
    bcm: 1               #: completion: Byte Count Modified, set by bridges to PCI-X
    length: 10           #: Length field as it stands; 0 is 1024 where it counts
    is_memory: 1         #: memory request, locked or not, or AtomicOp
    is_io: 1
    is_config: 1
    is_type1: 1          #: type 1 configuration request
    is_message: 1
    is_atomic: 1
    is_locked: 1         #: MRdLk, CplLk or CplDLk
    is_write: 1          #: memory, I/O or configuration write (no AtomicOp, no message)


class CompletionRequest(data.Struct):
    """Completion to be built, with one dword of data at most, in natural (host) byte order."""

    status: CompletionStatus
    completer_id: 16
    requester_id: 16
    tag: 10
    tc: 3
    attr: 3
    byte_count: 12       #: 0 is 4096
    lower_address: 7
    has_data: 1          #: one dword of data follows the header
    data: 32             #: in lane order: byte 0 least significant
    locked: 1            #: CplLk instead of Cpl


def swap_bytes(value):
    """``value`` with its bytes in reverse order; its width must be whole bytes."""
    value = Value.cast(value)
    if len(value) % 8:
        raise ValueError(f"value must be whole bytes, not {len(value)} bits")
    return Cat(value[n:n + 8] for n in reversed(range(0, len(value), 8)))
