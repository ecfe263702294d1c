"""Writes captures in the pcapng format (draft-ietf-opsawg-pcapng), with nanosecond timestamps."""

import struct
from pathlib import Path
from types import TracebackType

__all__ = ["PcapWriter"]

#: LINKTYPE_ETHERNET.
ETHERNET = 1


def _pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _pad(value)


class PcapWriter:
    """A capture file of Ethernet frames from several interfaces.

    Every interface and packet is a whole block on disk, so an unfinished capture can be read up to
    the last flush.

    Parameters
    ----------
    path : path
        File to create.
    fcs : bool
        Frames end with their FCS (a note for the reader).
    """

    def __init__(self, path: str | Path, *, fcs: bool = True):
        self._file = open(path, "wb")  # noqa: SIM115
        self._fcs = fcs
        self._interfaces = 0
        #: Number of packets written.
        self.packets = 0
        # Section header: byte-order magic, version 1.0, length of the section unknown.
        self._block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))

    def _block(self, kind: int, body: bytes) -> None:
        length = 12 + len(body)
        self._file.write(struct.pack("<II", kind, length) + body + struct.pack("<I", length))

    def interface(self, name: str) -> int:
        """Describe an interface; returns its number for :meth:`write`."""
        options = _option(2, name.encode())  # if_name
        options += _option(9, b"\x09")  # if_tsresol: 10 ** -9 s
        if self._fcs:
            options += _option(13, b"\x04")  # if_fcslen
        options += _option(0, b"")
        self._block(1, struct.pack("<HHI", ETHERNET, 0, 0) + options)
        self._interfaces += 1
        return self._interfaces - 1

    def write(self, interface: int, time_ns: int, frame: bytes, comment: str = "") -> None:
        """Append a frame seen on ``interface`` at ``time_ns``."""
        if not 0 <= interface < self._interfaces:
            raise ValueError(f"interface must be one that was described, not {interface!r}")
        body = struct.pack("<IIIII", interface, time_ns >> 32, time_ns & 0xFFFFFFFF, len(frame),
                           len(frame)) + _pad(frame)
        if comment:
            body += _option(1, comment.encode()) + _option(0, b"")
        self._block(6, body)
        self.packets += 1

    def flush(self) -> None:
        """Pass everything written so far to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def __enter__(self) -> "PcapWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
