"""dxpu_manager.spares: how many spares a pool holds, by the mathematics and by the manager."""

import asyncio
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from dxpu_manager import Event, Gpu, Impossible, Node, Pool, Role, SqliteStore, State, Wish
from dxpu_manager.keeper import Keeper
from dxpu_manager.lifecycle import Cause
from dxpu_manager.spares import (
    IN_SERVICE, Failures, Policy, plan, poisson_cdf, spares_for, upper_rate,
)
from dxpu_sim.system.agents import Card
from tests.support.pool_bench import Bench, System
from tests.support.pool_desk import H0, LIMITS, cards_of, desk, settled
from tests.support.simulated_time import run

YEAR = 365 * 86400.0


def test_the_example_of_the_page():
    """512 GPUs, 9 % of them fail in a year, a repair takes a week: docs/reference/manager.md."""
    mean = 512 * 0.09 * 7 / 365
    assert round(mean, 4) == 0.8837
    terms = [math.exp(-mean) * mean ** n / math.factorial(n) for n in range(6)]
    assert [round(term, 5) for term in terms] == [
        0.41324, 0.36519, 0.16136, 0.04753, 0.0105, 0.00186]
    assert [round(sum(terms[:n + 1]), 5) for n in range(6)] == [
        0.41324, 0.77843, 0.9398, 0.98733, 0.99783, 0.99969]
    assert spares_for(mean, 0.999) == 5 and round(poisson_cdf(5, mean), 5) == 0.99969
    # Nothing seen yet: a failure in 11 GPU-years is taken for granted, and 95 % are below 27 %.
    assert round(upper_rate(0, 11.0), 4) == round(-math.log(0.05) / 11, 4) == 0.2723
    # Garwood's table: for 4 events the upper limit of 95 % is 9.154 expected ones.
    assert round(upper_rate(4, 1.0), 3) == 9.154


@pytest.mark.parametrize("days, spares", [(1, (1, 2, 3)), (7, (3, 5, 7)), (30, (6, 11, 19))])
def test_spares_of_512_gpus(days, spares):
    """At 3, 9 and 20 % a year."""
    assert tuple(spares_for(512 * rate * days / 365, 0.999) for rate in (0.03, 0.09, 0.2)) == spares


@settings(deadline=None, max_examples=200)
@given(st.one_of(st.floats(0.0, 30.0), st.floats(400.0, 5000.0)), st.floats(0.5, 0.999999))
def test_no_fewer_spares_will_do(mean, probability):
    count = spares_for(mean, probability)
    assert poisson_cdf(count, mean) >= probability - 1e-9
    assert not count or poisson_cdf(count - 1, mean) < probability + 1e-9


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 200), st.floats(0.01, 10_000.0))
def test_the_bound_of_a_rate(failures, years):
    rate = upper_rate(failures, years)
    assert poisson_cdf(failures, rate * years) == pytest.approx(0.05, abs=1e-6)
    assert rate > failures / years


def test_the_bound_holds_as_often_as_it_says():
    """Pools with a rate of 10 %, each seen for 50 GPU-years."""
    rng, above = random.Random(1), 0
    for _ in range(2000):
        seen, when = 0, rng.expovariate(0.1)
        while when < 50:
            seen, when = seen + 1, when + rng.expovariate(0.1)
        above += upper_rate(seen, 50.0) > 0.1
    # A bound of a count is a little safer than its 95 %.
    assert 0.94 < above / 2000 < 0.99


@pytest.mark.parametrize("repair", [
    lambda rng: 1.0, lambda rng: rng.expovariate(1.0), lambda rng: rng.choice((0.1, 1.9))])
def test_gpus_in_repair_are_poisson_distributed(repair):
    """However long each repair takes, only the mean counts (Palm)."""
    rng, now, back, covered, mean = random.Random(2), 0.0, [], 0.0, 0.8837
    for _ in range(100_000):
        end = now + rng.expovariate(mean)
        # Between two failures GPUs only come back.
        for upper in [*sorted(one for one in back if one < end), end]:
            if len(back) <= 2:
                covered += upper - now
            now = upper
            back = [one for one in back if one > now]
        back.append(now + repair(rng))
    assert covered / now == pytest.approx(poisson_cdf(2, mean), abs=0.004)


# What was seen ------------------------------------------------------------------------------------


def log(*steps):
    """Events of GPUs: time, slot, state, model."""
    return [Event(n, time, f"gpu/00000200.{slot}",
                  Gpu(0x200, slot, state, model=model).text(), "")
            for n, (time, slot, state, model) in enumerate(steps, 1)]


def test_failures_and_years_of_the_events():
    """Absent, quarantined and failed GPUs are not in service; a failure is one once."""
    seen = Failures()
    for event in log((0, 1, State.QUARANTINED, "a"), (YEAR, 1, State.FREE, "a"),
                     (2 * YEAR, 1, State.ATTACHED, "a"), (3 * YEAR, 1, State.DRAINING, "a"),
                     (3 * YEAR, 1, State.FAILED, "a"), (4 * YEAR, 1, State.FAILED, "a"),
                     (5 * YEAR, 1, State.QUARANTINED, "a"), (6 * YEAR, 1, State.FREE, "a"),
                     (0, 2, State.FAILED, "b"), (0, 3, State.SPARE, "b")):
        seen.take(event)
    assert seen.seen("a", 7 * YEAR) == (1, 3.0)
    # Of the second one it is not known when it failed.
    assert seen.seen("b", 7 * YEAR) == (0, 7.0)
    assert seen.seen("c", 7 * YEAR) == (0, 0.0)
    seen.take(Event(99, 8 * YEAR, "gpu/00000200.1", None, ""))
    assert seen.seen("a", 20 * YEAR) == (1, 4.0)


