"""dxpu.proxy: events that follow the tables, slots that follow the events."""

import random

import pytest
from amaranth import *
from amaranth.lib import data

from dxpu.fabric.wire.format import ErrorCode, EventCode
from dxpu.mapping.types import RowChange
from dxpu.proxy.bindings import HostBindings
from dxpu.proxy.box_slots import BoxSlots
from dxpu.proxy.detach import Detach, DetachState
from dxpu.proxy.host_links import HostLinks
from tests.support.testbench import check_stream, count_pulses, seed, simulate

ROWS = 4


async def commit(ctx, dut, row, change, generation):
    ctx.set(dut.generations[row], generation)
    ctx.set(dut.row_event, dict(strobe=1, row=row, change=change))
    await ctx.tick()
    ctx.set(dut.row_event.strobe, 0)


async def send(ctx, dut, code, row, generation, argument=0):
    ctx.set(dut.event.payload, dict(row=row, code=code, generation=generation, argument=argument))
    ctx.set(dut.event.valid, 1)
    await ctx.tick().until(dut.event.ready)
    ctx.set(dut.event.valid, 0)


def watch(dut, events, ready=1):
    """Keep the events that leave: name, row, generation, argument, whether the row is open."""
    async def process(ctx):
        ctx.set(dut.control.ready, ready)
        async for *_, taken, p, opened in ctx.tick().sample(
                dut.control.valid & dut.control.ready, dut.control.payload, dut.open):
            if taken:
                events.append((EventCode(p.code).name, p.row, p.generation, p.argument,
                               opened >> p.row & 1))
    return process


def test_host_says_bind_and_unbind_with_the_generation_that_was_bound():
    dut, events = HostBindings(rows=ROWS), []

    async def process(ctx):
        ctx.set(dut.lives[2], 9)
        await commit(ctx, dut, 2, RowChange.BOUND, 7)
        await ctx.tick().repeat(5)
        assert events == [("BIND", 2, 7, 9, 1)] and ctx.get(dut.open) == 0b0100
        ctx.set(dut.reset_request, 0b0110)  # row 1 is not bound
        await ctx.tick()
        ctx.set(dut.reset_request, 0)
        ctx.set(dut.lives[2], 10)
        await ctx.tick().repeat(5)
        assert events[1:] == [("RESET", 2, 7, 10, 1)]
        # An update changes nothing. A release closes the row at once.
        await commit(ctx, dut, 2, RowChange.UPDATED, 7)
        await commit(ctx, dut, 2, RowChange.RELEASED, 8)
        assert ctx.get(dut.open) == 0
        await ctx.tick().repeat(5)
        assert events[2:] == [("UNBIND", 2, 7, 0, 0)]
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


def test_a_row_drains_until_its_unbind_has_a_peer():
    """From the release until the event has left the queues behind."""
    dut, events = HostBindings(rows=ROWS), []

    async def process(ctx):
        await commit(ctx, dut, 1, RowChange.BOUND, 1)
        await ctx.tick().repeat(5)
        assert ctx.get(dut.draining) == 0
        ctx.set(dut.control.ready, 0)
        await commit(ctx, dut, 1, RowChange.RELEASED, 2)
        for _ in range(20):
            assert ctx.get(dut.draining) == 0b0010
            await ctx.tick()
        ctx.set(dut.events_routed, 0)  # as the queue says when it takes the event
        ctx.set(dut.control.ready, 1)
        for _ in range(20):
            await ctx.tick()
            assert ctx.get(dut.draining) == 0b0010
        ctx.set(dut.events_routed, 1)
        await ctx.tick().repeat(2)
        assert ctx.get(dut.draining) == 0 and events[-1][0] == "UNBIND"

    simulate(dut, process, background=[watch(dut, events)])


def slots_of(**set_up):
    """A box of ROWS slots whose links follow the resets after a while."""
    dut = BoxSlots(rows=ROWS)

    async def links(ctx):
        for name, value in ({"used": 0b0110, "present": 15, "empty": 15, "link_up": 15}
                            | set_up).items():
            ctx.set(getattr(dut, name), value)
        for row in range(ROWS):
            ctx.set(dut.generations[row], 7)
        down = [0] * ROWS
        async for *_, reset in ctx.tick().sample(dut.reset):
            for n in range(ROWS):
                up = ctx.get(dut.link_up) >> n & 1
                if reset >> n & 1 and up:
                    down[n] = 12
                    ctx.set(dut.link_up, ctx.get(dut.link_up) & ~(1 << n))
                elif down[n] and not reset >> n & 1:
                    down[n] -= 1
                    if not down[n]:
                        ctx.set(dut.link_up, ctx.get(dut.link_up) | 1 << n)
    return dut, links


