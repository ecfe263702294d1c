"""Settings of a manager's process, from a TOML file."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from dxpu.factory import NODE_KEY_BYTES, FactoryRecord, RecordError

from ..errors import PoolError
from ..limits import Limits
from .service import is_loopback

__all__ = ["Settings", "SettingsError", "read_keys", "read_settings"]


class SettingsError(PoolError):
    """The settings cannot be used; the message says why in a line."""


@dataclass(frozen=True)
class Settings:
    """Settings of a manager.

    Parameters
    ----------
    records : Path
        Folder with factory records of the nodes, ``*.bin``.
    iface : str
        Ethernet interface to the fabric. Or ``socket`` : Path, of a fabric that is a program.
    store : Path or None
        File with the pool's records.
    etcd : str
        Members of an etcd with the records instead, for several managers of which one leads.
    prefix, ca, etcd_certificate, etcd_key : str, Path, Path, Path
        Of the keys in etcd, and of TLS to the members.
    lease : int
        Seconds without a sign of the leader after which another manager takes over.
    number : int
        Manager number, 1 to 4, of no other manager on the fabric.
    slower : float
        All waits for nodes are so many times longer.
    host, port : str, int
        Address of the HTTP interface. Or ``unix`` : Path, of a socket that its owner can use.
    certificate, key : Path or None
        Of TLS.
    json_log : bool
        The log has a JSON object on each line.
    limits : Limits
    """

    records: Path
    store: Path | None = None
    etcd: str = ""
    prefix: str = "/dxpu/"
    lease: int = 3
    ca: Path | None = None
    etcd_certificate: Path | None = None
    etcd_key: Path | None = None
    iface: str = ""
    socket: Path | None = None
    number: int = 1
    slower: float = 1.0
    host: str = "127.0.0.1"
    port: int = 7080
    unix: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    json_log: bool = False
    limits: Limits = field(default_factory=Limits)

    @property
    def is_local(self) -> bool:
        """Only this machine reaches the HTTP interface."""
        return self.unix is not None or is_loopback(self.host)

    @property
    def records_at(self) -> str:
        """Where the pool's records are, for people."""
        return f"etcd {self.etcd}, {self.prefix}" if self.etcd else str(self.store)

    @property
    def address(self) -> str:
        """Address of the HTTP interface, as commands take it."""
        if self.unix is not None:
            return f"unix:{self.unix}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{self.port}"


#: Tables of the file; for each key the setting, and the types that it may have.
_KEYS: dict[str, dict[str, tuple[str, tuple[type, ...]]]] = {
    "store": {"path": ("store", (str,)), "etcd": ("etcd", (str,)), "prefix": ("prefix", (str,)),
              "lease": ("lease", (int,)),
              "ca": ("ca", (str,)), "certificate": ("etcd_certificate", (str,)),
              "key": ("etcd_key", (str,))},
    "nodes": {"records": ("records", (str,))},
    "fabric": {"interface": ("iface", (str,)), "socket": ("socket", (str,)),
               "number": ("number", (int,)), "slower": ("slower", (int, float))},
    "http": {"listen": ("listen", (str,)), "certificate": ("certificate", (str,)),
             "key": ("key", (str,))},
    "log": {"json": ("json_log", (bool,))},
    "limits": {one.name: (one.name, (bool,) if one.name == "admits" else (int, float))
               for one in fields(Limits)},
}
#: Bytes of a UNIX socket's name, at most (``sun_path`` of unix(7), without its end).
_SOCKET_NAME = 107
_PATHS = ("store", "records", "socket", "certificate", "key", "ca", "etcd_certificate", "etcd_key")


