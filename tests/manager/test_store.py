"""Stores of dxpu_manager: what is written survives; every mistake is a line; nothing is lost."""

import asyncio
import json
import os
import random
import sqlite3
import stat
import subprocess
import sys

import pytest

from dxpu_manager import (
    Binding, Event, Gpu, Node, Pool, Role, SqliteStore, State, StoreError, replay,
)
from dxpu_manager.store import VERSION
from tests.support.testbench import seed


def load(store):
    return asyncio.run(store.load())


def write(store, *events):
    asyncio.run(store.write(events))


def close(store):
    asyncio.run(store.close())


async def said(store, after=0):
    """Events of a store."""
    return [event async for event in store.events(after)]


def events(*texts, first=1):
    return [Event(n, 100.0 + n, f"node/{n % 3}", text, f"change {n}")
            for n, text in enumerate(texts, first)]


def test_records_events_and_the_epoch_survive(stores):
    async def whole():
        store = await stores.open()
        assert await store.load() == ({}, 0)
        assert store.leads()
        await store.write(events("a", "b", "c", None))
        first = store.epoch
        await store.close()
        store = await stores.open()
        assert await store.load() == ({"node/2": "b", "node/0": "c"}, 4)
        assert await said(store) == events("a", "b", "c", None)
        assert await said(store, 2) == events("a", "b", "c", None)[2:]
        assert replay(await said(store)) == (await store.load())[0]
        assert first < store.epoch < 2 ** 32
        await store.write(events("d", first=5))
        assert await store.load() == ({"node/2": "d", "node/0": "c"}, 5)
        await store.close()

    asyncio.run(whole())


def test_only_the_owner_reads_the_file(tmp_path):
    """Keys are in it."""
    store = SqliteStore(tmp_path / "pool.db")
    write(store, *events("a"))
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 or file.suffix.startswith(".db-")
    close(store)
    store = SqliteStore(tmp_path / "pool.db")
    assert store.epoch == 2
    close(store)


def test_a_write_is_whole_or_not_at_all(stores):
    async def whole():
        store = await stores.open()
        await store.write(events("a"))
        with pytest.raises(StoreError, match="UNIQUE|do not follow event 1"):
            await store.write([*events("b", "c", first=2), *events("d")])
        assert await store.load() == ({"node/1": "a"}, 1)
        await store.write(events("b", first=2))
        assert (await store.load())[1] == 2
        await store.close()

    asyncio.run(whole())


def test_a_change_of_many_records_is_one_write(stores):
    """More of them than etcd takes operations in a transaction, and more in all than in a page."""
    many = [Event(n, 1.0, f"gpu/{n % 700}", "é" * 100, "") for n in range(1, 1001)]

    async def whole():
        store = await stores.open()
        assert store.takes(many) == 1000
        await store.write(many)
        records, newest = await store.load()
        assert records == {f"gpu/{n}": "é" * 100 for n in range(700)} and newest == 1000
        assert await said(store) == many
        await store.close()

    asyncio.run(whole())


def test_old_events_are_forgotten(stores):
    """Many more than go at a time."""
    rng = random.Random(seed())
    many = [Event(n, 1.0, f"gpu/{rng.randrange(30)}", rng.choice((None, "a", "b")), "")
            for n in range(1, 501)]

    async def whole():
        store = await stores.open()
        await store.write(many)
        records = await store.load()
        await store.forget(1)
        assert await said(store) == many
        for before in (300, 400):
            last = {event.key: event for event in many[:before - 1]}
            await store.forget(before)
            assert await said(store) == [event for event in many if event.number >= before or (
                event.text is not None and last[event.key] is event)]
            assert await store.load() == records
            assert replay(await said(store)) == records[0]
        await store.write([Event(501, 1.0, "gpu/1", "c", "")])
        await store.close()

    asyncio.run(whole())


def full(store):
    """Let the disk have room for what is there, and no more."""
    pages, = store._database.execute("PRAGMA page_count").fetchone()
    store._database.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk(tmp_path):
    """Nothing new is begun while it is full; what was begun is written when there is room."""
    store = SqliteStore(tmp_path / "pool.db")

    async def whole():
        pool = await Pool.of(store, lambda: 5.0)
        full(store)
        node = Node(1, Role.HOST, "0" * 12, 1, 8, label="x" * 20000)
        with pool.change() as change:
            change.put(node, "a node")
        await asyncio.sleep(0.05)
        assert pool.trouble == (f"the store {str(tmp_path / 'pool.db')!r} cannot be used: database "
                                "or disk is full")
        with pytest.raises(StoreError, match="disk is full"), pool.change():
            pytest.fail("a change begins")
        assert await store.load() == ({}, 0)
        store._database.execute("PRAGMA max_page_count = 100000")
        await asyncio.wait_for(pool.durable(), 5)
        assert not pool.trouble and (await store.load())[0][node.key] == node.text()

    asyncio.run(whole())
    close(store)