def test_a_reset_lasts_until_nothing_is_left_in_front_of_the_slot():
    """So what was queued goes into a link that is down, and not to the GPU after its reset."""
    (dut, links), events = slots_of(empty=0b1101), []

    async def process(ctx):
        await ctx.tick().repeat(2)
        await send(ctx, dut, EventCode.BIND, 1, 7, argument=5)
        await ctx.tick().repeat(8)
        assert not ctx.get(dut.link_up) & 0b0010 and ctx.get(dut.reset) == 0b0010
        ctx.set(dut.empty, 15)
        await ctx.tick().repeat(2)
        assert not ctx.get(dut.link_up) & 0b0010 and ctx.get(dut.reset) == 0
        await ctx.tick().repeat(20)
        assert ctx.get(dut.open) == 0b0010 and events == [("RESET_DONE", 1, 7, 5, 1)]

    simulate(dut, process, background=[links, watch(dut, events)])


def test_box_opens_only_for_the_generation_of_its_row_and_after_a_reset():
    (dut, links), totals, events = slots_of(), {}, []

    async def process(ctx):
        await ctx.tick().repeat(2)
        await send(ctx, dut, EventCode.BIND, 1, 6)        # another generation
        await send(ctx, dut, EventCode.BIND, 0, 7)        # row not used
        await send(ctx, dut, EventCode.RESET, 1, 7)       # not bound yet
        await send(ctx, dut, EventCode.HEADER, 1, 7)      # not for a box
        await ctx.tick().repeat(30)
        assert ctx.get(dut.open) == 0 and not events and totals == {"refused": 4}
        await send(ctx, dut, EventCode.BIND, 1, 7, argument=33)
        assert ctx.get(dut.reset) == 0b0010
        await ctx.tick().repeat(8)
        assert ctx.get(dut.open) == 0 and not events
        await ctx.tick().repeat(20)
        assert ctx.get(dut.open) == 0b0010 and ctx.get(dut.lives[1]) == 1
        assert events == [("RESET_DONE", 1, 7, 33, 1)]
        await send(ctx, dut, EventCode.UNBIND, 1, 6)      # the old life's end comes too late
        assert ctx.get(dut.open) == 0b0010
        await send(ctx, dut, EventCode.RESET, 1, 7, argument=34)
        assert ctx.get(dut.open) == 0
        await ctx.tick().repeat(30)
        assert ctx.get(dut.open) == 0b0010 and ctx.get(dut.lives[1]) == 2
        assert events[1:] == [("RESET_DONE", 1, 7, 34, 1)]
        await send(ctx, dut, EventCode.UNBIND, 1, 7)
        assert ctx.get(dut.open) == 0 and ctx.get(dut.reset) == 0b0010
        await send(ctx, dut, EventCode.UNBIND, 1, 7)
        await ctx.tick().repeat(30)
        assert ctx.get(dut.open) == 0 and ctx.get(dut.reset) == 0
        # The manager's release closes a slot even if UNBIND never comes.
        await send(ctx, dut, EventCode.BIND, 2, 7, argument=1)
        await ctx.tick().repeat(30)
        assert ctx.get(dut.open) == 0b0100
        ctx.set(dut.used, 0b0010)
        await ctx.tick().repeat(2)
        assert ctx.get(dut.open) == 0 and ctx.get(dut.reset) == 0b0100
        ctx.set(dut.used, 0b0110)
        await ctx.tick().repeat(30)
        assert ctx.get(dut.open) == 0
        assert totals == {"refused": 6} and len(events) == 3

    simulate(dut, process, background=[links, watch(dut, events), count_pulses(dut, totals),
                                       check_stream(dut.control)])