def read_settings(path: Path) -> Settings:
    """Read settings; paths in the file are relative to its folder.

    Raises
    ------
    SettingsError
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"cannot read {str(path)!r}: {error.strerror}") from None
    try:
        given = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{str(path)!r} is no TOML: {error}") from None
    values, limits = _values(path, given)
    for name in _PATHS:
        if name in values:
            values[name] = path.parent / values[name]
    listen = values.pop("listen", None)
    if listen is not None:
        values.update(_listen(path, listen))
    if "records" not in values:
        raise SettingsError(f"{str(path)!r} lacks [nodes] records")
    settings = Settings(**values, limits=replace(Limits(), **limits))
    _check(path, settings)
    return settings


def _values(path: Path, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    values: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for table, content in given.items():
        if table not in _KEYS or not isinstance(content, dict):
            raise SettingsError(f"{str(path)!r}: there is no table [{table}]; there are "
                                f"{', '.join(f'[{name}]' for name in _KEYS)}")
        for key, value in content.items():
            if key not in _KEYS[table]:
                raise SettingsError(f"{str(path)!r}: [{table}] has no {key}; it has "
                                    f"{', '.join(_KEYS[table])}")
            name, types = _KEYS[table][key]
            if not isinstance(value, types) or isinstance(value, bool) != (types == (bool,)):
                raise SettingsError(f"{str(path)!r}: [{table}] {key} cannot be {value!r}")
            (limits if table == "limits" else values)[name] = value
    return values, limits


def _listen(path: Path, text: str) -> dict[str, Any]:
    if text.startswith("unix:"):
        return {"unix": path.parent / text.removeprefix("unix:")}
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"{str(path)!r}: [http] listen must be like \"127.0.0.1:7080\" or "
                            f"\"unix:manager.sock\", not {text!r}")
    return {"host": host.strip("[]"), "port": int(port)}


def _check(path: Path, settings: Settings) -> None:
    if (settings.store is None) == (not settings.etcd):
        raise SettingsError(f"{str(path)!r}: [store] needs path, or else etcd")
    if not 2 <= settings.lease <= 3600:
        raise SettingsError(f"{str(path)!r}: [store] lease is 2 to 3600 seconds, not "
                            f"{settings.lease}")
    if settings.ca is None and (settings.etcd_certificate or settings.etcd_key):
        raise SettingsError(f"{str(path)!r}: [store] needs ca beside certificate and key")
    if bool(settings.iface) == (settings.socket is not None):
        raise SettingsError(f"{str(path)!r}: [fabric] needs interface, or else socket")
    for name, socket in (("[fabric] socket", settings.socket), ("[http] listen", settings.unix)):
        if socket is not None and len(os.fsencode(socket)) > _SOCKET_NAME:
            raise SettingsError(f"{str(path)!r}: {name}: the name of a UNIX socket has "
                                f"{_SOCKET_NAME} bytes at most, not {len(os.fsencode(socket))}; "
                                "start the manager in the folder of its settings, and name the "
                                "file alone")
    if not 1 <= settings.number <= 4:
        raise SettingsError(f"{str(path)!r}: [fabric] number is 1 to 4, not {settings.number}")
    for name, value in (("[fabric] slower", settings.slower), *(
            (f"[limits] {one.name}", getattr(settings.limits, one.name))
            for one in fields(Limits) if one.name != "admits")):
        if not 0 < value < 1e9:
            raise SettingsError(f"{str(path)!r}: {name} must be above 0, not {value}")
    if (settings.certificate is None) != (settings.key is None):
        raise SettingsError(f"{str(path)!r}: [http] needs certificate and key, or none of both")
    for file in (settings.certificate, settings.key):
        if file is not None and not file.is_file():
            raise SettingsError(f"{str(path)!r}: there is no file {str(file)!r}")
    if not settings.is_local and settings.certificate is None:
        raise SettingsError(f"{str(path)!r}: [http] listen is {settings.host}, which others reach: "
                            "give certificate and key for TLS, or listen at 127.0.0.1")


def read_keys(folder: Path) -> dict[tuple[int, bytes], bytes]:
    """Keys of nodes from factory records, by serial number and factory address.

    Raises
    ------
    SettingsError
    """
    keys: dict[tuple[int, bytes], bytes] = {}
    if not folder.is_dir():
        raise SettingsError(f"there is no folder {str(folder)!r} for the factory records of nodes")
    for file in sorted(folder.glob("*.bin")):
        try:
            record = FactoryRecord.from_bytes(file.read_bytes())
        except OSError as error:
            raise SettingsError(f"cannot read {str(file)!r}: {error.strerror}") from None
        except RecordError as error:
            raise SettingsError(f"{str(file)!r}: {error}") from None
        if record.key is None:
            raise SettingsError(f"{str(file)!r}: this record has no key")
        keys[record.serial, record.mac] = record.key[:NODE_KEY_BYTES]
    return keys
