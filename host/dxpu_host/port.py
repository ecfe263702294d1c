"""Ports for frames: an Ethernet interface of Linux, or any object with the same methods."""

import errno
import fcntl
import os
import select
import socket
import struct
import sys
from typing import Protocol

from dxpu.fabric.wire.format import ETHERTYPE, node_mac

from .errors import PortError

__all__ = ["EthernetPort", "Port"]

#: Constants of linux/if_packet.h and linux/sockios.h.
_SOL_PACKET, _ADD_MEMBERSHIP, _MR_UNICAST = 263, 1, 3
_GET_FLAGS, _IFF_UP, _GET_MTU = 0x8913, 1, 0x8921
_LARGEST = 16384


class Port(Protocol):
    """Sends and receives whole frames without FCS, from the destination MAC on."""

    def send(self, frame: bytes) -> None:
        """Send a frame, or lose it: never waits for room. Raises :exc:`PortError`."""

    def receive(self) -> bytes | None:
        """The next received frame; ``None`` if there is none now. Raises :exc:`PortError`."""

    def wait(self, timeout: float) -> None:
        """Wait until a frame may have come, for ``timeout`` seconds at most."""

    def close(self) -> None:
        """Stop sending and receiving."""


class EthernetPort:
    """An interface of Linux, by AF_PACKET: only frames of one EtherType.

    The interface also accepts frames to the node's address. It need not be promiscuous, and keeps
    its own address and all its other traffic.

    Parameters
    ----------
    interface : str
        Name, such as ``eth0``.
    node, path : int
        Node number and path of the accepted address; ``None`` as a node for no address.
    ethertype : int
        EtherType of the frames; that of DXF, 0x88B5, by default.

    Raises
    ------
    PortError
        The system is not Linux, the interface is missing or down, or the process lacks the
        capability CAP_NET_RAW.
    """

    def __init__(self, interface: str, node: int | None, path: int = 0, *,
                 ethertype: int = ETHERTYPE) -> None:
        if not sys.platform.startswith("linux"):
            raise PortError("Ethernet frames need Linux (AF_PACKET); "
                            f"this is {sys.platform}")
        self._interface = interface
        try:
            index = socket.if_nametoindex(interface)
        except OSError:
            raise PortError(f"no interface {interface!r}; there are "
                            f"{', '.join(name for _, name in socket.if_nameindex())}") from None
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW,
                                         socket.htons(ethertype))
        except PermissionError:
            raise PortError("raw Ethernet frames need the capability CAP_NET_RAW: run as root, or "
                            f"`sudo setcap cap_net_raw+ep {os.path.realpath(sys.executable)}`"
                            ) from None
        except OSError as error:
            raise PortError(f"this system has no raw Ethernet frames: {error.strerror}") from None
        try:
            self._set_up(index, None if node is None else node_mac(path, node), ethertype)
        except OSError as error:
            self._socket.close()
            raise PortError(f"interface {interface!r} cannot be used, is it an Ethernet? "
                            f"({error.strerror})") from None
        except BaseException:
            self._socket.close()
            raise

    @classmethod
    def handed(cls, interface: str, handle: int) -> "EthernetPort":
        """The open port of another process, perhaps in another network namespace or with more
        rights, by the file descriptor that :meth:`fileno` gave there.

        ``interface`` is for messages.
        """
        port = cls.__new__(cls)
        port._interface, port._socket = interface, socket.socket(fileno=handle)
        return port

    def _set_up(self, index: int, address: bytes | None, ethertype: int) -> None:
        name = self._interface.encode()
        flags = struct.unpack_from("16xH", fcntl.ioctl(
            self._socket, _GET_FLAGS, struct.pack("16sH14x", name, 0)))[0]
        if not flags & _IFF_UP:
            raise PortError(f"interface {self._interface!r} is down; "
                            f"`sudo ip link set {self._interface} up`")
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 21)
        self._socket.bind((self._interface, ethertype))
        if address is not None:
            self._socket.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, struct.pack(
                "iHH8s", index, _MR_UNICAST, len(address), address))

    def mtu(self) -> int:
        """Bytes that the interface takes behind the EtherType."""
        asked = struct.pack("16si12x", self._interface.encode(), 0)
        try:
            return int(struct.unpack_from("16xi", fcntl.ioctl(self._socket, _GET_MTU, asked))[0])
        except OSError as error:
            raise self._broken(error) from None

    def fileno(self) -> int:
        """For ``select``."""
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        """Send a frame; see :class:`Port`."""
        try:
            self._socket.send(frame)
        except BlockingIOError:
            pass  # a queue is full: the frame is lost, as on any Ethernet
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise self._broken(error) from None

    def receive(self) -> bytes | None:
        """Receive a frame; see :class:`Port`."""
        while True:
            try:
                frame, address = self._socket.recvfrom(_LARGEST)
            except BlockingIOError:
                return None
            except OSError as error:
                raise self._broken(error) from None
            if address[2] != socket.PACKET_OUTGOING:
                return bytes(frame)

    def _broken(self, error: OSError) -> PortError:
        return PortError(f"interface {self._interface!r}: {os.strerror(error.errno or 0)}")

    def wait(self, timeout: float) -> None:
        """Wait for a frame; see :class:`Port`."""
        select.select([self._socket], [], [], max(0.0, timeout))

    def close(self) -> None:
        """Close the port; see :class:`Port`."""
        self._socket.close()
