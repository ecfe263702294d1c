"""dxpu_manager: old events are forgotten, and what is left gives all records."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from dxpu_manager import Event, Limits, Node, Pool, Role, SqliteStore, StoreError, Task, replay
from dxpu_sim.system.agents import Card
from tests.support.pool_bench import Bench, System
from tests.support.pool_desk import H0, A, cards_of, end, settled
from tests.support.simulated_time import run

async def said(store):
    """Events of a store."""
    return [event async for event in store.events()]


KEYS, TEXTS = st.sampled_from("abcd"), st.one_of(st.none(), st.text("xyz", max_size=2))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(KEYS, TEXTS), min_size=1, max_size=30), st.data())
def test_what_is_left_gives_the_records_of_each_later_time(changes, data):
    """However often it is forgotten, and however far."""
    events = [Event(n, float(n), key, text, "") for n, (key, text) in enumerate(changes, 1)]
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "pool.db")
        asyncio.run(store.write(events))
        records, before = asyncio.run(store.load()), 1
        for _ in range(data.draw(st.integers(1, 3))):
            before = data.draw(st.integers(before, len(events)))
            asyncio.run(store.forget(before))
            left = asyncio.run(said(store))
            assert [event for event in left if event.number >= before] == events[before - 1:]
            old = [event for event in left if event.number < before]
            # Each record as it was by then, and nothing of those that were gone.
            assert {event.key: event.text for event in old} == replay(events[:before - 1])
            assert len({event.key for event in old}) == len(old)
            for newest in range(before - 1, len(events) + 1):
                assert replay(e for e in left if e.number <= newest) == replay(events[:newest])
            assert asyncio.run(store.load()) == records == (replay(left), len(events))
        asyncio.run(store.close())


@pytest.mark.parametrize("limits", [{"events": 20}, {"events_for": 60.0}])
def test_a_manager_forgets_by_number_and_by_age(tmp_path, limits):
    """All goes on, for the next manager too."""
    system = System(2, ((Card(), Card()),))
    bench = Bench(system, tmp_path / "pool.db", limits=Limits(
        admits=True, look=5.0, forget=10.0, **limits))

    async def gives_and_takes(times):
        async with bench.manager(watches=True) as manager:
            await asyncio.sleep(2)
            for _ in range(times):
                await manager.wait(manager.attach(H0, [A]).number)
                assert cards_of(system, system.hosts[0]) == {A}
                await manager.wait(manager.detach([A]).number)
            newest = (await said(manager.pool.store))[-1].number
            await asyncio.sleep(100)
            await end(manager)
            await settled(system, manager.pool)
            left = await said(manager.pool.store)
            assert left[-1].number >= newest > 100
            young = 20 if "events" in limits else 1
            old = [event for event in left if event.number <= left[-1].number - young]
            # One for each record, at most.
            assert len(old) == len({event.key for event in old}) <= len(manager.pool.records)
            assert len(left) - len(old) == young
            assert len(list(manager.pool.all(Task))) >= 2 * times

    run(gives_and_takes(15))
    run(gives_and_takes(3))


def test_a_store_that_cannot_be_written_keeps_all(tmp_path, monkeypatch):
    """The manager goes on, and forgets the next time."""
    system = System(1, ((Card(),),))
    bench = Bench(system, tmp_path / "pool.db", limits=Limits(admits=True, forget=10.0, events=1))
    asked = []

    async def does():
        async with bench.manager(watches=True) as manager:
            store, forget = manager.pool.store, manager.pool.store.forget

            async def fails(before):
                asked.append(before)
                raise StoreError("it is full")

            monkeypatch.setattr(store, "forget", fails)
            await asyncio.sleep(25)
            assert len(asked) >= 2
            all_of_them = len(await said(store))
            monkeypatch.setattr(store, "forget", forget)
            await asyncio.sleep(10)
            assert 1 < len(await said(store)) < all_of_them
            assert not manager.deposed.is_set()

    run(does())


def test_the_newest_event_stays(tmp_path):
    """Its number and its time are needed by the next manager."""
    async def first(store):
        pool, node = await Pool.of(store, lambda: 5.0), Node(1, Role.HOST, "0" * 12, 1, 8)
        with pool.change() as change:
            change.put(node, "a node")
        with pool.change() as change:
            change.remove(node, "gone")
        await pool.durable()
        await pool.forget(0, 0.0)
        assert (await said(store))[-1].said == "gone"
        assert (await store.load())[1] == 3
        return pool.clock()

    async def second(store):
        return (await Pool.of(store, lambda: 0.0, boot="another")).clock()

    store = SqliteStore(tmp_path / "pool.db")
    last = asyncio.run(first(store))
    assert asyncio.run(second(store)) == pytest.approx(last, abs=1.0)
    asyncio.run(store.close())
