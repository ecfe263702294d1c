"""dxpu_manager.etcd: one manager leads, and whoever led before writes nothing; no write is lost or
done twice, whatever becomes of its answer; every mistake is a line."""

import asyncio
import time
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from dxpu_cli.bench.etcd_members import PATIENCE
from dxpu_manager import Deposed, Event, Node, Pool, Role, StoreError
from tests.manager.test_store import events, said
from tests.support.etcd_bench import Cable

pytest.importorskip("aetcd", reason="manager: no aetcd (the extra `manager`)")

from aetcd import rpc

from dxpu_manager.etcd import Etcd, EtcdStore, leader_of, store as layout


async def asked(etcd, prefix):
    """Keys below a prefix, as they are: value, revision of creation, number of writes."""
    begin = prefix.encode()
    return {pair.key.removeprefix(begin).decode(): pair async for pair in
            etcd.pages(begin, begin[:-1] + bytes([begin[-1] + 1]), 5)}


async def until(holds):
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not await holds():
            await asyncio.sleep(0.02)


@pytest.fixture
def run(cluster):
    """Runs a coroutine function with a connection to the etcd."""
    def run(does):
        async def whole():
            etcd = Etcd(cluster.endpoints)
            try:
                async with asyncio.timeout(5 * PATIENCE):
                    await does(etcd)
            finally:
                await etcd.close()

        asyncio.run(whole())

    return run


@asynccontextmanager
async def waiting(lead, *names, **words):
    """Managers that wait until they lead."""
    tasks = [asyncio.create_task(lead(name, **words)) for name in names]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        for store in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(store, EtcdStore):
                await store.close()


def test_one_of_many_leads_and_hands_over(lead, run):
    async def does(etcd):
        names, epochs = [f"manager {n}" for n in range(4)], []
        etcd.prefix = lead.prefix.encode()
        assert await leader_of(etcd) is None
        async with waiting(lead, *names, ttl=600) as tasks:
            left = {*tasks}
            for n in range(1, 5):
                done, left = await asyncio.wait(left, timeout=PATIENCE,
                                                return_when=asyncio.FIRST_COMPLETED)
                store, = (task.result() for task in done)
                assert await leader_of(etcd) == names[tasks.index(*done)]
                assert await said(store) == events(*"abcd"[:n - 1])
                await store.write(events("abcd"[n - 1], first=n))
                await asyncio.sleep(0.1)
                assert not any(task.done() for task in left)
                await store.close()
                with pytest.raises(Deposed):
                    await store.write(events("x", first=n + 1))
                assert await store.lost() == "this manager has let go of the store"
                epochs.append(store.epoch)
        assert all(one < other for one, other in pairwise(epochs))

    run(does)


@pytest.mark.parametrize("does_late", [
    lambda store: store.write(events("x", first=6)), lambda store: store.forget(5)],
    ids=["writes", "forgets"])
def test_a_leader_whose_clock_stands_writes_nothing_when_another_leads(lead, run, does_late):
    """It does not know, and is not asked by anybody: etcd refuses what it writes."""
    async def does(etcd):
        with Cable(int(etcd.name.rpartition(":")[2])) as cable:
            old = await lead("old", endpoints=f"127.0.0.1:{cable.port}", ttl=2, clock=lambda: 7.0)
            await old.write(events(*"abcde"))
            cable.cut()
            new = await lead("new")
            assert new.epoch > old.epoch
            before = await asked(etcd, lead.prefix)
            assert old.leads()
            for task in old._leadership._keeping:
                task.cancel()
            cable.mend()
            with pytest.raises(Deposed, match="^another manager has taken over$"):
                await does_late(old)
            assert not old.leads() and await old.lost()
            assert await asked(etcd, lead.prefix) == before
            await old.close()
            assert new.leads()
            await new.write(events("f", "g", first=6))
            await new.close()

    run(does)


