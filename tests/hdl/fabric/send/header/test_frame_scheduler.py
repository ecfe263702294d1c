"""dxpu.fabric.send.header.frame_scheduler: who goes first, and what the link is asked."""

import random
from itertools import pairwise

import pytest

from dxpu.fabric.send.header.frame_scheduler import EVENT_CELLS, FrameScheduler
from dxpu.fabric.wire.format import EventCode
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.rows import NO_ROW
from tests.support.testbench import check_stream, seed, simulate

CELLS, CELL = 64, 32
NOTE = {"type": FrameType.TLP, "dst_slot": 3, "src_slot": 4, "paths": 2, "seq": 77, "count": 2,
        "dwords": 12, "final": 1}
PLAN = {"row": 5, "life": 9, "count": 3, "dwords": 18, "type": FrameType.TLP, "final": 1}
EVENT = {"row": 6, "code": EventCode.RESET, "generation": 7, "argument": 8}
REPLY = {"type": FrameType.SACK, "session": 10, "row": 11, "dst_slot": 12, "src_slot": 13,
         "path": 1, "words": 1}
HELLO = {"type": FrameType.HELLO, "session": 14, "path": 2, "tag": 15, "nonce": 16}
PROBE = {"type": FrameType.ACK, "session": 17, "path": 0}
REPEAT = {"session": 18, "epoch": 1, "cell": 19, "probe": 1}


def run(process, **background):
    """The orders and requests that ``process`` causes: (request, order, cycle of the request)."""
    rng = random.Random(seed())
    dut, chosen = FrameScheduler(64, cells=CELLS, cell=CELL), []

    async def answer(ctx):
        """Takes request and order in any order, or at once."""
        while True:
            ctx.set(dut.request.ready, first := rng.getrandbits(1))
            ctx.set(dut.o.ready, second := rng.getrandbits(1))
            request, order = await ctx.tick().sample(
                dut.request.payload, dut.o.payload).until(dut.request.valid & dut.o.valid)
            chosen.append((request, order))
            ctx.set(dut.request.ready, not first)
            ctx.set(dut.o.ready, not second)
            if not (first and second):
                await ctx.tick()

    async def note(ctx):
        ctx.set(dut.seen.payload, NOTE)
        while True:
            ctx.set(dut.look.ready, 1)
            await ctx.tick().until(dut.look.valid)
            ctx.set(dut.look.ready, 0)
            ctx.set(dut.seen.valid, 1)
            await ctx.tick().until(dut.seen.ready)
            ctx.set(dut.seen.valid, 0)

    async def begin(ctx):
        ctx.set(dut.spare, CELLS)
        ctx.set(dut.hurry, 1)
        await process(ctx, dut, chosen)

    simulate(dut, begin, background=[answer, note, check_stream(dut.request),
                                     check_stream(dut.o)])
    return chosen


def offer(ctx, dut, **kinds):
    """Offers one of each of the named kinds at once; processes that take them back."""
    ports = {"greeting": (dut.greeting.payload, dut.greeting.valid, dut.greeting.ready),
             "reply": (dut.reply.payload, dut.reply.valid, dut.reply.ready),
             "repeat": (dut.repeat, dut.repeat_valid, dut.repeat_take),
             "control": (dut.control.payload, dut.control.valid, dut.control.ready),
             "plan": (dut.plan, dut.plan_valid, dut.plan_take)}
    for name, value in kinds.items():
        ctx.set(ports[name][0], value)
        ctx.set(ports[name][1], 1)
    return {name: ports[name] for name in kinds}


async def until_taken(ctx, offered):
    """The order in which they were taken."""
    taken = []
    while offered:
        names = list(offered)
        *_, = values = await ctx.tick().sample(*(offered[name][2] for name in names))
        for name, now in zip(names, values[2:], strict=True):
            if now:
                ctx.set(offered.pop(name)[1], 0)
                taken.append(name)
    await ctx.tick().repeat(12)
    return taken