def test_box_waits_for_card_link_and_empty_queues_and_tells_what_is_lost():
    (dut, links), events = slots_of(present=0, empty=0), []

    async def process(ctx):
        await ctx.tick().repeat(2)
        await send(ctx, dut, EventCode.BIND, 1, 7, argument=5)
        await ctx.tick().repeat(40)
        for name in ("present", "empty"):
            assert ctx.get(dut.open) == 0 and not events
            ctx.set(getattr(dut, name), 15)
            await ctx.tick().repeat(20)
        assert ctx.get(dut.open) == 2 and [e[0] for e in events] == ["RESET_DONE"]
        # The link goes by itself: the host hears of it, and its RESET brings it back.
        ctx.set(dut.link_up, 0b1101)
        await ctx.tick().repeat(6)
        assert ctx.get(dut.open) == 0 and events[1:] == [("LINK_DOWN", 1, 7, 0, 0)]
        await send(ctx, dut, EventCode.RESET, 1, 7, argument=6)
        await ctx.tick().repeat(30)
        assert ctx.get(dut.open) == 0 and len(events) == 2
        ctx.set(dut.link_up, 15)
        await ctx.tick().repeat(6)
        assert ctx.get(dut.open) == 2 and events[2:] == [("RESET_DONE", 1, 7, 6, 1)]
        # A reset from the box's own manager is a lost link to the host.
        ctx.set(dut.hot_reset, 2)
        await ctx.tick()
        ctx.set(dut.hot_reset, 0)
        await ctx.tick().repeat(8)
        assert ctx.get(dut.open) == 0 and events[3:] == [("LINK_DOWN", 1, 7, 0, 0)]
        await send(ctx, dut, EventCode.RESET, 1, 7, argument=7)
        await ctx.tick().repeat(40)
        # The card goes while the link is up, and while it is down.
        ctx.set(dut.present, 0b1101)
        await ctx.tick().repeat(6)
        assert events[4:] == [("RESET_DONE", 1, 7, 7, 1), ("PRESENCE", 1, 7, 0, 0)]
        ctx.set(dut.present, 15)
        await ctx.tick().repeat(6)
        await send(ctx, dut, EventCode.RESET, 1, 7, argument=8)
        await ctx.tick().repeat(3)
        ctx.set(dut.present, 0b1101)
        await ctx.tick().repeat(6)
        assert events[6:] == [("PRESENCE", 1, 7, 0, 0)]

    simulate(dut, process, background=[links, watch(dut, events), check_stream(dut.control)])


def test_a_slot_whose_host_sends_without_credits_closes_and_its_host_is_told():
    """At once; the GPU is reset, and RESET begins a new life. Closed slots take no notice."""
    (dut, links), events = slots_of(), []

    async def overflow(ctx, slots):
        ctx.set(dut.overflow, slots)
        await ctx.tick()
        ctx.set(dut.overflow, 0)

    async def process(ctx):
        await ctx.tick().repeat(2)
        for row in (1, 2):
            await send(ctx, dut, EventCode.BIND, row, 7, argument=5)
        await ctx.tick().repeat(30)
        assert ctx.get(dut.open) == 0b0110
        events.clear()
        await overflow(ctx, 0b0011)
        assert ctx.get(dut.open) == 0b0100 and ctx.get(dut.reset) == 0b0010
        await overflow(ctx, 0b0010)  # what was on its way; it is closed
        await ctx.tick().repeat(30)
        assert events == [("ERROR", 1, 7, ErrorCode.OVERFLOW, 0)]
        assert ctx.get(dut.open) == 0b0100 and ctx.get(dut.reset) == 0
        await send(ctx, dut, EventCode.RESET, 1, 7, argument=6)
        await ctx.tick().repeat(30)
        assert ctx.get(dut.open) == 0b0110 and events[1:] == [("RESET_DONE", 1, 7, 6, 1)]
        # What it is to be told of the life before is forgotten with the next event of the host.
        ctx.set(dut.control.ready, 0)
        await overflow(ctx, 0b0100)
        await ctx.tick().repeat(3)
        await overflow(ctx, 0b0010)
        await send(ctx, dut, EventCode.UNBIND, 1, 7)
        ctx.set(dut.control.ready, 1)
        await ctx.tick().repeat(5)
        assert events[2:] == [("ERROR", 2, 7, ErrorCode.OVERFLOW, 0)]

    simulate(dut, process, background=[links, watch(dut, events), check_stream(dut.control)])


