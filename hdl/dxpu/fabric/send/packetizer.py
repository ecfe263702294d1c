"""From TLPs to DXF frames.

Ref: docs/reference/wire-format.md; DxPU paper, 3.3.2
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.fabric.arq.replay import ReplayMemory
from dxpu.fabric.arq.retransmit import Repeat, Stored
from dxpu.fabric.wire.types import Control, Greeting, Hello
from dxpu.rows import TlpMeta
from dxpu.stage import Fill
from dxpu.stream import PacketLayout, PacketSignature, check_width, connect

from .assembler import Assembler
from .header.frame_scheduler import FrameScheduler
from .header.header_builder import HeaderBuilder
from .packer import DwordPacker, FrameBuffer, FramePadder
from .planner import Planner
from .prefix_limit import PrefixLimit
from .splitter import SegmentQueue
from .tx_queue import LARGEST_RECORD, TxQueue, check_depth
from .types import FrameRoute, PathMeta, Reply, RouteRequest

__all__ = ["Packetizer"]

#: Of the replay memory, if nobody says otherwise: a small frame takes a cell.
CELL_BYTES = 256


class Packetizer(wiring.Component):
    """Sends TLPs in frames, several to a frame where they are queued already, and control frames.

    TLPs leave in the order they came. Consecutive TLPs of one row share a frame as far as
    ``packing_limit`` allows (31 at most; a larger one travels alone); nothing is ever waited for.
    Greetings and replies go first, at the next frame boundary, then frames that are sent again,
    then events. Frames have no FCS.

    Each new frame with a number is kept in the replay memory until ``free`` says that it need not
    be. When there is no room for another one, TLPs wait, and later events.

    Once a frame has started its beats follow in every cycle that ``o.ready`` allows.

    TLPs and control frames for which the link has no route are dropped and counted, and so are TLPs
    with more than four prefixes; with ``split`` those without a whole header, too. TLPs that end
    with ``discard`` are dropped without a trace (not with ``split``, which must not get any).
    Nothing else is dropped: ``i`` waits for space.

    Latency from the last beat of a TLP to the first of its frame, if nothing else is under way and
    the link answers in the cycle after the request: 7 cycles at 32 and 64 bits, 8 at 128 and
    256, 9 at 512. Throughput: a beat per cycle of each TLP, and one to eight cycles a frame for
    its header; the next frame is prepared meanwhile.

    With ``split`` each TLP takes a HDR frame for its prefixes and header and DATA frames for the
    rest, whole beats as far as ``packing_limit`` allows and at least one. Every frame asks for a
    route; a TLP counts as sent or unroutable with its last one.

    Parameters
    ----------
    width : int
        Data bits per beat.
    split : bool
        Header and data in frames of their own (DxPU paper, 3.3.2).
    depth : int
        Beats of memory for TLPs; see :class:`~dxpu.fabric.send.tx_queue.TxQueue`.
    selective : bool
        SACKs may have a word.
    keyed : bool
        There are openings of keyed sessions.
    cells, cell, paths : int
        Of the :class:`~dxpu.fabric.arq.replay.ReplayMemory`.
    largest : int
        Of the :class:`~dxpu.fabric.send.tx_queue.TxQueue`. Not with ``split``.

    Members
    -------
    i : packet stream with :class:`TlpMeta`
        Whole, well-formed TLPs.
    control : stream of :class:`Control`
    reply, stale : stream of :class:`Reply`, 1
        Of the :class:`~.header.frame_scheduler.FrameScheduler`.
    greeting : stream of :class:`Greeting`
    local_hello : :class:`Hello`
        What every HELLO says besides its greeting.
    repeat, repeat_valid, repeat_take, repeat_more, stored, stored_strobe, resent, resent_strobe,
    free
        Of the :class:`~dxpu.fabric.arq.retransmit.Retransmitter`.
    body_put, body_at, body_word, body_ready : 1, 5, 16, 1 out
        The body of the next greeting with ``keyed`` is written, a word a pulse, while ``ready``:
        that of the one before was read. Only with ``keyed``.
    short : 1
        Less than half of the replay memory is spare.
    request, route : stream of :class:`RouteRequest` out, :class:`FrameRoute` in
        One answer per request, in the order of the frames, after any time.
    packing_limit : 14
        Bytes of Ethernet payload that a frame of several TLPs may have; may change at any time.
    o : packet stream with :class:`PathMeta`
    stat_frames, stat_tlps : 1
        Pulses: a frame (of any kind), a TLP was sent; TLPs that are sent again do not count.
    stat_repeated : 1
        Pulse: a frame is sent again.
    stat_unroutable : 1
        Pulse: a TLP or a control frame was dropped.
    stat_malformed : 1
        Pulse: a TLP with too many prefixes was dropped.
    """

    def __init__(self, width, *, split=False, selective=False, keyed=False, depth, cells=64,
                 cell=None, paths=16, largest=LARGEST_RECORD):
        self._width = check_width(width)
        if not isinstance(split, bool):
            raise TypeError(f"split must be a bool, not {split!r}")
        check_depth(width, depth, largest)
        self._split, self._selective, self._keyed = split, selective, keyed
        self._cells, self._cell = cells, cell or max(4, 8 * CELL_BYTES // width)
        beats = 2 * 32 * LARGEST_RECORD // width
        if self._cells * self._cell < beats:
            raise ValueError(f"cells * cell must be at least two of the largest TLPs ({beats} "
                             f"beats), not {self._cells * self._cell}")
        self._memory = ReplayMemory(width, cells=self._cells, cell=self._cell, paths=paths)
        self._queue = (SegmentQueue(width, depth=depth) if split
                       else TxQueue(width, depth=depth, largest=largest))
        #: TLPs on their way into frames; of the split form their parts.
        self.leaving = self._queue.o
        #: How full the replay memory is.
        self.fill = Fill(self._memory.spare, self._cells, "Cells of the replay memory in use.",
                         free=True)
        super().__init__({
            "i": In(PacketSignature(width, TlpMeta)),
            "control": In(stream.Signature(Control)),
            "reply": In(stream.Signature(Reply)),
            "stale": In(1),
            "greeting": In(stream.Signature(Greeting)),
            "local_hello": In(Hello),
            "repeat": In(Repeat(cells)),
            "repeat_valid": In(1),
            "repeat_take": Out(1),
            "repeat_more": In(1),
            "stored": Out(Stored(cells)),
            "stored_strobe": Out(1),
            "resent": Out(Stored(cells)),
            "resent_strobe": Out(1),
            "free": In(stream.Signature(range(cells))),
            "short": Out(1),
            **({"body_put": In(1), "body_at": In(5), "body_word": In(16), "body_ready": Out(1)}
               if keyed else {}),
            "request": Out(stream.Signature(RouteRequest)),
            "route": In(stream.Signature(FrameRoute)),
            "packing_limit": In(14, init=512),
            "o": Out(PacketSignature(width, PathMeta)),
            "stat_frames": Out(Counted("Frames sent.")),
            "stat_tlps": Out(Counted("TLPs sent in frames, for the first time.")),
            "stat_repeated": Out(Counted("Frames sent again.")),
            "stat_unroutable": Out(Counted(
                "TLPs and control frames without a session to send them in, and TLPs whose life or "
                "binding was over when it was their turn; dropped.")),
            "stat_malformed": Out(Counted(
                "Stays 0, as there are parsers before: TLPs to be sent with more than four "
                "prefixes; dropped.")),
        })

    def elaborate(self, platform):
        m = Module()
        # Up to 64 bits preambles and padded records are whole beats; only DATA frames are not.
        full = self._width <= 64 and not self._split
        if self._split:
            m.submodules.queue = queue = planner = self._queue
            connect(m, wiring.flipped(self.i), queue.i)
            m.d.comb += self.stat_malformed.eq(queue.stat_malformed)
        else:
            m.submodules.queue = queue = self._queue
            m.submodules.planner = planner = Planner()
            connect(m, queue.descriptors, planner.i)
            self._limit(m, queue)
        m.submodules.memory = memory = self._memory
        m.submodules.scheduler = scheduler = FrameScheduler(
            self._width, cells=self._cells, cell=self._cell)
        m.submodules.header = header = HeaderBuilder(
            self._width, cells=self._cells, split=self._split, selective=self._selective,
            keyed=self._keyed)
        m.submodules.assembler = assembler = Assembler(
            self._width, cells=self._cells, split=self._split)
        m.submodules.padder = padder = FramePadder(self._width, zeros=full)
        m.submodules.buffer = buffer = FrameBuffer(self._width, full=full)

        connect(m, wiring.flipped(self.control), scheduler.control)
        connect(m, wiring.flipped(self.reply), scheduler.reply)
        connect(m, wiring.flipped(self.greeting), scheduler.greeting)
        if self._keyed:
            greeting, read = self.greeting, Signal(init=1)
            m.d.comb += [
                *(getattr(header, name).eq(getattr(self, name))
                  for name in ("body_put", "body_at", "body_word")),
                self.body_ready.eq(read),
            ]
            with m.If(greeting.valid & greeting.ready & greeting.payload.keyed):
                m.d.sync += read.eq(0)
            with m.Elif(header.body_done):
                m.d.sync += read.eq(1)
        self._store(m, memory, scheduler, assembler)
        connect(m, scheduler.request, wiring.flipped(self.request))
        connect(m, scheduler.o, header.order)
        connect(m, wiring.flipped(self.route), header.route)
        connect(m, header.o, assembler.preamble)
        connect(m, queue.o, assembler.tlps)
        if full:
            connect(m, assembler.o, padder.i)
        else:
            m.submodules.packer = packer = DwordPacker(self._width)
            connect(m, assembler.o, packer.i)
            connect(m, packer.o, padder.i)
        connect(m, padder.o, buffer.i)
        connect(m, buffer.o, wiring.flipped(self.o))
        m.d.comb += [
            planner.packing_limit.eq(self.packing_limit),
            scheduler.stale.eq(self.stale),
            scheduler.plan.eq(planner.plan),
            scheduler.plan_valid.eq(planner.valid),
            planner.take.eq(scheduler.plan_take),
            scheduler.hurry.eq(assembler.hurry),
            header.local_hello.eq(self.local_hello),
            buffer.first.eq(padder.first),
            assembler.blank.eq(padder.extra if full else 0),
            self.stat_frames.eq(assembler.stat_frames),
            self.stat_tlps.eq(assembler.stat_tlps),
            self.stat_repeated.eq(assembler.stat_repeated),
            self.stat_unroutable.eq(assembler.stat_unroutable),
        ]
        return m

    def _limit(self, m, queue):
        """TLPs with too many prefixes end with ``discard``."""
        i = self.i
        m.submodules.limit = limit = PrefixLimit(self._width)
        m.d.comb += [
            *(limit.beat[k].eq(i.payload[k]) for k, _ in PacketLayout(self._width)),
            limit.take.eq(i.valid & i.ready),
            *(queue.i.payload[k].eq(i.payload[k]) for k, _ in i.payload.shape() if k != "discard"),
            queue.i.payload.discard.eq(i.payload.discard | i.payload.last & limit.exceeded),
            queue.i.valid.eq(i.valid),
            i.ready.eq(queue.i.ready),
            self.stat_malformed.eq(
                limit.take & i.payload.last & limit.exceeded & ~i.payload.discard),
        ]

    def _store(self, m, memory, scheduler, assembler):
        """The replay memory and whoever tells it what to do."""
        connect(m, scheduler.look, memory.look)
        connect(m, memory.seen, scheduler.seen)
        connect(m, memory.o, assembler.kept)
        connect(m, wiring.flipped(self.free), memory.free)
        m.d.comb += [
            *(getattr(memory, name).eq(getattr(assembler, name)) for name in (
                "begin", "end", "note", "reserved", "cancel", "write", "data", "dwords", "last",
                "read", "read_cell", "read_count")),
            assembler.next.eq(memory.next),
            assembler.reading.eq(memory.reading),
            memory.reserve.eq(scheduler.reserve),
            scheduler.spare.eq(memory.spare),
            scheduler.stored.eq(assembler.finished),
            scheduler.repeat.eq(self.repeat),
            scheduler.repeat_valid.eq(self.repeat_valid),
            scheduler.repeat_more.eq(self.repeat_more),
            self.repeat_take.eq(scheduler.repeat_take),
            self.stored.eq(assembler.stored),
            *(getattr(self, name).eq(getattr(assembler, name))
              for name in ("stored_strobe", "resent", "resent_strobe")),
            self.short.eq(memory.spare < self._cells // 2),
        ]
