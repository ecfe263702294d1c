"""dxpu.fabric.credit.queues.queue_turns: rows share beats, classes of a row take turns."""

import random

import pytest

from dxpu.fabric.credit.queues.queue_turns import QueueTurns
from tests.support.testbench import seed, simulate

QUANTUM, LARGEST = 20, 20


def turns(dut, sizes, cycles, chosen):
    """All queues of ``sizes`` always have TLPs, of a random size of their own; appends
    (row, class, beats)."""
    rng = random.Random(seed())

    async def run(ctx):
        swept = []
        while ctx.get(dut.clear):
            swept.append(4 * ctx.get(dut.row) + ctx.get(dut.cls))
            await ctx.tick()
        ctx.set(dut.awake, sum(1 << n for n in sizes))
        for _ in range(cycles):
            await ctx.tick()
            if ctx.get(dut.granted):
                row, cls = ctx.get(dut.row), ctx.get(dut.cls)
                beats = rng.choice(sizes[4 * row + cls])
                ctx.set(dut.beat_read, 1)
                await ctx.tick().repeat(beats)
                ctx.set(dut.beat_read, 0)
                ctx.set(dut.done, 1)
                await ctx.tick()
                ctx.set(dut.done, 0)
                chosen.append((row, cls, beats))
        assert swept in ([], list(range(4 * dut._rows)))

    simulate(dut, run)


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_rows_have_equal_shares_of_beats(rows):
    """Whatever their sizes: within a turn and what may be overdrawn."""
    dut = QueueTurns(rows=rows, quantum=QUANTUM, largest=LARGEST)
    sizes = {4 * row: [1 + row, LARGEST - row] if row % 2 else [2] for row in range(rows)}
    chosen, shares = [], [0] * rows
    turns(dut, sizes, 2000, chosen)
    for row, _, beats in chosen:
        shares[row] += beats
        assert max(shares) - min(shares) <= 2 * (QUANTUM + LARGEST)
    assert min(shares) > 5 * QUANTUM


def test_classes_of_a_row_take_turns():
    chosen = []
    turns(QueueTurns(rows=2, quantum=QUANTUM, largest=LARGEST, sweeps=False),
          {4: [1], 5: [3], 6: [2]}, 100, chosen)
    assert {row for row, *_ in chosen} == {1}
    order = [cls for _, cls, _ in chosen]
    assert len(order) > 10
    assert all(sorted(order[n:n + 3]) == [0, 1, 2] for n in range(len(order) - 2))