class Host:
    """A switch that lets TLPs pass while :class:`HostLinks` says that the link is up."""

    def __init__(self, generation=7):
        """``generation`` is that of all rows; ``None`` if the test says so itself."""
        self.dut, self.generation = HostLinks(rows=ROWS), generation
        self.allowed = (1 << ROWS) - 1

    async def switch(self, ctx):
        dut, was = self.dut, 0
        ctx.set(dut.drained, (1 << ROWS) - 1)
        if self.generation is not None:
            ctx.set(dut.event_generation, self.generation)
        async for *_, present, link in ctx.tick().sample(dut.present, dut.link_up):
            active = present & link & self.allowed
            for n in range(ROWS):
                if (was & ~active) >> n & 1:
                    ctx.set(dut.lives[n], (ctx.get(dut.lives[n]) + 1) % 256)
            ctx.set(dut.link_active, active)
            was = active


def test_host_shows_card_and_link_together_and_asks_for_a_reset_after_each_life():
    host, resets, totals, seen = Host(), [], {}, []
    dut = host.dut

    async def collect(ctx):
        async for *_, reset, present, link in ctx.tick().sample(
                dut.reset_request, dut.present, dut.link_up):
            if reset:
                resets.append(reset)
            seen.append((present, present & link))

    async def process(ctx):
        await ctx.tick().repeat(2)
        ctx.set(dut.open, 0b0010)
        await send(ctx, dut, EventCode.RESET_DONE, 1, 8, 0)   # another generation
        await send(ctx, dut, EventCode.RESET_DONE, 1, 7, 3)   # another life
        await send(ctx, dut, EventCode.RESET_DONE, 0, 7, 0)   # not bound
        await send(ctx, dut, EventCode.LINK_DOWN, 1, 7)       # it is not up
        await ctx.tick().repeat(3)
        assert ctx.get(dut.present) == 0 and totals == {"ignored": 4}
        await send(ctx, dut, EventCode.RESET_DONE, 1, 7, 0)
        await ctx.tick().repeat(4)
        assert ctx.get(dut.link_active) == 2
        assert set(seen) == {(0, 0), (2, 2)}, "card and link do not come together"
        # The box loses the link; requests are open, so it stays down for a while.
        await send(ctx, dut, EventCode.LINK_DOWN, 1, 7)
        await ctx.tick().repeat(4)
        assert (ctx.get(dut.link_active), ctx.get(dut.present)) == (0, 2)
        assert resets == [2] and ctx.get(dut.lives[1]) == 1
        ctx.set(dut.drained, 0b1101)
        await send(ctx, dut, EventCode.RESET_DONE, 1, 7, 0)   # of the life before
        await send(ctx, dut, EventCode.RESET_DONE, 1, 7, 1)
        await ctx.tick().repeat(8)
        assert ctx.get(dut.link_active) == 0
        ctx.set(dut.drained, 15)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.link_active) == 2
        # An active link does not care what is open.
        ctx.set(dut.drained, 0b1101)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.link_active) == 2
        ctx.set(dut.drained, 15)
        # Software, and the manager, end a life.
        host.allowed = 0
        await ctx.tick().repeat(4)
        host.allowed = 15
        await ctx.tick().repeat(4)
        assert ctx.get(dut.link_active) == 0 and resets == [2, 2]
        await send(ctx, dut, EventCode.RESET_DONE, 1, 7, 2)
        await ctx.tick().repeat(4)
        ctx.set(dut.hot_reset, 2)
        await ctx.tick()
        ctx.set(dut.hot_reset, 0)
        await ctx.tick().repeat(4)
        assert ctx.get(dut.link_active) == 0 and resets == [2, 2, 2]
        # Lost: only a new binding brings it back.
        await send(ctx, dut, EventCode.RESET_DONE, 1, 7, 3)
        await ctx.tick().repeat(4)
        ctx.set(dut.remove, 2)
        await ctx.tick()
        ctx.set(dut.remove, 0)
        await ctx.tick().repeat(4)
        assert [ctx.get(signal) for signal in (
            dut.link_active, dut.present, dut.card_removed)] == [0, 0, 2]
        await send(ctx, dut, EventCode.RESET_DONE, 1, 7, 4)
        await ctx.tick().repeat(4)
        assert ctx.get(dut.present) == 0
        ctx.set(dut.open, 0)
        await ctx.tick()
        ctx.set(dut.opened, 2)
        await ctx.tick()
        ctx.set(dut.opened, 0)
        ctx.set(dut.open, 2)
        await send(ctx, dut, EventCode.RESET_DONE, 1, 7, 4)
        await ctx.tick().repeat(4)
        assert [ctx.get(signal) for signal in (
            dut.link_active, dut.present, dut.card_removed)] == [2, 2, 0]
        # The card is pulled from the box, then the row is released.
        await send(ctx, dut, EventCode.PRESENCE, 1, 7, 0)
        await ctx.tick().repeat(4)
        assert (ctx.get(dut.link_active), ctx.get(dut.present)) == (0, 0)
        await send(ctx, dut, EventCode.RESET_DONE, 1, 7, 5)
        await ctx.tick().repeat(4)
        assert ctx.get(dut.link_active) == 2
        ctx.set(dut.open, 0)
        before = list(resets)
        await ctx.tick().repeat(4)
        assert (ctx.get(dut.link_active), ctx.get(dut.present)) == (0, 0)
        assert resets == before, "a row that is released needs no reset"

    simulate(dut, process, background=[host.switch, collect, count_pulses(dut, totals)])


