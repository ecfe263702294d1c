"""Hears the HELLO of a host to a box that nobody has set up.

Ref: docs/wire-format.md, "HELLO and HELLO_ACK"; docs/boards.md, "Stand-alone"
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.receive.types import Refused
from dxpu.fabric.wire.format import NODE_UNASSIGNED, TAG_NONE, FrameType, Role, SecurityMode

__all__ = ["Greeted", "HelloListener"]


class Greeted(data.Struct):
    """What a HELLO says of who is to talk to whom, and how."""

    host: 12
    node: 12
    stream: 4
    path: 4


class HelloListener(wiring.Component):
    """Picks the HELLOs of hosts out of the frames that the link refuses.

    A proxy without a node number refuses every frame, but only after the MAC and the depacketizer
    have found it good: FCS, length, EtherType, version, both CRCs. So nothing is parsed twice, no
    frame waits for this, and what it hears is what the proxy would have answered, had it been set
    up. A HELLO counts if

    - its role is host, its security mode none, it offers a tag, and its session tag is 0;
    - both nodes are numbers that a node may have (0x001 to 0xFFE), and differ;
    - there are such a stream and such a path here. The path is that of the header, as answers take
      that one.

    Latency one cycle.

    Parameters
    ----------
    paths, streams : int
        That the proxy has.

    Members
    -------
    refused : :class:`~dxpu.fabric.receive.types.Refused`
        Of the proxy.
    wanted : 12
        Node number that HELLOs must be for; 0xFFF: any.
    heard : 1
        Strobe: there is such a HELLO.
    who : :class:`Greeted`
        With ``heard``.
    """

    def __init__(self, *, paths, streams):
        self._paths, self._streams = paths, streams
        super().__init__({"refused": In(Refused), "wanted": In(12, init=NODE_UNASSIGNED),
                          "heard": Out(1), "who": Out(Greeted)})

    def elaborate(self, platform):
        m = Module()
        header, hello = self.refused.header, self.refused.hello

        def may_be(node):
            return node.any() & (node != NODE_UNASSIGNED)

        m.d.sync += [
            self.heard.eq(
                self.refused.strobe
                & (header.type == FrameType.HELLO) & (header.tag == TAG_NONE)
                & (hello.role == Role.HOST) & (hello.security == SecurityMode.NONE)
                & (hello.offered != TAG_NONE)
                & may_be(header.src_node) & may_be(header.dst_node)
                & (header.src_node != header.dst_node)
                & ((header.dst_node == self.wanted) | (self.wanted == NODE_UNASSIGNED))
                & (header.stream < self._streams) & (header.path < self._paths)),
            self.who.host.eq(header.src_node), self.who.node.eq(header.dst_node),
            self.who.stream.eq(header.stream), self.who.path.eq(header.path),
        ]
        return m
