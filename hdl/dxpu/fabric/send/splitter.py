"""The split form: headers and data of TLPs in frames of their own.

Ref: docs/reference/wire-format.md, HDR and DATA; DxPU paper, 3.3.2
"""

from amaranth import *
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.crc import CrcStream
from dxpu.fabric.wire.format import BODY_CRC_BYTES
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.queue import PacketQueue
from dxpu.rows import LIFE_BITS, TlpMeta
from dxpu.stream import PacketLayout, PacketSignature, Register, check_width, connect

from .packer import Chunk, DwordPacker
from .planner import OVERHEAD, FramePlan
from .prefix_limit import PrefixLimit
from .tx_queue import check_depth

__all__ = ["HeaderSplitter", "PartMeta", "SegmentMeta", "SegmentQueue", "Segmenter"]


class PartMeta(data.Struct):
    """Of a TLP's header or data: row and life, which of both it is, and whether the TLP ends with
    it. ``discard``: it is to be dropped, and nothing of the TLP follows."""

    row: 6
    life: LIFE_BITS
    is_data: 1
    final: 1
    discard: 1


class SegmentMeta(data.Struct):
    """Of a segment: as :class:`PartMeta`, and the dwords of data before it."""

    row: 6
    life: LIFE_BITS
    is_data: 1
    final: 1
    offset: 11


