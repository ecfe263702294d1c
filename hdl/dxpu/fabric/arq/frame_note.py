"""What is kept of a frame besides its TLPs until the peer acknowledges it.

Ref: docs/explanation/retransmission.md
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.frame_types import FrameType
from dxpu.memory import DisjointMemory

__all__ = ["FrameNote", "NoteMemory"]


class FrameNote(data.Struct):
    """What a repetition of a frame needs besides its TLPs.

    Members
    -------
    type, dst_slot, src_slot, paths, seq
        Of the frame; ``paths`` are those that it may take.
    code, generation, argument
        Of an EVENT.
    count, dwords, offset, final
        Of the plan of a frame with TLPs (:class:`~dxpu.fabric.send.planner.FramePlan`); ``count``
        is 0 for an EVENT.
    """

    type: 4
    dst_slot: 8
    src_slot: 8
    paths: 16
    seq: 24
    code: 8
    generation: 16
    argument: 32
    count: 5
    dwords: 13
    offset: 11
    final: 1


class NoteMemory(wiring.Component):
    """A :class:`FrameNote` for each cell in as few bits as it needs: 107 with two paths.

    An EVENT has no plan, and a frame with TLPs no event, so both are stored in the same bits: what
    is read of the one that a frame has not is without a meaning.

    Parameters
    ----------
    cells, paths : int
        Words; paths of the proxy, 1 to 16.

    Members
    -------
    write_en, write_cell, write_note : 1, cell number, :class:`FrameNote`
    read_en, read_cell : 1, cell number
        Never the cell that is written.
    read_note : :class:`FrameNote`
        The note that was read last, one cycle after its read.
    """

    #: What the two kinds of frames have besides the fields that all have.
    EVENT, PLAN = ("code", "generation", "argument"), ("dwords", "offset", "final")

    def __init__(self, *, cells, paths):
        self._cells = cells
        shapes = {k: f.shape for k, f in data.Layout.cast(FrameNote)}
        kinds = {name: data.StructLayout({k: shapes[k] for k in kind})
                 for name, kind in (("event", self.EVENT), ("plan", self.PLAN))}
        self._word = data.StructLayout({
            **{k: shape for k, shape in shapes.items() if k not in (*self.EVENT, *self.PLAN)},
            "paths": paths, "kind": data.UnionLayout(kinds)})
        super().__init__({
            "write_en": In(1),
            "write_cell": In(range(cells)),
            "write_note": In(FrameNote),
            "read_en": In(1),
            "read_cell": In(range(cells)),
            "read_note": Out(FrameNote),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = DisjointMemory(
            shape=self._word, depth=self._cells, init=[])
        write, read = words.write_port(), words.read_port()
        new, note = self.write_note, self.read_note
        event, plan = (Cat(new[k] for k in kind) for kind in (self.EVENT, self.PLAN))
        m.d.comb += [
            write.en.eq(self.write_en), write.addr.eq(self.write_cell),
            read.en.eq(self.read_en), read.addr.eq(self.read_cell),
            *(write.data[k].eq(new[k]) for k, _ in self._word if k != "kind"),
            *(note[k].eq(read.data[k]) for k, _ in self._word if k != "kind"),
            write.data.kind.as_value().eq(Mux(new.type == FrameType.EVENT, event, plan)),
            *(note[k].eq(read.data.kind.event[k]) for k in self.EVENT),
            *(note[k].eq(read.data.kind.plan[k]) for k in self.PLAN),
        ]
        return m
