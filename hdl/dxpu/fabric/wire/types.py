"""What frames say, as structures: header, bodies, credits.

Values are in natural (host) order here; wire order exists only inside the packetizer and the
depacketizer. The first field of a structure is the least significant. Field meanings are those of
DXF v1 (docs/reference/wire-format.md), numbers those of :mod:`dxpu.fabric.wire.format`.
"""

from amaranth.hdl import Mux
from amaranth.lib import data

__all__ = ["EPOCH_BITS", "Control", "Credit", "Event", "FrameHeader", "Greeting", "Hello", "Limit"]

#: Bits of the number that tells a session's frames from those before it was opened, or failed.
EPOCH_BITS = 2


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


class Control(data.Struct):
    """An EVENT to be sent to the peer of a row."""

    row: 6
    code: 8
    generation: 16
    argument: 32


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


class Greeting(data.Struct):
    """A HELLO, HELLO_ACK or FENCE to be sent with ``tag`` in its header, or an ACK that asks for
    another.

    ``nonce``, ``offered`` and ``echoed`` are what is not the same in every HELLO; ``reason`` is
    that of a FENCE, ``seq`` and ``ack`` are the numbers of its session, 0 for all others. With
    ``keyed`` the body is the one that the agent of keyed sessions has made.
    """

    type: 4
    session: 6
    path: 4
    tag: 16
    nonce: 32
    offered: 16
    echoed: 16
    reason: 2
    seq: 24
    ack: 24
    keyed: 1


class Event(data.Struct):
    """An EVENT frame that took effect."""

    row: 6
    code: 8
    generation: 16
    argument: 32


class Limit(data.Struct):
    """Credits granted, or used, since a life of a row began, modulo 2^16: TLPs, and units of
    16 bytes of their data."""

    header: 16
    data: 16


