"""dxpu_manager: a store of an older version is brought to the present one, whole or not at all."""

import asyncio
import json
import os
import signal
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from dxpu_manager import (
    Binding, Event, Node, Pool, Progress, Request, Role, SqliteStore, State, StoreError, replay,
)
from dxpu_manager import store as files, versions
from dxpu_manager.records import parse
from dxpu_manager.store import VERSION, kept, version_of
from dxpu_manager.versions import STEPS, Step, brought

OLD = (Path(__file__).parent / "store_version_1.sql").read_text()
GPU = "00000200.1"


def make_old(path):
    """A file of version 1; its rows."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(OLD)
    path.chmod(0o600)
    return rows(path)


def rows(path):
    """Version, epoch, records and events of a file, as they are."""
    with closing(sqlite3.connect(path)) as database:
        version, = database.execute("PRAGMA user_version").fetchone()
        return version, *(database.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
                          for table in ("manager", "record", "event"))


def is_right(store, number=23, epoch=1):
    """Whether a store has all that was in the old one, and goes on from there."""
    async def whole():
        pool = await Pool.of(store, lambda: 1.75e9 + 9, since_boot=lambda: 1009.0, boot="a-boot")
        assert pool.node(0x100).label == "render" and pool.node(0x200).role is Role.BOX
        assert pool.gpu(GPU).state is State.ATTACHED
        assert pool.gpu(GPU).binding == Binding(0x100, 0, 1)
        assert pool.task(1).progress is Progress.DONE
        assert pool.last(Request).lease == 3600.0
        assert pool.newest == number and store.epoch > epoch
        events = [event async for event in store.events()]
        assert [event.number for event in events] == list(range(1, number + 1))
        assert replay(events) == (await store.load())[0]
        assert {event.who for event in events[:23]} == {""}
        # A new field of a record needs a step in dxpu_manager.versions.
        for event in events:
            assert event.text is None or parse(event.key, event.text).text() == event.text
        with pool.change() as change:
            change.put(pool.node(0x100), "nothing new")
        await pool.durable()
        assert (await store.load())[1] == number + 1

    return whole()


def test_a_file_of_version_1(tmp_path, caplog):
    path = tmp_path / "pool.db"
    old = make_old(path)
    assert version_of(path) == 1
    store = SqliteStore(path)
    asyncio.run(is_right(store))
    store.shut()
    beside = kept(path, 1)
    assert beside == tmp_path / "pool.db.version-1"
    assert rows(beside) == old and stat.S_IMODE(beside.stat().st_mode) == 0o600
    assert caplog.messages == [f"the store {str(path)!r} has version 1: it is kept as "
                               f"{str(beside)!r}, and brought to version {VERSION}"]
    # Once, and nothing is copied again.
    beside.unlink()
    SqliteStore(path).shut()
    assert version_of(path) == VERSION and not beside.exists()


def test_what_can_be_kept_nowhere_is_not_brought(tmp_path):
    path = tmp_path / "pool.db"
    old = make_old(path)
    kept(path, 1).mkdir()
    with pytest.raises(StoreError, match="^cannot copy the store to .*version-1': Is a directory$"):
        SqliteStore(path)
    assert rows(path) == old and not list(tmp_path.glob("*.part*"))


def dies_at(path, number):
    """A process of its own opens a store, and is killed before a statement; whether it was."""
    process = os.fork()
    if process:
        return os.waitpid(process, 0)[1] == signal.SIGKILL
    try:
        connect, left = sqlite3.connect, [number]

        def counted(*words, **more):
            def count(statement):
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

            made = connect(*words, **more)
            made.set_trace_callback(count)
            return made

        sqlite3.connect = counted
        SqliteStore(path).shut()
    finally:
        os._exit(0)


def test_a_process_that_is_killed_while_it_brings_a_file(tmp_path):
    """Before each of its statements."""
    number, left = 1, set()
    while True:
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "pool.db"
        old = make_old(path)
        if not dies_at(path, number):
            break
        now = rows(path)
        left.add(now[0])
        assert now[0] in (1, VERSION) and (now == old if now[0] == 1 else len(now[3][0]) == 6)
        if kept(path, 1).exists():
            assert rows(kept(path, 1)) == old
        else:
            assert now == old
        store = SqliteStore(path)
        asyncio.run(is_right(store))
        store.shut()
        assert rows(kept(path, 1)) == old and not list(folder.glob("*.part"))
        number += 1
    assert number > 15 and 1 in left


def test_steps_change_records_and_old_events_alike(tmp_path, monkeypatch):
    """A version that is to come."""
    def renamed(kind, values):
        if kind == "node":
            values = {**values, "called": values["label"].upper()}
            del values["label"]
        return values

    steps = (*STEPS, Step(record=renamed), Step(record=lambda kind, values: {**values, "at": kind}))
    for module in (files, versions):
        monkeypatch.setattr(module, "STEPS", steps)
        monkeypatch.setattr(module, "VERSION", len(steps))
    path = tmp_path / "pool.db"
    make_old(path)
    store = SqliteStore(path)
    records, _ = asyncio.run(store.load())
    node = json.loads(records["node/00000100"])
    assert (node["called"], node["at"], "label" in node) == ("RENDER", "node", False)
    assert json.loads(records[f"gpu/{GPU}"])["at"] == "gpu"

    async def events():
        return [event async for event in store.events()]

    assert replay(asyncio.run(events())) == records
    store.shut()
    assert brought("node/1", node_text := records["node/00000100"], len(steps)) is node_text
    # What makes no sense stays as it is, and is said.
    with pytest.raises(ValueError, match="^it has not the fields of version 1 .'binding'.$"):
        brought("gpu/1", "{}", 1)
    other = tmp_path / "other.db"
    make_old(other)
    with closing(sqlite3.connect(other)) as database, database:
        database.execute("UPDATE record SET text = 'x' WHERE key = 'node/00000200'")
    with pytest.raises(StoreError, match=f"cannot be brought to version {len(steps)}: record "
                                         "'node/00000200': Expecting value.*: restore a backup$"):
        SqliteStore(other)
    assert version_of(other) == 1


# In etcd ----------------------------------------------------------------------------------------


async def lay(etcd):
    """Version 1 below the prefix of an etcd; its keys and values."""
    from dxpu_manager.etcd import layout

    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(OLD)
        records = database.execute("SELECT key, text FROM record").fetchall()
        events = database.execute("SELECT * FROM event ORDER BY number").fetchall()
    made = {"version": "dxpu pool 1", "newest": str(events[-1][0]),
            **{f"record/{key}": text for key, text in records},
            **{f"event/{number:016x}": json.dumps(event) for number, *event in events}}
    from aetcd import rpc
    await etcd.txn(rpc.TxnRequest(success=[
        layout.put(etcd.prefix + key.encode(), value) for key, value in made.items()]), 5)
    return made


async def keys(etcd):
    """All below the prefix, but for the leader."""
    begin = etcd.prefix
    return {pair.key.removeprefix(begin).decode(): pair.value.decode() async for pair in
            etcd.pages(begin, begin[:-1] + bytes([begin[-1] + 1]), 5)
            if pair.key != begin + b"leader"}


@pytest.fixture
def etcd(cluster, lead):
    """Runs a coroutine function with a connection to the etcd at the prefix of ``lead``."""
    from dxpu_manager.etcd import Etcd

    def run(does):
        async def whole():
            there = Etcd(cluster.endpoints, prefix=lead.prefix)
            try:
                await does(there)
            finally:
                await there.close()

        asyncio.run(whole())

    return run


def test_a_pool_of_version_1_in_etcd(lead, etcd, monkeypatch):
    """The older one stays in etcd, and can be the pool's again by hand."""
    async def does(there):
        from aetcd import rpc

        from dxpu_manager.etcd import layout, version_of as version_in_etcd

        assert await version_in_etcd(there) == 0
        old = await lay(there)
        assert await version_in_etcd(there) == 1
        store = await lead()
        await is_right(store)
        await store.close()
        now = await keys(there)
        assert (now["version"], now["place"]) == (f"dxpu pool {VERSION}", "00000001")
        assert {key: now[key] for key in old if key != "version"} == {
            key: value for key, value in old.items() if key != "version"}
        assert await version_in_etcd(there) == VERSION
        # Another time, from a version that somebody has put back.
        await there.txn(rpc.TxnRequest(success=[
            layout.put(there.prefix + b"version", "dxpu pool 1"),
            layout.delete(there.prefix + b"place")]), 5)
        store = await lead()
        await is_right(store)
        await store.close()

    etcd(does)


