"""Copies of a pool in etcd as files, and back. A file is a store that ``SqliteStore`` opens, so a
pool goes from etcd to a file, or from a file to etcd, in the same way."""

import tempfile
from pathlib import Path

from aetcd import rpc

from ..backups import FAR, copied, make
from ..errors import StoreError
from ..store import SqliteStore
from ..versions import brought
from .asks import PATIENCE, leader_of
from .client import Etcd, Unanswered
from .layout import Keys, event_of, found, get, number_in, version_in
from .mend import mend
from .store import EtcdStore

__all__ = ["backup", "restore"]


async def backup(etcd: Etcd, to: Path) -> None:
    """Copy a pool, as it is at one instant, to a file that is not there yet; managers may work with
    the pool meanwhile. The epoch of the copy is above that of each manager so far.

    Raises
    ------
    StoreError
    """
    if to.exists():
        raise StoreError(f"{str(to)!r} is there already")
    keys = Keys(etcd.prefix)
    try:
        answer = await etcd.txn(rpc.TxnRequest(success=[
            get(keys.version), get(keys.at), get(keys.base)]), PATIENCE)
        version = version_in(keys.prefix, found(answer, 0), found(answer, 0))
        if not version:
            raise StoreError(f"there is no pool below {keys.prefix.decode()!r} in etcd")
        place, revision = found(answer, 1), answer.header.revision
        keys = Keys(keys.prefix, place.value.decode() if place is not None else "")
        records = [(pair.key[len(keys.records):].decode(), pair.value.decode()) async for pair in
                   etcd.pages(*keys.all_of(keys.records), PATIENCE, revision)]
        events = [event_of(pair.key, pair.value) async for pair in
                  etcd.pages(*keys.all_of(keys.events), PATIENCE, revision)]
    except Unanswered as error:
        raise StoreError(str(error)) from None
    try:
        make(to, [(key, brought(key, text, version)) for key, text in records],
             [event if event.text is None else event.with_text(
                 brought(event.key, event.text, version)) for event in events],
             number_in(found(answer, 2), "epoch") + revision)
    except ValueError as error:
        raise StoreError(f"the store in etcd cannot be copied: a record: {error}") from None


async def restore(copy: Path, etcd: Etcd, *, is_damaged: bool = False) -> None:
    """Put a copy in place of a pool that no manager leads, at one instant; the former records stay
    in etcd beside it until the next time. ``etcd`` is closed.

    The epoch is above that of the copy, and above that of each manager of this etcd.

    Parameters
    ----------
    copy : Path
    etcd : Etcd
    is_damaged : bool
        Replace whatever is below the prefix, also if no manager could lead there. If the number
        behind all epochs is damaged, the new epoch is far above the copy's.

    Raises
    ------
    StoreError
    """
    try:
        if not copy.exists():
            raise StoreError(f"there is no backup {str(copy)!r}")
        leader = await leader_of(etcd)
        if leader is not None:
            raise StoreError(f"a manager leads, at {leader}: stop all managers first")
        await _replaced(copy, etcd, is_damaged)
    finally:
        await etcd.close()


async def _replaced(copy: Path, etcd: Etcd, is_damaged: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "copy.db"
        copied(copy, path)
        held = SqliteStore(path, keeps=False)
        try:
            records, newest = await held.load()
            knows = await mend(etcd) if is_damaged else True
            store = await EtcdStore.lead(etcd, "a restore")
            try:
                await store.replace(records, held.events(), newest,
                                    above=held.epoch + (0 if knows else FAR))
            finally:
                await store.close()
        finally:
            held.shut()
