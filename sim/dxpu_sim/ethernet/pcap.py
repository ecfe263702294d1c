"""Writes captures of frames and TLPs in the pcapng format (draft-ietf-opsawg-pcapng), with
nanosecond timestamps."""

import heapq
import struct
from pathlib import Path
from types import TracebackType

__all__ = ["ETHERNET", "INTERRUPT", "TLP", "PcapWriter"]

#: Link types: LINKTYPE_ETHERNET, and LINKTYPE_USER0, which DXPU's dissector takes for TLPs.
ETHERNET, TLP = 1, 147
#: Comment of a write by which a device interrupts a host.
INTERRUPT = "interrupt"


def _pad(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _pad(value)


class PcapWriter:
    """A capture file of Ethernet frames and TLPs from several interfaces.

    Every interface and packet is a whole block on disk, so an unfinished capture can be read up to
    the last flush.

    Parameters
    ----------
    path : path
        File to create.
    fcs : bool
        Ethernet frames end with their FCS (a note for the reader).
    window_ns : int
        Packets that are written out of their order by no more than that are in order in the file.
    """

    def __init__(self, path: str | Path, *, fcs: bool = True, window_ns: int = 0):
        self._file = open(path, "wb")  # noqa: SIM115
        self._window = window_ns
        self._waiting: list[tuple[int, int, bytes]] = []
        self._fcs = fcs
        self._interfaces = 0
        #: Number of packets written.
        self.packets = 0
        # Section header: byte-order magic, version 1.0, length of the section unknown.
        self._block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))

    def _block(self, kind: int, body: bytes) -> None:
        length = 12 + len(body)
        self._file.write(struct.pack("<II", kind, length) + body + struct.pack("<I", length))

    def interface(self, name: str, link: int = ETHERNET) -> int:
        """Describe an interface with packets of type ``link``; returns its number for
        :meth:`write`."""
        options = _option(2, name.encode())  # if_name
        options += _option(9, b"\x09")  # if_tsresol: 10 ** -9 s
        if self._fcs and link == ETHERNET:
            options += _option(13, b"\x04")  # if_fcslen
        options += _option(0, b"")
        self._block(1, struct.pack("<HHI", link, 0, 0) + options)
        self._interfaces += 1
        return self._interfaces - 1

    def write(self, interface: int, time_ns: int, frame: bytes, comment: str = "", *,
              inbound: bool | None = None, damaged: bool = False,
              length: int | None = None) -> None:
        """Append a packet seen on ``interface`` at ``time_ns``.

        ``length``: bytes that the packet had, if ``frame`` is the beginning of it only.
        ``inbound``: into what the interface belongs to, or out of it; ``None`` if nobody knows.
        ``damaged``: whoever received the frame found its FCS wrong.
        """
        if not 0 <= interface < self._interfaces:
            raise ValueError(f"interface must be one that was described, not {interface!r}")
        body = struct.pack("<IIIII", interface, time_ns >> 32, time_ns & 0xFFFFFFFF, len(frame),
                           len(frame) if length is None else length) + _pad(frame)
        options = _option(1, comment.encode()) if comment else b""
        flags = (0 if inbound is None else 1 if inbound else 2) | damaged << 24
        if flags:
            options += _option(2, struct.pack("<I", flags))  # epb_flags
        if options:
            body += options + _option(0, b"")
        self.packets += 1
        heapq.heappush(self._waiting, (time_ns, self.packets, body))
        self._write_until(time_ns - self._window)

    def _write_until(self, time_ns: float) -> None:
        while self._waiting and self._waiting[0][0] <= time_ns:
            self._block(6, heapq.heappop(self._waiting)[2])

    def flush(self) -> None:
        """Pass everything written so far to the operating system, but for packets that the window
        holds back."""
        self._file.flush()

    def close(self) -> None:
        """Finish the file."""
        self._write_until(float("inf"))
        self._file.close()

    def __enter__(self) -> "PcapWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
