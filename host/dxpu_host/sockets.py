"""A fabric that is a program on this machine: frames through a UNIX socket."""

import os
import select
import socket
from pathlib import Path

from .errors import PortError

__all__ = ["SocketPort"]

_LARGEST = 16384


class SocketPort:
    """A port of frames at a UNIX socket of type ``SOCK_SEQPACKET``: each packet is a frame without
    FCS.

    Needs no rights on the network.

    Parameters
    ----------
    path : Path
        Socket on which the fabric listens.

    Raises
    ------
    PortError
        Nobody listens there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise PortError(f"no fabric listens at {str(path)!r}: "
                            f"{os.strerror(error.errno or 0)}") from None
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """For ``select``."""
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        """Send a frame, or lose it; see :class:`dxpu_host.Port`."""
        try:
            self._socket.send(frame)
        except BlockingIOError:
            pass
        except OSError as error:
            raise self._broken(error.errno) from None

    def receive(self) -> bytes | None:
        """The next frame; see :class:`dxpu_host.Port`."""
        try:
            frame = self._socket.recv(_LARGEST)
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._broken(error.errno) from None
        if not frame:
            raise PortError(f"the fabric at {str(self._path)!r} has ended")
        return frame

    def wait(self, timeout: float) -> None:
        """Wait for a frame; see :class:`dxpu_host.Port`."""
        select.select([self._socket], [], [], max(0.0, timeout))

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _broken(self, number: int | None) -> PortError:
        return PortError(f"the fabric at {str(self._path)!r}: {os.strerror(number or 0)}")
