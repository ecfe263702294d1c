"""A damaged pool in etcd, before a backup takes the place of the pool.

Only keys are mended without which no manager leads; records and events stay beside the backup's.
"""

from aetcd import rpc

from ..errors import StoreError
from ..versions import VERSION
from .asks import PATIENCE
from .client import Etcd, Unanswered
from .layout import Keys, delete, found, get, if_created, put, version_in, version_text

__all__ = ["mend"]


async def mend(etcd: Etcd) -> bool:
    """Let a manager lead, whatever is below the prefix: a pool of the present version from then on.

    Returns
    -------
    bool
        Whether the former epochs are known: the number behind all epochs was not damaged.

    Raises
    ------
    StoreError
        There is a pool of a newer version, or a manager leads. Nothing is changed.
    """
    keys = Keys(etcd.prefix)
    begin, end = keys.everything()
    stores = keys.prefix + b"store/"
    try:
        answer = await etcd.txn(rpc.TxnRequest(success=[
            get(keys.version), get(keys.at), get(keys.base),
            get(begin, range_end=end, limit=1, keys_only=True),
            get(stores, range_end=keys.all_of(stores)[1], keys_only=True, limit=1,
                sort_order=rpc.RangeRequest.SortOrder.DESCEND)]), PATIENCE)
    except Unanswered as error:
        raise StoreError(str(error)) from None
    version, at, base, any_key, last = (found(answer, n) for n in range(5))
    if any_key is None:
        return True
    if version is not None and _is_version(version.value):
        version_in(keys.prefix, version, any_key)  # a newer one is none for this program
    place = at.value if at is not None else b""
    if place and not place.isdigit():
        place = b"" if last is None else last.key[len(stores):].partition(b"/")[0]
        place = place if place.isdigit() else b""
    keys = Keys(keys.prefix, place.decode())
    knows = base is None or base.value.isdigit()
    try:
        answer = await etcd.txn(rpc.TxnRequest(
            compare=[if_created(keys.leader, 0)],
            success=[put(keys.version, version_text(VERSION)), put(keys.newest, "0"),
                     put(keys.at, keys.place) if keys.place else delete(keys.at),
                     *([] if knows else [delete(keys.base)])]), PATIENCE)
    except Unanswered as error:
        raise StoreError(str(error)) from None
    if not answer.succeeded:
        raise StoreError("a manager leads: stop all managers first")
    return knows


def _is_version(value: bytes) -> bool:
    return value.startswith(b"dxpu pool ") and value.removeprefix(b"dxpu pool ").isdigit()
