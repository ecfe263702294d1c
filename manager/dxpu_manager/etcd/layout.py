"""Keys of a pool in etcd, and what their values are.

Below the prefix of the pool:

- ``version`` of all that follows, ``dxpu pool N``;
- ``leader`` with the leader's name while the lease lasts;
- ``base``: a leader's epoch is this number and the revision at which the leader's key was created;
- ``place``: where records and events are, ``store/PLACE/``; without the key, and in version 1, they
  are below the prefix itself;
- at that place ``newest`` with the number of the newest event, ``record/KEY``, ``event/NUMBER``.

Other records and events are written at another place, and become those of the pool when ``place``
changes.
"""

import json
from collections.abc import Sequence
from typing import Any

from aetcd import rpc

from ..errors import StoreError
from ..store import Event
from ..versions import VERSION

__all__ = ["EVENTS", "Keys", "ROOM", "delete", "event_of", "event_text", "found", "get",
           "if_created", "if_is", "number_in", "parts", "put", "version_in", "version_text"]

_MARK = "dxpu pool "
#: Bytes of one write, and of events in it: etcd takes 1.5 MiB, and in each of nested transactions
#: as many operations as 128 less those of the outer one.
ROOM, EVENTS = 1_000_000, 1500
_PART = 64


class Keys:
    """Keys of a pool.

    Parameters
    ----------
    prefix : bytes
    place : str
        Empty: below the prefix itself.
    """

    def __init__(self, prefix: bytes, place: str = "") -> None:
        self.prefix, self.place = prefix, place
        self.version, self.leader, self.base, self.at = (
            prefix + key for key in (b"version", b"leader", b"base", b"place"))
        area = prefix + b"store/%s/" % place.encode() if place else prefix
        self.newest, self.records, self.events = (
            area + key for key in (b"newest", b"record/", b"event/"))

    def event(self, number: int) -> bytes:
        """Key of an event; numbers are in order."""
        return b"%s%016x" % (self.events, number)

    def record(self, key: str) -> bytes:
        """Key of a record."""
        return self.records + key.encode()

    def next(self) -> "Keys":
        """Keys at the next place."""
        return Keys(self.prefix, f"{int(self.place or 0) + 1:08d}")

    def others(self) -> list[Any]:
        """Operations that delete all records and events at other places."""
        stores = self.prefix + b"store/"
        if not self.place:
            return [_delete_range(stores, _after(stores))]
        area = stores + self.place.encode() + b"/"
        bare = Keys(self.prefix)
        return [_delete_range(stores, area), _delete_range(_after(area), _after(stores)),
                _delete_range(bare.records, _after(bare.records)),
                _delete_range(bare.events, _after(bare.events)), delete(bare.newest)]

    def everything(self) -> tuple[bytes, bytes]:
        """Range of all keys of the pool."""
        return self.prefix, _after(self.prefix)

    def all_of(self, area: bytes, begin: bytes = b"") -> tuple[bytes, bytes]:
        """Range of all records or events, from a key on."""
        return begin or area, _after(area)


def _after(prefix: bytes) -> bytes:
    return prefix[:-1] + bytes([prefix[-1] + 1])


# Operations and conditions ----------------------------------------------------------------------


def get(key: bytes, **words: Any) -> Any:
    """Read a key, or a range."""
    return rpc.RequestOp(request_range=rpc.RangeRequest(key=key, **words))


def put(key: bytes, value: str, **words: Any) -> Any:
    """Write a key."""
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value.encode(), **words))


def delete(key: bytes) -> Any:
    """Delete a key."""
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))


def _delete_range(begin: bytes, end: bytes) -> Any:
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=begin, range_end=end))


def if_created(key: bytes, revision: int) -> Any:
    """Whether a key was created at a revision; 0: whether there is none."""
    return rpc.Compare(key=key, target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL,
                       create_revision=revision)


def if_is(key: bytes, value: str) -> Any:
    """Whether a key has a value."""
    return rpc.Compare(key=key, target=rpc.Compare.VALUE, result=rpc.Compare.EQUAL,
                       value=value.encode())


def parts(operations: Sequence[Any]) -> list[Any]:
    """Operations of one transaction, as many as a write may have, in nested ones."""
    return [rpc.RequestOp(request_txn=rpc.TxnRequest(success=operations[n:n + _PART]))
            for n in range(0, len(operations), _PART)]


def found(answer: Any, number: int) -> Any:
    """The pair that an operation of a transaction has read, or ``None``."""
    pairs = answer.responses[number].response_range.kvs
    return pairs[0] if pairs else None


# Values -----------------------------------------------------------------------------------------


def event_text(event: Event) -> str:
    """An event as a value."""
    return json.dumps([event.time, event.key, event.text, event.said, event.who],
                      separators=(",", ":"))


def event_of(key: bytes, value: bytes) -> Event:
    """An event from a key and a value; of version 1, without a user."""
    return Event(int(key.rpartition(b"/")[2], 16), *json.loads(value))


def version_text(version: int) -> str:
    """A version as a value."""
    return f"{_MARK}{version}"


def version_in(prefix: bytes, pair: Any, any_key: Any) -> int:
    """Version of the pool below a prefix, 0 if nothing is there yet.

    Raises
    ------
    StoreError
        Something else is there, or a pool of a newer version.
    """
    if pair is None and any_key is None:
        return 0
    text: str = "" if pair is None else pair.value.decode(errors="replace")
    number = text.removeprefix(_MARK)
    if not text.startswith(_MARK) or not number.isdecimal():
        raise StoreError(f"below {prefix.decode()!r} in etcd is something else than a pool: give "
                         "another prefix; or if it was a pool, restore a backup with --damaged")
    if int(number) > VERSION:
        raise StoreError(f"the store in etcd has version {number}, and this program knows "
                         f"{VERSION}: use the newer program")
    return int(number)


def number_in(pair: Any, what: str) -> int:
    """A number that a key has; 0 without the key; raises :exc:`StoreError`."""
    if pair is not None and not pair.value.isdigit():
        raise StoreError(f"the store in etcd has no number of the {what}: restore a "
                         "backup with --damaged")
    return int(pair.value) if pair is not None else 0
