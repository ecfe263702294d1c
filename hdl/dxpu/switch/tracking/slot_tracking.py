"""Between switch and fabric: no request to a slot without an end, nothing late to the host."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import counted
from dxpu.arbiter import PacketArbiter
from dxpu.rows import LIFE_BITS, TlpMeta
from dxpu.stream import PacketLayout, PacketSignature, check_width, connect
from dxpu.switch.types import SlotInfo, SlotMeta, SlotRow
from dxpu.tlp.completion import CompletionBuilder
from dxpu.tlp.header import TlpHeader, decode
from dxpu.tlp.types import TlpClass, TlpInfo

from .checked_queue import JudgedQueue
from .tracker import CompletionTracker
from .types import GRANULE, RoundTrip, TrackedCompletion, TrackedRequest, tracked_completion

__all__ = ["SlotTracking"]


class _SlotHeader(data.Struct):
    """A :class:`SlotInfo` before its header is decoded."""

    port: 5
    life: LIFE_BITS
    header: TlpHeader


class SlotTracking(wiring.Component):
    """The completion tracker with the ways past it, down to the slots and up from them.

    Down: a non-posted request waits in a queue of its own until it has a place in the tracker and
    its slot has ``np_room``; all else passes it. Up: a TLP is committed when its last beat is taken
    while the link of its slot is active, and dropped else, as is one of an earlier life of the
    slot. A completion then waits until the tracker has judged it; all else keeps its place among
    the completions. Whatever was
    committed, and was not refused by the tracker, leaves as ``due``: first what it is, on
    ``up_info``, then its beats, on ``up_beats``. Requests to slots
    that are fenced are answered with completions that leave on ``made``, to be parsed and to come
    back on ``up_i`` with what slots send, so that none overtakes a completion that passed before.

    The tracker fences a slot while its link is not active. Requests are taken for the life of the
    slot in which they were sent: those of an earlier one are answered and not open any more, and
    their TLPs must be dropped behind ``down_o``.

    Latency from the last beat, when idle: down one cycle, 6 for non-posted requests; up one cycle
    to ``up_info``, 6 for completions, and two to the first beat. Throughput one beat per cycle; one
    request and one completion in 4 cycles.

    Parameters
    ----------
    width : int
        Data bits per beat.
    ports : int
        Slots, 1 to 32.
    depth : int
        Beats of the queue up; a power of two.
    requests : int
        Beats of the queue of non-posted requests; a power of two.
    entries : int
        Requests that can be open.
    granule, timed
        Of :class:`~dxpu.switch.tracking.tracker.CompletionTracker`.

    Members
    -------
    down_i : packet stream with :class:`SlotMeta`
    down_o : packet stream with :class:`~dxpu.rows.TlpMeta`
    up_i : packet stream with :class:`SlotRow`
    up_header : :class:`~dxpu.tlp.header.TlpHeader`
        Header of the TLP on ``up_i``; sampled with its last beat.
    up_info : stream of :class:`SlotInfo`
    up_early, up_keep : 1
        The payload of ``up_info`` is that of the next TLP, which is not refused so far; it stays as
        long as the latter is 1.
    up_beats : packet stream
    made : packet stream with :class:`SlotRow`
    link_active : ``ports``
    contained : ``ports``
        TLPs of the slot are dropped, as if its link were not active.
    lives : array of numbers
    abort : ``ports``
        Of the tracker.
    generation_row, generation : 6 out, 16 in, arrays of two
        Number of a row, and the generation of that row in the same cycle.
    drained : ``ports``
        No request to the slot is open.
    deadline, bus
        Of the tracker.
    expired : ``ports``
        Pulse: a request was open for longer than the deadline; the slot is to be fenced.
    np_room : ``ports``
        Bit n: a non-posted request to slot n may leave.
    room : 1
        The queue of non-posted requests has room for those from slot to slot.
    up_room, up_few : 1
        Half of everything that what comes up may wait in is free; less than an eighth of the
        queue up is in use.
    late : 1
        TLPs that were committed before a link ended are still here.
    trip : :class:`~.types.RoundTrip`
        Of the tracker; only with ``timed``.
    stat_closed : 1
        Pulse: a TLP from a slot whose link was not active was dropped.
    stat_* : 1
        Of the tracker.
    """

    #: All counted events, and what each counts.
    STATS = {"stat_closed": "TLPs from slots whose link is not active; dropped.",
             **CompletionTracker.STATS}

    def __init__(self, width, *, ports, depth, requests, entries=256, granule=GRANULE,
                 timed=False):
        self._width = check_width(width)
        self._ports, self._depth, self._requests = ports, depth, requests
        self._tracker = CompletionTracker(ports=ports, entries=entries, granule=granule,
                                          timed=timed)
        #: How many requests are open (:class:`~dxpu.stage.Fill`).
        self.fill = self._tracker.fill
        readers = 2  # requests, and completions
        super().__init__({
            "down_i": In(PacketSignature(width, SlotMeta)),
            "down_o": Out(PacketSignature(width, TlpMeta)),
            "up_i": In(PacketSignature(width, SlotRow)),
            "up_header": In(TlpHeader),
            "up_info": Out(stream.Signature(SlotInfo)),
            "up_early": Out(1),
            "up_keep": In(1),
            "up_beats": Out(PacketSignature(width)),
            "made": Out(PacketSignature(width, SlotRow)),
            "link_active": In(ports),
            "contained": In(ports),
            "lives": In(data.ArrayLayout(LIFE_BITS, ports)),
            "abort": In(ports),
            "generation_row": Out(6).array(readers),
            "generation": In(16).array(readers),
            "drained": Out(ports),
            "deadline": In(len(self._tracker.deadline)),
            "bus": In(8),
            "expired": Out(ports),
            "np_room": In(ports, init=(1 << ports) - 1),
            "room": Out(1),
            "up_room": Out(1),
            "up_few": Out(1),
            "late": Out(1),
            **({"trip": Out(RoundTrip)} if timed else {}),
        } | counted(self.STATS))

    def elaborate(self, platform):
        m = Module()
        m.submodules.tracker = tracker = self._tracker
        m.d.comb += [
            tracker.fence.eq(~self.link_active),
            tracker.abort.eq(self.abort),
            tracker.deadline.eq(self.deadline),
            tracker.bus.eq(self.bus),
            self.drained.eq(tracker.drained),
            self.expired.eq(Mux(tracker.expired.strobe, 1 << tracker.expired.slot, 0)),
            *(getattr(self, stat).eq(getattr(tracker, stat)) for stat in tracker.STATS),
        ]
        if hasattr(self, "trip"):
            m.d.comb += self.trip.eq(tracker.trip)
        self._wire_down(m)
        self._wire_up(m)
        self._wire_answers(m)
        return m

    def _wire_down(self, m):
        i, tracker = self.down_i, self._tracker
        m.submodules.requests = queue = JudgedQueue(
            self._width, depth=self._requests, info=TlpMeta, question=TrackedRequest,
            # Half of them hold what the host may send beyond `room`.
            packets=32, questions=32, complete=True)
        m.submodules.merge = merge = PacketArbiter(self._width, count=2, home=1, meta=TlpMeta)
        straight, aside = merge.i
        is_request = i.p.meta.cls == TlpClass.NP
        meta = Signal(TlpMeta)
        m.d.comb += [meta.row.eq(i.p.meta.port), meta.life.eq(i.p.meta.life),
                     straight.p.meta.eq(meta), queue.i_info.eq(meta)]
        for sink, mine in ((straight, ~is_request), (queue.i, is_request)):
            m.d.comb += [
                *(sink.p[k].eq(i.p[k]) for k, _ in PacketLayout(self._width)),
                sink.valid.eq(i.valid & mine),
            ]
        about = Signal(TrackedRequest)
        m.d.comb += [
            i.ready.eq(Mux(is_request, queue.i.ready, straight.ready)),
            queue.asks.eq(1),
            about.eq(i.p.meta.request),
            about.generation.eq(i.p.meta.life),  # until it is the request's turn
            queue.about.eq(about),
            self.room.eq(queue.room),
        ]
        # A TLP that has begun goes on.
        info, beats = queue.info, queue.beats
        may = info.valid & (~beats.p.first | self.np_room.bit_select(info.p.row[:5], 1))
        m.d.comb += [
            *(aside.p[k].eq(beats.p[k]) for k, _ in PacketLayout(self._width)),
            aside.p.meta.eq(info.payload),
            aside.valid.eq(beats.valid & may),
            beats.ready.eq(aside.ready & may),
            info.ready.eq(aside.valid & aside.ready & beats.p.last),
        ]
        connect(m, merge.o, wiring.flipped(self.down_o))

        question, slot = queue.question, queue.question.p.slot
        m.d.comb += [
            tracker.request.p.eq(question.p),
            self.generation_row[0].eq(slot),
            tracker.request.p.generation.eq(self.generation[0]),
            tracker.request.p.dead.eq(question.p.generation[:LIFE_BITS] != Array(self.lives)[slot]),
            tracker.request.valid.eq(question.valid & queue.answer.ready),
            question.ready.eq(tracker.request.ready),
            queue.answer.valid.eq(tracker.request.valid & tracker.request.ready),
            queue.answer.payload.eq(1),
        ]

    def _wire_up(self, m):
        i, tracker = self.up_i, self._tracker
        m.submodules.up = queue = JudgedQueue(
            self._width, depth=self._depth, info=_SlotHeader, question=TrackedCompletion,
            questions=16)
        row, made = i.p.meta.row[:5], i.p.meta.made
        info, closed = Signal(TlpInfo), Signal()
        decode(m, self.up_header, info)
        m.d.comb += [
            closed.eq(~made & ~((self.link_active & ~self.contained).bit_select(row, 1)
                                & (i.p.meta.life == Array(self.lives)[row]))),
            *(queue.i.p[k].eq(i.p[k]) for k, _ in PacketLayout(self._width)),
            queue.i.p.discard.eq(i.p.discard | closed),
            queue.i_info.port.eq(row),
            queue.i_info.life.eq(i.p.meta.life),
            queue.i_info.header.eq(self.up_header),
            queue.i.valid.eq(i.valid),
            i.ready.eq(queue.i.ready),
            self.stat_closed.eq(i.valid & i.ready & i.p.last & ~i.p.discard & closed),
            queue.asks.eq((info.cls == TlpClass.CPL) & ~made),
            self.generation_row[1].eq(row),
            queue.about.eq(tracked_completion(info, slot=row, generation=self.generation[1])),
            queue.answer.valid.eq(tracker.verdict.valid),
            queue.answer.payload.eq(tracker.verdict.p.accept),
            tracker.verdict.ready.eq(queue.answer.ready),
        ]
        m.d.comb += [self.up_room.eq(queue.room), self.up_few.eq(queue.level < self._depth // 8)]
        connect(m, queue.question, tracker.completion)
        connect(m, queue.beats, wiring.flipped(self.up_beats))
        decode(m, queue.info.p.header, self.up_info.p.info)
        m.d.comb += [
            self.up_info.p.port.eq(queue.info.p.port),
            self.up_info.p.life.eq(queue.info.p.life),
            self.up_info.p.due.eq(1),
            self.up_info.valid.eq(queue.info.valid),
            queue.info.ready.eq(self.up_info.ready),
            self.up_early.eq(queue.early),
            queue.keep.eq(self.up_keep),
        ]

        # Beats committed before a link ended; each beat that leaves then is one of them.
        was_active, before = Signal(self._ports), Signal.like(queue.level)
        m.d.sync += was_active.eq(self.link_active)
        ended = (was_active & ~self.link_active).any()
        with m.If(ended):
            m.d.sync += before.eq(queue.level + 1)
        with m.Elif(queue.empty):
            m.d.sync += before.eq(0)
        with m.Elif(before.any() & queue.beats.valid & queue.beats.ready):
            m.d.sync += before.eq(before - 1)
        m.d.comb += self.late.eq(ended | before.any())

    def _wire_answers(self, m):
        m.submodules.builder = builder = CompletionBuilder(self._width)
        answer, slot = self._tracker.answer, Signal(5)
        m.d.comb += [
            builder.i.payload.eq(answer.p.completion),
            builder.i.valid.eq(answer.valid),
            answer.ready.eq(builder.i.ready),
            slot.eq(answer.p.slot),
            *(self.made.p[k].eq(builder.o.p[k]) for k, _ in PacketLayout(self._width)),
            self.made.p.meta.row.eq(slot),
            self.made.p.meta.made.eq(1),
            self.made.valid.eq(builder.o.valid),
            builder.o.ready.eq(self.made.ready),
        ]
