"""Structures of frames on their way out.

Values are in natural (host) order. The first field of a structure is the least significant.
"""

from amaranth.lib import data

from dxpu.fabric.wire.types import EPOCH_BITS, Credit
from dxpu.rows import LIFE_BITS

__all__ = ["FrameRoute", "PathMeta", "Reply", "RouteRequest"]


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
    frame is of no session, or of one that is over: it takes ``tag``, ``seq`` and ``ack``.
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
    ack: 24
    epoch: EPOCH_BITS
    hello: 1
    tag: 16


class Reply(data.Struct):
    """An ACK or SACK to be sent, as an answer to a frame between these slots, on its path. With
    ``words``, a SACK has its word, else none, but the number of the ``request`` to go back. ``row``
    is that of the slots, if there is one."""

    type: 4
    session: 6
    row: 6
    dst_slot: 8
    src_slot: 8
    path: 4
    words: 1
    request: 1


class PathMeta(data.Struct):
    """Path (and thereby the Ethernet port) that a frame leaves by."""

    path: 4
