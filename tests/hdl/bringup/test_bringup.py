"""dxpu.bringup: what is written to a proxy by itself, and when; the boot counter."""


import pytest
from amaranth import *

from dxpu.bringup import BootCounter, StandAloneState, Waits
from tests.support.stand_alone_bench import (
    DONE, STALE, WHO, expected, greet, again, run, state,
)
from tests.support.testbench import simulate


@pytest.mark.parametrize("stream, path", [(0, 0), (1, 1)])
def test_writes_what_a_console_would(stream, path):
    """Once, for the first host; those who come later change nothing."""
    who = WHO | {"stream": stream, "path": path}

    async def bench(ctx, dut, proxy):
        assert state(ctx, dut) is StandAloneState.LISTENS and ctx.get(dut.host) == 0
        await greet(ctx, dut, who)
        await ctx.tick().until(dut.state == StandAloneState.WRITES)
        await greet(ctx, dut, WHO | {"host": 0x777})
        await ctx.tick().until(dut.state == StandAloneState.BOUND)
        assert ctx.get(dut.host) == who["host"]
        await greet(ctx, dut, WHO | {"host": 0x778})
        await ctx.tick().repeat(100)
        assert state(ctx, dut) is StandAloneState.BOUND

    assert run(bench).written == expected(who)


def test_takes_one_boot_value_before_it_is_written():
    async def bench(ctx, dut, proxy):
        takes = []
        await greet(ctx, dut)
        async for *_, take, done in ctx.tick().sample(
                dut.boot_take, dut.state == StandAloneState.BOUND):
            if take:
                takes.append(len(proxy.written))
            if done:
                break
        assert takes == [0]

    run(bench)


@pytest.mark.parametrize("node", [0x101, 0xFFE, 0])
def test_leaves_a_box_alone_that_somebody_has_set_up(node):
    async def bench(ctx, dut, proxy):
        for _ in range(3):
            await greet(ctx, dut)
            await ctx.tick().repeat(60)
            assert state(ctx, dut) is StandAloneState.LISTENS and ctx.get(dut.host) == 0
        await again(ctx, dut)
        await ctx.tick().repeat(60)

    assert run(bench, node=node).written == []


def test_does_nothing_unless_enabled():
    async def bench(ctx, dut, proxy):
        ctx.set(dut.enable, 0)
        await greet(ctx, dut)
        await ctx.tick().repeat(60)
        assert state(ctx, dut) is StandAloneState.OFF and not proxy.written
        ctx.set(dut.enable, 1)
        await greet(ctx, dut)
        await ctx.tick().until(dut.state == StandAloneState.BOUND)
        # What is there stays.
        ctx.set(dut.enable, 0)
        await ctx.tick().repeat(60)
        assert state(ctx, dut) is StandAloneState.BOUND

    assert run(bench).written == expected()


@pytest.mark.parametrize("late", [False, True])
def test_again_undoes_and_the_next_host_may_come(late):
    """Also if it is asked for while registers are written."""
    other = {"host": 0x055, "node": 0x10A, "stream": 0, "path": 0}

    async def bench(ctx, dut, proxy):
        await greet(ctx, dut)
        await ctx.tick().until(
            dut.state == (StandAloneState.WRITES if late else StandAloneState.BOUND))
        await again(ctx, dut)
        await ctx.tick().until(dut.state == StandAloneState.LISTENS)
        await ctx.tick().repeat(60)
        await greet(ctx, dut, other)
        await ctx.tick().until(dut.state == StandAloneState.BOUND)
        assert ctx.get(dut.host) == other["host"]

    assert run(bench).written == [
        *expected(), *expected(binds=0), *expected(other, generation=2)]


@pytest.mark.parametrize("proxy, last", [
    ({"codes": (DONE, STALE, DONE)}, "table.commit"), ({"codes": (0,)}, "table.commit"),
    ({"missing": "control.present"}, "control.session[1].mode"),
    ({"missing": "table.result"}, "table.commit")])
def test_what_goes_wrong_is_shown(proxy, last):
    """And can be undone."""
    async def bench(ctx, dut, model):
        await greet(ctx, dut)
        await ctx.tick().until(dut.state == StandAloneState.FAILED)
        assert model.written[-1][0] == last
        count = len(model.written)
        await greet(ctx, dut)
        await ctx.tick().repeat(60)
        assert len(model.written) == count
        if "codes" in proxy:
            model._codes = [DONE]
            await again(ctx, dut)
            await ctx.tick().until(dut.state == StandAloneState.LISTENS)
            assert model.written[count:] == expected(binds=0)

    run(bench, **proxy)


def test_waits_are_times():
    """20 ms, 20 ms and 100 ms at any clock; at 125 MHz those of docs/reference/host.md and of the
    register. A host has five times the quiet time to prove its key."""
    at_125 = Waits.for_pc(125e6)
    assert at_125 == Waits(retry=39063, hello=39063, quiet=195313, proof=976563)
    assert Waits.for_pc(31.25e6) == Waits(retry=9766, hello=9766, quiet=48829, proof=244141)
    assert Waits.for_pc(62.5e6, faster=1000) == Waits(retry=20, hello=20, quiet=98, proof=489)


@pytest.mark.parametrize("make, message", [
    (lambda: Waits(0, 1, 1, 1), "retry must be 1 to 65535 units of 64 cycles, not 0"),
    (lambda: Waits(1, 1 << 16, 1, 1), "hello must be 1 to 65535 units of 64 cycles, not 65536"),
    (lambda: Waits.for_pc(800e6), "retry must be 1 to 65535 units of 64 cycles, not 250000")])
def test_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("idle", [0, 5, 70_000])
def test_boot_values(idle):
    """Not 0, one for each reset, each one more than the one before."""
    counter, reset = BootCounter(), Signal()
    m = Module()
    m.submodules.counter = ResetInserter(reset)(counter)
    values = []

    async def bench(ctx):
        await ctx.tick().repeat(idle) if idle else None
        for n in range(9):
            for _ in range(3):
                ctx.set(counter.take, 1)
                await ctx.tick()
                ctx.set(counter.take, 0)
                await ctx.tick().repeat(n + 1)
            values.append(ctx.get(counter.boot))
            ctx.set(reset, 1)
            await ctx.tick().repeat(2)
            ctx.set(reset, 0)

    simulate(m, bench, deadline=100_000)
    assert values[0] == (idle % (1 << 16) or 1)
    assert values == list(range(values[0], values[0] + 9))
