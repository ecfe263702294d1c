"""Structures between the blocks of the fabric, and what a proxy tells them.

Values are in natural (host) order here; wire order exists only inside the packetizer and the
depacketizer. The first field of a structure is the least significant. Field meanings are those of
DXF v1 (docs/wire-format.md), numbers those of :mod:`dxpu.fabric.format`.
"""

from amaranth.hdl import Mux
from amaranth.lib import data, enum

from ..tlp.types import TlpClass

__all__ = ["EPOCH_BITS", "LIFE_BITS", "UNIT_BITS", "ClassMeta", "Committed", "Control", "Credit",
           "Event", "FrameHeader", "FrameRoute", "Greeting", "Hello", "Limit", "LinkState", "Mode",
           "NO_ROW", "PathMeta", "Peer", "PeerRow", "Refused", "Reply", "RouteRequest", "Said",
           "SaidKind", "SessionView", "Setting", "SettingKind", "TlpMeta", "Verdict"]

#: Row number of a frame for a slot pair that no row of the mapping table names.
NO_ROW = 63

#: Bits of the number that tells the lives of a row apart. Each life begins with an exchange of
#: events with the peer; no TLP waits in a queue while the number comes round.
LIFE_BITS = 8

#: Bits of the number that tells a session's frames from those before it was opened, or failed.
EPOCH_BITS = 2

#: Bits of a number of data credits: up to 256 units of 16 bytes.
UNIT_BITS = 9


class Credit(data.Struct):
    """A credit extension, or one entry of an ACK."""

    cls: 8
    generation: 8
    header_limit: 16
    data_limit: 16
    echo: 16


class FrameHeader(data.Struct):
    """The fixed header of a received frame and its credit extension.

    ``credit`` means something only if ``crx`` is set.
    """

    type: 4
    crx: 1
    ar: 1
    count: 5
    dst_node: 12
    src_node: 12
    dst_slot: 8
    src_slot: 8
    path: 4
    stream: 4
    tag: 16
    seq: 24
    ack: 24
    credit: Credit

    def way_back(self, paths):
        """Path for what answers this frame: the one it came by, or the first if that is none."""
        return Mux(self.path < paths, self.path, 0)


class FrameRoute(data.Struct):
    """What the link knows about the frame that is to be sent.

    Without ``ok`` there is no way for the frame: its TLPs are dropped and counted. ``credits`` (P,
    NP, Cpl) are the entries of an ACK, ``credit`` is the extension, sent if ``crx``, which only a
    frame with a number has. ``session`` and ``epoch`` are for those who keep the frame, and
    ``paths`` are all that it may take. ``word`` is that of a SACK: bit i is set if frame
    ``ack + 1 + i`` came.
    """

    dst_node: 12
    src_node: 12
    dst_slot: 8
    src_slot: 8
    path: 4
    stream: 4
    tag: 16
    seq: 24
    ack: 24
    ar: 1
    crx: 1
    credit: Credit
    credits: data.ArrayLayout(Credit, 3)
    ok: 1
    session: 6
    epoch: EPOCH_BITS
    paths: 16
    word: 64


class RouteRequest(data.Struct):
    """Asks the link for a :class:`FrameRoute`.

    ``row`` is the row of the local mapping table, ``consumes`` says that the frame takes a SEQ,
    ``tlps`` that it carries TLPs of the row's ``life``, ``begins`` that it is the event that begins
    a life of the row, or asks for one.

    With ``direct`` no row is asked (but for its limits), but ``session``, ``dst_slot``,
    ``src_slot`` and ``paths`` count; with ``again`` too the frame was sent before, with ``seq``,
    in ``epoch`` of the session. ``probe`` asks for an acknowledgement at once. With ``hello`` the
    frame is outside of any session: it takes ``tag``, and SEQ and ACK are 0.
    """

    row: 6
    begins: 1
    consumes: 1
    tlps: 1
    life: LIFE_BITS
    direct: 1
    again: 1
    probe: 1
    session: 6
    dst_slot: 8
    src_slot: 8
    paths: 16
    seq: 24
    epoch: EPOCH_BITS
    hello: 1
    tag: 16


class Control(data.Struct):
    """An EVENT to be sent to the peer of a row."""

    row: 6
    code: 8
    generation: 16
    argument: 32


class Reply(data.Struct):
    """An ACK or SACK to be sent, as an answer to a frame between these slots, on its path. With
    ``words``, a SACK has its word, else none. ``row`` is that of the slots, if there is one."""

    type: 4
    session: 6
    row: 6
    dst_slot: 8
    src_slot: 8
    path: 4
    words: 1


class Hello(data.Struct):
    """The body of a HELLO or HELLO_ACK. Times in microseconds."""

    nonce: 32
    offered: 16
    echoed: 16
    role: 8
    slots: 8
    arq: 8
    security: 8
    largest: 16
    window: 16
    smallest: 16
    give_up: 16
    capabilities: 16
    boot: 16
    table: 32


