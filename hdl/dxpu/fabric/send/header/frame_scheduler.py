"""What is sent next: a greeting, a reply, a repetition, an event or TLPs."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.arq.frame_note import FrameNote
from dxpu.fabric.arq.replay import cells_for
from dxpu.fabric.arq.retransmit import Repeat
from dxpu.fabric.send.planner import FramePlan
from dxpu.fabric.send.types import Reply, RouteRequest
from dxpu.fabric.wire.format import COUNT_MAX, EventCode
from dxpu.fabric.wire.frame_fields import any_of
from dxpu.fabric.wire.frame_types import UNNUMBERED, FrameType
from dxpu.fabric.wire.types import Control, Greeting
from dxpu.rows import NO_ROW
from dxpu.stream import check_width

from .frame_order import FrameOrder

__all__ = ["EVENT_CELLS", "SPACING", "FrameScheduler"]

#: Events that begin a life of a row, or ask for one.
LIFE_EVENTS = (EventCode.BIND, EventCode.RESET, EventCode.RESET_DONE)

#: Cells that are kept free for events.
EVENT_CELLS = 2
#: Cycles in which a core above 64 bits takes apart any small frame, and some more.
SPACING = 12


class FrameScheduler(wiring.Component):
    """Chooses the next frame and asks the link for its route.

    Greetings go first, then replies, repetitions, events, TLPs. Events and TLPs wait for spare
    cells in the replay memory, repetitions until no new frame is under way. A plan of TLPs is taken
    only when ``hurry`` says that its frame will be needed soon, so that it may grow until then. Up
    to 64 bits so is a reply, unless there is a repetition or an event, so that it tells what has
    come until then; and before an ACK one plan may go, whose frame may tell the same (``stale``).
    Above, a frame takes few cycles, and replies go at once; and no plan is taken sooner than
    :data:`SPACING` cycles after the order before, as its frame would only wait for the peer
    (:class:`~dxpu.axi.AxiMac`).

    Latency one cycle from plan, event, reply or greeting to the request, four from a repetition.
    A plan waits two cycles more if it is large, or less than a quarter of the cells is spare.
    One order at a time: the next is chosen when ``o`` and ``request`` have been taken.

    Parameters
    ----------
    width : int
        Data bits per beat.
    cells, cell : int
        Of the replay memory.

    Members
    -------
    plan, plan_valid, plan_take
        Of the :class:`~dxpu.fabric.send.planner.Planner`.
    control : stream of :class:`Control`
    reply : stream of :class:`Reply`
    stale : 1
        Of :class:`~dxpu.fabric.session.replies.Replies`: ``reply`` is taken, and no frame is sent.
        Not looked at above 64 bits.
    greeting : stream of :class:`Greeting`
    repeat, repeat_valid, repeat_take, repeat_more
        Of the :class:`~dxpu.fabric.arq.retransmit.Retransmitter`.
    look, seen, spare, reserve
        Of the :class:`~dxpu.fabric.arq.replay.ReplayMemory`.
    stored : 1
        Pulse: a new frame has left, and is in the replay memory or was dropped.
    hurry : 1
        The line will soon need a frame.
    request : stream of :class:`RouteRequest`
    o : stream of :func:`~dxpu.fabric.send.header.frame_order.FrameOrder`
        Valid from the first cycle of its request on.
    """

    def __init__(self, width, *, cells, cell):
        self._width = check_width(width)
        self._cells, self._cell = cells, cell
        super().__init__({
            "plan": In(FramePlan),
            "plan_valid": In(1),
            "plan_take": Out(1),
            "control": In(stream.Signature(Control)),
            "reply": In(stream.Signature(Reply)),
            "stale": In(1),
            "greeting": In(stream.Signature(Greeting)),
            "repeat": In(Repeat(cells)),
            "repeat_valid": In(1),
            "repeat_take": Out(1),
            "repeat_more": In(1),
            "look": Out(stream.Signature(range(cells))),
            "seen": In(stream.Signature(FrameNote)),
            "spare": In(range(cells + 1)),
            "reserve": Out(range(cells + 1)),
            "stored": In(1),
            "hurry": In(1),
            "request": Out(stream.Signature(RouteRequest)),
            "o": Out(stream.Signature(FrameOrder(cells))),
        })

    def elaborate(self, platform):
        m = Module()
        order, request = self.o.payload, self.request.payload
        plan, control, reply = self.plan, self.control.payload, self.reply.payload
        greeting, note = self.greeting.payload, self.seen.payload
        # Of the link's questions those that are not answered by the order.
        asked, direct = Signal(RouteRequest, reset_less=True), Signal()
        hello = Signal()
        unfinished = Signal(2)  # new frames with a number that are not stored
        begins = Signal()
        # Cells: some are spare, so that an event may begin; a quarter is, and a small plan needs
        # no more than that; what the plan of the cycle before needs; there are enough for a
        # plan that was the same in the two cycles before.
        some, quarter, small, enough, same = Signal(), Signal(), Signal(), Signal(), Signal()
        need = Signal(range(self._cells + 1))
        reserves, reserved = Signal(), Signal()  # in this cycle, in the one before
        sizes = {"width": self._width, "cell": self._cell}
        bits = max(n for n in range(14) if n == 0 or EVENT_CELLS + cells_for(
            COUNT_MAX, (1 << n) - 1, **sizes) <= self._cells // 4)
        # Only an order takes spare cells, a cycle after it was chosen, and no other is chosen until
        # they are counted. So what was so in the cycle before holds, but for more spare cells.
        m.d.sync += [
            unfinished.eq(unfinished + begins - self.stored),
            reserves.eq(begins),
            reserved.eq(reserves),
            some.eq(self.spare != 0),
            quarter.eq(self.spare >= self._cells // 4),
            enough.eq(0),
            same.eq(0),
        ]
        is_event = order.type == FrameType.EVENT
        m.d.comb += [
            small.eq(plan.dwords[bits:] == 0),
            order.reserved.eq(Mux(order.count == 0, 1, need)),
            self.reserve.eq(Mux(reserves, order.reserved, 0)),
            self.look.payload.eq(self.repeat.cell),
            request.eq(asked),
            request.begins.eq(order.store & is_event & any_of(order.code, LIFE_EVENTS)),
            request.consumes.eq(order.store | order.resend),
            request.tlps.eq(order.store & (order.count != 0)),
            request.direct.eq(~order.store),
            request.again.eq(order.resend),
            hello.eq(direct & any_of(order.type, (*UNNUMBERED, FrameType.FENCE))),
            request.hello.eq(hello),
            request.probe.eq(asked.probe & ~hello),
        ]

        greets, repeats = self.greeting.valid, self.repeat_valid
        new = ~self.repeat_more & ~reserved
        events = self.control.valid & some & new
        # There was room for the plan of the cycle before; a plan went before the reply that waits.
        fits, went, replies = Signal(), Signal(), Signal()
        if self._width > 64:
            m.d.comb += replies.eq(self.reply.valid)
        else:
            m.d.sync += fits.eq(self.plan_valid & (quarter & small | enough) & new)
            m.d.comb += [
                replies.eq(self.reply.valid & ~self.stale
                           & (self.hurry | repeats | self.control.valid)
                           & ((reply.type != FrameType.ACK) | ~fits | went)),
                self.reply.ready.eq(self.reply.valid & self.stale),
            ]
            with m.If(self.reply.ready):
                m.d.sync += went.eq(0)
            with m.Elif(self.plan_take):
                m.d.sync += went.eq(self.reply.valid)
        offers, waits = Signal(), Signal(2)  # a frame; its route, and its order, are not taken
        soon = Signal(range(SPACING))  # cycles in which no plan is taken
        if self._width > 64:
            m.d.sync += soon.eq(Mux(offers, SPACING - 1, soon - (soon != 0)))
        with m.FSM():
            with m.State("Idle"):
                # Fields that more than one kind of frame has; the others are loaded in any case.
                with m.If(greets):
                    m.d.comb += self.greeting.ready.eq(1)
                    m.d.sync += [order.type.eq(greeting.type), asked.row.eq(NO_ROW),
                                 asked.session.eq(greeting.session)]
                    m.d.comb += offers.eq(1)
                    m.next = "Request"
                with m.Elif(replies):
                    m.d.comb += self.reply.ready.eq(1)
                    m.d.sync += [order.type.eq(reply.type), asked.row.eq(reply.row),
                                 asked.session.eq(reply.session)]
                    m.d.comb += offers.eq(1)
                    m.next = "Request"
                with m.Elif(repeats):
                    m.d.comb += [
                        self.look.valid.eq(unfinished == 0),
                        self.repeat_take.eq(self.look.valid & self.look.ready),
                    ]
                    m.d.sync += asked.session.eq(self.repeat.session)
                    with m.If(self.repeat_take):
                        m.next = "Look"
                with m.Elif(events):
                    m.d.comb += [self.control.ready.eq(1), begins.eq(1)]
                    m.d.sync += [order.type.eq(FrameType.EVENT), asked.row.eq(control.row)]
                    m.d.comb += offers.eq(1)
                    m.next = "Request"
                with m.Elif(self.plan_valid & self.hurry & (quarter & small | enough)
                            & new & (soon == 0)):
                    m.d.comb += [self.plan_take.eq(1), begins.eq(1)]
                    m.d.sync += [order.type.eq(plan.type), asked.row.eq(plan.row)]
                    m.d.comb += offers.eq(1)
                    m.next = "Request"
                m.d.sync += [
                    need.eq(cells_for(plan.count, plan.dwords, **sizes)),
                    same.eq(self.plan_valid & ~self.plan_take),
                    enough.eq(same & self.plan_valid & (self.spare >= need + EVENT_CELLS)),
                    direct.eq(greets | replies),
                    order.resend.eq(~greets & ~replies & repeats),
                    order.store.eq(~greets & ~replies & ~repeats),
                    order.count.eq(Mux(greets | replies | repeats | events, 0, plan.count)),
                    *(order[k].eq(plan[k]) for k in ("dwords", "offset", "final")),
                    *(order[k].eq(control[k]) for k in ("code", "generation", "argument")),
                    *(order[k].eq(greeting[k]) for k in ("nonce", "offered", "echoed", "reason")),
                    order.keyed.eq(greets & greeting.keyed),
                    order.words.eq(reply.words & ~greets),
                    order.request.eq(reply.request),
                    order.cell.eq(self.repeat.cell),
                    asked.life.eq(plan.life),
                    asked.tag.eq(greeting.tag),
                    asked.seq.eq(greeting.seq), asked.ack.eq(greeting.ack),
                    asked.epoch.eq(self.repeat.epoch),
                    # A greeting that has a number is an ACK that asks for another.
                    asked.probe.eq(greets | ~replies & repeats & self.repeat.probe),
                    asked.dst_slot.eq(Mux(greets, 0, reply.dst_slot)),
                    asked.src_slot.eq(Mux(greets, 0, reply.src_slot)),
                    asked.paths.eq(1 << Mux(greets, greeting.path, reply.path)),
                ]
            with m.State("Look"):
                m.d.comb += self.seen.ready.eq(1)
                m.d.sync += [
                    *(order[k].eq(note[k]) for k in (
                        "type", "count", "dwords", "offset", "final", "code", "generation",
                        "argument")),
                    *(asked[k].eq(note[k]) for k in ("dst_slot", "src_slot", "paths", "seq")),
                ]
                with m.If(self.seen.valid):
                    m.d.comb += offers.eq(1)
                    m.next = "Request"
            with m.State("Request"):
                with m.If(~waits.any()):
                    m.next = "Idle"
        # Registers: the link looks a route up in the cycle in which it is requested.
        valid = Signal(2)
        m.d.comb += [
            waits.eq(valid & ~Cat(self.request.ready, self.o.ready)),
            Cat(self.request.valid, self.o.valid).eq(valid),
        ]
        m.d.sync += valid.eq(waits | offers.replicate(2))
        return m
