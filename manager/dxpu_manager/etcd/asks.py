"""What is said of a pool in etcd to whoever does not lead."""

from aetcd import rpc

from ..errors import StoreError
from .client import Etcd, Unanswered
from .layout import Keys, found, get, version_in

__all__ = ["PATIENCE", "leader_of", "version_of"]

#: Seconds in which etcd must be found at the start.
PATIENCE = 5.0


async def leader_of(etcd: Etcd, seconds: float = PATIENCE) -> str | None:
    """Name of the manager that leads; ``None``: there is none at present.

    Raises
    ------
    StoreError
    """
    try:
        answer = await etcd.txn(rpc.TxnRequest(success=[get(Keys(etcd.prefix).leader)]), seconds)
    except Unanswered as error:
        raise StoreError(str(error)) from None
    leader = found(answer, 0)
    return None if leader is None else leader.value.decode()


async def version_of(etcd: Etcd, seconds: float = PATIENCE) -> int:
    """Version of the pool in an etcd; 0: there is none yet.

    Raises
    ------
    StoreError
    """
    keys = Keys(etcd.prefix)
    begin, end = keys.everything()
    try:
        answer = await etcd.txn(rpc.TxnRequest(success=[
            get(keys.version), get(begin, range_end=end, limit=1, keys_only=True)]), seconds)
    except Unanswered as error:
        raise StoreError(str(error)) from None
    return version_in(keys.prefix, found(answer, 0), found(answer, 1))
