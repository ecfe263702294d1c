"""dxpu.proxy.bindings: events that follow the tables, gates that follow the events."""

from amaranth import *

from dxpu.fabric.format import EventCode, FrameType
from dxpu.mapping.types import RowChange
from dxpu.proxy.bindings import BoxBindings, HostBindings
from dxpu_sim.testbench import check_stream, count_pulses, simulate

ROWS = 4


async def commit(ctx, dut, row, change, generation):
    ctx.set(dut.generation[row], generation)
    ctx.set(dut.committed, dict(strobe=1, row=row, change=change))
    await ctx.tick()
    ctx.set(dut.committed.strobe, 0)


def watch(dut, events):
    async def process(ctx):
        ctx.set(dut.control.ready, 1)
        async for *_, valid, p, opened in ctx.tick().sample(
                dut.control.valid, dut.control.payload, dut.open):
            if valid:
                assert p.type == FrameType.EVENT
                events.append((EventCode(p.code).name, p.row, p.generation, opened >> p.row & 1))
    return process


def test_host_says_bind_and_unbind_with_the_generation_that_was_bound():
    dut, events = HostBindings(rows=ROWS), []

    async def process(ctx):
        await commit(ctx, dut, 2, RowChange.BOUND, 7)
        await ctx.tick().repeat(5)
        assert events == [("BIND", 2, 7, 1)] and ctx.get(dut.open) == 0b0100
        ctx.set(dut.reset, 0b0110)  # row 1 is not bound
        await ctx.tick()
        ctx.set(dut.reset, 0)
        await ctx.tick().repeat(5)
        assert events[1:] == [("RESET", 2, 7, 1)]
        # An update changes nothing. A release closes the row at once.
        await commit(ctx, dut, 2, RowChange.UPDATED, 7)
        await commit(ctx, dut, 2, RowChange.RELEASED, 8)
        assert ctx.get(dut.open) == 0
        await ctx.tick().repeat(5)
        assert events[2:] == [("UNBIND", 2, 7, 0)]
        # Released and bound again before anything could be sent: the old binding ends first.
        await commit(ctx, dut, 0, RowChange.BOUND, 1)
        await ctx.tick().repeat(5)
        await commit(ctx, dut, 0, RowChange.RELEASED, 2)
        await commit(ctx, dut, 0, RowChange.BOUND, 3)
        await ctx.tick().repeat(8)
        assert [e[:3] for e in events[3:]] == [("BIND", 0, 1), ("UNBIND", 0, 1), ("BIND", 0, 3)]
        # All rows at once: none is forgotten.
        events.clear()
        for row in range(1, ROWS):
            await commit(ctx, dut, row, RowChange.BOUND, 20 + row)
        await ctx.tick().repeat(20)
        assert sorted(e[:3] for e in events) == [("BIND", r, 20 + r) for r in range(1, ROWS)]

    simulate(dut, process, background=[watch(dut, events), check_stream(dut.control)])


def test_box_opens_only_for_the_generation_of_its_row():
    dut, totals = BoxBindings(rows=ROWS), {}
    resets = []

    async def collect(ctx):
        async for *_, reset in ctx.tick().sample(dut.reset):
            if reset:
                resets.append(reset)

    async def process(ctx):
        async def event(code, row, generation):
            ctx.set(dut.event.payload, dict(row=row, code=code, generation=generation))
            ctx.set(dut.event.valid, 1)
            await ctx.tick().until(dut.event.ready)
            ctx.set(dut.event.valid, 0)
            await ctx.tick()
            return ctx.get(dut.open), totals["refused"], len(resets)

        ctx.set(dut.used, 0b0011)
        ctx.set(dut.generation[0], 5)
        ctx.set(dut.generation[1], 9)
        assert await event(EventCode.BIND, 0, 4) == (0, 1, 0)       # another generation
        assert await event(EventCode.BIND, 2, 0) == (0, 2, 0)       # not used
        assert await event(EventCode.BIND, 63, 5) == (0, 3, 0)      # no such row
        assert await event(EventCode.RESET, 0, 5) == (0, 4, 0)      # not open yet
        assert await event(EventCode.BIND, 0, 5) == (1, 4, 1)
        assert await event(EventCode.BIND, 1, 9) == (3, 4, 2)
        assert await event(EventCode.RESET, 1, 9) == (3, 4, 3)
        assert await event(EventCode.LINK_UP, 1, 9) == (3, 5, 3)    # not for a box
        assert await event(EventCode.UNBIND, 1, 8) == (3, 6, 3)
        assert await event(EventCode.UNBIND, 1, 9) == (1, 6, 4)
        assert await event(EventCode.UNBIND, 1, 9) == (1, 7, 4)
        # The manager takes the row: closed at once, and closed when it is used again.
        ctx.set(dut.used, 0)
        assert ctx.get(dut.open) == 0
        await ctx.tick()
        ctx.set(dut.used, 0b0011)
        assert ctx.get(dut.open) == 0
        assert resets == [1, 2, 2, 2]

    simulate(dut, process, background=[collect, count_pulses(dut, totals)])
