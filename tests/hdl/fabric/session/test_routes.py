"""dxpu.fabric.session.routes: what a route says is of one moment."""

import itertools

import pytest
from amaranth import *
from amaranth.lib import wiring
from dxpu.fabric.session.routes import Routes
from tests.support.mutate import mutant
from tests.support.testbench import simulate

SESSION, OTHER = 0, 1


class Bench(wiring.Component):
    """Routes beside a table that counts the frames of session 0 that took effect."""

    def __init__(self, selective, design=Routes):
        super().__init__({})
        self.routes = design(rows=2, peers=1, streams=2, paths=1, selective=selective)

    def elaborate(self, platform):
        m = Module()
        m.submodules.routes = routes = self.routes
        expected = Signal(24, init=7)
        with m.If(routes.booked & (routes.changed == SESSION)):
            m.d.sync += expected.eq(expected + 1)
        m.d.comb += [
            routes.next.eq(expected), routes.tx_tag.eq(0xBEEF), routes.bound.eq(3),
            routes.peers[0].valid.eq(1), routes.peers[0].node.eq(0x105),
            routes.rows[0].node.eq(0x105), routes.rows[0].paths.eq(1),
        ]
        return m


async def answer(ctx, bench, cycle, wait, session, booked):
    """ACK of a route, whether it is whole, and what has taken effect by the cycle in which it is
    taken, ``wait`` cycles after its offer; a frame takes effect ``cycle`` cycles after the
    request."""
    routes = bench.routes
    ctx.set(routes.request.payload, dict(row=0, consumes=1))
    ctx.set(routes.request.valid, 1)
    ctx.set(routes.route.ready, 0)
    ctx.set(routes.changed, session)
    count = 0
    for now in range(20):
        ctx.set(routes.booked, now == cycle)
        count += (now == cycle) & (session == SESSION)
        wait -= ctx.get(routes.route.valid)
        ctx.set(routes.route.ready, wait < 0)
        if ctx.get(routes.sent):
            result = ctx.get(routes.route.payload.ack), ctx.get(routes.whole), booked + count
            await ctx.tick()
            ctx.set(routes.booked, 0)
            ctx.set(routes.request.valid, 0)
            await ctx.tick().repeat(3)
            return *result, booked + count
        await ctx.tick()
    raise AssertionError("no answer")


def sweep(design, selective):
    """A frame takes effect in each cycle of a route; whether each answer was right."""
    bench, right, wholes = Bench(selective, design), [], set()

    async def process(ctx):
        booked = 7
        for session in (SESSION, OTHER):
            for cycle, wait in itertools.product(range(10), range(3)):
                ack, whole, effective, booked = await answer(
                    ctx, bench, cycle, wait, session, booked)
                right.append(whole == (ack == effective))
                wholes.add((session, whole))

    simulate(bench, process)
    # Both kinds of answers came; of another session nothing matters.
    assert wholes == {(SESSION, 0), (SESSION, 1), (OTHER, 1)} or not all(right)
    return right


@pytest.mark.parametrize("selective", [False, True])
def test_an_answer_is_whole_if_its_ack_has_all_that_took_effect(selective):
    """Also what takes effect in the very cycle in which the ACK is looked up: it is not in that."""
    assert all(sweep(Routes, selective))


@pytest.mark.parametrize("change", [
    ("more.eq(self.booked & (self.changed == self._session))", "more.eq(0)"),
    ("more.eq(self.booked & (self.changed == self._session))", "more.eq(self.booked)"),
    ("more.eq(more | self.booked & mine)", "more.eq(more)"),
    ("more.eq(more | self.booked & mine)", "more.eq(more | self.booked)"),
    ("self.whole.eq(~more & ~(self.booked & mine))", "self.whole.eq(~more)"),
    ("self.whole.eq(~more & ~(self.booked & mine))", "self.whole.eq(~more & ~self.booked)"),
], ids=str)
def test_mutants_are_found(change):
    assert not all(sweep(mutant(Routes, change), False))
