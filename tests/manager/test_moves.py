"""A pool goes from a file to etcd and back, and begins from an old copy: no record is lost, and
nodes obey whoever has the pool."""

import asyncio
import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest

from dxpu_cli.bench.etcd_members import Cluster
from dxpu_manager import Deposed, Event, Limits, Progress, SqliteStore, State, StoreError
from dxpu_manager.backups import backup as backup_file, restore as restore_file
from dxpu_sim.system.agents import Card
from tests.support.etcd_bench import need_etcd
from tests.support.pool_bench import Bench, System
from tests.support.pool_desk import H0, A, cards_of, settled
from tests.support.simulated_time import run


async def all_of(store):
    records, newest = await store.load()
    return records, newest, [event async for event in store.events()]


def many(count):
    """Events with a hole in their numbers, as of a store that has forgotten some."""
    return [Event(n, 100.0 + n, f"node/{n % 7}", None if n % 5 == 0 else "é" * n, f"change {n}",
                  "alice" if n % 2 else "") for n in range(1, count + 1)]


@pytest.fixture
def etcd(cluster, lead):
    """Makes a connection to the etcd at the prefix of ``lead``."""
    from dxpu_manager.etcd import Etcd

    return lambda: Etcd(cluster.endpoints, prefix=lead.prefix)


def test_from_a_file_to_etcd_and_back(tmp_path, lead, etcd):
    async def whole():
        from dxpu_manager.etcd.backups import backup, restore

        path, copy, back = tmp_path / "pool.db", tmp_path / "copy.db", tmp_path / "back.db"
        first = SqliteStore(path)
        await first.write(many(300))
        await first.forget(250)
        await first.outrank(1_000_000)
        held = await all_of(first)
        backup_file(path, copy)
        first.shut()
        await restore(copy, etcd())
        store = await lead("new")
        assert await all_of(store) == held and store.epoch > first.epoch == 1_000_001
        await store.write([Event(301, 1.0, "node/1", "x", "a change", "bob")])
        held, above = await all_of(store), store.epoch
        # While a manager works; its writes meanwhile are not in the copy.
        there = etcd()
        await backup(there, back)
        await store.write([Event(302, 1.0, "node/1", "y", "a change")])
        with pytest.raises(StoreError, match=r"^a manager leads, at new: stop all managers first$"):
            await restore(back, etcd())
        with pytest.raises(StoreError, match="back.db' is there already$"):
            await backup(there, back)
        with pytest.raises(StoreError, match="^there is no pool below '/nobody/' in etcd$"):
            there.prefix = b"/nobody/"
            await backup(there, tmp_path / "nothing.db")
        await there.close()
        await store.close()
        assert back.stat().st_mode & 0o777 == 0o600
        assert restore_file(back, path).exists()
        last = SqliteStore(path)
        assert await all_of(last) == held and last.epoch > above
        last.shut()
        # Into etcd again, where managers have had higher epochs since.
        store = await lead("again")
        await store.outrank(5_000_000)
        await store.close()
        await restore(back, etcd())
        store = await lead("once more")
        assert await all_of(store) == held and store.epoch > 5_000_001
        await store.close()
        with pytest.raises(StoreError, match="^there is no backup .*missing.db'$"):
            await restore(tmp_path / "missing.db", etcd())
        with pytest.raises(StoreError, match="is no store|not a database"):
            (tmp_path / "text.db").write_text("no database, but long enough " * 99)
            await restore(tmp_path / "text.db", etcd())
        assert not list(tmp_path.glob("*.part*"))

    asyncio.run(whole())


def test_an_epoch_above_another_one_stays(stores):
    async def whole():
        store = await stores.open()
        first = store.epoch
        await store.outrank(first - 1)
        assert store.epoch == first
        await store.outrank(first + 1000)
        assert store.epoch == first + 1001
        await store.write([Event(1, 1.0, "node/1", "x", "a change")])
        await store.close()
        store = await stores.open()
        assert store.epoch > first + 1001
        with pytest.raises(StoreError, match="^(no epoch is above|the epoch would be) 429"):
            await store.outrank(0xFFFF_FFFF)
        assert (await store.load())[0] == {"node/1": "x"}
        await store.close()

    asyncio.run(whole())


