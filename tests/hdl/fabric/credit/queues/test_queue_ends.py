"""dxpu.fabric.credit.queues.queue_ends: both sides see both ends of queues; posted TLPs count."""

import random

from amaranth import C

from dxpu.fabric.credit.class_queues import ClassSpace
from dxpu.fabric.credit.queues.queue_ends import QueueEnds, following
from tests.support.testbench import seed, simulate

ROWS, PACKETS, STAMP = 3, 4, 3


def test_ends_of_all_queues():
    """Random packets, both sides at once; then all queues are made empty."""
    rng = random.Random(seed())
    space = ClassSpace(64, p=80, np=32, cpl=56)
    dut = QueueEnds(rows=ROWS, space=space, packets=PACKETS, stamp=STAMP)
    queues = [4 * row + cls for row in range(ROWS) for cls in range(3)]
    ends = {name: {n: (space.start[n % 4], 0) for n in queues} for name in ("tail", "head")}
    posted = {name: [0] * ROWS for name in ("tail", "head")}
    sides = (("tail", dut.enter), ("head", dut.leave))

    async def run(ctx):
        async def clear():
            ctx.set(dut.clear, 1)
            for n in range(4 * ROWS):
                ctx.set(dut.leave.queue, n)
                await ctx.tick()
            ctx.set(dut.clear, 0)

        await clear()
        for _ in range(300):
            moves = []
            for name, side in sides:
                n = rng.choice(queues)
                ctx.set(side.queue, n)
                for end in ("tail", "head"):
                    now = ctx.get(getattr(side, end))
                    assert (now.place, now.packet) == ends[end][n]
                assert ctx.get(side.posted) == posted[name][n // 4]
                ctx.set(side.next, place := rng.randrange(space.total))
                ctx.set(side.strobe, strobe := rng.random() < 0.6)
                if strobe:
                    moves.append((name, n, place))
            await ctx.tick()
            for name, n, place in moves:
                ends[name][n] = place, (ends[name][n][1] + 1) % PACKETS
                posted[name][n // 4] = (posted[name][n // 4] + (n % 4 == 0)) % 2**STAMP
        for _, side in sides:
            ctx.set(side.strobe, 0)
        await clear()
        for n in queues:
            ctx.set(dut.enter.queue, n)
            for end in ("tail", "head"):
                now = ctx.get(getattr(dut.enter, end))
                assert (now.place, now.packet) == (space.start[n % 4], 0)
            assert ctx.get(dut.enter.posted) == 0

    simulate(dut, run)


def test_places_follow_one_another_in_a_ring():
    space = ClassSpace(64, p=80, np=32, cpl=56)
    dut = QueueEnds(rows=1, space=space, packets=PACKETS, stamp=STAMP)

    async def run(ctx):
        for cls, (start, beats) in enumerate(zip(space.start, space.beats, strict=True)):
            for n in range(beats):
                ctx.set(dut.enter.next, start + n)
                assert ctx.get(following(space, dut.enter.next, C(cls, 2))) == (
                    start + (n + 1) % beats)

    simulate(dut, run)
