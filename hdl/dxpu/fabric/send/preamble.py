"""What a frame begins with: header, credit extension, and the body if it is a control frame."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.crc import CRC16_CCITT_FALSE, data_matrix, xor_tree, zeros_crc
from dxpu.fabric.arq.replay import FrameNote, cells_for
from dxpu.fabric.arq.retransmit import Repeat
from dxpu.fabric.wire.control_body import ControlBody
from dxpu.fabric.wire.format import (
    CREDIT_BYTES, HCRC_OFFSET, HCRC_START, HEADER_BYTES, MAC_PREFIX, EventCode,
)
from dxpu.fabric.wire.frame_fields import (
    any_of, credit_bytes, guarded_bytes, header_bytes, wire,
)
from dxpu.fabric.wire.frame_types import LIMITED, UNNUMBERED, Body, FrameType
from dxpu.fabric.wire.types import EPOCH_BITS, Control, Greeting, Hello
from dxpu.rows import NO_ROW
from dxpu.stream import check_width

from .planner import FramePlan
from .types import FrameRoute, Reply, RouteRequest

__all__ = ["PreambleBeat", "PreambleBuilder"]

GUARDED_BYTES = HCRC_OFFSET - HCRC_START

#: Events that begin a life of a row, or ask for one.
LIFE_EVENTS = (EventCode.BIND, EventCode.RESET, EventCode.RESET_DONE)

#: Cells that are kept free for events.
EVENT_CELLS = 2


def PreambleBeat(width, cells):
    """Layout of the beats of a preamble, with what the rest of the frame needs.

    Members
    -------
    data, dwords, first, last
        As in a packet; ``last`` is the end of the preamble. Lanes past ``dwords`` are zero.
    count : 5
        Records that follow; none in control frames.
    total : 13
        Dwords of these records.
    final : 1
        Each record ends a TLP.
    drop : 1
        There is no frame: its TLPs, if any, are to be dropped. No data then.
    binding : 32
        What the CRC of each TLP is XORed with.
    path : 4
    extension : 1
        The preamble has a credit extension.
    keep, note, session, epoch, reserved : 1, FrameNote, 6, number, cells
        The frame is to be kept for repetitions, with this note; ``reserved`` cells wait for it.
    again, cell : 1, number
        The TLPs come from this cell, not from the queue.
    """
    return data.StructLayout({
        "data": width, "dwords": range(width // 32 + 1), "first": 1, "last": 1, "count": 5,
        "total": 13, "final": 1, "drop": 1, "binding": 32, "path": 4, "extension": 1,
        "keep": 1, "note": FrameNote, "session": 6, "epoch": EPOCH_BITS,
        "reserved": range(cells + 1), "again": 1, "cell": range(cells),
    })


class PreambleBuilder(wiring.Component):
    """Asks the link for the values of the next frame's header and builds its first bytes.

    Greetings and replies go first, then repetitions, events, TLPs. Events and TLPs wait for spare
    cells in the replay memory, repetitions until no new frame is under way. One frame is being
    prepared while the one before it leaves; a plan of TLPs is taken only when ``hurry`` says that
    its preamble will be needed soon, so that it may grow until then. Latency from plan, event or
    reply to the first beat: three cycles and what the link takes for its answer.

    Ref: docs/reference/wire-format.md, header and credit extension

    Parameters
    ----------
    width : int
        Data bits per beat.
    cells, cell : int
        Of the replay memory.
    selective : bool
        SACKs may have a word.

    Members
    -------
    plan, plan_valid, plan_take
        Of the :class:`~dxpu.fabric.send.planner.Planner`.
    control : stream of :class:`Control`
    reply : stream of :class:`Reply`
    greeting : stream of :class:`Greeting`
    about : :class:`Hello`
        What every HELLO says besides its greeting.
    repeat, repeat_valid, repeat_take, repeat_more
        Of the :class:`~dxpu.fabric.arq.retransmit.Retransmitter`.
    look, seen, spare, reserve
        Of the :class:`~dxpu.fabric.arq.replay.ReplayMemory`.
    stored : 1
        Pulse: a new frame has left the preamble behind it, and is kept or dropped.
    request, route : stream of :class:`RouteRequest` out, :class:`FrameRoute` in
    hurry : in
    o : stream of :func:`PreambleBeat`
    """

    def __init__(self, width, *, cells, cell, selective=False):
        self._width = check_width(width)
        self._cells, self._cell = cells, cell
        self._body = ControlBody(selective=selective)
        # Of control frames only EVENTs have a credit extension, and they are short.
        self._bytes = HEADER_BYTES + max(4 * self._body.most,
                                         CREDIT_BYTES + 4 * Body.EVENT.dwords)
        super().__init__({
            "plan": In(FramePlan),
            "plan_valid": In(1),
            "plan_take": Out(1),
            "control": In(stream.Signature(Control)),
            "reply": In(stream.Signature(Reply)),
            "greeting": In(stream.Signature(Greeting)),
            "about": In(Hello),
            "repeat": In(Repeat(cells)),
            "repeat_valid": In(1),
            "repeat_take": Out(1),
            "repeat_more": In(1),
            "look": Out(stream.Signature(range(cells))),
            "seen": In(stream.Signature(FrameNote)),
            "spare": In(range(cells + 1)),
            "reserve": Out(range(cells + 1)),
            "stored": In(1),
            "request": Out(stream.Signature(RouteRequest)),
            "route": In(stream.Signature(FrameRoute)),
            "hurry": In(1),
            "o": Out(stream.Signature(PreambleBeat(width, cells))),
        })

    def elaborate(self, platform):
        m = Module()
        # What the next frame is: one of SEQUENCED with its plan or event, or a reply.
        control, kind = Signal(Control, reset_less=True), Signal(FrameType)
        plan = Signal(FramePlan, reset_less=True)
        reply, greeting = Signal(Reply, reset_less=True), Signal(Greeting, reset_less=True)
        repeat, again = Signal(Repeat(self._cells), reset_less=True), Signal()
        seen = Signal(FrameNote, reset_less=True)
        route = Signal(FrameRoute, reset_less=True)
        need, reserved = Signal(range(self._cells + 1)), Signal(range(self._cells + 1))
        load, free = Signal(), Signal()
        self._kind, self._plan, self._route = kind, plan, route
        m.submodules.body = body = self._body
        m.d.comb += [
            body.kind.eq(kind), body.control.eq(control), body.credits.eq(route.credits),
            body.greeting.eq(greeting), body.about.eq(self.about),
            body.word.eq(route.word), body.with_word.eq(reply.words),
        ]

        # Outside of the numbers of any session.
        is_hello = ~again & any_of(kind, UNNUMBERED)
        is_reply = is_hello | ~again & any_of(kind, LIMITED)
        greets = Signal()  # the reply is a greeting
        inside = Signal(2)  # new frames that have a number and are not stored
        begins = Signal()
        m.d.sync += inside.eq(inside + begins - self.stored)
        p = self.request.payload
        m.d.comb += [
            p.row.eq(Mux(is_reply, reply.row, Mux(plan.count != 0, plan.row, control.row))),
            p.begins.eq((kind == FrameType.EVENT) & ~again & Cat(
                control.code == code for code in LIFE_EVENTS).any()),
            p.consumes.eq(~is_reply),
            p.tlps.eq((plan.count != 0) & ~again),
            p.life.eq(plan.life),
            p.direct.eq(is_reply | again),
            p.again.eq(again),
            p.probe.eq(Mux(again, repeat.probe, is_reply & greets & ~is_hello)),
            p.session.eq(Mux(again, repeat.session, reply.session)),
            p.dst_slot.eq(Mux(again, seen.dst_slot, reply.dst_slot)),
            p.src_slot.eq(Mux(again, seen.src_slot, reply.src_slot)),
            p.paths.eq(Mux(again, seen.paths, 1 << reply.path)),
            p.seq.eq(seen.seq),
            p.epoch.eq(repeat.epoch),
            p.hello.eq(is_hello),
            p.tag.eq(greeting.tag),
            need.eq(cells_for(self.plan.count, self.plan.dwords,
                              width=self._width, cell=self._cell)),
            self.look.payload.eq(self.repeat.cell),
        ]

        def build():
            """All is known that the frame needs."""
            m.next = "Build"
            m.d.comb += body.clear.eq(1)
            with m.If(plan.count == 0):
                m.d.comb += body.start.eq(1)
                m.next = "Body"

        with m.FSM():
            with m.State("Idle"):
                m.d.sync += [plan.eq(self.plan), again.eq(0), reserved.eq(0)]
                m.d.sync += greets.eq(self.greeting.valid)
                with m.If(self.greeting.valid):
                    m.d.comb += self.greeting.ready.eq(1)
                    said = self.greeting.payload
                    m.d.sync += [greeting.eq(said), kind.eq(said.type), plan.count.eq(0),
                                 reply.eq(0), reply.row.eq(NO_ROW),
                                 reply.session.eq(said.session), reply.path.eq(said.path)]
                    m.next = "Request"
                with m.Elif(self.reply.valid):
                    m.d.comb += self.reply.ready.eq(1)
                    m.d.sync += [reply.eq(self.reply.payload), kind.eq(self.reply.payload.type),
                                 plan.count.eq(0)]
                    m.next = "Request"
                with m.Elif(self.repeat_valid):
                    m.d.comb += [
                        self.look.valid.eq(inside == 0),
                        self.repeat_take.eq(self.look.valid & self.look.ready),
                    ]
                    m.d.sync += [repeat.eq(self.repeat), again.eq(1)]
                    with m.If(self.repeat_take):
                        m.next = "Look"
                with m.Elif(self.control.valid & (self.spare != 0) & ~self.repeat_more):
                    m.d.comb += [self.control.ready.eq(1), self.reserve.eq(1), begins.eq(1)]
                    m.d.sync += [control.eq(self.control.payload), kind.eq(FrameType.EVENT),
                                 plan.count.eq(0), reserved.eq(1)]
                    m.next = "Request"
                with m.Elif(self.plan_valid & self.hurry & (self.spare >= need + EVENT_CELLS)
                            & ~self.repeat_more):
                    m.d.comb += [self.plan_take.eq(1), self.reserve.eq(need), begins.eq(1)]
                    m.d.sync += [kind.eq(self.plan.type), reserved.eq(need)]
                    m.next = "Request"
            with m.State("Look"):
                m.d.comb += self.seen.ready.eq(1)
                with m.If(self.seen.valid):
                    note = self.seen.payload
                    m.d.sync += [
                        seen.eq(note), kind.eq(note.type),
                        *(control[k].eq(note[k]) for k in ("code", "generation", "argument")),
                        *(plan[k].eq(note[k]) for k in ("count", "dwords", "offset", "final")),
                    ]
                    m.next = "Request"
            with m.State("Request"):
                # The answer may come with the request's `ready`, before it or after it.
                m.d.comb += [self.request.valid.eq(1), self.route.ready.eq(1)]
                with m.If(self.request.ready & self.route.valid):
                    build()
                with m.Elif(self.request.ready):
                    m.next = "Route"
                with m.Elif(self.route.valid):
                    m.next = "Answered"
            with m.State("Answered"):
                m.d.comb += self.request.valid.eq(1)
                with m.If(self.request.ready):
                    build()
            with m.State("Route"):
                m.d.comb += self.route.ready.eq(1)
                with m.If(self.route.valid):
                    build()
            with m.State("Body"):
                with m.If(body.done):
                    m.next = "Build"
            with m.State("Build"):
                with m.If(free):
                    m.d.comb += load.eq(1)
                    m.next = "Idle"
        with m.If(self.route.valid & self.route.ready):
            m.d.sync += route.eq(self.route.payload)

        self._shift_out(m, load, free)
        beat, note = self.o.payload, self.o.payload.note
        with m.If(load):
            m.d.sync += [
                beat.keep.eq(~is_reply & ~again),
                beat.again.eq(again),
                beat.cell.eq(repeat.cell),
                beat.reserved.eq(reserved),
                beat.session.eq(route.session),
                beat.epoch.eq(route.epoch),
                note.type.eq(kind),
                *(note[k].eq(route[k]) for k in ("dst_slot", "src_slot", "paths", "seq")),
                *(note[k].eq(control[k]) for k in ("code", "generation", "argument")),
                *(note[k].eq(plan[k]) for k in ("count", "dwords", "offset", "final")),
            ]
        return m

    def _shift_out(self, m, load, free):
        """The preamble in a register that moves down by a beat for each one taken."""
        lanes = self._width // 32
        plan, route = self._plan, self._route
        words, size = self._preamble(m)
        register = Signal(max(len(words), self._width), reset_less=True)
        left = Signal(range(self._bytes // 4 + 1))
        o, beat = self.o, self.o.payload
        last = left <= lanes
        m.d.comb += [
            free.eq(~o.valid | (o.ready & last)),
            beat.data.eq(register),
            beat.dwords.eq(Mux(last, left, lanes)),
            beat.last.eq(last),
        ]
        with m.If(load):
            m.d.sync += [
                register.eq(words),
                left.eq(Mux(route.ok, size, 0)),
                o.valid.eq(1),
                beat.first.eq(1),
                beat.count.eq(plan.count),
                beat.total.eq(plan.dwords),
                beat.drop.eq(~route.ok),
                beat.final.eq(plan.final),
                beat.binding.eq(Mux(self._kind == FrameType.HDR, 0,
                                    Cat(route.seq[:16], route.tag))),
                beat.path.eq(route.path),
                beat.extension.eq(route.crx),
            ]
        with m.Elif(o.valid & o.ready):
            m.d.sync += [
                register.eq(register >> self._width),
                left.eq(left - lanes),
                beat.first.eq(0),
                o.valid.eq(~last),
            ]

    def _preamble(self, m):
        """All bytes of the preamble, and how many dwords of them count."""
        kind, plan, route, body = self._kind, self._plan, self._route, self._body
        guarded = guarded_bytes(
            type=kind, count=Mux(kind == FrameType.TLP, plan.count, 0), **{
                member: route[member] for member in (
                    "crx", "ar", "dst_node", "src_node", "dst_slot", "src_slot", "path", "stream",
                    "tag", "seq", "ack")})
        extension = credit_bytes(route.credit)
        assert len(guarded) == 8 * GUARDED_BYTES and len(extension) == 8 * CREDIT_BYTES

        # Zeros before a message do not matter to the tree; so one tree serves both lengths.
        message = Mux(route.crx, Cat(guarded, extension), guarded << (8 * CREDIT_BYTES))
        hcrc = (xor_tree(m, message[:8 * (GUARDED_BYTES + CREDIT_BYTES)],
                         data_matrix(CRC16_CCITT_FALSE, GUARDED_BYTES + CREDIT_BYTES))
                ^ Mux(route.crx, zeros_crc(CRC16_CCITT_FALSE, GUARDED_BYTES + CREDIT_BYTES),
                      zeros_crc(CRC16_CCITT_FALSE, GUARDED_BYTES)))

        def mac(node):
            return Cat(node, Const(0, 4), route.path, Const(0, 4),
                       Const(int.from_bytes(MAC_PREFIX, "big"), 24))

        header = header_bytes(guarded, dst_mac=mac(route.dst_node), src_mac=mac(route.src_node),
                              hcrc=hcrc)

        # Behind the header: the extension; the body, or before the bytes of DATA their offset and
        # their number, which is without the CRC.
        place = Cat(wire(plan.offset << 2, 2), wire((plan.dwords - 1)[:11] << 2, 2))
        is_data, is_control = kind == FrameType.DATA, plan.count == 0
        more = CREDIT_BYTES // 4
        plain = list(body.dwords)
        plain[0] |= Mux(is_data, place, 0)
        moved = [extension.word_select(n, 32) for n in range(more)]
        moved += plain[:Body.EVENT.dwords]
        rest = [Mux(route.crx, b, a) for a, b in zip(plain, moved, strict=False)]
        rest += plain[len(moved):] or moved[len(plain):]
        words = Signal(8 * self._bytes)
        size = Signal(range(self._bytes // 4 + 1))
        m.d.comb += [
            words.eq(Cat(header, rest)),
            size.eq(HEADER_BYTES // 4 + Mux(route.crx, more, 0)
                    + Mux(is_control, body.size, is_data)),
        ]
        return words, size