def test_a_leader_that_is_cut_off_stops_before_another_leads(lead, run):
    async def does(etcd):
        with Cable(int(etcd.name.rpartition(":")[2])) as cable:
            old = await lead("old", endpoints=f"127.0.0.1:{cable.port}", ttl=2)
            async with waiting(lead, "new") as (new,):
                # The lease goes on for as long as there is etcd.
                await asyncio.sleep(5)
                assert old.leads() and not new.done()
                cable.cut()
                writes = asyncio.create_task(old.write(events("a")))
                ended = []
                old._leadership._lost.add_done_callback(lambda lost: ended.append(new.done()))
                new = await new
                assert not old.leads()
                assert ended == [False], "it learns of its end by its own clock"
                with pytest.raises(Deposed, match="has not answered in time$"):
                    await writes
                assert await new.load() == ({}, 0)
            await old.close()

    run(does)


def test_a_leader_that_was_stopped_knows_at_once(lead, run):
    """Before anything else goes on, and whatever etcd would say."""
    async def does(etcd):
        slept = 0
        store = await lead("old", clock=lambda: time.monotonic() + slept)
        await store.write(events("a"))
        assert store.leads()
        slept = 21
        assert not store.leads()
        with pytest.raises(Deposed, match="^the lease of this manager may have run out"):
            await store.write(events("b", first=2))
        assert await store.load() == ({"node/1": "a"}, 1)
        await store.close()

    run(does)


@pytest.mark.parametrize("what", ["lease", "key"])
def test_a_leader_that_is_deposed_by_hand(lead, run, what):
    async def does(etcd):
        store = await lead("old", ttl=3)
        if what == "lease":
            await etcd.revoke(store._leadership._lease, 5)
        else:
            await etcd.txn(rpc.TxnRequest(success=[
                layout.delete(f"{lead.prefix}leader".encode())]), 5)
        with pytest.raises(Deposed):
            await store.write(events("a"))
        await store.close()
        store = await lead("old", ttl=3)
        assert await store.load() == ({}, 0)
        if what == "lease":
            await etcd.revoke(store._leadership._lease, 5)
        else:
            await etcd.txn(rpc.TxnRequest(success=[
                layout.delete(f"{lead.prefix}leader".encode())]), 5)
        # It sees that also if it has nothing to write.
        assert await store.lost() in ("the lease of this manager has ended",
                                      "the leader's key in etcd is not this manager's any more")
        assert not store.leads()
        await store.close()

    run(does)


def test_a_write_whose_answer_is_lost_is_done_once(lead, run):
    async def does(etcd):
        async def came(number):
            return f"store/00000001/event/{number:016x}" in await asked(etcd, lead.prefix)

        with Cable(int(etcd.name.rpartition(":")[2])) as cable:
            store = await lead(endpoints=f"127.0.0.1:{cable.port}", ttl=60)
            await store.write(events("a"))
            cable.cut("back")
            write = asyncio.create_task(store.write(events("b", "c", first=2)))
            await until(lambda: came(3))
            assert not write.done()
            cable.mend()
            await write
            # Now whoever waits gives up, and has more to write the next time.
            cable.cut("back")
            write = asyncio.create_task(store.write(events("d", first=4)))
            await until(lambda: came(4))
            write.cancel()
            cable.mend()
            await store.write(events("d", "e", first=4))
            # And an attempt that does not come to etcd at all.
            cable.cut()
            write = asyncio.create_task(store.write(events("f", first=6)))
            await asyncio.sleep(0.5)
            assert not await came(6)
            cable.mend()
            await write
            assert await said(store) == events(*"abcdef")
            assert await store.load() == ({"node/1": "d", "node/2": "e", "node/0": "f"}, 6)
            keys = await asked(etcd, lead.prefix)
            assert {pair.version for key, pair in keys.items() if "/event/" in key} == {1}
            assert {pair.version for key, pair in keys.items() if "/record/" in key} == {2}
            await store.close()

    run(does)


def test_an_attempt_that_comes_late_changes_nothing(lead, run, monkeypatch):
    """It was given up, made again, and followed by others."""
    async def does(etcd):
        store = await lead()
        await store.write(events("a"))
        txn, lost = store._etcd.txn, []

        async def loses(request, seconds):
            if request.compare and not lost:
                lost.append(request)
                raise layout.Unanswered("no answer")
            return await txn(request, seconds)

        monkeypatch.setattr(store._etcd, "txn", loses)
        await store.write(events("b", first=2))
        await store.write([Event(3, 1.0, "node/2", "newer", ""), Event(4, 1.0, "x", None, "")])
        assert not (await txn(lost[0], 5)).succeeded
        assert await store.load() == ({"node/1": "a", "node/2": "newer"}, 4)
        await store.close()

    run(does)




