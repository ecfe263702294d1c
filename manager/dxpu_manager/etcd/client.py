"""Calls to an etcd, at one of its members at a time.

Ref: etcd API v3 (``rpc.proto``). The messages are those of aetcd; its own client does not speak
TLS, does not go on with a watch when a member is lost, and does not read by pages.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from aetcd import rpc

from ..errors import StoreError

__all__ = ["Etcd", "Tls", "Unanswered"]

#: A member that knows no leader says so at once.
_METADATA = (("hasleader", "true"),)
_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500), ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 2_000), ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
#: After these nobody knows if etcd has done what it was asked.
_UNSURE = {rpc.StatusCode.UNAVAILABLE, rpc.StatusCode.DEADLINE_EXCEEDED,
           rpc.StatusCode.CANCELLED, rpc.StatusCode.UNKNOWN, rpc.StatusCode.INTERNAL,
           rpc.StatusCode.ABORTED}
#: What members say that have lost the others.
_NO_QUORUM = ("no leader", "request timed out", "leader changed")
#: Keys of a page.
PAGE = 200


class Unanswered(Exception):
    """No member has answered; what was asked may have been done. The text says what to do."""


@dataclass(frozen=True)
class Tls:
    """Files in PEM: ``ca`` signs the members' certificates; ``certificate`` and ``key`` are the
    manager's own, if etcd asks for them."""

    ca: Path
    certificate: Path | None = None
    key: Path | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """For a channel; raises :exc:`StoreError`."""
        try:
            ca, key, certificate = (file and file.read_bytes()
                                    for file in (self.ca, self.key, self.certificate))
        except OSError as error:
            raise StoreError(f"no certificates for etcd: {error.filename}: {error.strerror}"
                             ) from None
        return grpc.ssl_channel_credentials(ca, key, certificate)


class Etcd:
    """An etcd, in the running loop.

    Parameters
    ----------
    endpoints : str
        Members, as ``HOST:PORT``, with commas between; another one is asked after one that does
        not answer.
    prefix : str
        Of all keys of the pool.
    tls : Tls or None
        ``None``: in clear.

    Raises
    ------
    StoreError
        For a wrong list, or a certificate that cannot be read.
    """

    def __init__(self, endpoints: str = "127.0.0.1:2379", *, prefix: str = "/dxpu/",
                 tls: Tls | None = None) -> None:
        self.prefix, self.name = prefix.encode(), endpoints
        self._endpoints = endpoints.split(",")
        for endpoint in self._endpoints:
            host, _, port = endpoint.rpartition(":")
            if not host or not port.isdecimal():
                raise StoreError(f"members of etcd are HOST:PORT, with commas between, not "
                                 f"{endpoint!r}")
        self._credentials = tls.credentials() if tls else None
        self._at = 0
        self._channels: dict[int, Any] = {}

    @contextmanager
    def _member(self) -> Iterator[Any]:
        """The channel to the member that is asked at present, and what its errors mean."""
        at = self._at
        if at not in self._channels:
            where, options = self._endpoints[at], _OPTIONS
            self._channels[at] = (
                rpc.insecure_channel(where, options=options) if self._credentials is None else
                rpc.secure_channel(where, self._credentials, options=options))
        try:
            yield self._channels[at]
        except rpc.AioRpcError as error:
            raise self._wrong(error, at) from None

    def _wrong(self, error: Any, at: int) -> Exception:
        where, details = self._endpoints[at], " ".join(str(error.details()).split())
        if error.code() not in _UNSURE:
            return StoreError(f"etcd at {where} refuses: {details.removeprefix('etcdserver: ')}")
        if self._at == at:
            self._at = (at + 1) % len(self._endpoints)
        if any(text in details for text in _NO_QUORUM):
            return Unanswered(f"etcd at {where} has no quorum: start more of its members")
        why = details.rpartition("last error: ")[2].rstrip(")")
        return Unanswered(f"no etcd answers at {self.name}: is it there, and is the way open? "
                          f"({why})")

    async def txn(self, request: Any, seconds: float) -> Any:
        """Do a transaction, once at most.

        Raises
        ------
        StoreError
            Nothing was done.
        Unanswered
        """
        with self._member() as channel:
            return await rpc.KVStub(channel).Txn(request, timeout=seconds, metadata=_METADATA)

    async def pages(self, begin: bytes, end: bytes, seconds: float,
                    revision: int = 0) -> AsyncIterator[Any]:
        """Keys and values of a range in order, as they are at one instant, or were at a revision;
        raises as :meth:`txn`."""
        more = True
        while more:
            request = rpc.RangeRequest(key=begin, range_end=end, limit=PAGE, revision=revision)
            with self._member() as channel:
                answer = await rpc.KVStub(channel).Range(request, timeout=seconds,
                                                         metadata=_METADATA)
            revision, more = revision or answer.header.revision, answer.more
            for pair in answer.kvs:
                yield pair
                begin = pair.key + b"\0"

    async def grant(self, ttl: int, seconds: float) -> tuple[int, int]:
        """A new lease, and its time to live in seconds; raises as :meth:`txn`."""
        with self._member() as channel:
            answer = await rpc.LeaseStub(channel).LeaseGrant(
                rpc.LeaseGrantRequest(TTL=ttl), timeout=seconds, metadata=_METADATA)
        return answer.ID, answer.TTL

    async def revoke(self, lease: int, seconds: float) -> None:
        """End a lease; raises as :meth:`txn`."""
        with self._member() as channel:
            await rpc.LeaseStub(channel).LeaseRevoke(
                rpc.LeaseRevokeRequest(ID=lease), timeout=seconds, metadata=_METADATA)

    async def keep_alive(self, lease: int, seconds: float) -> int:
        """Let a lease begin anew; its time to live, 0 if it has ended; raises as :meth:`txn`."""
        with self._member() as channel:
            call = rpc.LeaseStub(channel).LeaseKeepAlive(timeout=seconds, metadata=_METADATA)
            try:
                await call.write(rpc.LeaseKeepAliveRequest(ID=lease))
                answer = await call.read()
            finally:
                call.cancel()
        if not isinstance(answer, rpc.LeaseKeepAliveResponse):
            raise Unanswered(f"etcd at {self.name} has ended the call")
        return int(answer.TTL)

    async def until_deleted(self, key: bytes, revision: int) -> None:
        """Wait until a key is deleted, at a revision or later, or until the watch ends by itself;
        raises as :meth:`txn`."""
        create = rpc.WatchCreateRequest(key=key, start_revision=revision,
                                        filters=[rpc.WatchCreateRequest.FilterType.NOPUT])
        with self._member() as channel:
            call = rpc.WatchStub(channel).Watch(metadata=_METADATA)
            try:
                await call.write(rpc.WatchRequest(create_request=create))
                async for answer in call:
                    if answer.events or answer.canceled:
                        return
            finally:
                call.cancel()

    async def close(self) -> None:
        """End all calls."""
        channels, self._channels = [*self._channels.values()], {}
        for channel in channels:
            await channel.close()
