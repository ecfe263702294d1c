"""The far end of QEMU's ``x-pci-proxy-dev``: a PCI device of the guest in this process.

QEMU forwards every access to the device's configuration space and BARs, and shares the guest's
memory. The messages are defined in QEMU's ``hw/remote/mpqemu-link.h`` (7.2), little endian: a
header of command, padding and size, then ``size`` bytes.
"""

import mmap
import os
import socket
import struct
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["Access", "GuestMemory", "RemoteDevice", "RemoteError"]

_HEADER = struct.Struct("<iiQ")
_CONFIG = struct.Struct("<IIi")
_BAR = struct.Struct("<QQI?")
_ANSWER = struct.Struct("<Q")
_MAX_FDS = 8
_REGIONS = struct.Struct(f"<{_MAX_FDS}Q{_MAX_FDS}Q{_MAX_FDS}q")


class RemoteError(Exception):
    """QEMU sent a message unknown in this version of the protocol."""


class _Command(IntEnum):
    SYNC_MEMORY = 0
    RETURN = 1
    CONFIG_WRITE = 2
    CONFIG_READ = 3
    BAR_WRITE = 4
    BAR_READ = 5
    SET_INTERRUPT = 6
    RESET = 7


@dataclass(frozen=True)
class Access:
    """An access of the guest that waits for :meth:`RemoteDevice.answer`.

    ``config``: access to the device's own configuration space, otherwise to a BAR, with the guest's
    physical ``address``. ``value``: data of a write.
    """

    config: bool
    write: bool
    address: int
    size: int
    value: int = 0


@dataclass
class _Region:
    start: int
    size: int
    memory: mmap.mmap


class GuestMemory:
    """The part of the guest's physical memory that a device may use."""

    def __init__(self):
        self._regions: list[_Region] = []

    def replace(self, parts) -> None:
        """Replace the regions: guest address, size, file descriptor and offset of each.

        The descriptors are closed.
        """
        self.close()
        for start, size, fd, offset in parts:
            try:
                self._regions.append(_Region(start, size, mmap.mmap(fd, size, offset=offset)))
            finally:
                os.close(fd)

    def close(self) -> None:
        """Unmap all memory."""
        for region in self._regions:
            region.memory.close()
        self._regions.clear()

    def _find(self, address, size):
        for region in self._regions:
            if region.start <= address and address + size <= region.start + region.size:
                return region.memory, address - region.start
        return None

    def read(self, address: int, size: int) -> bytes | None:
        """``size`` bytes; ``None`` outside of memory."""
        found = self._find(address, size)
        return None if found is None else found[0][found[1]:found[1] + size]

    def write(self, address: int, data: bytes) -> bool:
        """Write ``data``; returns whether the address is in memory."""
        found = self._find(address, len(data))
        if found is None:
            return False
        memory, offset = found
        memory[offset:offset + len(data)] = data
        return True


class RemoteDevice:
    """The device's end of the socket to QEMU.

    Attributes
    ----------
    memory : :class:`GuestMemory`
    resets : int
        Number of resets of the device by QEMU.
    """

    def __init__(self, connection: socket.socket):
        self._socket = connection
        self.memory = GuestMemory()
        self.resets = 0

    def fileno(self) -> int:
        """For ``select``."""
        return self._socket.fileno()

    def _receive(self, size, fds):
        data = b""
        while len(data) < size:
            part, ancillary, _, _ = self._socket.recvmsg(
                size - len(data), socket.CMSG_LEN(_MAX_FDS * 4))
            for level, kind, payload in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds += struct.unpack(f"<{len(payload) // 4}i", payload)
            if not part:
                raise EOFError("QEMU closed the device's socket")
            data += part
        return data

    def receive(self) -> Access | None:
        """Receive the next message, which must be on its way; ``None`` if it needs no answer.

        Raises
        ------
        EOFError
            QEMU has ended.
        RemoteError
        """
        fds: list[int] = []
        number, _, size = _HEADER.unpack(self._receive(_HEADER.size, fds))
        data = self._receive(size, fds) if size else b""
        try:
            command = _Command(number)
        except ValueError:
            raise RemoteError(f"QEMU sent command {number}, which is unknown; DXPU was tried with "
                              "QEMU 7.2") from None
        if command is _Command.SYNC_MEMORY:
            addresses = _REGIONS.unpack(data[:_REGIONS.size])
            self.memory.replace(
                (addresses[n], addresses[_MAX_FDS + n], fd, addresses[2 * _MAX_FDS + n])
                for n, fd in enumerate(fds))
            return None
        for fd in fds:  # of INTx, which this device does not have
            os.close(fd)
        if command is _Command.RESET:
            self.resets += 1
            self.answer(0)
            return None
        if command in (_Command.CONFIG_READ, _Command.CONFIG_WRITE):
            address, value, length = _CONFIG.unpack(data[:_CONFIG.size])
            return Access(True, command is _Command.CONFIG_WRITE, address, length,
                          value & (1 << 8 * length) - 1)
        if command in (_Command.BAR_READ, _Command.BAR_WRITE):
            address, value, length, _ = _BAR.unpack(data[:_BAR.size])
            return Access(False, command is _Command.BAR_WRITE, address, length,
                          value & (1 << 8 * length) - 1)
        return None

    def answer(self, value: int) -> None:
        """End the :class:`Access` under way, with the value of a read, or 0."""
        self._socket.sendall(_HEADER.pack(_Command.RETURN, 0, _ANSWER.size) + _ANSWER.pack(value))

    def close(self) -> None:
        """Close the connection, and unmap the guest's memory."""
        self.memory.close()
        self._socket.close()