def test_faults_of_others_do_not_stop_the_writer(stores, monkeypatch, caplog):
    """Those of a store are tried again; those of a listener are its own."""
    monkeypatch.setattr("dxpu_manager.pool.AGAIN", 0.01)
    heard = []

    def fails(event):
        raise RuntimeError("mine")

    async def whole():
        store = await stores.open()
        pool = await Pool.of(store, lambda: 5.0)
        pool.listeners += [fails, heard.append]
        write, faults = store.write, [ZeroDivisionError("oops")]

        async def once(events):
            if faults:
                raise faults.pop()
            await write(events)

        monkeypatch.setattr(store, "write", once)
        node = Node(1, Role.HOST, "0" * 12, 1, 8)
        with pool.change() as change:
            change.put(node, "a node")
        await asyncio.wait_for(pool.durable(), 30)
        assert not pool.trouble and (await store.load())[0][node.key] == node.text()
        await asyncio.sleep(0)
        await store.close()

    asyncio.run(whole())
    assert [event.key for event in heard] == ["clock/pool", "node/00000001"]
    assert [record.message for record in caplog.records] == [
        "a fault of the store", *["a listener of the pool has failed"] * 2]


def test_what_is_no_store(tmp_path):
    path = tmp_path / "pool.db"
    path.write_bytes(b"something else, for long enough that SQLite does not take it for its own")
    with pytest.raises(StoreError, match="is no store: give another file, or restore a backup$"):
        SqliteStore(path)
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    with pytest.raises(StoreError, match="is a database, but no store of a pool: give another"):
        SqliteStore(path)
    assert sqlite3.connect(path).execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)
    with pytest.raises(StoreError, match="cannot be used: No such file or directory$"):
        SqliteStore(tmp_path / "no" / "pool.db")
    with pytest.raises(StoreError, match="cannot be used: Is a directory$"):
        SqliteStore(tmp_path)


def test_a_newer_version_and_a_damaged_one(tmp_path):
    path = tmp_path / "pool.db"
    store = SqliteStore(path)
    write(store, *events(*("x" * 3000,) * 40))
    store._database.execute(f"PRAGMA user_version = {VERSION + 1}")
    close(store)
    with pytest.raises(StoreError, match=f"has version {VERSION + 1}, and this program knows "
                                         f"{VERSION}: use the newer program$"):
        SqliteStore(path)
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {VERSION}")
    database.close()
    data = bytearray(path.read_bytes())
    data[3 * 4096:6 * 4096] = bytes(3 * 4096)
    path.write_bytes(data)
    with pytest.raises(StoreError, match="^the store .*(damaged|malformed)"):
        SqliteStore(path)


def test_a_record_that_makes_no_sense(stores):
    async def whole():
        store = await stores.open()
        for key, text, says in (
                ("node/1", "{}", "record 'node/1' without 'role'"),
                ("node/1", '{"role": "host", "kind": "switch"}',
                 "record 'node/1': fields .'mac', 'number', 'rows', 'serial'."),
                ("node/1", Node(1, Role.HOST, "", 1, 8).text().replace("label", "tabel"),
                 "record 'node/1': fields .'tabel'."),
                ("cow/1", "{}", "record 'cow/1' of no known kind"),
                ("node/1", "x", "record 'node/1': Expecting value"),
                ("node/1", Node(2, Role.HOST, "", 1, 8).text(),
                 "'node/1' says that it is 'node/000")):
            number = (await store.load())[1] + 1
            await store.write([Event(number, 0.0, key, text, "")])
            with pytest.raises(StoreError, match=f"the store has a .*{says}.*: restore a backup$"):
                await Pool.of(store)
            await store.write([Event(number + 1, 0.0, key, None, "")])
        assert not (await Pool.of(store)).records
        await store.close()

    asyncio.run(whole())


def test_what_an_older_version_wrote(stores):
    """Fields that came later have their defaults."""
    binding = {"host": 1, "port": 0, "generation": 7, "paths": 1}
    gpu = json.loads(Gpu(0x200, 1, State.ATTACHED, binding=Binding(1, 0, 7)).text())
    host = json.loads(Node(1, Role.HOST, "", 1, 8).text())
    del host["agent"]

    async def whole():
        store = await stores.open()
        await store.write([
            Event(1, 0.0, "gpu/00000200.1", json.dumps({**gpu, "binding": binding}), ""),
            Event(2, 0.0, "node/00000001", json.dumps(host), "")])
        pool = await Pool.of(store)
        assert pool.gpu("00000200.1").binding == Binding(1, 0, 7)
        assert pool.node(1) == Node(1, Role.HOST, "", 1, 8)
        await store.close()

    asyncio.run(whole())


def test_two_managers(tmp_path):
    store = SqliteStore(tmp_path / "pool.db")
    with pytest.raises(StoreError, match="is in use by another manager: stop that one first$"):
        SqliteStore(tmp_path / "pool.db")
    close(store)
    close(SqliteStore(tmp_path / "pool.db"))



KILLED = """
import asyncio, os, signal, sys
from dxpu_manager import Event, SqliteStore
store = SqliteStore(sys.argv[1], lambda when: when == sys.argv[2] and seen.append(when)
                    and None or len(seen) == 3 and os.kill(os.getpid(), signal.SIGKILL))
seen = []
for n in range(1, 9):
    asyncio.run(store.write([Event(n, 0.0, f"node/{n}", "x", "")]))
"""


@pytest.mark.parametrize("when, written", [("before", 2), ("after", 3)])
def test_a_process_is_killed(tmp_path, when, written):
    """`kill -9` before and after a transaction is on the disk."""
    run = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "pool.db", when],
                         env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert run.returncode == -9
    store = SqliteStore(tmp_path / "pool.db")
    assert load(store) == ({f"node/{n}": "x" for n in range(1, written + 1)}, written)
    close(store)
