"""dxpu.bringup.SetUpSequencer in a box with keys: nothing is bound to a host before its session is
open, and who does not open one lets the next host come."""

import pytest

from dxpu.bringup import StandAloneState, Takes
from tests.support import stand_alone_bench as bench_of
from tests.support.stand_alone_bench import (
    KEY, KEYED_MAP, WAITS, WHO, again, bindings, greet, opening, state,
)

OTHER = {"host": 0x055, "node": 0x10A, "stream": 0, "path": 0}
#: Cycles of all that a host has to prove its key, and of all writes.
TIME, WRITES = 64 * WAITS.proof, 600
PROVES, LISTENS, BOUND = (getattr(StandAloneState, name) for name in (
    "PROVES", "LISTENS", "BOUND"))


def run(bench, takes=Takes.KEY, **options):
    async def process(ctx, dut, proxy):
        ctx.set(dut.takes, takes)
        await bench(ctx, dut, proxy)

    return bench_of.run(process, map=KEYED_MAP, **options)


def test_rows_are_bound_when_the_session_is_open():
    """Not before; to the host that has opened it, and in its session."""
    before = opening(key=KEY, clear=0)

    async def bench(ctx, dut, proxy):
        await greet(ctx, dut)
        await ctx.tick().until(dut.state == PROVES)
        await ctx.tick().repeat(TIME // 3)
        assert state(ctx, dut) is PROVES and ctx.get(dut.host) == 0
        assert proxy.written == before and set(proxy.looks) == {"control.session[1].hello"}
        # Once each 64 cycles: the bus is for others, too.
        assert 10 < len(proxy.looks) <= TIME // 3 // 64 + 2
        await greet(ctx, dut, OTHER)
        proxy.is_open = True
        await ctx.tick().until(dut.state == BOUND)
        assert ctx.get(dut.host) == WHO["host"]
        # The time is over, and the session too: the box is its own nevertheless.
        proxy.is_open = False
        await greet(ctx, dut, OTHER)
        await ctx.tick().repeat(2 * TIME)
        assert state(ctx, dut) is BOUND

    assert run(bench).written == [*before, *bindings()]


def test_who_does_not_open_a_session_is_undone():
    """In time, and no row knows of him: the first one bound has generation 1."""
    times = []

    async def bench(ctx, dut, proxy):
        await greet(ctx, dut)
        cycles = 0
        while state(ctx, dut) is not LISTENS or cycles < 10:
            await ctx.tick()
            cycles += 1
        times.append(cycles)
        assert ctx.get(dut.host) == 0
        proxy.is_open = True
        await greet(ctx, dut, OTHER)
        await ctx.tick().until(dut.state == BOUND)
        assert ctx.get(dut.host) == OTHER["host"]

    assert run(bench).written == [
        *opening(key=KEY, clear=0), *opening(binds=0, clear=0),
        *opening(OTHER, key=KEY, clear=0), *bindings(OTHER)]
    assert TIME - 64 <= times[0] <= TIME + WRITES


@pytest.mark.parametrize("change, waits", [
    ({}, True), ({"path": 0}, True), ({"host": 0x043}, False), ({"node": 0x10A}, False),
    ({"stream": 0}, False)])
def test_who_did_not_open_a_session_is_not_heard_for_a_while(change, waits):
    """However often he knocks, others come first; he is heard after that."""
    async def bench(ctx, dut, proxy):
        await greet(ctx, dut)
        await ctx.tick().until(dut.state == PROVES)
        await ctx.tick().until(dut.state == LISTENS)
        heard = 0
        while True:
            await greet(ctx, dut, WHO | change)
            await ctx.tick().repeat(40)
            if state(ctx, dut) is not LISTENS:
                break
            heard += 42
        assert (TIME - WRITES <= heard <= TIME) if waits else heard == 0

    run(bench)


def test_nobody_waits_for_who_was_undone_by_hand():
    """A write of the register while a host is to prove its key undoes at once, and he may come
    again."""
    async def bench(ctx, dut, proxy):
        await greet(ctx, dut)
        await ctx.tick().until(dut.state == PROVES)
        await again(ctx, dut)
        await ctx.tick().repeat(64 + WRITES)
        assert state(ctx, dut) is LISTENS
        proxy.is_open = True
        await greet(ctx, dut)
        await ctx.tick().until(dut.state == BOUND)
        await again(ctx, dut)
        await ctx.tick().until(dut.state == LISTENS)

    assert run(bench).written == [
        *opening(key=KEY, clear=0), *opening(binds=0, clear=0), *opening(key=KEY, clear=0),
        *bindings(), *opening(binds=0, clear=0), *bindings(binds=0)]


def test_anyone_is_taken_without_a_key():
    """A peer that is clear, bound at once, and no key is written."""
    async def bench(ctx, dut, proxy):
        await greet(ctx, dut)
        await ctx.tick().until(dut.state == BOUND)
        assert ctx.get(dut.host) == WHO["host"]
        await again(ctx, dut)
        await ctx.tick().until(dut.state == LISTENS)
        assert not proxy.looks

    assert run(bench, Takes.ANYONE).written == [
        *opening(clear=1), *bindings(), *opening(binds=0, clear=0), *bindings(binds=0)]


def test_nobody_is_taken_before_it_is_known_whether_there_is_a_key():
    async def bench(ctx, dut, proxy):
        for _ in range(3):
            await greet(ctx, dut)
            await ctx.tick().repeat(60)
            assert state(ctx, dut) is LISTENS

    assert run(bench, Takes.NOBODY).written == []


@pytest.mark.parametrize("missing, written", [
    ("control.key[2].word", 4), ("control.session[1].hello", 13)])
def test_what_goes_wrong_is_shown(missing, written):
    """Also before a row was bound; then none is released."""
    async def bench(ctx, dut, proxy):
        await greet(ctx, dut)
        await ctx.tick().until(dut.state == StandAloneState.FAILED)
        assert len(proxy.written) == written
        await again(ctx, dut)
        await ctx.tick().until(dut.state == LISTENS)
        assert proxy.written[written:] == opening(binds=0, clear=0)

    run(bench, missing=missing)
