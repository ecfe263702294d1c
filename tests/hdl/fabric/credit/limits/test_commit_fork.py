"""dxpu.fabric.credit.limits.commit_fork: each frame once to the link, its limits to the accounts
once."""

import random

from dxpu.fabric.credit.limits.commit_fork import CommitFork
from dxpu.fabric.wire.frame_types import FrameType
from tests.support.testbench import check_stream, seed, simulate


def test_frames_go_to_the_link_and_then_their_limits_to_the_accounts():
    """Limits of frames that are not fresh go nowhere; both sides take their time, or none."""
    rng = random.Random(seed())
    dut = CommitFork()
    frames = [dict(row=rng.randrange(64), header=dict(
        type=rng.choice([FrameType.ACK, FrameType.DATA, FrameType.EVENT]), crx=rng.randrange(2),
        ack=n, credit=dict(cls=rng.randrange(3), header_limit=n))) for n in range(300)]
    fresh = [rng.random() < 0.7 for _ in frames]
    linked, limits = [], []

    async def send(ctx):
        for n, frame in enumerate(frames):
            ctx.set(dut.i.payload, frame)
            ctx.set(dut.credits, [dict(cls=c, header_limit=3 * n + c) for c in range(3)])
            ctx.set(dut.fresh, fresh[n])
            ctx.set(dut.i.valid, 1)
            await ctx.tick().until(dut.i.ready)
            ctx.set(dut.i.valid, 0)
            for _ in range(rng.choice([0, 0, 1, 5])):
                await ctx.tick()

    async def take(ctx):
        while True:
            *_, first, second, frame, limit = await ctx.tick().sample(
                dut.o.valid & dut.o.ready, dut.limits.valid & dut.limits.ready,
                dut.o.payload, dut.limits.payload)
            if first:
                linked.append(frame.header.ack)
            if second:
                limits.append(limit)
            ctx.set(dut.o.ready, rng.random() < 0.5)
            ctx.set(dut.limits.ready, rng.random() < 0.5)

    simulate(dut, send, background=[take, check_stream(dut.o, "o"),
                                    check_stream(dut.limits, "limits")])
    assert linked == list(range(300))
    assert [limit.ack for limit in limits] == [n for n in range(300) if fresh[n]]
    for limit in limits:
        frame = frames[limit.ack]
        assert limit.row == frame["row"] and limit.crx == frame["header"]["crx"]
        assert limit.is_reply == (frame["header"]["type"] == FrameType.ACK)
        assert limit.credit.header_limit == limit.ack
        assert [c.header_limit for c in limit.credits] == [3 * limit.ack + c for c in range(3)]