def test_changes_that_are_too_large(lead, run):
    """One change is whole or refused; many changes that wait are written one after the other."""
    async def does(etcd):
        store = await lead(ttl=60)
        pool = await Pool.of(store, lambda: 5.0, since_boot=lambda: 1.0)

        def put(count, label="", first=0):
            with pool.change() as change:
                for n in range(first, first + count):
                    change.put(Node(n, Role.HOST, "0" * 12, 1, 8, label=label), "a node")

        put(1)
        await pool.durable()
        before = dict(pool.records)
        for count, label in ((1, "x" * 500_000), (1501, ""), (600, "x" * 1000)):
            with pytest.raises(StoreError, match=r"^this is more than the store takes at a time "
                                                 rf"\(records: {count}\), and nothing was changed: "
                                                 "wish for less at a time$"):
                put(count, label)
        assert pool.records == before
        put(1400)
        put(1400, first=1000)
        put(1, "x" * 400_000, first=3000)
        await asyncio.wait_for(pool.durable(), PATIENCE)
        assert not pool.trouble
        records, newest = await store.load()
        # With a reading of the clocks.
        assert (len(records), newest) == (2402, 2803)
        assert records == {key: record.text() for key, record in pool.records.items()}
        # Each of them in a write of its own.
        keys = await asked(etcd, lead.prefix)
        assert keys["store/00000001/newest"].version == 5
        await store.close()

    run(does)



def test_what_is_no_store(lead, run, monkeypatch):
    async def does(etcd):
        def put(key, value):
            return etcd.txn(rpc.TxnRequest(success=[layout.put(f"{lead.prefix}{key}".encode(),
                                                                value)]), 5)

        with pytest.raises(StoreError, match="^members of etcd are HOST:PORT, with commas between, "
                                             "not 'box'$"):
            await lead(endpoints="127.0.0.1:1,box")
        with pytest.raises(StoreError, match="^no etcd answers at 127.0.0.1:1: is it there, and is "
                                             r"the way open\? \(.*refused\)$"):
            await lead(endpoints="127.0.0.1:1")
        await put("mine", "x")
        text = (f"^below '{lead.prefix}' in etcd is something else than a pool: give another "
                "prefix; or if it was a pool, restore a backup with --damaged$")
        with pytest.raises(StoreError, match=text):
            await lead()
        await put("version", "my version 1")
        with pytest.raises(StoreError, match=text):
            await lead()
        await put("version", f"dxpu pool {layout.VERSION + 1}")
        newer = (f"^the store in etcd has version {layout.VERSION + 1}, and this program knows "
                 f"{layout.VERSION}: use the newer program$")
        with pytest.raises(StoreError, match=newer):
            await lead()
        assert sorted(await asked(etcd, lead.prefix)) == ["mine", "version"]
        await put("version", "dxpu pool 1")
        await put("newest", "many")
        with pytest.raises(StoreError, match="^the store in etcd has no number of the newest "
                                             "event: restore a backup with --damaged$"):
            await lead()
        await put("newest", "0")
        store = await lead()
        await put("store/00000001/newest", "5")
        with pytest.raises(StoreError, match="^event 5 in etcd is of no manager: restore a "
                                             "backup with --damaged$"):
            await store.write(events("a"))
        await store.close()

    run(does)


def test_an_epoch_that_nodes_cannot_hold(lead, run, monkeypatch):
    async def does(etcd):
        await (await lead()).close()
        monkeypatch.setattr(layout, "HIGHEST", 1)
        with pytest.raises(StoreError, match="^the epoch would be [0-9]+, and epochs of nodes "
                                             "have 32 bits: "):
            await lead()
        assert "leader" not in await asked(etcd, lead.prefix)

    run(does)
