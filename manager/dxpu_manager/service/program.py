"""The manager as a process."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import uvicorn

from dxpu.fabric.wire.format import node_mac
from dxpu_host import EthernetPort, SocketPort
from dxpu_host.errors import PortError
from dxpu_manage import Manager
from dxpu_manage.manager import Port

from ..errors import Deposed, PoolError
from ..manager import PoolManager
from ..nodes import Nodes
from ..pool import Pool
from ..requests import Requests
from ..store import SqliteStore, Store
from .application import make_application
from .service import Service
from .settings import Settings, SettingsError, read_keys

if TYPE_CHECKING:
    from ..etcd import Etcd

__all__ = ["JsonLines", "etcd_of", "listening", "open_store", "run", "serving"]

_LOG = logging.getLogger("dxpu_manager")
#: Node number of managers in MAC addresses.
_MANAGER = 0
#: Seconds between two looks at what nodes have said, however slow they are.
_HEARS = 0.5


class _Closes(Protocol):
    def close(self) -> None: ...


class JsonLines(logging.Formatter):
    """A JSON object for each line of the log: time, level, text, and what else there is."""

    def format(self, record: logging.LogRecord) -> str:
        """The object, as text."""
        made: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(), "text": record.getMessage()}
        made.update(getattr(record, "fields", {}))
        if record.exc_info:
            made["fault"] = self.formatException(record.exc_info)
        return json.dumps(made)


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Service]:
    """A manager that works, without its interface over HTTP; ends tidily.

    Raises
    ------
    PoolError, ~dxpu_host.PortError
    """
    keys = read_keys(settings.records)
    store = await open_store(settings)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        pool = await Pool.of(store)
        port = _Guarded(_port(settings))
        stack.callback(port.close)
        fabric = await stack.enter_async_context(Manager(
            port, node_mac(0, _MANAGER), number=settings.number, epoch=store.epoch,
            slower=settings.slower))
        manager = await stack.enter_async_context(
            PoolManager(pool, Nodes(fabric, keys), settings.limits))
        service = Service(manager, Requests(manager), is_local=settings.is_local)
        service.fabric_lost = port.lost
        service.restore()
        pool.listeners.append(_logged)
        service.webhooks.begin()
        stack.push_async_callback(service.webhooks.close)
        stack.callback(service.hub.close)
        work = [asyncio.create_task(_forever(does)) for does in (
            lambda: manager.watch(_HEARS / settings.slower), service.requests.run)]

        async def stop() -> None:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            with contextlib.suppress(Deposed, TimeoutError):
                await asyncio.wait_for(pool.durable(), 5.0)

        stack.push_async_callback(stop)
        yield service


async def open_store(settings: Settings) -> Store:
    """The store of a pool; one in etcd is waited for while another manager leads.

    Raises
    ------
    StoreError
    """
    if settings.store is not None:
        return SqliteStore(settings.store)
    from ..etcd import EtcdStore, leader_of

    etcd = etcd_of(settings)
    leader = await leader_of(etcd)
    if leader is not None:
        _LOG.info("another manager leads, at %s; this one waits", leader)
    return await EtcdStore.lead(etcd, settings.address, ttl=settings.lease)


def etcd_of(settings: Settings) -> "Etcd":
    """The etcd of a pool, in the running loop; raises :exc:`StoreError`."""
    from ..etcd import Etcd, Tls

    tls = Tls(settings.ca, settings.etcd_certificate, settings.etcd_key) if settings.ca else None
    return Etcd(settings.etcd, prefix=settings.prefix, tls=tls)


class _FabricPort(Port, _Closes, Protocol):
    """A port that can be closed."""


class _Guarded:
    """A port whose errors are written down, each once in a row. An interface that is down may come
    back; a fabric that has ended does not: ``lost`` has the reason then."""

    def __init__(self, port: _FabricPort) -> None:
        self._port, self._said = port, ""
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def fileno(self) -> int:
        return self._port.fileno()

    def close(self) -> None:
        self._port.close()

    def send(self, frame: bytes) -> None:
        try:
            self._port.send(frame)
        except PortError as error:
            self._failed(error)

    def receive(self) -> bytes | None:
        try:
            frame = self._port.receive()
        except PortError as error:
            self._failed(error)
            return None
        if frame is not None:
            self._said = ""
        return frame

    def _failed(self, error: PortError) -> None:
        if str(error) != self._said:
            self._said = str(error)
            _LOG.warning("%s", error)
        if isinstance(self._port, SocketPort) and not self.lost.done():
            asyncio.get_running_loop().remove_reader(self._port.fileno())
            self.lost.set_result(str(error))


def _port(settings: Settings) -> _FabricPort:
    if settings.socket is not None:
        return SocketPort(settings.socket)
    return EthernetPort(settings.iface, _MANAGER)


def _logged(event: Any) -> None:
    _LOG.info("%s", event.said, extra={"fields": {
        "event": event.number, "record": event.key, **({"who": event.who} if event.who else {})}})


async def _forever(does: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Work without an end; a fault is written down, and the work goes on."""
    while True:
        try:
            await does()
        except Deposed:
            return
        except (PoolError, OSError) as error:
            _LOG.warning("%s", error)
        except Exception:
            _LOG.exception("a fault of the manager itself")
        await asyncio.sleep(1.0)


