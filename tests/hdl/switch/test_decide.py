"""dxpu.switch.decide: the lookup of a TLP that may still vanish."""

from dxpu.mapping.types import LookupKind
from dxpu.switch.downstream import DownstreamDecider
from dxpu.tlp.types import Routing, TlpClass
from tests.support.testbench import check_stream, simulate


def completion(bus):
    """A completion for a requester on that bus."""
    return {"port": 1, "due": 1, "info": {
        "cls": TlpClass.CPL, "routing": Routing.ID, "target_id": bus << 8}}


async def offer(ctx, dut, *, early=0, valid=0, bus=9):
    ctx.set(dut.i.payload, completion(bus))
    ctx.set(dut.early, early)
    ctx.set(dut.i.valid, valid)


async def find(ctx, dut, hit):
    """Answer the request for a lookup; returns the bus that was looked up."""
    assert ctx.get(dut.lookup.valid) and ctx.get(dut.lookup.p.kind) == LookupKind.BUS
    bus = ctx.get(dut.lookup.p.bus)
    ctx.set(dut.lookup.ready, 1)
    await ctx.tick()
    ctx.set(dut.lookup.ready, 0)
    ctx.set(dut.result.payload, {"hit": hit, "port": 3})
    ctx.set(dut.result.valid, 1)
    return bus


def test_a_lookup_runs_beside_the_judgement():
    """The verdict comes two cycles after the TLP, whose lookup has ended before."""
    dut = DownstreamDecider(4)

    async def process(ctx):
        ctx.set(dut.o.ready, 1)
        await offer(ctx, dut, early=1)
        assert await find(ctx, dut, 1) == 9
        for _ in range(5):
            await ctx.tick()
            assert not ctx.get(dut.result.ready) and ctx.get(dut.keep)
        await offer(ctx, dut, early=1, valid=1)
        assert ctx.get(dut.result.ready) and ctx.get(dut.i.ready)
        await ctx.tick()
        ctx.set(dut.result.valid, 0)
        await offer(ctx, dut)
        assert not ctx.get(dut.keep)
        await ctx.tick()
        assert ctx.get(dut.o.valid) and ctx.get(dut.o.p.port) == 3

    simulate(dut, process, background=[check_stream(dut.lookup)])


def test_what_was_found_of_a_tlp_that_vanished_is_not_the_next_ones():
    """Whether it vanishes before its lookup was taken, or while that runs."""
    for taken in (False, True):
        dut = DownstreamDecider(4)

        async def process(ctx, dut=dut, taken=taken):
            ctx.set(dut.o.ready, 1)
            await offer(ctx, dut, early=1)
            await ctx.tick()
            if taken:
                ctx.set(dut.lookup.ready, 1)
                await ctx.tick()
                ctx.set(dut.lookup.ready, 0)
            ctx.set(dut.early, 0)
            assert ctx.get(dut.keep)
            await ctx.tick()
            if taken:
                ctx.set(dut.result.payload, {"hit": 0, "port": 0})
                ctx.set(dut.result.valid, 1)
            else:
                assert await find(ctx, dut, 0) == 9
            assert ctx.get(dut.result.ready) and ctx.get(dut.keep)
            await ctx.tick()
            ctx.set(dut.result.valid, 0)
            assert not ctx.get(dut.keep) and not ctx.get(dut.o.valid)
            await offer(ctx, dut, early=1, valid=1, bus=17)
            assert await find(ctx, dut, 1) == 17
            await ctx.tick()
            ctx.set(dut.result.valid, 0)
            await offer(ctx, dut)
            await ctx.tick()
            assert ctx.get(dut.o.valid) and ctx.get(dut.o.p.port) == 3

        simulate(dut, process, background=[check_stream(dut.lookup)])