def test_order_of_kinds():
    order = []

    async def process(ctx, dut, _):
        order.extend(await until_taken(ctx, offer(
            ctx, dut, greeting=HELLO, reply=REPLY, repeat=REPEAT, control=EVENT, plan=PLAN)))
        order.extend(await until_taken(ctx, offer(ctx, dut, greeting=PROBE)))

    chosen = run(process)
    assert order == ["greeting", "reply", "repeat", "control", "plan", "greeting"]
    requests = [request for request, _ in chosen]
    orders = [order for _, order in chosen]
    assert [order.type for order in orders] == [
        FrameType.HELLO, FrameType.SACK, FrameType.TLP, FrameType.EVENT, FrameType.TLP,
        FrameType.ACK]
    assert [(r.hello, r.direct, r.again, r.consumes, r.tlps, r.begins, r.probe)
            for r in requests] == [
        (1, 1, 0, 0, 0, 0, 0), (0, 1, 0, 0, 0, 0, 0), (0, 1, 1, 1, 0, 0, 1), (0, 0, 0, 1, 0, 1, 0),
        (0, 0, 0, 1, 1, 0, 0), (0, 1, 0, 0, 0, 0, 1)]
    hello, sack, again, event, tlps, probe = requests
    assert (hello.row, hello.session, hello.paths, hello.tag) == (NO_ROW, 14, 1 << 2, 15)
    assert (hello.dst_slot, hello.src_slot) == (0, 0)
    assert (sack.row, sack.session, sack.dst_slot, sack.src_slot, sack.paths) == (
        11, 10, 12, 13, 1 << 1)
    assert (again.session, again.epoch, again.dst_slot, again.src_slot, again.paths, again.seq) == (
        18, 1, 3, 4, 2, 77)
    assert (event.row, tlps.row, tlps.life, probe.session) == (6, 5, 9, 17)
    assert [(o.count, o.store, o.resend) for o in orders] == [
        (0, 0, 0), (0, 0, 0), (2, 0, 1), (0, 1, 0), (3, 1, 0), (0, 0, 0)]
    assert [o.reserved for o in orders if o.store] == [1, 1]
    assert orders[1].words and orders[2].cell == 19 and orders[2].dwords == 12
    assert (orders[3].code, orders[3].generation, orders[3].argument) == (EventCode.RESET, 7, 8)
    assert orders[0].nonce == 16 and orders[4].dwords == 18


async def waiting(ctx, dut):
    """There is room for a plan, and it waits until the line needs a frame."""
    ctx.set(dut.hurry, 0)
    offer(ctx, dut, plan=PLAN)
    await ctx.tick().repeat(4)
    ctx.set(dut.hurry, 1)


ACK = REPLY | {"type": FrameType.ACK, "words": 0}


@pytest.mark.parametrize("reply", [ACK, REPLY])
def test_replies_wait_until_the_line_needs_a_frame(reply):
    """So they tell what has come until then. With an event or a repetition they do not wait, as
    these would go before them."""
    async def process(ctx, dut, chosen):
        ctx.set(dut.hurry, 0)
        offered = offer(ctx, dut, reply=reply)
        await ctx.tick().repeat(20)
        assert not chosen
        ctx.set(dut.hurry, 1)
        assert await until_taken(ctx, offered) == ["reply"]
        ctx.set(dut.hurry, 0)
        assert await until_taken(ctx, offer(ctx, dut, reply=reply, control=EVENT)) == [
            "reply", "control"]
        ctx.set(dut.stored, 1)
        await ctx.tick()
        ctx.set(dut.stored, 0)
        assert await until_taken(ctx, offer(ctx, dut, reply=reply, repeat=REPEAT)) == [
            "reply", "repeat"]

    assert len(run(process)) == 5


