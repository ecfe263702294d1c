"""Registers of a node over Ethernet, by frames of management, for ``dxpu console eth:NAME,MAC``.

Ref: docs/reference/management.md
"""

import asyncio
import os
import re

from dxpu.factory import RECORD_BYTES, FactoryRecord, RecordError, is_record, mac_text
from dxpu.fabric.wire.format import NODE_MANAGER, node_mac
from dxpu_boards.register_line import ConsoleError, NoRegister
from dxpu_cli.options import decimal_number, key_in, whole_number
from dxpu_host.errors import PortError
from dxpu_host.port import EthernetPort
from dxpu_manage import ManageError, Manager, read_words
from dxpu_manage import NoRegister as NoSuchRegister
from dxpu_tools.errors import UserError

__all__ = ["FrameLine", "line_of", "node_key_in"]


class FrameLine:
    """Registers of a node; has the methods of :class:`~dxpu_boards.register_line.RegisterLine`.

    A context; while open the port is in use.

    Parameters
    ----------
    port : dxpu_host.EthernetPort
    mac : bytes
        Factory address of the node.
    key : bytes
        Key of the node, 16 bytes.
    number : int
        Manager number.
    slower : float
        All waits are so many times longer.

    Attributes
    ----------
    epoch : int
        Epoch of writes and commands: the node's, so nobody is deposed.
    """

    def __init__(self, port, mac: bytes, key: bytes, *, number: int, slower: float = 1.0):
        self._port = port
        self._manager = Manager(port, node_mac(0, NODE_MANAGER), number=number, epoch=0,
                                slower=slower)
        self._node = self._manager.node(mac, key)
        self._runner = asyncio.Runner()

    @property
    def epoch(self) -> int:
        self._find_epoch()
        return self._manager.epoch

    def _find_epoch(self):
        if not self._manager.epoch:
            self.read(0)
            self._manager.epoch = max(1, self._node.epoch)

    def __enter__(self):
        self._runner.run(self._manager.__aenter__())
        return self

    def __exit__(self, *exception):
        self._runner.run(self._manager.__aexit__(*exception))
        self._runner.close()
        self._port.close()

    def _do(self, request):
        try:
            return self._runner.run(request)
        except NoSuchRegister as error:
            raise NoRegister(str(error)) from None
        except (ManageError, PortError) as error:
            raise ConsoleError(str(error)) from None

    def read(self, address: int) -> int:
        """Value of the register at a byte address; raises :exc:`ConsoleError`."""
        value, = self._do(self._node.read(address))
        return value

    def read_all(self, addresses: list[int]) -> list[int]:
        """Values of registers, by few requests; raises :exc:`ConsoleError`."""
        return self._do(read_words(self._node, addresses))

    def write(self, address: int, value: int) -> None:
        """Write the register at a byte address.

        Raises
        ------
        ConsoleError
            Also if the write may have been done or not.
        """
        self._find_epoch()
        self._do(self._node.write(address, value))


def node_key_in(option: str, name: str, mac: bytes) -> bytes:
    """The key of a node, 16 bytes, from a file that only its owner can read: the factory record of
    the node's board, or 32 hexadecimal digits."""
    try:
        with open(name, "rb") as file:
            mode, data = os.fstat(file.fileno()).st_mode, file.read(RECORD_BYTES + 1)
    except OSError as error:
        raise UserError(f"{option}: cannot read {name!r}: {error.strerror}") from None
    if not is_record(data):
        return key_in(option, name)
    if mode & 0o077:
        raise UserError(f"{option}: others can read {name!r}; first: chmod 600 {name}")
    try:
        record = FactoryRecord.from_bytes(data)
    except RecordError as error:
        raise UserError(f"{option}: {name!r}: {error}") from None
    if record.mac != mac:
        raise UserError(f"{option}: {name!r} is the record of {mac_text(record.mac)}, not of "
                        f"{mac_text(mac)}")
    if record.key is None:
        raise UserError(f"{option}: the record {name!r} has no key")
    return record.key[:16]


def line_of(arguments) -> FrameLine:
    """The line of these options; raises :exc:`UserError`."""
    found = re.fullmatch(r"eth:([^,]+),((?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2})",
                         arguments.port)
    if not found:
        raise UserError("an Ethernet port is like eth:eth0,02:51:00:00:00:01, interface and "
                        f"factory address of the node, not {arguments.port!r}")
    mac = bytes.fromhex(re.sub("[:-]", "", found[2]))
    number = whole_number("--manager", arguments.manager, 1, 4)
    slower = decimal_number("--slower", arguments.slower, 0.01, 1_000_000)
    if arguments.node_key is None:
        raise UserError("--node-key FILE is missing: a node answers to nobody without its key")
    key = node_key_in("--node-key", arguments.node_key, mac)
    try:
        port = EthernetPort(found[1], NODE_MANAGER)
    except PortError as error:
        raise UserError(str(error)) from None
    return FrameLine(port, mac, key, number=number, slower=slower)
