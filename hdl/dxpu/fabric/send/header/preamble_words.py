"""The bytes that a frame begins with, a beat at a time."""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.send.types import FrameRoute
from dxpu.fabric.wire.control_body import control_bodies, sack_with_word
from dxpu.fabric.wire.format import CREDIT_BYTES, HEADER_BYTES, MAC_PREFIX, SACK_WORD_BYTES
from dxpu.fabric.wire.frame_fields import any_of, guarded_bytes, header_bytes, wire
from dxpu.fabric.wire.frame_types import Body, FrameType, types_with
from dxpu.fabric.wire.header_crc import GUARDED_BYTES
from dxpu.fabric.wire.types import Hello
from dxpu.stream import check_width

from .frame_order import FrameOrder

__all__ = ["PreambleWords"]

HEADER, EXTENSION = HEADER_BYTES // 4, CREDIT_BYTES // 4

#: Members of a route that stand in the header.
ROUTE_FIELDS = ("crx", "ar", "dst_node", "src_node", "dst_slot", "src_slot", "path", "stream",
                "tag", "seq", "ack")


class PreambleWords(wiring.Component):
    """Selects one beat of header, credit extension and body from the fields of a frame.

    Combinational. Each dword is selected by an enable that says where it stands in this frame, so a
    dword that may stand in two places costs no more than one.

    Ref: docs/reference/wire-format.md

    Parameters
    ----------
    width : int
        Data bits per beat.
    cells : int
        Of the replay memory.
    split : bool
        There are DATA frames.
    selective : bool
        SACKs may have a word.
    keyed : bool
        There are openings of keyed sessions.

    Members
    -------
    type, tlp_count : 4, 5
        Type of the frame, and number of its TLPs.
    frame_order : :func:`~dxpu.fabric.send.header.frame_order.FrameOrder`
        Content of the body; ``type`` and ``count`` have no meaning.
    route : :class:`FrameRoute`
        Fields of the header. ``credits`` are the entries of an ACK or SACK; the first one is the
        extension if there is one, and ``credit`` has no meaning.
    local_hello : :class:`~dxpu.fabric.wire.types.Hello`
    made_body : array of 32
        Dwords of the body of a keyed opening that stand in ``beat``, each in its lane.
    hcrc, body_crc : 16, 32
    guarded : 128
        Bytes of the header that HCRC covers.
    last_dword : number
        Number of the last dword: that of the body's CRC, if there is a body with one.
    beat : number
    data : ``width``
        That beat of the frame; zero in lanes past the last dword.
    """

    def __init__(self, width, *, cells, split=False, selective=False, keyed=False):
        self._lanes = check_width(width) // 32
        self._split, self._selective, self._keyed = split, selective, keyed
        longest = max((Body.KEYED if keyed else Body.HELLO).dwords,
                      Body.SACK.dwords + SACK_WORD_BYTES // 4 * selective,
                      EXTENSION + Body.EVENT.dwords)
        #: Beats of the longest preamble.
        self.beats = -(-(HEADER + longest) // self._lanes)
        super().__init__({
            "type": In(FrameType),
            "tlp_count": In(5),
            "frame_order": In(FrameOrder(cells)),
            "route": In(FrameRoute),
            "local_hello": In(Hello),
            "made_body": In(data.ArrayLayout(32, self._lanes)),
            "hcrc": In(16),
            "body_crc": In(32),
            "guarded": Out(8 * GUARDED_BYTES),
            "last_dword": Out(range(HEADER + longest)),
            "beat": In(range(max(2, self.beats))),
            "data": Out(width),
        })

    def elaborate(self, platform):
        m = Module()
        pieces = [(Const(1), 0, self._header(m)), *self._body(m)]
        # For each lane, each dword with the conditions under which it is there.
        lanes = [{} for _ in range(self._lanes)]
        for condition, place, dwords in pieces:
            for n, dword in enumerate(dwords, place):
                beat, lane = divmod(n, self._lanes)
                _, conditions = lanes[lane].setdefault(id(dword), (dword, []))
                conditions.append(condition & (self.beat == beat))
        for n, lane in enumerate(lanes):
            m.d.comb += self.data.word_select(n, 32).eq(reduce(or_, (
                Mux(reduce(or_, conditions), dword, 0) for dword, conditions in lane.values())))
        return m

    def _header(self, m):
        """The dwords of the header."""
        route = self.route
        m.d.comb += self.guarded.eq(guarded_bytes(
            type=self.type, count=Mux(self.type == FrameType.TLP, self.tlp_count, 0),
            **{name: route[name] for name in ROUTE_FIELDS}))

        def mac(node):
            return Cat(node, Const(0, 4), route.path, Const(0, 4),
                       Const(int.from_bytes(MAC_PREFIX, "big"), 24))

        header = header_bytes(self.guarded, dst_mac=mac(route.dst_node),
                              src_mac=mac(route.src_node), hcrc=self.hcrc)
        return [header.word_select(n, 32) for n in range(HEADER)]

    def _body(self, m):
        """Condition, place and dwords of all that may stand behind the header; drives ``end``."""
        order, route = self.frame_order, self.route
        bodies = control_bodies(event=order, credits=route.credits, request=order.request,
                                greeting=order, hello=self.local_hello)
        is_sack = any_of(self.type, types_with(Body.SACK))
        with_word = order.words & self._selective
        # The order of a frame with TLPs is the next frame's behind the first beat.
        keyed = order.keyed & self._keyed & any_of(self.type, types_with(Body.HELLO, Body.KEYED))
        controls = [(any_of(self.type, types_with(body)), bodies[body])
                    for body in (Body.FENCE, Body.LIMITS)]
        controls.append((any_of(self.type, types_with(Body.HELLO)) & ~keyed, bodies[Body.HELLO]))
        if self._keyed:
            made = list(self.made_body)
            controls.append((keyed, [made[(HEADER + n) % self._lanes]
                                     for n in range(Body.KEYED.dwords - 1)]))
        controls.append((is_sack & ~with_word, bodies[Body.SACK]))
        if self._selective:
            controls.append((is_sack & with_word,
                             bodies[Body.LIMITS] + sack_with_word(route.word)))
        # EVENT is the only control frame that may have an extension before its body.
        is_event, behind = any_of(self.type, types_with(Body.EVENT)), HEADER + EXTENSION
        event = [*bodies[Body.EVENT], self.body_crc]
        pieces = [(route.crx, HEADER, bodies[Body.LIMITS][:EXTENSION]),
                  (is_event & ~route.crx, HEADER, event), (is_event & route.crx, behind, event),
                  *((is_type, HEADER, [*dwords, self.body_crc]) for is_type, dwords in controls)]
        end = Signal.like(self.last_dword)
        m.d.comb += end.eq(HEADER - 1)
        for is_type, dwords in (*controls, (is_event, bodies[Body.EVENT])):
            with m.If(is_type):
                m.d.comb += end.eq(HEADER + len(dwords))
        if self._split:
            # Before the bytes of DATA their offset and their number, which is without the CRC.
            is_data = self.type == FrameType.DATA
            place = Cat(wire(order.offset << 2, 2), wire((order.dwords - 1)[:11] << 2, 2))
            pieces += [(is_data & ~route.crx, HEADER, [place]),
                       (is_data & route.crx, behind, [place])]
            with m.If(is_data):
                m.d.comb += end.eq(HEADER)
        m.d.comb += self.last_dword.eq(end + Mux(route.crx, EXTENSION, 0))
        return pieces