class Refused(data.Struct):
    """A frame that is good, and that the link has refused; ``hello`` means something if its type is
    HELLO or HELLO_ACK."""

    strobe: 1
    header: FrameHeader
    hello: Hello


class Greeting(data.Struct):
    """A HELLO, HELLO_ACK or FENCE to be sent with ``tag`` in its header, or an ACK that asks for
    another.

    ``nonce``, ``offered`` and ``echoed`` are what is not the same in every HELLO; ``reason`` is
    that of a FENCE.
    """

    type: 4
    session: 6
    path: 4
    tag: 16
    nonce: 32
    offered: 16
    echoed: 16
    reason: 2


class Verdict(data.Struct):
    """The link's answer to a :class:`FrameHeader`: take the frame or drop it; row it is for. With
    ``hold`` a good frame is to be kept for later, and has no effect now."""

    accept: 1
    row: 6
    hold: 1


class Event(data.Struct):
    """An EVENT frame that took effect."""

    row: 6
    code: 8
    generation: 16
    argument: 32


class TlpMeta(data.Struct):
    """Row of the local mapping table that a TLP came from or goes to, and of the row's lives the
    one that it belongs to (only on the way out)."""

    row: 6
    life: LIFE_BITS


class ClassMeta(data.Struct):
    """As :class:`TlpMeta`, and the credits that the TLP takes: one header and ``units`` of data of
    its class."""

    row: 6
    life: LIFE_BITS
    cls: TlpClass
    units: UNIT_BITS


class Limit(data.Struct):
    """Credits granted, or used, since a life of a row began, modulo 2^16: TLPs, and units of
    16 bytes of their data."""

    header: 16
    data: 16


class PathMeta(data.Struct):
    """Path (and thereby the Ethernet port) that a frame leaves by."""

    path: 4


class Committed(data.Struct):
    """A frame that took effect: its header, and the row that the verdict named."""

    row: 6
    header: FrameHeader


class PeerRow(data.Struct):
    """What the link needs of one row of a mapping table, host or box.

    Members
    -------
    node, slot : 12, 8
        The peer's node, and the slot there (0: a host).
    local_slot : 8
        The slot here (0: we are the host).
    stream : 4
    paths : 16
        Bit n set: path n may be used.
    used : 1
    """

    node: 12
    slot: 8
    local_slot: 8
    stream: 4
    paths: 16
    used: 1


class Peer(data.Struct):
    """A peer: its node. All valid ones differ."""

    valid: 1
    node: 12


class Mode(enum.Enum, shape=2):
    """Who opens a session."""

    #: Nobody: tags and ``open`` are written by software, at both ends.
    REGISTERS = 0
    #: This end sends HELLO; a host.
    OPENS = 1
    #: This end answers; a box.
    ANSWERS = 2


class SettingKind(enum.Enum, shape=2):
    """What software sets up of a session."""

    #: Who opens it.
    MODE = 0
    #: Its tags, if software opens it.
    TAGS = 1
    #: Begin it anew.
    OPEN = 2


class Setting(data.Struct):
    """A session is set up by software.

    Members
    -------
    kind, session : :class:`SettingKind`, 6
    mode : :class:`Mode`
        If the kind is MODE.
    tx_tag : 16
        If it is TAGS: tag for frames we send, chosen by the peer; 0: nothing is sent.
    rx_tag : 16
        Tag we chose for frames we receive; 0: nothing is accepted.
    """

    kind: SettingKind
    session: 6
    mode: Mode
    tx_tag: 16
    rx_tag: 16


class SaidKind(enum.Enum, shape=2):
    """What a frame that took effect says of its session."""

    #: The peer is there.
    HEARD = 0
    #: It was a HELLO or HELLO_ACK.
    GREETED = 1
    #: It had the tag that was offered.
    CONFIRMED = 2
    #: The peer has given the session up.
    FENCED = 3


class Said(data.Struct):
    """A frame of a session took effect."""

    kind: SaidKind
    session: 6


class LinkState(data.Struct):
    """Sequence state of one session.

    Members
    -------
    seq : 24
        Number of the next frame to send.
    next : 24
        Number of the next frame expected; goes out as ACK.
    acked : 24
        Newest ACK received: all frames before it were committed by the peer.
    """

    seq: 24
    next: 24
    acked: 24


class SessionView(data.Struct):
    """A session as software sees it.

    Members
    -------
    mode, phase, boot : :class:`Mode`, 3, 16
        Who opens it; :class:`~dxpu.fabric.session.Phase`; boot counter of the peer in its last
        session, 0: there was none.
    tx_tag, rx_tag : 16
    state : :class:`LinkState`
    unacked, path, failed : 12, 4, 1
        Frames that are not acknowledged; path on which they leave, if they may; no acknowledgement
        came on any.
    """

    mode: Mode
    phase: 3
    boot: 16
    tx_tag: 16
    rx_tag: 16
    state: LinkState
    unacked: 12
    path: 4
    failed: 1
