"""Which TLPs in the split form are under way, and what their next part must be.

Ref: docs/reference/wire-format.md, "HDR and DATA, the split form"
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.frame_types import FrameType
from dxpu.fabric.wire.types import FrameHeader
from dxpu.priority import lowest_bit, one_hot_mux
from dxpu.stream import check_width

from .types import PartSize, Piece

__all__ = ["OpenTlps", "PartMeta"]


def PartMeta(count):
    """Layout of what is known about stored TLP dwords.

    Members
    -------
    row : 6
        As in :class:`~dxpu.rows.TlpMeta`.
    part : 1
        Not a whole TLP, but the next part of one of ``count``.
    start, final : 1
        Of a part: it is the first, the last.
    place : ``range(count)``
        Of a part: where its TLP is put together.
    """
    return data.StructLayout({
        "row": 6, "part": 1, "start": 1, "final": 1, "place": range(count),
    })


class OpenTlps(wiring.Component):
    """Remembers a TLP for each peer and stream whose HDR frame took effect, until it is whole.

    The list is in the order of last use. A new TLP replaces the one of its peer and stream, else
    takes a free entry, else the one that was longest without a new part. A TLP that is replaced, or
    followed by a TLP of another kind, is given up and counted. A frame that does not take effect
    changes nothing here, so its repetition is as good as itself.

    Parameters
    ----------
    width : int
        Data bits of a piece.
    count : int
        TLPs that may be open at a time.
    largest : int
        Dwords of the largest TLP that may be put together.

    Members
    -------
    now : :class:`~dxpu.fabric.wire.types.FrameHeader`
        The frame that the judge has before him.
    part : :class:`~.types.PartSize`
    piece : :class:`~.types.Piece`
        The CRC-32C is taken from here.
    row : in
        Row of the frame, in time for ``other_row`` and ``took``.
    took : in
        Pulse: the frame takes effect.
    resume : 32
        CRC register behind the open TLP's last part, one cycle after ``now``.
    misplaced : 1
        DATA that does not continue the open TLP of its peer and stream, or there is none.
    other_row : 1
        DATA for another row than the open TLP.
    oversized : 1
        HDR of a TLP that is too large.
    meta : :func:`PartMeta`
    stat_abandoned : 1
        Pulse: a TLP was given up.
    """

    def __init__(self, width, *, count, largest):
        self._lanes = check_width(width) // 32
        self._count = count
        self._largest = largest
        super().__init__({
            "now": In(FrameHeader),
            "part": In(PartSize),
            "piece": In(Piece(width)),
            "row": In(6),
            "took": In(1),
            "resume": Out(32),
            "misplaced": Out(1),
            "other_row": Out(1),
            "oversized": Out(1),
            "meta": Out(PartMeta(count)),
            "stat_abandoned": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        now, part = self.now, self.part
        entry = data.StructLayout({
            "open": 1, "node": 12, "stream": 4, "tag": 16, "row": 6, "offset": 11, "missing": 11,
            "crc": 32, "place": range(self._count)})
        entries = [Signal(entry, name=f"entry{n}", init={"place": n}) for n in range(self._count)]

        # The entry that the frame belongs to; for HDR also the one that it may have.
        known, target, found = Signal(), Signal(self._count), Signal(entry)
        hits = Cat(e.open & (e.node == now.src_node) & (e.stream == now.stream) for e in entries)
        free = Cat(~e.open for e in entries)
        choice = Signal(self._count)
        m.d.comb += choice.eq(Mux(hits.any(), hits, Mux(
            free.any(), lowest_bit(free), 1 << (self._count - 1))))
        m.d.sync += [
            known.eq(hits.any()),
            target.eq(choice),
            found.as_value().eq(one_hot_mux(choice, entries)),
        ]

        # What the part must be. These are ready long before the frame's CRC.
        is_hdr, is_data = now.type == FrameType.HDR, now.type == FrameType.DATA
        fits, final, large = Signal(), Signal(), Signal()
        has_data = part.data != 0
        m.d.sync += [
            fits.eq(known & (found.tag == now.tag) & (found.offset == part.offset)
                    & (part.length <= found.missing)),
            final.eq(part.length == found.missing),
            large.eq(has_data & (part.header + part.data > self._largest)),
        ]
        m.d.comb += [
            self.resume.eq(found.crc),
            self.misplaced.eq(is_data & ~fits),
            self.other_row.eq(is_data & (found.row != self.row)),
            self.oversized.eq(is_hdr & large),
            self.meta.row.eq(self.row),
            self.meta.part.eq(is_data | (is_hdr & has_data)),
            self.meta.start.eq(is_hdr),
            self.meta.final.eq(is_data & final),
            self.meta.place.eq(found.place),
        ]

        # Behind a right CRC the register is known: it is what made the CRC.
        crc = Signal(32, reset_less=True)
        with m.If(self.piece.valid & self.piece.end & self.piece.part):
            m.d.sync += crc.eq(~(self.piece.binding ^ one_hot_mux(
                Cat(self.piece.dwords == n + 1 for n in range(self._lanes)),
                [self.piece.data.word_select(n, 32) for n in range(self._lanes)])))

        new = Signal(entry)
        m.d.comb += [
            new.eq(found),
            new.crc.eq(crc),
            new.offset.eq(found.offset + part.length),
            new.missing.eq(found.missing - part.length),
            new.open.eq(~final),
        ]
        with m.If(is_hdr):
            m.d.comb += [
                new.open.eq(1),
                *(new[k].eq(v) for k, v in {
                    "node": now.src_node, "stream": now.stream, "tag": now.tag, "row": self.row,
                    "offset": 0, "missing": part.data}.items()),
            ]
        with m.If(self.took & self.meta.part):
            m.d.comb += self.stat_abandoned.eq(is_hdr & found.open)
            m.d.sync += entries[0].eq(new)
            for n in range(1, self._count):
                with m.If(target[n:].any()):
                    m.d.sync += entries[n].eq(entries[n - 1])
        with m.Elif(self.took & known & (is_hdr | (now.type == FrameType.TLP))):
            m.d.comb += self.stat_abandoned.eq(1)
            for n, e in enumerate(entries):
                with m.If(target[n]):
                    m.d.sync += e.open.eq(0)
        return m