def test_a_host_whose_slot_was_fenced_for_want_of_credits_has_lost_the_card():
    host, totals, fenced = Host(), {}, []
    dut = host.dut

    async def collect(ctx):
        async for *_, rows in ctx.tick().sample(dut.fenced):
            fenced.append(rows)

    async def process(ctx):
        await ctx.tick().repeat(2)
        ctx.set(dut.open, 0b0110)
        for row in (1, 2):
            await send(ctx, dut, EventCode.RESET_DONE, row, 7, 0)
        await ctx.tick().repeat(4)
        assert ctx.get(dut.link_active) == 0b0110
        await send(ctx, dut, EventCode.ERROR, 1, 6, ErrorCode.OVERFLOW)   # another generation
        await send(ctx, dut, EventCode.ERROR, 1, 7, ErrorCode.MALFORMED)  # not of a fence
        await ctx.tick().repeat(4)
        assert ctx.get(dut.link_active) == 0b0110 and totals == {"ignored": 2}
        await send(ctx, dut, EventCode.ERROR, 1, 7, ErrorCode.OVERFLOW)
        await ctx.tick().repeat(4)
        assert [ctx.get(signal) for signal in (
            dut.link_active, dut.present, dut.card_removed)] == [4, 4, 2]
        await send(ctx, dut, EventCode.RESET_DONE, 1, 7, 1)
        await ctx.tick().repeat(4)
        assert ctx.get(dut.present) == 4 and sum(map(bool, fenced)) == 1

    simulate(dut, process, background=[host.switch, collect, count_pulses(dut, totals)])


UNIT = 8


def detach_bench():
    dut = Detach(rows=2, unit=UNIT)

    async def set_up(ctx, power=1):
        ctx.set(dut.open, 3)
        ctx.set(dut.present, 3)
        ctx.set(dut.link_active, 3)
        ctx.set(dut.drained, 3)
        ctx.set(dut.deadline, 10)
        for n in range(2):
            ctx.set(dut.slot_control[n].power_indicator, power)
        await ctx.tick().repeat(3)

    async def start(ctx):
        ctx.set(dut.start, 2)
        *_, pressed = await ctx.tick().sample(dut.press)
        ctx.set(dut.start, 0)
        return pressed

    return dut, set_up, start


def states(ctx, dut):
    return [DetachState(ctx.get(dut.state[n])) for n in range(2)]


def test_detach_waits_for_the_indicator_and_for_open_requests():
    dut, set_up, start = detach_bench()

    async def process(ctx):
        await set_up(ctx)
        assert await start(ctx) == 2
        ctx.set(dut.slot_control[1].power_indicator, 2)
        for _ in range(9 * UNIT):
            assert states(ctx, dut)[1] == DetachState.REQUESTED and not ctx.get(dut.remove)
            await ctx.tick()
        ctx.set(dut.drained, 1)
        ctx.set(dut.slot_control[1].power_indicator, 3)
        *_, lost = await ctx.tick().sample(dut.remove)
        assert lost == 2 and states(ctx, dut)[1] == DetachState.FENCED
        ctx.set(dut.present, 1)
        ctx.set(dut.link_active, 1)
        await ctx.tick().repeat(5)
        assert states(ctx, dut)[1] == DetachState.FENCED and not ctx.get(dut.remove)
        ctx.set(dut.drained, 3)
        await ctx.tick().repeat(2)
        assert states(ctx, dut) == [DetachState.NONE, DetachState.DONE]
        ctx.set(dut.open, 1)
        await ctx.tick().repeat(2)
        assert states(ctx, dut)[1] == DetachState.NONE

    simulate(dut, process)