class _Server(uvicorn.Server):
    """Leaves signals to :func:`run`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        """Capture none."""
        yield


def _server(service: Service, settings: Settings) -> _Server:
    config = uvicorn.Config(
        make_application(service), host=settings.host, port=settings.port,
        uds=str(settings.unix) if settings.unix else None, log_config=None, access_log=False,
        server_header=False, lifespan="off", timeout_graceful_shutdown=2,
        ssl_certfile=settings.certificate, ssl_keyfile=settings.key)
    if settings.certificate is not None:
        try:
            config.load()
        except (ssl.SSLError, OSError) as error:
            raise SettingsError(f"certificate {str(settings.certificate)!r} and key "
                                f"{str(settings.key)!r} cannot be used: {error}") from None
        assert config.ssl is not None
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
    return _Server(config)


@asynccontextmanager
async def listening(service: Service, settings: Settings) -> AsyncIterator[asyncio.Task[None]]:
    """The interface over HTTP, as a task that ends with it.

    Raises
    ------
    SettingsError
        Nobody can listen there.
    """
    server = _server(service, settings)
    if settings.unix is not None:
        settings.unix.unlink(missing_ok=True)
    # A socket is its owner's from the first moment on.
    mask = os.umask(0o177) if settings.unix is not None else None
    serves = asyncio.create_task(_served(server))
    try:
        while not server.started and not serves.done():
            await asyncio.sleep(0.01)
        if serves.done():
            raise SettingsError(f"nobody can listen at {settings.address}: is it in use?")
        if mask is not None:
            os.umask(mask)
            mask = None
        if settings.unix is not None:
            settings.unix.chmod(0o600)
        yield serves
    finally:
        if mask is not None:
            os.umask(mask)
        service.hub.close()
        server.should_exit = True
        await asyncio.gather(serves, return_exceptions=True)
        if settings.unix is not None:
            settings.unix.unlink(missing_ok=True)


async def _served(server: _Server) -> None:
    # uvicorn ends the process if it cannot listen.
    with contextlib.suppress(SystemExit):
        await server.serve()


async def _serve(settings: Settings, ready: Callable[[str], None]) -> int:
    async with serving(settings) as service:
        if not settings.is_local and not service.accounts:
            raise SettingsError(f"others reach {settings.address}, and there is no account: make "
                                "one with `dxpu manager account`")
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with listening(service, settings) as serves:
            ready(settings.address)
            ends = [asyncio.create_task(stop.wait()),
                    asyncio.create_task(service.manager.deposed.wait())]
            over: list[asyncio.Future[Any]] = [serves, service.fabric_lost, *ends]
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
            for task in ends:
                task.cancel()
        if service.fabric_lost.done():
            raise SettingsError(service.fabric_lost.result())
        if service.manager.deposed.is_set():
            _LOG.error("another manager has taken over; this one ends")
            return 5
    return 0


def run(settings: Settings, ready: Callable[[str], None] = lambda address: None) -> int:
    """Manage a pool until SIGTERM or SIGINT; returns the exit status.

    0: ended by a signal. 5: another manager has taken over.

    Parameters
    ----------
    settings : Settings
    ready : function
        Called with the address of the HTTP interface when commands are taken.

    Raises
    ------
    PoolError, ~dxpu_host.PortError
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.json_log else logging.Formatter(
        "%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    return asyncio.run(_serve(settings, ready))