class Killed(BaseException):
    """The process is gone."""


def test_a_manager_that_is_killed_while_it_brings_a_pool_in_etcd(lead, etcd, monkeypatch):
    """Before and after each transaction."""
    async def does(there):
        from aetcd import rpc

        from dxpu_manager.etcd import Etcd, layout, places

        monkeypatch.setattr(places, "EVENTS", 7)
        kill = 1
        while True:
            for after in (False, True):
                await there.txn(rpc.TxnRequest(success=[rpc.RequestOp(
                    request_delete_range=rpc.DeleteRangeRequest(
                        key=there.prefix, range_end=there.prefix[:-1] + b"0"))]), 5)
                old, left, txn = await lay(there), [kill], Etcd.txn

                async def counted(self, request, seconds, left=left, after=after, txn=txn,
                                  mine=asyncio.current_task()):
                    left[0] -= asyncio.current_task() is mine
                    if left[0] == 0 and not after:
                        raise Killed
                    answer = await txn(self, request, seconds)
                    if left[0] == 0:
                        raise Killed
                    return answer

                # What keeps the lease alive asks in a task of its own, and is none of the steps.
                with monkeypatch.context() as patch:
                    patch.setattr(Etcd, "txn", counted)
                    try:
                        store = await lead(ttl=60)
                    except Killed:
                        store = None
                if store is not None:
                    await store.close()
                    break
                now = await keys(there)
                if now["version"] == "dxpu pool 1":
                    assert {key: now[key] for key in old} == old and "place" not in now
                else:
                    assert now["place"] == "00000001"
                await there.txn(rpc.TxnRequest(success=[
                    layout.delete(there.prefix + b"leader")]), 5)
                store = await lead()
                await is_right(store)
                await store.close()
                assert not [key for key in await keys(there) if key.startswith("store/")
                            and not key.startswith("store/00000001/")]
            else:
                kill += 1
                continue
            break
        assert kill > 12

    etcd(does)


def test_an_attempt_to_bring_a_pool_that_comes_late_changes_nothing(lead, etcd, monkeypatch):
    async def does(there):
        from dxpu_manager.etcd import Etcd

        await lay(there)
        asked, txn = [], Etcd.txn

        async def noted(self, request, seconds):
            asked.append(request)
            return await txn(self, request, seconds)

        with monkeypatch.context() as patch:
            patch.setattr(Etcd, "txn", noted)
            store = await lead(ttl=60)
        await store.write([Event(24, 1.0, "node/00000100", Node(
            0x100, Role.HOST, "025100000100", 1, 8).text(), "a change", "alice")])
        before = await keys(there)
        for request in asked:
            await there.txn(request, 5)
        assert await keys(there) == before and store.leads()
        assert [event async for event in store.events(23)][0].who == "alice"
        await store.close()

    etcd(does)
