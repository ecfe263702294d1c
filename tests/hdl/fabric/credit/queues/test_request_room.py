"""dxpu.fabric.credit.queues.request_room: room is shown for what waits, whoever comes or goes."""

import random

from dxpu.fabric.credit.queues.request_room import RequestRoom
from tests.support.testbench import seed, simulate

ROWS, BEATS, MOST = 3, 40, 14


def test_room_follows_what_waits():
    """TLPs enter and leave at any time, in the same cycle too."""
    rng = random.Random(seed())
    dut = RequestRoom(rows=ROWS, beats=BEATS, most=MOST)
    waiting, both, seen = [[] for _ in range(ROWS)], 0, set()

    async def run(ctx):
        nonlocal both
        ctx.set(dut.clear, 1)
        for row in range(ROWS):
            ctx.set(dut.dequeued_row, row)
            await ctx.tick()
        ctx.set(dut.clear, 0)
        for n in range(1500):
            enters, leaves = rng.random() < 0.5 - 0.2 * (n // 100 % 2), rng.random() < 0.4
            row, beats = rng.randrange(ROWS), rng.randint(1, 5)
            if enters and sum(waiting[row]) + beats <= BEATS:
                ctx.set(dut.parked, 1)
                ctx.set(dut.parked_row, row)
                ctx.set(dut.parked_beats, beats)
                waiting[row].append(beats)
            else:
                enters = False
            # Not one that has entered in this cycle.
            rows = [r for r in range(ROWS) if len(waiting[r]) > (enters and r == row)]
            if leaves and rows:
                ctx.set(dut.dequeued, 1)
                ctx.set(dut.dequeued_row, r := rng.choice(rows))
                ctx.set(dut.dequeued_beats, waiting[r].pop(0))
                both += enters
            await ctx.tick()
            ctx.set(dut.parked, 0)
            ctx.set(dut.dequeued, 0)
            await ctx.tick()
            await ctx.tick()
            room = [sum(beats) <= MOST for beats in waiting]
            seen.update(room)
            assert ctx.get(dut.room) == sum(1 << n for n, has in enumerate(room) if has)

    simulate(dut, run)
    assert both > 50 and seen == {False, True}
