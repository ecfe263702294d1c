"""Captures of the frames of a command on a fabric."""

import time
from pathlib import Path

from dxpu_host.port import Port
from dxpu_sim.ethernet.pcap import PcapWriter

__all__ = ["CapturingPort"]


class CapturingPort:
    """A port whose frames go into a file as well, with the time of the machine.

    Parameters
    ----------
    port : :class:`dxpu_host.Port`
        Closed with the capturing port.
    path : Path
        Capture to create; whole when the port is closed.
    name : str
        Name of the interface in the capture.
    """

    def __init__(self, port: Port, path: Path, name: str):
        self._port = port
        self._writer = PcapWriter(path, fcs=False)
        self._line = self._writer.interface(name)

    def fileno(self) -> int:
        """For ``select``, if the port has a handle."""
        return self._port.fileno()  # type: ignore[attr-defined, no-any-return]

    def _note(self, frame: bytes, *, inbound: bool) -> None:
        self._writer.write(self._line, time.time_ns(), frame, inbound=inbound)

    def send(self, frame: bytes) -> None:
        """Send a frame; see :class:`dxpu_host.Port`."""
        self._port.send(frame)
        self._note(frame, inbound=False)

    def receive(self) -> bytes | None:
        """The next frame; see :class:`dxpu_host.Port`."""
        frame = self._port.receive()
        if frame is not None:
            self._note(frame, inbound=True)
        return frame

    def wait(self, timeout: float) -> None:
        """Wait for a frame; see :class:`dxpu_host.Port`."""
        self._port.wait(timeout)

    def close(self) -> None:
        """Close port and file."""
        self._port.close()
        self._writer.close()
