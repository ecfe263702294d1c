"""A fabric that is a program: others reach it by a UNIX socket, with a frame in each packet."""

import os
import select
import socket
from contextlib import suppress
from pathlib import Path

from dxpu_host.errors import PortError

__all__ = ["FrameSocket"]

_LARGEST = 16384
#: Bytes of frames that wait for a program which takes none.
_ROOM = 1 << 21


class FrameSocket:
    """A port of frames (:class:`dxpu_host.Port`) to all programs that have connected to a socket.

    A frame that is sent goes to each of them. A frame of one of them is received here, and goes to
    no other one.

    Parameters
    ----------
    path : Path
        Of the socket, of type ``SOCK_SEQPACKET``, which only its owner can use. A socket that was
        left there is replaced.

    Raises
    ------
    ~dxpu_host.errors.PortError
        If nobody can listen there.
    """

    def __init__(self, path: Path):
        self._path = Path(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ends: dict[int, socket.socket] = {}
        try:
            self._path.unlink(missing_ok=True)
            # By the folder's handle: the name of a socket has 107 bytes at most.
            folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY)
            try:
                self._listener.bind(f"/proc/self/fd/{folder}/{self._path.name}")
            finally:
                os.close(folder)
            self._path.chmod(0o600)
        except OSError as error:
            self._listener.close()
            raise PortError(f"nobody can listen at {str(path)!r}: {error.strerror}") from None
        self._listener.listen(8)
        self._listener.setblocking(False)
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)

    def fileno(self) -> int:
        """For ``select``."""
        return self._poll.fileno()

    def send(self, frame: bytes) -> None:
        """Send a frame; a program without room loses it, as on any Ethernet."""
        for end in list(self._ends.values()):
            try:
                end.send(frame)
            except BlockingIOError:
                pass
            except OSError:
                self._leave(end)

    def receive(self) -> bytes | None:
        """The next frame; ``None`` if there is none now."""
        while ready := self._poll.poll(0, 1):
            handle = ready[0][0]
            if handle == self._listener.fileno():
                self._accept()
                continue
            end = self._ends[handle]
            try:
                frame = end.recv(_LARGEST)
            except OSError:
                frame = b""
            if frame:
                return frame
            self._leave(end)
        return None

    def _accept(self):
        with suppress(OSError):  # who has connected may be gone
            end, _ = self._listener.accept()
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
            self._ends[end.fileno()] = end
            self._poll.register(end, select.EPOLLIN)

    def _leave(self, end):
        del self._ends[end.fileno()]
        end.close()

    def wait(self, timeout: float) -> None:
        """Wait for a frame; see :class:`dxpu_host.Port`."""
        select.select([self._poll], [], [], max(0.0, timeout))

    def close(self) -> None:
        """End all connections; the socket is gone."""
        for end in list(self._ends.values()):
            self._leave(end)
        self._poll.close()
        self._listener.close()
        self._path.unlink(missing_ok=True)