class HeaderSplitter(wiring.Component):
    """Makes two packets of each TLP: prefixes and header; data and digest, if there are any.

    The beat in which the header ends takes two cycles. Latency two cycles (one at 32 bits).

    Of a TLP with more than four prefixes, or without a whole header, a first part leaves that ends
    with ``discard``, and nothing else.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    i : packet stream with :class:`TlpMeta`
        Whole, well-formed TLPs.
    o : stream of :func:`~dxpu.fabric.send.packer.Chunk` with :class:`PartMeta`
        Full but for the last of a packet; lanes past it are zero.
    stat_malformed : 1
        Pulse: a TLP was dropped.
    """

    def __init__(self, width):
        self._width = check_width(width)
        super().__init__({
            "i": In(PacketSignature(width, TlpMeta)),
            "o": Out(stream.Signature(Chunk(width, PartMeta))),
            "stat_malformed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self._width // 32
        i, beat = self.i, self.i.payload
        m.submodules.packer = packer = DwordPacker(self._width, meta=PartMeta)
        connect(m, packer.o, wiring.flipped(self.o))
        chunk = packer.i.payload

        header, ends = self._header_dwords(m)
        data_due = Signal()  # the header's share of this beat was taken, the data's was not
        is_data = header == 0
        words = [Mux(beat.dwords > n, beat.data.word_select(n, 32), 0) for n in range(lanes)]
        moved = Cat(words)
        for n in range(lanes.bit_length()):
            moved = Mux(header[n], moved >> (32 << n), moved)
        m.submodules.limit = limit = PrefixLimit(self._width)
        cut, bad, drops = Signal(), Signal(), Signal()  # `drops`: the rest of a bad TLP
        both = ends & (header < beat.dwords) & ~bad
        m.d.comb += [
            *(limit.beat[k].eq(beat[k]) for k, _ in PacketLayout(self._width)),
            limit.take.eq(i.valid & i.ready),
            cut.eq(beat.last & (~ends | (header > beat.dwords))),
            bad.eq(~data_due & ~is_data & (limit.exceeded | cut)),
            chunk.meta.row.eq(beat.meta.row),
            chunk.meta.life.eq(beat.meta.life),
            chunk.meta.is_data.eq(data_due | is_data),
            chunk.meta.final.eq(chunk.meta.is_data | (beat.last & ~both) | bad),
            chunk.meta.discard.eq(bad),
            packer.i.valid.eq(i.valid & ~drops),
            i.ready.eq(drops | packer.i.ready & (data_due | ~both)),
            self.stat_malformed.eq(packer.i.valid & packer.i.ready & bad),
        ]
        with m.If(i.valid & i.ready):
            m.d.sync += drops.eq((drops | bad) & ~beat.last)
        with m.If(data_due):
            m.d.comb += [
                chunk.data.eq(moved),
                chunk.dwords.eq(beat.dwords - header),
                chunk.last.eq(beat.last),
            ]
        with m.Else():
            m.d.comb += [
                chunk.data.eq(Cat(Mux(is_data | (header > n), word, 0)
                                  for n, word in enumerate(words))),
                chunk.dwords.eq(Mux(is_data, beat.dwords, header)),
                chunk.last.eq(Mux(is_data, beat.last, ends) | bad),
            ]
        with m.If(packer.i.valid & packer.i.ready):
            m.d.sync += data_due.eq(both & ~data_due)
        return m

    def _header_dwords(self, m):
        """Dwords of prefixes and header in this beat, and whether the header ends in it."""
        lanes = self._width // 32
        i, beat = self.i, self.i.payload
        in_prefixes = Signal(init=1)
        left = Signal(3)  # dwords of the header in beats to come
        total = Signal(range(9))
        header, ends = Signal(range(lanes + 1)), Signal()
        more_prefixes = Signal()

        # Fmt is in the top bits of a dword's first byte: 4 is a prefix, and odd a 4-dword header.
        fmt = [beat.data.word_select(n, 32)[5:8] for n in range(min(lanes, 5))]
        with m.If(in_prefixes):
            # The first dword that is no prefix; from the last to the first, so that it wins.
            m.d.comb += [more_prefixes.eq(1), total.eq(min(lanes, 8))]
            for n in reversed(range(len(fmt))):
                with m.If(fmt[n] != 4):
                    m.d.comb += [more_prefixes.eq(0), total.eq(n + 3 + fmt[n][0])]
        with m.Else():
            m.d.comb += total.eq(left)
        m.d.comb += [
            header.eq(Mux(total > lanes, lanes, total)),
            ends.eq((total != 0) & (total <= lanes) & ~more_prefixes),
        ]
        with m.If(i.valid & i.ready):
            m.d.sync += [
                in_prefixes.eq(beat.last | more_prefixes),
                left.eq(Mux(more_prefixes, 0, total - header)),
            ]
        return header, ends


class Segmenter(wiring.Component):
    """Cuts data into segments that fit a frame and ends each with the CRC-32C of the TLP so far.

    A segment's last beat waits for its CRC (the latency of :class:`~dxpu.crc.CrcStream` and one
    cycle more); the other beats pass with no latency. A part that is to be dropped becomes a
    segment with ``discard``.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    packing_limit : 14
        Bytes of Ethernet payload. Segments have as many whole beats as fit, at least one.
    i : stream of :func:`~dxpu.fabric.send.packer.Chunk` with :class:`PartMeta`
        Header and data of each TLP.
    o : packet stream with :class:`SegmentMeta`
        Lanes past the CRC are zero.
    """

    def __init__(self, width):
        self._width = check_width(width)
        super().__init__({
            "packing_limit": In(14),
            "i": In(stream.Signature(Chunk(width, PartMeta))),
            "o": Out(PacketSignature(width, SegmentMeta)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self._width // 32
        i, o = self.i, self.o
        m.submodules.crc = crc = CrcStream(self._width)

        overhead = OVERHEAD + 4 + BODY_CRC_BYTES  # offset and length; CRC
        room = Signal(14)
        most = Signal(14)  # beats in a segment
        m.d.sync += [
            room.eq(Mux(self.packing_limit > overhead, self.packing_limit - overhead, 0)),
            most.eq(room >> exact_log2(self._width // 8)),
        ]

        beats = Signal(14)  # of this segment so far
        first = Signal(init=1)
        offset, here = Signal(11), Signal(11)  # of the segment, of the next beat
        full = i.payload.meta.is_data & (beats + 1 >= most)
        end = i.payload.last | full
        kept = Signal(PacketLayout(self._width, SegmentMeta), reset_less=True)
        value, bad = Signal(32, reset_less=True), Signal(reset_less=True)
        now = Signal(PacketLayout(self._width, SegmentMeta))
        m.d.comb += [
            now.data.eq(i.payload.data),
            now.dwords.eq(i.payload.dwords),
            now.first.eq(first),
            now.meta.row.eq(i.payload.meta.row),
            now.meta.life.eq(i.payload.meta.life),
            now.meta.is_data.eq(i.payload.meta.is_data),
            now.meta.final.eq(i.payload.meta.final & i.payload.last),
            now.meta.offset.eq(offset),
            o.payload.eq(now),
            crc.data.eq(i.payload.data),
            crc.dwords.eq(i.payload.dwords),
            crc.last.eq(end),
            crc.valid.eq(i.valid & i.ready),
        ]
        with m.FSM():
            with m.State("Pass"):
                m.d.comb += [o.valid.eq(i.valid & ~end), i.ready.eq(o.ready | end)]
                with m.If(i.valid & i.ready):
                    m.d.sync += [first.eq(end), beats.eq(Mux(end, 0, beats + 1))]
                    with m.If(i.payload.meta.is_data):
                        m.d.sync += here.eq(here + lanes)
                    with m.If(end):
                        m.d.sync += [kept.eq(now), bad.eq(i.payload.meta.discard)]
                        m.next = "Wait"
            with m.State("Wait"):
                with m.If(crc.crc_valid):
                    m.d.comb += crc.resume.eq(~kept.meta.final)
                    m.d.sync += value.eq(crc.crc)
                    m.next = "Last"
            with m.State("Last"):
                m.d.comb += [o.valid.eq(1), o.payload.eq(kept)]
                fits = kept.dwords != lanes
                with m.If(fits):
                    m.d.comb += [
                        o.payload.dwords.eq(kept.dwords + 1),
                        o.payload.last.eq(1),
                        o.payload.discard.eq(bad),
                        o.payload.data.eq(kept.data | Cat(
                            Mux(kept.dwords == n, value, 0) for n in range(lanes))),
                    ]
                with m.If(o.ready):
                    m.next = "Crc"
                with m.If(o.ready & fits):
                    m.next = "Pass"
            with m.State("Crc"):
                m.d.comb += [
                    o.valid.eq(1), o.payload.eq(kept), o.payload.data.eq(value),
                    o.payload.dwords.eq(1), o.payload.first.eq(0), o.payload.last.eq(1),
                    o.payload.discard.eq(bad),
                ]
                with m.If(o.ready):
                    m.next = "Pass"
        with m.If(o.valid & o.ready & o.payload.last):
            m.d.sync += [
                offset.eq(Mux(kept.meta.final, 0, here)),
                here.eq(Mux(kept.meta.final, 0, here)),
            ]
        return m


class SegmentQueue(wiring.Component):
    """Splits TLPs and stores their segments, each of which is to become a frame.

    Segments are sent as soon as they are whole, before the rest of the TLP has come. A plan is
    offered two cycles after a segment's last beat was stored. TLPs with more than four prefixes, or
    without a whole header, are dropped and counted.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats of memory; a power of two.
    segments : int
        Segments it holds at most.

    Members
    -------
    packing_limit : 14
    i : packet stream with :class:`TlpMeta`
        Whole, well-formed TLPs; ``discard`` is not looked at.
    plan, valid, take
        The next segment, as of the :class:`~dxpu.fabric.send.planner.Planner`.
    o : packet stream
        The segments in the order of the plans, each with its CRC as the last dword.
    stat_malformed : 1
        Pulse: a TLP was dropped.
    """

    def __init__(self, width, *, depth, segments=64):
        self._width, self._depth, self._segments = check_width(width), depth, segments
        check_depth(width, depth)
        super().__init__({
            "packing_limit": In(14),
            "i": In(PacketSignature(width, TlpMeta)),
            "plan": Out(FramePlan),
            "valid": Out(1),
            "take": In(1),
            "o": Out(PacketSignature(width)),
            "stat_malformed": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.splitter = splitter = HeaderSplitter(self._width)
        m.submodules.segmenter = segmenter = Segmenter(self._width)
        m.submodules.queue = queue = PacketQueue(self._width, depth=self._depth)
        m.submodules.output = output = Register(PacketLayout(self._width))
        m.submodules.plans = plans = fifo.SyncFIFO(
            width=Shape.cast(FramePlan).width, depth=self._segments)
        connect(m, wiring.flipped(self.i), splitter.i)
        connect(m, splitter.o, segmenter.i)
        connect(m, queue.o, output.i)
        connect(m, output.o, wiring.flipped(self.o))

        source, before = segmenter.o, Signal(11)
        plan = Signal(FramePlan)
        fields = ("data", "dwords", "first", "last", "discard")
        taken = source.valid & source.ready
        meta = source.payload.meta
        m.d.comb += [
            segmenter.packing_limit.eq(self.packing_limit),
            queue.i.valid.eq(source.valid & plans.w_rdy),
            source.ready.eq(queue.i.ready & plans.w_rdy),
            *(queue.i.payload[name].eq(source.payload[name]) for name in fields),
            plan.row.eq(meta.row),
            plan.life.eq(meta.life),
            plan.count.eq(1),
            plan.dwords.eq(before + source.payload.dwords),
            plan.type.eq(Mux(meta.is_data, FrameType.DATA, FrameType.HDR)),
            plan.offset.eq(meta.offset),
            plan.final.eq(meta.final),
            plans.w_data.eq(plan),
            plans.w_en.eq(taken & source.payload.last & ~source.payload.discard),
            self.stat_malformed.eq(splitter.stat_malformed),
            Value.cast(self.plan).eq(plans.r_data),
            self.valid.eq(plans.r_rdy),
            plans.r_en.eq(self.take),
        ]
        with m.If(taken):
            m.d.sync += before.eq(Mux(source.payload.last, 0, before + source.payload.dwords))
        return m
