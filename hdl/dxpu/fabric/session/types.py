"""Sessions and peers, as the fabric's blocks and software see them.

The first field of a structure is the least significant.
"""

from amaranth.lib import data, enum

__all__ = ["LinkState", "Mode", "Peer", "PeerRow", "Said", "SaidKind", "SessionNews",
           "SessionView", "Setting", "SettingKind"]


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
        Who opens it; :class:`~dxpu.fabric.session.session.Phase`; boot counter of the peer in its
        last session, 0: there was none.
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


class SessionNews(data.Struct):
    """Strobe: a session was opened by HELLO; one that was open has ended; or both, as another one
    took its place.

    Members
    -------
    strobe, opened, ended : 1
    session : 8
        Its number: peer times streams, and the stream.
    """

    strobe: 1
    opened: 1
    ended: 1
    session: 8
