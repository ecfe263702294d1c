"""``dxpu capture``: receives what a board's mirror port repeats, and writes a capture."""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dxpu.observe.mirror_format import ETHERTYPE, HEADER_BYTES
from dxpu_cli.options import decimal_number, file_to_write, whole_number
from dxpu_cli.trace.packets import packets
from dxpu_host.errors import PortError
from dxpu_host.port import EthernetPort
from dxpu_sim.ethernet.pcap import ETHERNET, PcapWriter
from dxpu_tools.children import Terminated
from dxpu_tools.errors import Failed, UserError

from .unwrap import Observed, Unwrapper

__all__ = ["add_arguments", "run"]

#: The two directions of a mirror wait for each other for less than that.
WINDOW_NS = 1_000_000
#: Seconds between looks at the clock, and from a frame to its place on the disk.
LOOK_S = 0.5
#: Bytes of the largest frame that a mirror sends, without its addresses and EtherType.
LARGEST = 1586


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--iface", metavar="NAME",
                       help="Ethernet interface that the mirror port is connected to")
    where.add_argument("--file", metavar="FILE",
                       help="take the mirror's frames out of a capture, such as one of tcpdump")
    parser.add_argument("--out", required=True, metavar="FILE", help="capture to write (pcapng)")
    parser.add_argument("--count", metavar="N", help="end after so many frames")
    parser.add_argument("--seconds", metavar="S", help="end after so many seconds")


class _Writer:
    """Writes observed frames: an interface for each direction of a path."""

    def __init__(self, path: Path):
        self._file = PcapWriter(path, fcs=False, window_ns=WINDOW_NS)
        self._interfaces: dict[tuple[int, bool], int] = {}
        self.sent = self.received = self.bad = self.missing = 0

    def write(self, frame: Observed) -> None:
        """Append a frame."""
        if (frame.path, frame.received) not in self._interfaces:
            for received, name in ((False, "sent"), (True, "received")):
                self._interfaces[frame.path, received] = self._file.interface(
                    f"path {frame.path} {name}")
        self._file.write(self._interfaces[frame.path, frame.received], frame.time_ns, frame.data,
                         frame.comment, inbound=frame.received, length=frame.length)
        self.sent += not frame.received
        self.received += frame.received
        self.bad += frame.bad
        self.missing += frame.missing

    def flush(self) -> None:
        """Let others read what has been written."""
        self._file.flush()

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


def run(arguments: argparse.Namespace) -> int:
    """Capture until ``--count``, ``--seconds``, Ctrl-C or the end of ``--file``."""
    count = (None if arguments.count is None
             else whole_number("--count", arguments.count, 1, 1 << 62))
    seconds = (None if arguments.seconds is None
               else decimal_number("--seconds", arguments.seconds, 0.001, 1_000_000_000))
    if arguments.file is not None and seconds is not None:
        raise UserError("--seconds has no meaning with --file; --count has")
    out = file_to_write("--out", arguments.out)
    assert out is not None
    if arguments.file is not None:
        if out.exists() and Path(arguments.file).exists() and out.samefile(arguments.file):
            raise UserError(f"--out and --file are both {arguments.file!r}")
        return _capture(_of_file(Path(arguments.file)), out, count)
    try:
        port = EthernetPort(arguments.iface, None, ethertype=ETHERTYPE)
        _say_mtu(port.mtu(), arguments.iface)
    except PortError as error:
        raise UserError(str(error)) from None
    print(f"dxpu capture: frames of the mirror at {arguments.iface} go to {out}, until "
          + ("Ctrl-C" if seconds is None else f"{seconds:g} s have passed"),
          file=sys.stderr, flush=True)
    try:
        return _capture(_of_port(port, seconds), out, count)
    finally:
        port.close()


def _say_mtu(mtu: int, interface: str) -> None:
    if mtu < LARGEST:
        # The MTU counts what follows addresses and EtherType.
        print(f"dxpu capture: {interface} has an MTU of {mtu}; frames above "
              f"{mtu + 14 - HEADER_BYTES:,} bytes may not come, if the mirror repeats whole ones: "
              f"sudo ip link set {interface} mtu {LARGEST}", file=sys.stderr)


#: Frames with the time when each came; ``None`` when there is none at present.
_Source = Iterator[tuple[bytes, int] | None]


def _of_port(port: EthernetPort, seconds: float | None) -> _Source:
    end = None if seconds is None else time.monotonic() + seconds
    looked = time.monotonic()
    while True:
        frame = port.receive()
        now = time.monotonic()
        if frame is not None:
            yield frame, time.time_ns()
        if frame is None or now - looked > LOOK_S:
            looked = now
            yield None
            if end is not None and now >= end:
                return
            if frame is None:
                port.wait(LOOK_S if end is None else min(LOOK_S, end - now))


def _of_file(path: Path) -> _Source:
    for packet in packets(path):
        if packet.link == ETHERNET:
            yield packet.data, packet.time_ns


def _capture(source: _Source, out: Path, count: int | None) -> int:
    """Write what comes; returns the exit status."""
    unwrap, others, failure = Unwrapper().take, 0, ""
    writer = _Writer(out)
    try:
        others, failure = _write_all(source, writer, unwrap, count)
    finally:
        writer.close()
    number = writer.sent + writer.received
    print(f"{number:,} frames in {out}: {writer.sent:,} sent, {writer.received:,} received, "
          f"{writer.bad:,} of them bad; {writer.missing:,} missing")
    if failure:
        raise Failed(failure)
    if not number:
        raise Failed("no frame of a mirror came" + (
            f", but others did ({others:,}), perhaps of another version" if others else ""))
    return 0


def _write_all(source: _Source, writer: _Writer,
               unwrap: Callable[[bytes, int], Observed | None],
               count: int | None) -> tuple[int, str]:
    """Write frames until the source ends, ``count`` of them, or Ctrl-C; returns the number of
    frames that are not of a mirror, and what has failed."""
    others = 0
    try:
        for item in source:
            if item is None:
                writer.flush()
                continue
            frame = unwrap(*item)
            if frame is None:
                others += 1
                continue
            writer.write(frame)
            if writer.sent + writer.received == count:
                break
    except PortError as error:
        return others, str(error)
    except KeyboardInterrupt as end:
        if isinstance(end, Terminated) and end.number != signal.SIGINT:
            raise
    return others, ""