def test_detach_gives_up_after_the_deadline_and_can_be_repeated():
    dut, set_up, start = detach_bench()

    async def process(ctx):
        await set_up(ctx)
        for _ in range(2):
            assert await start(ctx) == 2
            cycles = 0
            while states(ctx, dut)[1] == DetachState.REQUESTED:
                await ctx.tick()
                cycles += 1
            assert 10 * UNIT <= cycles <= 11 * UNIT + 2
            assert states(ctx, dut)[1] == DetachState.TIMED_OUT

    simulate(dut, process)


ON, BLINK, OFF = 1, 2, 3


@pytest.mark.parametrize("later", [ON, BLINK])
def test_an_indicator_that_was_off_before_the_press_tells_nothing_about_a_card_in_use(later):
    """Firmware has enumerated the GPU, a driver uses it, and nobody has touched the indicator."""
    dut, set_up, start = detach_bench()

    async def process(ctx):
        await set_up(ctx, power=OFF)
        ctx.set(dut.in_use, 2)
        # Refused at the deadline, whatever becomes of the port meanwhile; and again.
        for _ in range(2):
            assert await start(ctx) == 2
            cycles = 0
            while states(ctx, dut)[1] == DetachState.REQUESTED:
                assert not ctx.get(dut.remove)
                ctx.set(dut.in_use, 2 * (cycles < 3 * UNIT))
                await ctx.tick()
                cycles += 1
            assert 10 * UNIT <= cycles <= 11 * UNIT + 2
            assert states(ctx, dut)[1] == DetachState.TIMED_OUT
            ctx.set(dut.in_use, 2)
        # A driver that hears the button: the indicator blinks or is on, then it is off.
        assert await start(ctx) == 2
        await ctx.tick().repeat(UNIT)
        ctx.set(dut.slot_control[1].power_indicator, later)
        await ctx.tick().repeat(UNIT)
        assert states(ctx, dut)[1] == DetachState.REQUESTED
        ctx.set(dut.slot_control[1].power_indicator, OFF)
        *_, lost = await ctx.tick().sample(dut.remove)
        assert lost == 2 and states(ctx, dut)[1] == DetachState.FENCED

    simulate(dut, process)


@pytest.mark.parametrize("power, in_use", [(OFF, 0), (ON, 2)])
def test_an_indicator_that_is_off_is_agreement(power, in_use):
    """Nobody can use the card; or the indicator was on at the press."""
    dut, set_up, start = detach_bench()

    async def process(ctx):
        await set_up(ctx, power=power)
        ctx.set(dut.in_use, in_use)
        assert await start(ctx) == 2
        ctx.set(dut.slot_control[1].power_indicator, OFF)
        ctx.set(dut.in_use, 2)
        *_, lost = await ctx.tick().sample(dut.remove)
        assert lost == 2 and states(ctx, dut)[1] == DetachState.FENCED

    simulate(dut, process)


def test_detach_of_an_empty_or_unbound_slot():
    dut, set_up, start = detach_bench()

    async def process(ctx):
        await set_up(ctx)
        ctx.set(dut.present, 1)
        ctx.set(dut.link_active, 1)
        assert await start(ctx) == 0
        await ctx.tick().repeat(3)
        assert states(ctx, dut)[1] == DetachState.DONE
        ctx.set(dut.open, 1)
        await ctx.tick().repeat(2)
        assert await start(ctx) == 0
        assert states(ctx, dut)[1] == DetachState.NONE

    simulate(dut, process)


@pytest.mark.parametrize("rows, unit, message", [
    (1, 0, "unit must be a positive multiple of 2, not 0"),
    (5, 12, "unit must be a positive multiple of 8, not 12")])
