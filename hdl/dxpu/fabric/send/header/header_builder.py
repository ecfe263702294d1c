"""What a frame begins with: header, credit extension, and the body if it is a control frame."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.fabric.send.types import FrameRoute
from dxpu.fabric.opening.sent_body import SentBody
from dxpu.fabric.wire.control_body import BodyCrc
from dxpu.fabric.wire.format import CREDIT_BYTES, HEADER_BYTES
from dxpu.fabric.wire.frame_fields import credit_bytes
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.fabric.wire.header_crc import HeaderCrc
from dxpu.fabric.wire.types import Hello
from dxpu.stream import check_width

from .frame_order import FrameOrder, PreambleBeat
from .preamble_words import PreambleWords

__all__ = ["HeaderBuilder"]


class HeaderBuilder(wiring.Component):
    """Builds the first bytes of a frame from an order and its route, a beat per cycle.

    The beats go into a small memory, so that the fields are free for the next frame although this
    one waits for the line. Of a frame with TLPs the order is free with the first beat. The body of
    a control frame passes twice: first for its CRC, a dword per cycle.

    Latency from the route to the first beat: two cycles, and in a control frame one more for each
    dword of the body, and one more at 512 bits; and until the preamble before has left. A beat is
    offered in each cycle.

    Ref: docs/reference/wire-format.md, header and credit extension

    Parameters
    ----------
    width : int
        Data bits per beat.
    cells : int
        Of the replay memory.
    split : bool
        There are HDR and DATA frames.
    selective : bool
        SACKs may have a word.
    keyed : bool
        There are openings of keyed sessions.

    Members
    -------
    order : stream of :func:`~dxpu.fabric.send.header.frame_order.FrameOrder`
        Valid when its route comes, or before.
    route : stream of :class:`FrameRoute`
        One for each order.
    local_hello : :class:`~dxpu.fabric.wire.types.Hello`
        What every HELLO says besides its greeting.
    o : stream of :func:`~dxpu.fabric.send.header.frame_order.PreambleBeat`
    body_put, body_at, body_word : 1, 5, 16
        Of :class:`~dxpu.fabric.opening.sent_body.SentBody`; only with ``keyed``.
    body_done : 1
        Pulse: the body was read. Only with ``keyed``.
    """

    def __init__(self, width, *, cells, split=False, selective=False, keyed=False):
        self._width = check_width(width)
        self._words = PreambleWords(
            width, cells=cells, split=split, selective=selective, keyed=keyed)
        self._body = SentBody(width) if keyed else None
        super().__init__({
            "order": In(stream.Signature(FrameOrder(cells))),
            "route": In(stream.Signature(FrameRoute)),
            "local_hello": In(Hello),
            "o": Out(stream.Signature(PreambleBeat(width, cells))),
            **({"body_put": In(1), "body_at": In(5), "body_word": In(16), "body_done": Out(1)}
               if keyed else {}),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self._width // 32
        shift = (lanes - 1).bit_length()
        order, o = self.order.payload, self.o.payload
        m.submodules.words = words = self._words
        m.submodules.hcrc = hcrc = HeaderCrc(self._width)
        m.submodules.body_crc = body_crc = BodyCrc()

        # Fields of the frame. An extension is where the first entry of an ACK is: no frame has
        # both.
        route = Signal(FrameRoute, reset_less=True)
        kind, count = Signal(FrameType, reset_less=True), Signal(5, reset_less=True)
        beat = Signal.like(words.beat)         # the next to be written
        sealed = Signal.like(words.last_dword)        # the next dword for the body's CRC
        sealing, write, load, free = Signal(), Signal(), Signal(), Signal()
        end_beat = Signal.like(words.beat)
        m.d.comb += [
            words.type.eq(kind),
            words.tlp_count.eq(count),
            words.frame_order.eq(order),
            words.route.eq(route),
            words.local_hello.eq(self.local_hello),
            words.hcrc.eq(hcrc.hcrc),
            words.body_crc.eq(body_crc.body_crc),
            words.beat.eq(Mux(sealing, sealed >> shift, beat)),
            end_beat.eq(Mux(route.ok, words.last_dword >> shift, 0)),
            hcrc.guarded.eq(words.guarded),
            hcrc.extension.eq(credit_bytes(route.credits[0])),
            hcrc.extended.eq(route.crx),
            hcrc.beat.eq(beat),
            hcrc.step.eq(write),
            load.eq(write & (beat == 0)),
        ]
        if lanes < HEADER_BYTES // 4 * 2:
            # Behind the first beat, so the order is the next frame's by then.
            m.d.comb += [words.frame_order.dwords.eq(o.info.total),
                         words.frame_order.offset.eq(o.info.note.offset)]
        if self._body is not None:
            m.submodules.body = body = self._body
            m.d.comb += [
                *(getattr(body, name).eq(getattr(self, name))
                  for name in ("body_put", "body_at", "body_word")),
                body.row.eq(words.beat - HEADER_BYTES // 4 // lanes if lanes <= 8 else 0),
                words.made_body.eq(body.dwords),
                self.body_done.eq(self.order.valid & self.order.ready & order.keyed),
            ]
        # A dword is chosen in one cycle and goes into the CRC in the next.
        m.d.sync += [
            body_crc.body_dword.eq(words.data.word_select(sealed[:shift], 32)),
            body_crc.step.eq(sealing),
        ]
        with m.FSM():
            with m.State("Route"):
                m.d.comb += [self.route.ready.eq(1), body_crc.clear.eq(1)]
                fields = self.route.payload
                m.d.sync += [
                    *(route[name].eq(fields[name]) for name, _ in data.Layout.cast(FrameRoute)
                      if name not in ("credit", "credits")),
                    route.credits[0].eq(Mux(fields.crx, fields.credit, fields.credits[0])),
                    *(route.credits[n].eq(fields.credits[n])
                      for n in range(1, len(route.credits))),
                    kind.eq(order.type),
                    count.eq(order.count),
                    sealed.eq((HEADER_BYTES + Mux(fields.crx, CREDIT_BYTES, 0)) >> 2),
                ]
                with m.If(self.route.valid):
                    m.next = "Write"
                    with m.If((order.count == 0) & fields.ok):
                        m.next = "Seal"
            with m.State("Seal"):
                m.d.comb += sealing.eq(1)
                m.d.sync += sealed.eq(sealed + 1)
                with m.If(sealed + 1 == words.last_dword):
                    # The CRC is there when the second beat is written.
                    m.next = "Sealed" if lanes * 4 > HEADER_BYTES else "Write"
            if lanes * 4 > HEADER_BYTES:
                with m.State("Sealed"):
                    m.next = "Write"
            with m.State("Write"):
                m.d.comb += write.eq((beat != 0) | free)
                with m.If(write):
                    m.d.sync += beat.eq(beat + 1)
                    m.d.comb += self.order.ready.eq(
                        Mux(count != 0, beat == 0, beat == end_beat))
                    with m.If(beat == end_beat):
                        m.d.sync += beat.eq(0)
                        m.next = "Route"

        # One preamble at a time is in the memory.
        m.submodules.beats = beats = Memory(shape=self._width, depth=1 << len(beat), init=[])
        into, out = beats.write_port(), beats.read_port(domain="comb")
        place, filled = Signal.like(beat), Signal(len(beat) + 1)
        last_place, tail = Signal.like(beat), Signal.like(o.dwords)
        taken = self.o.valid & self.o.ready
        m.d.comb += [
            into.addr.eq(beat),
            into.data.eq(words.data),
            into.en.eq(write),
            out.addr.eq(place),
            self.o.valid.eq(place != filled),
            # Not in the cycle in which the last beat leaves: that is known late.
            free.eq(filled == 0),
            o.data.eq(out.data),
            o.first.eq(place == 0),
            o.last.eq(place == last_place),
            o.dwords.eq(Mux(o.last, tail, lanes)),
        ]
        with m.If(taken):
            m.d.sync += place.eq(Mux(o.last, 0, place + 1))
        with m.If(write):
            m.d.sync += filled.eq(beat + 1)
        with m.Elif(taken & o.last):
            m.d.sync += filled.eq(0)

        info = o.info
        with m.If(load):
            m.d.sync += [
                last_place.eq(end_beat),
                tail.eq((words.last_dword & (lanes - 1)) + 1),
                info.count.eq(count),
                info.total.eq(order.dwords),
                info.final.eq(order.final),
                info.drop.eq(~route.ok),
                info.binding.eq(Mux(kind == FrameType.HDR, 0, Cat(route.seq[:16], route.tag))),
                info.path.eq(route.path),
                info.extension.eq(route.crx),
                info.session.eq(route.session),
                info.epoch.eq(route.epoch),
                *(info[k].eq(order[k]) for k in ("store", "reserved", "resend", "cell")),
                info.note.type.eq(kind),
                *(info.note[k].eq(route[k]) for k in ("dst_slot", "src_slot", "paths", "seq")),
                *(info.note[k].eq(order[k]) for k in (
                    "code", "generation", "argument", "count", "dwords", "offset", "final")),
            ]
        return m
