"""dxpu.observe.marks: how full queues are, and were at most."""

import random

import pytest
from amaranth import *

from dxpu.observe.marks import Mark, mark_registers
from dxpu.stage import Fill, counted_fill
from tests.support.mutate import mutant
from tests.support.testbench import seed, simulate


def run_mark(kind, fill, drive, level):
    """Random levels: the mark follows, and keeps the most since it was cleared."""
    rng, dut = random.Random(seed()), kind(fill)

    async def process(ctx):
        levels, most = [0] * 4, 0
        for _ in range(600):
            clears = rng.random() < 0.02
            ctx.set(dut.clear, clears)
            levels.append(drive(ctx, rng))
            await ctx.tick()
            shown = levels[-level - 1]
            # What is shown now was compared with the mark in the cycle in which it came.
            assert ctx.get(dut.now) == shown
            most = levels[-level - 2] if clears else max(most, levels[-level - 2])
            assert ctx.get(dut.most) == most

    simulate(dut, process)


@pytest.mark.parametrize("free", [False, True])
def test_a_level(free):
    level = Signal(range(65), init=64 if free else 0)

    def drive(ctx, rng):
        value = rng.randrange(65)
        ctx.set(level, 64 - value if free else value)
        return value

    run_mark(Mark, Fill(level, 64, "Things.", free=free), drive, 0)


def pulses():
    """A fill of pulses, and what drives it."""
    enters, leaves, inside = Signal(3), Signal(2), [0]

    def drive(ctx, rng):
        comes = rng.getrandbits(3) if inside[0] < 40 else 0
        goes = rng.getrandbits(2) if inside[0] > 2 else 0
        ctx.set(enters, comes)
        ctx.set(leaves, goes)
        inside[0] += comes.bit_count() - goes.bit_count()
        return inside[0]

    return counted_fill(enters, leaves, 43, "Things."), drive


def test_pulses():
    run_mark(Mark, *pulses(), 1)


def test_registers_say_what_is_counted():
    first, room, second, _ = mark_registers({"a": Fill(Signal(4), 9, "Ants."),
                                             "b": Fill(Signal(4), 7, "Bees.")}, 0x100)
    assert (first.name, first.address, second.address) == ("mark_a", 0x100, 0x108)
    assert first.doc == "Ants." and (room.name, room.fields[0].reset) == ("room_a", 9)


def test_mistakes():
    with pytest.raises(ValueError, match="room must be 1 to 65535, not 65536"):
        Mark(Fill(Signal(17), 1 << 16, "Things."))


@pytest.mark.parametrize("old, new", [
    ("self.clear | (level > most)", "level > most"),
    ("level > most", "level < most"),
    ("sum(enters) - sum(leaves)", "sum(enters)"),
    ("most.eq(level)", "most.eq(0)"),
], ids=["never cleared", "least", "nothing leaves", "zero"])
def test_mutants_are_found(old, new):
    with pytest.raises(AssertionError):
        run_mark(mutant(Mark, (old, new)), *pulses(), 1)