def test_detach_parameters(rows, unit, message):
    with pytest.raises(ValueError, match=message):
        Detach(rows=rows, unit=unit)


@pytest.mark.parametrize("run", range(3))
def test_host_and_box_agree_in_the_end(run):
    """Whatever the links, the manager and the host's software do, when all is quiet a slot that is
    bound, and whose link works, is open at both ends, in the same life."""
    rng = random.Random(seed() * 10 + run)
    box, _ = slots_of()
    m = Module()
    host = Host(None)
    bound = Signal(data.ArrayLayout(16, ROWS))
    m.submodules.bindings = bindings = HostBindings(rows=ROWS)
    m.submodules.links, m.submodules.box = host.dut, box
    links = host.dut
    m.d.comb += [bindings.reset_request.eq(links.reset_request), links.opened.eq(bindings.opened),
                 links.open.eq(bindings.open),
                 links.event_generation.eq(bound[links.event.payload.row]),
                 *(bindings.lives[n].eq(links.lives[n]) for n in range(ROWS))]
    toward_box, toward_host = [], []

    async def fabric(ctx):
        """Events take their time, in order."""
        ctx.set(bindings.control.ready, 1)
        ctx.set(box.control.ready, 1)
        now = 0
        async for *_, valid_a, a, valid_b, b in ctx.tick().sample(
                bindings.control.valid, bindings.control.payload,
                box.control.valid, box.control.payload):
            now += 1
            for valid, p, queue in ((valid_a, a, toward_box), (valid_b, b, toward_host)):
                if valid:
                    at = max([now + rng.choice([1, 5, 60])] + [e[0] for e in queue])
                    queue.append((at, dict(row=p.row, code=p.code, generation=p.generation,
                                           argument=p.argument)))
            for queue, sink in ((toward_box, box), (toward_host, links)):
                due = queue and queue[0][0] <= now
                ctx.set(sink.event.valid, int(bool(due)))
                if due:
                    ctx.set(sink.event.payload, queue.pop(0)[1])

    async def gpus(ctx):
        ctx.set(box.present, 15)
        ctx.set(box.empty, 15)
        ctx.set(box.link_up, 15)
        down = [0] * ROWS
        async for *_, reset in ctx.tick().sample(box.reset):
            link = ctx.get(box.link_up)
            for n in range(ROWS):
                if link >> n & 1 and (reset >> n & 1 or rng.random() < trouble[0]):
                    down[n], link = rng.randint(1, 50), link & ~(1 << n)
                elif down[n] and not reset >> n & 1:
                    down[n] -= 1
                    link |= (not down[n]) << n
            ctx.set(box.link_up, link)

    trouble = [0.002]
    generation = [0] * ROWS

    async def process(ctx):
        async def row(n, used):
            generation[n] += 1
            if used:
                ctx.set(box.generations[n], generation[n])
                ctx.set(bound[n], generation[n])
                ctx.set(box.used, ctx.get(box.used) | 1 << n)
            await commit(ctx, bindings, n, RowChange.BOUND if used else RowChange.RELEASED,
                         generation[n])
            if not used:
                ctx.set(bound[n], generation[n])

        ctx.set(box.used, 0)
        await ctx.tick()
        used = set()
        for _ in range(120):
            n = rng.randrange(ROWS)
            what = rng.choice(["bind", "bind", "release", "software", "restart", "wait"])
            if what == "bind" and n not in used:
                await row(n, True)
                used.add(n)
            elif what == "release" and n in used:
                await row(n, False)
                used.discard(n)
                await ctx.tick().repeat(80)  # as the table waits until the row has drained
            elif what == "software":
                host.allowed ^= 1 << n
            elif what == "restart":
                ctx.set(links.hot_reset, 1 << n)
                await ctx.tick()
                ctx.set(links.hot_reset, 0)
            await ctx.tick().repeat(rng.choice([1, 3, 20, 200]))
        trouble[0] = 0
        host.allowed = 15
        if not used:
            await row(0, True)
            used.add(0)
        await ctx.tick().repeat(800)
        mask = sum(1 << n for n in used)
        assert ctx.get(bindings.open) == mask
        assert ctx.get(box.open) == mask
        assert ctx.get(links.link_active) == mask == ctx.get(links.present)

    simulate(m, process, background=[fabric, gpus, host.switch])