def test_a_plan():
    gpus = [Gpu(0x200 + n // 8, n % 8 + 1, State.FREE, model="a") for n in range(512)]
    gpus[0] = replace(gpus[0], state=State.SPARE)
    gpus[8] = replace(gpus[8], state=State.SPARE)
    gpus[1] = replace(gpus[1], state=State.FAILED)
    one, = plan(gpus, Failures(), Policy(rate=0.09), 0.0, closed={0x201})
    assert (one.model, one.gpus, one.wanted, one.held) == ("a", 511, 5, 1)
    assert one.covered == poisson_cdf(1, one.mean)
    one, = plan(gpus, Failures(), Policy(), 0.0)
    assert (round(one.rate, 3), one.wanted, one.held) == (0.272, 9, 2)


@pytest.mark.parametrize("words, says", [
    ({"probability": 1.0}, "the probability is 0.5 to 0.999999, not 1"),
    ({"repair_days": 0.0}, "a repair takes above 0 and up to 3650 days, not 0"),
    ({"rate": -1.0}, "a GPU fails 0 to 100 times in a year, not -1")])
def test_wrong_policies(words, says):
    with pytest.raises(Impossible, match=f"^{says}$"):
        Policy(**words)
    assert Policy.of(Policy(True, 0.9, 3.0, 0.5).text()) == Policy(True, 0.9, 3.0, 0.5)


# What the manager keeps ---------------------------------------------------------------------------

STATES = st.sampled_from((State.FREE, State.FREE, State.SPARE, State.ATTACHED, State.FAILED,
                          State.QUARANTINED))
TURNS = st.lists(st.tuples(st.integers(0, 11), STATES), max_size=6)


@settings(deadline=None, max_examples=100)
@given(st.lists(TURNS, min_size=1, max_size=5), st.sampled_from((0.0, 1.0, 8.0, 40.0)),
       st.sampled_from((None, 0x200)), st.booleans())
def test_the_keeper_has_what_can_be_had(tmp_path_factory, turns, rate, closed, ends):
    """Whatever GPUs do between its turns: either the spares are there, or no free GPU is left; it
    moves free and own spare GPUs alone, never one that somebody made a spare; a second turn changes
    nothing."""
    async def whole():
        store = SqliteStore(tmp_path_factory.mktemp("pool") / "pool.db")
        pool = await Pool.of(store)
        keeper = Keeper(pool)
        await keeper.begin()
        with pool.change() as change:
            for serial in (0x200, 0x201):
                change.put(Node(serial, Role.BOX, "", serial, 6, closed=serial == closed), "")
            for n in range(12):
                change.put(Gpu(0x200 + n // 6, n % 6 + 1, State.FREE, model="ab"[n % 2]), "")
        keeper.policy = Policy(keeps=True, rate=rate, probability=0.9)
        for turn in turns:
            with pool.change() as change:
                for n, state in turn:
                    gpu = pool.gpu(f"{0x200 + n // 6:08x}.{n % 6 + 1}")
                    change.put(replace(gpu, state=state, cause=Cause.SPARED), "")
            before = {gpu.name: gpu for gpu in pool.all(Gpu)}
            keeper.turn()
            for gpu in pool.all(Gpu):
                was = before[gpu.name]
                if gpu is not was:
                    assert was.state is State.FREE or (
                        was.state, was.cause) == (State.SPARE, Cause.KEPT)
            for one in keeper.plan():
                of = [gpu for gpu in pool.all(Gpu) if gpu.model == one.model]
                usable = [gpu for gpu in of if gpu.box != closed]
                assert one.held == sum(gpu.state is State.SPARE for gpu in usable)
                assert one.held >= one.wanted or all(
                    gpu.state is not State.FREE for gpu in usable)
                assert one.held <= one.wanted or all(
                    gpu.cause is not Cause.KEPT for gpu in usable if gpu.state is State.SPARE)
                assert one.gpus == sum(gpu.state in IN_SERVICE for gpu in of)
            number = pool._number
            keeper.turn()
            assert pool._number == number
        if ends:
            keeper.policy = Policy()
            keeper.turn()
            assert not any(gpu.cause is Cause.KEPT for gpu in pool.all(Gpu))
        await pool.durable()
        await store.close()

    asyncio.run(whole())


def test_a_pool_keeps_a_spare_and_uses_it(tmp_path):
    """And another one takes its place; who waits goes first; another manager counts the failure."""
    system = System(1, ((Card(), Card(), Card(), Card()),))
    bench = Bench(system, tmp_path / "pool.db", limits=LIMITS)

    async def first():
        async with desk(bench) as requests:
            pool = requests.pool
            requests.spares.policy = Policy(keeps=True, rate=5.0, probability=0.9)
            await asyncio.sleep(1)
            def spares():
                return sorted(g.name for g in pool.all(Gpu) if g.state is State.SPARE)
            assert spares() == ["00000200.1"]
            requests.ask(Wish(H0, 2))
            await asyncio.sleep(2)
            assert cards_of(system, system.hosts[0]) == {"00000200.2", "00000200.3"}
            requests.manager.give_up("00000200.2", "smoke")
            await asyncio.sleep(3)
            # A spare one or a free one takes its place, and one is a spare again.
            assert len(cards_of(system, system.hosts[0])) == 2 and len(spares()) == 1
            await settled(system, pool)

    async def second():
        async with desk(bench) as requests:
            await asyncio.sleep(1)
            one, = requests.spares.plan()
            assert (one.failures, one.gpus) == (1, 3) and 0 < one.years < 1e-5
            assert requests.spares.policy == Policy(keeps=True, rate=5.0, probability=0.9)

    run(first())
    run(second())