def test_who_does_not_lead_raises_no_epoch(lead):
    async def whole():
        store = await lead(ttl=2)
        store._leadership.lose("by the test")
        with pytest.raises(Deposed):
            await store.outrank(10 ** 6)
        await store.close()

    asyncio.run(whole())


def test_a_manager_of_an_old_copy_goes_on_above_what_nodes_have_had(shelf, caplog):
    """Not above what comes while it works: that is another manager."""
    system = System(1, ((Card(), Card()),))
    bench = Bench(system, shelf, limits=Limits(attach=4.0, admits=True))

    async def before():
        async with bench.manager() as manager:
            assert (await manager.wait(manager.attach(H0, [A]).number)).progress is Progress.DONE

    async def after():
        for agent in system.agents:
            agent.write(agent.map.address("table.fence_epoch"), 3_000_000 + agent.serial)
        async with bench.manager() as manager:
            assert not manager.down
            assert manager.pool.store.epoch == manager.nodes.manager.epoch > 3_000_200
            assert (await manager.wait(manager.detach([A]).number)).progress is Progress.DONE
            assert manager.pool.gpu(A).state is State.FREE and not cards_of(system, system.hosts[0])
            await settled(system, manager.pool)
            assert any("the store was restored, or a manager with another store has this node"
                       in text for text in caplog.messages)
            box = system.boxes[0]
            box.write(box.map.address("table.fence_epoch"), 4_000_000)
            manager.attach(H0, [A])
            await asyncio.wait_for(manager.deposed.wait(), 30)
        async with bench.manager() as manager:
            assert manager.nodes.manager.epoch > 4_000_000 and not manager.deposed.is_set()

    run(before())
    run(after())


def test_a_snapshot_of_etcd(tmp_path):
    """Revisions go back with it, but epochs do not once nodes have said theirs."""
    need_etcd()
    if shutil.which("etcdctl") is None:
        pytest.skip("etcd: no etcdctl (Debian: etcd-client)")
    from dxpu_manager.etcd import Etcd, EtcdStore

    def ctl(cluster, *words):
        subprocess.run(["etcdctl", "--endpoints", cluster.endpoints, *words], check=True,
                       capture_output=True, env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"})

    async def whole():
        with Cluster(tmp_path / "first") as cluster:
            store = await EtcdStore.lead(Etcd(cluster.endpoints))
            await store.write(many(3))
            held = await all_of(store)
            await asyncio.to_thread(ctl, cluster, "snapshot", "save", str(tmp_path / "snap"))
            for n in range(4, 60):
                await store.write([Event(n, 1.0, "node/1", "x", "later")])
            await store.close()
            store = await EtcdStore.lead(Etcd(cluster.endpoints))
            newest = store.epoch
            await store.close()
        with Cluster(tmp_path / "second") as cluster:
            cluster.kill(0)
            shutil.rmtree(tmp_path / "second" / "m0")
            peer = f"http://127.0.0.1:{cluster._peers[0]}"
            await asyncio.to_thread(
                ctl, cluster, "snapshot", "restore", str(tmp_path / "snap"), "--name", "m0",
                "--data-dir", str(tmp_path / "second" / "m0"), "--initial-cluster", f"m0={peer}",
                "--initial-advertise-peer-urls", peer)
            cluster.start(0)
            cluster.wait()
            store = await EtcdStore.lead(Etcd(cluster.endpoints))
            assert await all_of(store) == held and store.epoch < newest
            await store.outrank(newest)
            assert store.epoch == newest + 1
            await store.write([Event(4, 1.0, "node/1", "x", "other")])
            await store.close()
            store = await EtcdStore.lead(Etcd(cluster.endpoints))
            assert store.epoch > newest + 1
            await store.close()

    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    asyncio.run(whole())


def test_a_full_disk_leaves_no_half_copy(tmp_path, monkeypatch):
    from dxpu_manager import backups

    def full(*words, **more):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(backups.sqlite3, "connect", full)
    with pytest.raises(StoreError, match="^cannot make the store .*copy.db': database or disk is "
                                         "full$|cannot be used: database or disk is full$"):
        backups.make(tmp_path / "copy.db", [], [], 1)
    monkeypatch.undo()
    assert not list(tmp_path.iterdir())
    backups.make(tmp_path / "copy.db", [("node/1", "x")], many(1), 7)
    with closing(sqlite3.connect(tmp_path / "copy.db")) as database:
        assert database.execute("SELECT epoch FROM manager").fetchone() == (7,)
