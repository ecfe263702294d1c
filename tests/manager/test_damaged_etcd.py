"""dxpu_manager.etcd: a backup takes the place of a damaged pool, with everything that may be so."""

import asyncio

import pytest

from dxpu_cli import main as cli
from dxpu_cli.bench.etcd_members import PATIENCE
from dxpu_manager import Event, StoreError
from tests.support.etcd_bench import need_etcd

pytest.importorskip("aetcd", reason="manager: no aetcd (the extra `manager`)")

from aetcd import rpc  # noqa: E402

from dxpu_manager.etcd import Etcd, layout  # noqa: E402
from dxpu_manager.etcd.backups import backup, restore  # noqa: E402

HELD = {"node/1": "x", "node/2": "y"}
#: Keys below the prefix, and values that no manager has written.
DAMAGES = [
    {"version": "garbage"}, {"version": ""}, {"version": "dxpu pool x"}, {"version": None},
    {"version": "dxpu pool 1"}, {"base": "garbage"}, {"place": "garbage"}, {"place": "00000077"},
    {"place": None}, {"NEWEST": "garbage"}, {"NEWEST": None}, {"RECORD": "{"},
    {"version": "?", "base": "?", "place": "?", "NEWEST": "?", "RECORD": "?"},
    {"version": None, "place": None, "base": None, "NEWEST": None}]


async def put(etcd, **values):
    """Write keys below the prefix; ``None``: there is none any more."""
    operations = [layout.delete(etcd.prefix + key.encode()) if value is None else
                  layout.put(etcd.prefix + key.encode(), value) for key, value in values.items()]
    await etcd.txn(rpc.TxnRequest(success=operations), PATIENCE)


async def keys_of(etcd):
    """All keys below the prefix."""
    begin, end = layout.Keys(etcd.prefix).everything()
    return [pair.key.removeprefix(etcd.prefix).decode()
            async for pair in etcd.pages(begin, end, PATIENCE)]


async def pool_with_a_copy(lead, etcd, copy):
    """A pool whose backup is older than its newest record, and whose epochs have a base."""
    store = await lead()
    await store.outrank(1_000_000)
    await store.write([Event(n, 1.0, key, text, "a change")
                       for n, (key, text) in enumerate(HELD.items(), 1)])
    await backup(etcd, copy)
    await store.write([Event(3, 1.0, "node/3", "later", "a change")])
    epoch, newest = store.epoch, store._keys.newest
    await store.close()
    return epoch, newest.removeprefix(etcd.prefix).decode()


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_a_damaged_pool_is_replaced_if_that_is_said(tmp_path, lead, cluster, damage):
    """The epoch is above all that were, and what is left of the former records stays beside."""
    async def whole():
        etcd, copy = Etcd(cluster.endpoints, prefix=lead.prefix), tmp_path / "copy.db"
        epoch, newest = await pool_with_a_copy(lead, etcd, copy)
        place = newest.removesuffix("newest")
        await put(etcd, **{key.replace("NEWEST", newest).replace("RECORD", f"{place}record/node/1"):
                           value for key, value in damage.items()})
        await restore(copy, Etcd(cluster.endpoints, prefix=lead.prefix), is_damaged=True)
        store = await lead()
        assert await store.load() == (HELD, 2)
        assert [event.number async for event in store.events()] == [1, 2]
        assert store.epoch > epoch
        await store.write([Event(3, 1.0, "node/4", "new", "a change")])
        await store.close()
        if not {"place"} & {*damage}:
            assert f"{place}record/node/3" in await keys_of(etcd)
        # Nothing is damaged any more.
        await restore(copy, Etcd(cluster.endpoints, prefix=lead.prefix))
        await etcd.close()

    asyncio.run(whole())


def test_what_is_no_reason_to_replace_a_pool(tmp_path, lead, cluster):
    """A newer version, a manager that leads, and a copy that is none: all stays as it is."""
    async def whole():
        etcd, copy = Etcd(cluster.endpoints, prefix=lead.prefix), tmp_path / "copy.db"
        await pool_with_a_copy(lead, etcd, copy)

        async def refuses(match, file=copy):
            with pytest.raises(StoreError, match=match):
                await restore(file, Etcd(cluster.endpoints, prefix=lead.prefix), is_damaged=True)

        await put(etcd, version=f"dxpu pool {layout.VERSION + 1}")
        await refuses("^the store in etcd has version .*: use the newer program$")
        await put(etcd, version="garbage")
        (tmp_path / "text.db").write_text("no database, but long enough " * 99)
        before = await keys_of(etcd)
        await refuses("is no store|not a database", tmp_path / "text.db")
        with pytest.raises(StoreError, match="restore a backup with --damaged$"):
            await restore(copy, Etcd(cluster.endpoints, prefix=lead.prefix))
        with pytest.raises(StoreError, match="restore a backup with --damaged$"):
            await lead()
        assert await keys_of(etcd) == before
        await put(etcd, version=f"dxpu pool {layout.VERSION}")
        store = await lead("new")
        await refuses("^a manager leads, at new: stop all managers first$")
        assert len((await store.load())[0]) == 3
        await store.close()
        await etcd.close()

    asyncio.run(whole())


def test_the_command(tmp_path, lead, cluster, capsys):
    """What `dxpu manager restore` says, and its option."""
    need_etcd()
    settings, copy = tmp_path / "manager.toml", tmp_path / "copy.db"
    (tmp_path / "records").mkdir()
    settings.write_text(f'[store]\netcd = "{cluster.endpoints}"\nprefix = "{lead.prefix}"\n'
                        '[nodes]\nrecords = "records"\n[fabric]\nsocket = "fabric.sock"\n')

    async def damages():
        etcd = Etcd(cluster.endpoints, prefix=lead.prefix)
        await pool_with_a_copy(lead, etcd, copy)
        await put(etcd, version="garbage")
        await etcd.close()

    async def held():
        store = await lead()
        try:
            return (await store.load())[0]
        finally:
            await store.close()

    asyncio.run(damages())
    assert cli.main(["manager", "restore", str(settings), str(copy)]) == 2
    assert capsys.readouterr().err == (
        f"dxpu manager: error: below '{lead.prefix}' in etcd is something else than a pool: give "
        "another prefix; or if it was a pool, restore a backup with --damaged\n")
    assert cli.main(["manager", "restore", str(settings), str(copy), "--damaged"]) == 0
    assert capsys.readouterr().out.endswith(f": as in {copy}\n")
    assert asyncio.run(held()) == HELD
