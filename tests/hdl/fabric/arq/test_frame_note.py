"""dxpu.fabric.arq.frame_note."""

import random

import pytest
from amaranth.lib import data

from dxpu.fabric.arq.frame_note import FrameNote, NoteMemory
from dxpu.fabric.wire.frame_types import FrameType
from tests.support.testbench import seed, simulate

SIZES = {k: f.shape.width if hasattr(f.shape, "width") else f.shape
         for k, f in data.Layout.cast(FrameNote)}


@pytest.mark.parametrize("paths", [1, 2, 16])
def test_notes_come_back_as_far_as_they_have_a_meaning(paths):
    """Events without a plan, other frames without an event; paths that the proxy has."""
    rng = random.Random(seed())
    dut, stored = NoteMemory(cells=8, paths=paths), {}

    async def process(ctx):
        for n in range(200):
            cell = n if n < 8 else rng.randrange(8)
            note = {k: rng.getrandbits(bits) for k, bits in SIZES.items()}
            note["type"] = rng.choice([FrameType.EVENT, FrameType.TLP, FrameType.HDR,
                                       FrameType.DATA])
            ctx.set(dut.write_en, 1)
            ctx.set(dut.write_cell, cell)
            ctx.set(dut.write_note, note)
            note["paths"] %= 1 << paths
            for k in NoteMemory.PLAN if note["type"] == FrameType.EVENT else NoteMemory.EVENT:
                del note[k]
            stored[cell] = note
            await ctx.tick()
            ctx.set(dut.write_en, 0)
            wanted = rng.choice(list(stored))
            ctx.set(dut.read_en, 1)
            ctx.set(dut.read_cell, wanted)
            await ctx.tick()
            ctx.set(dut.read_en, 0)
            read = ctx.get(dut.read_note)
            assert {k: read[k] for k in stored[wanted]} == stored[wanted]

    simulate(dut, process)
