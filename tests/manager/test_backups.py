"""dxpu_manager.backups: copies of a store, and back."""

import asyncio
import sqlite3
import stat
from contextlib import closing

import pytest

from dxpu_manager import Event, SqliteStore, StoreError
from dxpu_manager.backups import backup, restore


def store_with(path, *texts):
    """A store that has had these records one after the other."""
    store = SqliteStore(path)
    _, newest = asyncio.run(store.load())
    for number, text in enumerate(texts, newest + 1):
        asyncio.run(store.write([Event(number, 1.0, "node/1", text, "a change")]))
    return store


def records(path):
    store = SqliteStore(path)
    held, _ = asyncio.run(store.load())
    store.shut()
    return held


def test_a_backup_is_the_store_at_one_instant_though_a_manager_works(tmp_path):
    path, copy = tmp_path / "pool.db", tmp_path / "copy.db"
    store = store_with(path, "a")
    backup(path, copy)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    asyncio.run(store.write([Event(2, 1.0, "node/1", "b", "a change")]))
    store.shut()
    assert (records(path), records(copy)) == ({"node/1": "b"}, {"node/1": "a"})
    assert {p.name for p in tmp_path.iterdir()} == {
        "pool.db", "pool.db.lock", "copy.db", "copy.db.lock"}


def test_a_backup_replaces_nothing(tmp_path):
    store_with(tmp_path / "pool.db", "a").shut()
    (tmp_path / "copy.db").write_text("mine")
    with pytest.raises(StoreError, match="copy.db' is there already$"):
        backup(tmp_path / "pool.db", tmp_path / "copy.db")
    assert (tmp_path / "copy.db").read_text() == "mine"
    with pytest.raises(StoreError, match="^cannot copy .*: No such file or directory$"):
        backup(tmp_path / "pool.db", tmp_path / "no" / "copy.db")
    with pytest.raises(StoreError, match="^there is no store .*other.db'$"):
        backup(tmp_path / "other.db", tmp_path / "copy2.db")


def test_a_restored_store_is_above_all_managers_that_were(tmp_path):
    """Nodes refuse an epoch below that of the last manager."""
    path, copy = tmp_path / "pool.db", tmp_path / "copy.db"
    store_with(path, "a").shut()
    backup(path, copy)
    for _ in range(5):
        last = store_with(path, "b")
        last.shut()
    kept = restore(copy, path)
    assert records(kept) == {"node/1": "b"}
    store = SqliteStore(path)
    assert store.epoch > last.epoch
    assert asyncio.run(store.load())[0] == {"node/1": "a"}
    store.shut()
    assert not list(tmp_path.glob("*.restored*")) and not list(tmp_path.glob("*.part*"))


def test_a_damaged_store_is_replaced_nevertheless(tmp_path):
    """Its epoch cannot be read, so the new one is far above the copy's."""
    path, copy = tmp_path / "pool.db", tmp_path / "copy.db"
    store = store_with(path, "a")
    epoch = store.epoch
    store.shut()
    backup(path, copy)
    path.write_bytes(b"no store" * 1000)
    kept = restore(copy, path)
    assert kept.read_bytes() == b"no store" * 1000
    store = SqliteStore(path)
    assert store.epoch > epoch + 1000
    store.shut()


def test_a_store_in_use_is_not_replaced(tmp_path):
    path, copy = tmp_path / "pool.db", tmp_path / "copy.db"
    store = store_with(path, "a")
    backup(path, copy)
    asyncio.run(store.write([Event(2, 1.0, "node/1", "b", "a change")]))
    with pytest.raises(StoreError, match="^the store .* is in use by a manager: stop it first$"):
        restore(copy, path)
    store.shut()
    assert records(path) == {"node/1": "b"}


def test_what_is_no_backup_replaces_nothing(tmp_path):
    path = tmp_path / "pool.db"
    store_with(path, "a").shut()
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as database:
        database.execute("CREATE TABLE a (b)")
    text = tmp_path / "text.db"
    text.write_text("no database at all, but long enough to be looked at" * 20)
    for wrong in (other, text, tmp_path / "missing.db"):
        with pytest.raises(StoreError):
            restore(wrong, path)
        assert records(path) == {"node/1": "a"}
    assert not list(tmp_path.glob("*.restored*")) and not list(tmp_path.glob("*.part*"))
