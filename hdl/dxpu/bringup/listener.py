"""Detects the HELLO of a host to a box that is not set up.

Ref: docs/reference/wire-format.md, "HELLO and HELLO_ACK"; docs/reference/boards.md, "Stand-alone"
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.receive.types import Refused
from dxpu.fabric.wire.format import NODE_UNASSIGNED, TAG_NONE, Role, SecurityMode
from dxpu.fabric.wire.frame_types import FrameType

__all__ = ["Greeted", "HelloListener"]


class Greeted(data.Struct):
    """Parties and route of a HELLO: host, box, stream and path."""

    host: 12
    node: 12
    stream: 4
    path: 4


class HelloListener(wiring.Component):
    """Filters the HELLOs of hosts out of the frames that the link refuses.

    A proxy without a node number refuses every frame, but only after the MAC and the depacketizer
    have found the frame good: FCS, length, EtherType, version, both CRCs. So nothing is parsed
    twice, no frame is delayed, and the listener sees exactly the HELLOs that a proxy with a node
    number would have answered. A HELLO counts if

    - its role is host, its offered tag not 0, and its session tag 0;
    - its security mode is that of ``mode``;
    - both nodes have valid numbers (0x001 to 0xFFE), and differ;
    - its stream and its path exist here. The path is taken from the header, as answers use that
      path.

    Latency one cycle.

    Parameters
    ----------
    paths, streams : int
        Numbers of paths and streams of the proxy.

    Members
    -------
    refused : :class:`~dxpu.fabric.receive.types.Refused`
        Frames that the proxy refuses.
    wanted : 12
        Node number that a HELLO must be addressed to; 0xFFF: any.
    mode : :class:`~dxpu.fabric.wire.format.SecurityMode`
        Security mode of the HELLOs that count.
    greets : 1
        Strobe: a HELLO was refused, in the cycle before ``heard``, if it counts.
    heard : 1
        Strobe: a HELLO that counts.
    who : :class:`Greeted`
        Sender and route of the HELLO; valid with ``heard``.
    """

    def __init__(self, *, paths, streams):
        self._paths, self._streams = paths, streams
        super().__init__({"refused": In(Refused), "wanted": In(12, init=NODE_UNASSIGNED),
                          "mode": In(8, init=SecurityMode.NONE), "greets": Out(1),
                          "heard": Out(1), "who": Out(Greeted)})

    def elaborate(self, platform):
        m = Module()
        header, hello = self.refused.header, self.refused.hello

        def may_be(node):
            return node.any() & (node != NODE_UNASSIGNED)

        m.d.comb += self.greets.eq(self.refused.strobe & (header.type == FrameType.HELLO))
        m.d.sync += [
            self.heard.eq(
                self.greets & (header.tag == TAG_NONE)
                & (hello.role == Role.HOST) & (hello.security == self.mode)
                & (hello.offered != TAG_NONE)
                & may_be(header.src_node) & may_be(header.dst_node)
                & (header.src_node != header.dst_node)
                & ((header.dst_node == self.wanted) | (self.wanted == NODE_UNASSIGNED))
                & (header.stream < self._streams) & (header.path < self._paths)),
            self.who.host.eq(header.src_node), self.who.node.eq(header.dst_node),
            self.who.stream.eq(header.stream), self.who.path.eq(header.path),
        ]
        return m
