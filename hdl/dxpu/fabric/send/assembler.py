"""A frame from its preamble and its TLPs, as chunks of any number of dwords."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.arq.frame_note import FrameNote
from dxpu.fabric.arq.retransmit import Stored
from dxpu.stream import PacketSignature, check_width

from .packer import Chunk, FrameMeta
from .header.frame_order import PreambleBeat

__all__ = ["Assembler"]


class Assembler(wiring.Component):
    """Puts preamble and records of each frame one behind the other, a chunk per cycle.

    Records are bound to their frame here (their CRC is XORed with the binding word) and padded to
    two dwords where there are several. TLPs of a frame without route are dropped, a beat per cycle.
    Once a frame has started there is a chunk every cycle, as all its TLPs are in the queue, or in
    the replay memory if it is sent again. A new frame with a number is written there while it
    passes.

    No latency; throughput a chunk per cycle. At 32 bits the padding is a chunk of its own. Replay
    memory and retransmitter are told a cycle later.

    Parameters
    ----------
    width : int
        Data bits per beat.
    split : bool
        Whether there are frames of the split form.

    Members
    -------
    preamble : stream of :func:`~dxpu.fabric.send.header.frame_order.PreambleBeat`
    tlps : packet stream
        TLPs with their CRC (:class:`~dxpu.fabric.send.tx_queue.TxQueue`); lanes past it are zero.
    kept : packet stream
        ``o`` of the :class:`~dxpu.fabric.arq.replay.ReplayMemory`, as are the names from ``begin``
        on.
    begin, end, note, reserved, cancel, write, data, dwords, last, read, read_cell, read_count,
    reading
    stored, stored_strobe, next
        To the :class:`~dxpu.fabric.arq.retransmit.Retransmitter`: a new frame ended.
    resent, resent_strobe : Stored, 1
        A frame that is sent again begins to leave, or cannot; ``path`` is the one that it takes.
    finished : 1
        Pulse: a new frame with a number is kept, or was dropped.
    o : stream of :func:`~dxpu.fabric.send.packer.Chunk`
    blank : 1
        The data of ``o`` is zero, as padding is sent behind a frame; ``o.ready`` is 0.
    hurry : 1
        The frame that is leaving has less left than it takes to prepare the next.
    stat_frames, stat_tlps : 1
        Pulses: a frame, a TLP was sent; TLPs that are sent again do not count.
    stat_repeated : 1
        Pulse: a frame is sent again.
    stat_unroutable : 1
        Pulse: a TLP or a control frame was dropped.
    """

    #: Cycles from ``hurry`` to the next preamble: plan, link (assumed 6), build.
    PREPARATION = 10

    def __init__(self, width, *, cells, split=False):
        self._width = check_width(width)
        self._cells = cells
        self._split = split
        self._partial = width in ((64, 128, 256) if split else (128, 256))
        super().__init__({
            "preamble": In(stream.Signature(PreambleBeat(width, cells))),
            "tlps": In(PacketSignature(width)),
            "kept": In(PacketSignature(width)),
            "next": In(range(cells)),
            "begin": Out(1),
            "end": Out(1),
            "note": Out(FrameNote),
            "reserved": Out(range(cells + 1)),
            "cancel": Out(range(cells + 1)),
            "write": Out(1),
            "data": Out(width),
            "dwords": Out(range(width // 32 + 1)),
            "last": Out(1),
            "read": Out(1),
            "read_cell": Out(range(cells)),
            "read_count": Out(5),
            "reading": In(1),
            "stored": Out(Stored(cells)),
            "stored_strobe": Out(1),
            "resent": Out(Stored(cells)),
            "resent_strobe": Out(1),
            "finished": Out(1),
            "o": Out(stream.Signature(Chunk(width))),
            "blank": In(1),
            "hurry": Out(1),
            "stat_frames": Out(1),
            "stat_tlps": Out(1),
            "stat_repeated": Out(1),
            "stat_unroutable": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self._width // 32
        preamble, o = self.preamble, self.o
        head, info, chunk = preamble.payload, preamble.payload.info, o.payload
        tlps = self._choose_tlps(m)
        # The beat is the last of its frame, if that is new. What is read from the replay memory
        # comes late in the cycle, so it has no part in this.
        self._ends = ends = Signal()

        # What holds for the whole frame; the preamble is the next one's meanwhile.
        count = Signal(5)
        several = Signal()
        binding = Signal(32, reset_less=True)
        meta = Signal(FrameMeta, reset_less=True)
        final = Signal()
        left = Signal(13)
        m.d.sync += self.hurry.eq(left <= self.PREPARATION * lanes)

        m.d.comb += chunk.meta.eq(meta)
        partial = (info.extension | self._split) if self._partial else 0
        with m.FSM() as fsm:
            with m.State("Preamble"):
                # A chunk may lack a beat of output: the last of each record but the frame's last,
                # and the last of a preamble. `reserve` is one more than can follow.
                m.d.comb += [
                    chunk.data.eq(Mux(self.blank, 0, head.data)),
                    chunk.dwords.eq(head.dwords),
                    chunk.last.eq(head.last & (info.count == 0)),
                    ends.eq(head.last & (info.count == 0)),
                    chunk.meta.path.eq(info.path),
                    chunk.meta.reserve.eq(Mux(info.count == 0, 1, info.count + partial)),
                ]
                m.d.sync += [
                    count.eq(info.count),
                    several.eq(info.count > 1),
                    binding.eq(info.binding),
                    final.eq(info.final),
                    meta.eq(chunk.meta),
                    left.eq(0),
                ]
                with m.If(info.drop):
                    m.d.comb += preamble.ready.eq(1)
                    with m.If(preamble.valid & ~info.resend):
                        with m.If(info.count == 0):
                            m.d.comb += self.stat_unroutable.eq(1)
                        with m.Else():
                            m.next = "Drop"
                with m.Else():
                    # Only when the first TLP can follow at once.
                    go = ~head.first | (info.count == 0) | tlps.valid
                    m.d.comb += [o.valid.eq(preamble.valid & go), preamble.ready.eq(o.ready & go)]
                    with m.If(preamble.valid & preamble.ready & head.last):
                        m.d.sync += left.eq(info.total)
                        m.d.comb += self.stat_frames.eq(chunk.last)
                        with m.If(info.count != 0):
                            m.next = "Tlps"
                    with m.Elif(preamble.valid):
                        m.d.sync += left.eq(info.total)
            with m.State("Tlps"):
                m.d.comb += [o.valid.eq(tlps.valid), tlps.ready.eq(o.ready)]
                odd = self._record(m, chunk, several, binding)
                pad = several & ~odd if lanes == 1 else 0
                m.d.comb += [
                    chunk.last.eq(tlps.payload.last & (count == 1) & ~pad),
                    ends.eq(self.tlps.payload.last & (count == 1) & ~pad),
                ]
                with m.If(tlps.valid & tlps.ready):
                    m.d.sync += left.eq(left - chunk.dwords)
                    with m.If(tlps.payload.last):
                        m.d.sync += count.eq(count - 1)
                        m.d.comb += self.stat_tlps.eq(final & ~self._again)
                    with m.If(chunk.last):
                        m.d.comb += self.stat_frames.eq(1)
                        m.next = "Preamble"
                    if lanes == 1:
                        with m.Elif(tlps.payload.last & pad):
                            m.next = "Pad"
            if lanes == 1:
                with m.State("Pad"):
                    m.d.comb += [o.valid.eq(1), chunk.dwords.eq(1), chunk.last.eq(count == 0),
                                 ends.eq(count == 0)]
                    with m.If(o.ready):
                        m.d.sync += left.eq(left - 1)
                        m.next = "Tlps"
                    with m.If(o.ready & (count == 0)):
                        m.d.comb += self.stat_frames.eq(1)
                        m.next = "Preamble"
            with m.State("Drop"):
                m.d.comb += tlps.ready.eq(1)
                with m.If(tlps.valid & tlps.payload.last):
                    m.d.comb += self.stat_unroutable.eq(final)
                    m.d.sync += count.eq(count - 1)
                    with m.If(count == 1):
                        m.next = "Preamble"
        m.d.comb += self._within.eq(~fsm.ongoing("Preamble"))
        with m.If(~self._within):
            m.d.sync += self._again.eq(info.resend & ~info.drop)
        self._keep(m)
        return m

    def _choose_tlps(self, m):
        """The TLPs of the frame: from the queue, or those that were kept."""
        head, info = self.preamble.payload, self.preamble.payload.info
        self._tlps = tlps = PacketSignature(self._width).create(path=("tlps",))
        self._within, self._again = Signal(), Signal()  # behind the preamble; of this frame
        now = Mux(self._within, self._again, info.resend)
        m.d.comb += [
            tlps.payload.eq(Mux(now, self.kept.payload, self.tlps.payload)),
            tlps.valid.eq(Mux(now, self.kept.valid, self.tlps.valid)),
            self.tlps.ready.eq(tlps.ready & ~now),
            self.kept.ready.eq(tlps.ready & now),
            self.read.eq(self.preamble.valid & ~self._within & head.first & info.resend
                         & ~info.drop & (info.count != 0) & ~self.reading),
            self.read_cell.eq(info.cell),
            self.read_count.eq(info.count),
            self.stat_repeated.eq(self.preamble.valid & self.preamble.ready & ~self._within
                                  & head.first & info.resend & ~info.drop),
        ]
        return tlps

    def _keep(self, m):
        """Write a new frame into the replay memory, a cycle after it passes."""
        preamble, head, info = self.preamble, self.preamble.payload, self.preamble.payload.info
        frame, cell = Signal(Stored(self._cells), reset_less=True), Signal.like(self.next)
        keeping, begins, ends, drops = Signal(), Signal(), Signal(), Signal()
        leaves = preamble.valid & preamble.ready & ~self._within & head.first
        m.d.comb += [
            begins.eq(leaves & info.store & ~info.drop),
            drops.eq(leaves & info.store & info.drop),
            ends.eq((keeping | begins) & self.o.valid & self.o.ready & self._ends),
            self.stored.eq(frame),
            self.stored.cell.eq(Mux(self.begin, self.next, cell)),
            self.stored_strobe.eq(self.end),
        ]
        m.d.sync += [
            keeping.eq((keeping | begins) & ~ends),
            self.resent_strobe.eq(leaves & info.resend),
            self.begin.eq(begins),
            self.cancel.eq(Mux(drops, info.reserved, 0)),
            self.note.eq(info.note),
            self.reserved.eq(info.reserved),
            self.write.eq(self.tlps.valid & self.tlps.ready & (keeping | begins)),
            self.data.eq(self.tlps.payload.data),
            self.dwords.eq(self.tlps.payload.dwords),
            self.last.eq(self.tlps.payload.last),
            self.end.eq(ends),
            self.finished.eq(ends | drops),
            *(self.resent[k].eq(info[k]) for k in ("session", "epoch", "cell", "path")),
        ]
        with m.If(begins):
            m.d.sync += [frame[k].eq(info[k]) for k in ("session", "epoch", "path")]
        with m.If(self.begin):
            m.d.sync += cell.eq(self.next)

    def _record(self, m, chunk, several, binding):
        """Binds and pads the record that passes."""
        lanes, beat = self._width // 32, self._tlps.payload
        bound = [beat.data.word_select(n, 32)
                 ^ Mux(beat.last & (beat.dwords == n + 1), binding, 0) for n in range(lanes)]
        m.d.comb += [chunk.data.eq(Cat(bound)), chunk.dwords.eq(beat.dwords)]
        # At 32 bits: an odd number of dwords of the record came before this beat.
        odd = Signal()
        if lanes == 1:
            with m.If(self._tlps.valid & self._tlps.ready):
                m.d.sync += odd.eq(~odd & ~beat.last)
        else:
            # An odd number in a last beat leaves room in it, and the lane there is zero.
            m.d.comb += chunk.dwords.eq(beat.dwords + (several & beat.last & beat.dwords[0]))
        return odd