def test_one_plan_goes_before_an_ack():
    """Its frame acknowledges, too: then the ACK is stale, and is no frame. Nothing passes it twice,
    and no plan without room passes it."""
    async def process(ctx, dut, chosen):
        async def goes_first(*names, stale=0):
            """Of what is offered these are taken, in this order, and nothing more."""
            for name in names:
                *_, reply, plan = await ctx.tick().sample(
                    dut.reply.ready, dut.plan_take).until(dut.reply.ready | dut.plan_take)
                assert (reply, plan) == (name == "reply", name == "plan")
                ctx.set(dut.reply.valid if reply else dut.plan_valid, 0)
                ctx.set(dut.stale, stale and plan)

        await waiting(ctx, dut)
        offer(ctx, dut, reply=ACK)
        await goes_first("plan", "reply", stale=1)
        await ctx.tick().repeat(12)
        assert len(chosen) == 1
        await waiting(ctx, dut)
        offer(ctx, dut, reply=ACK)
        await goes_first("plan")
        await waiting(ctx, dut)
        await goes_first("reply", "plan")
        ctx.set(dut.hurry, 0)
        offer(ctx, dut, reply=ACK)
        await ctx.tick().repeat(4)
        ctx.set(dut.hurry, 1)
        ctx.set(dut.stale, 1)
        await goes_first("reply")
        await waiting(ctx, dut)
        offer(ctx, dut, reply=REPLY)
        await goes_first("reply", "plan")
        await waiting(ctx, dut)
        ctx.set(dut.hurry, 0)
        ctx.set(dut.spare, 0)
        await ctx.tick().repeat(4)
        ctx.set(dut.hurry, 1)
        offer(ctx, dut, reply=ACK)
        await goes_first("reply")
        await ctx.tick().repeat(12)

    assert [frame.type for _, frame in run(process)] == [
        FrameType.TLP, FrameType.TLP, FrameType.ACK, FrameType.TLP, FrameType.SACK, FrameType.TLP,
        FrameType.ACK]


def test_repetitions_wait_for_new_frames():
    """And new frames for repetitions."""
    async def process(ctx, dut, chosen):
        await until_taken(ctx, offer(ctx, dut, plan=PLAN))
        offered = offer(ctx, dut, repeat=REPEAT)
        await ctx.tick().repeat(20)
        assert len(chosen) == 1
        ctx.set(dut.stored, 1)
        await ctx.tick()
        ctx.set(dut.stored, 0)
        await until_taken(ctx, offered)
        ctx.set(dut.repeat_more, 1)
        offered = offer(ctx, dut, plan=PLAN, control=EVENT)
        await ctx.tick().repeat(20)
        assert len(chosen) == 2
        ctx.set(dut.repeat_more, 0)
        assert await until_taken(ctx, offered) == ["control", "plan"]

    assert [order.resend for _, order in run(process)] == [0, 1, 0, 0]


@pytest.mark.parametrize("dwords, need", [(18, 1), (1034, 17)])
def test_events_and_tlps_wait_for_cells(dwords, need):
    """TLPs leave some for events."""
    async def process(ctx, dut, chosen):
        for spare in (0, need + EVENT_CELLS - 1):
            ctx.set(dut.spare, spare)
            offered = offer(ctx, dut, plan=PLAN | {"count": 1, "dwords": dwords})
            await ctx.tick().repeat(20)
            assert not chosen
        ctx.set(dut.spare, need + EVENT_CELLS)
        await until_taken(ctx, offered)
        ctx.set(dut.spare, 0)
        await ctx.tick()
        offered = offer(ctx, dut, control=EVENT)
        await ctx.tick().repeat(20)
        assert len(chosen) == 1
        ctx.set(dut.spare, 1)
        await until_taken(ctx, offered)

    assert [order.reserved for _, order in run(process)] == [need, 1]


@pytest.mark.parametrize("width, apart", [(64, False), (128, True), (512, True)])
def test_plans_of_wide_cores_are_apart(width, apart):
    """No plan is taken sooner than 12 cycles after the order before, so that it grows meanwhile;
    replies do not wait."""
    dut, taken = FrameScheduler(width, cells=CELLS, cell=CELL), []

    async def offer(ctx):
        ctx.set(dut.spare, CELLS)
        ctx.set(dut.hurry, 1)
        ctx.set(dut.plan, PLAN)
        ctx.set(dut.plan_valid, 1)
        ctx.set(dut.request.ready, 1)
        ctx.set(dut.o.ready, 1)
        for cycle in range(100):
            ctx.set(dut.reply.payload, REPLY)
            ctx.set(dut.reply.valid, cycle == 55)
            *_, plan, reply = await ctx.tick().sample(
                dut.plan_take, dut.reply.valid & dut.reply.ready)
            if plan or reply:
                taken.append((cycle, "plan" if plan else "reply"))

    simulate(dut, offer)
    if apart:
        plans = [1, 13, 25, 37, 49, 67, 79, 91]
        assert taken == sorted([*((cycle, "plan") for cycle in plans), (55, "reply")])
    else:
        assert max(b - a for (a, _), (b, _) in pairwise(taken)) < 6
