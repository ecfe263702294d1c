"""Packets of captures, in the formats pcap and pcapng."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dxpu_tools.errors import UserError

__all__ = ["Packet", "packets"]

_DIRECTIONS = {1: "in", 2: "out"}


class Packet(NamedTuple):
    """A packet of a capture."""

    data: bytes
    #: Link type, such as :data:`~dxpu_sim.ethernet.pcap.TLP`.
    link: int
    time_ns: int
    #: Name of the interface.
    place: str
    #: ``in`` or ``out``, if the capture says so.
    way: str
    comment: str


def packets(path: Path) -> Iterator[Packet]:
    """All packets of a capture, in the order of the file.

    Raises
    ------
    ~dxpu_tools.errors.UserError
        The file cannot be read, or is no capture.
    """
    from scapy.error import Scapy_Exception
    from scapy.utils import RawPcapNgReader, RawPcapReader
    try:
        with RawPcapReader(str(path)) as reader:  # makes the other reader, if the file is pcapng
            names = isinstance(reader, RawPcapNgReader)
            for data, meta in reader:
                if names:
                    time = (meta.tshigh << 32 | meta.tslow) * 10**9 // meta.tsresol
                    comments = b" ".join(meta.comments or ()).decode(errors="replace")
                    yield Packet(data, meta.linktype, time,
                                 (meta.ifname or b"0").decode(errors="replace"),
                                 _DIRECTIONS.get(meta.direction or 0, ""), comments)
                else:
                    scale = 1 if reader.nano else 1000
                    yield Packet(data, reader.linktype, meta.sec * 10**9 + meta.usec * scale,
                                 "0", "", "")
    except FileNotFoundError:
        raise UserError(f"no file {str(path)!r}") from None
    except OSError as error:
        raise UserError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except Scapy_Exception:
        raise UserError(f"{str(path)!r} is no capture: pcap and pcapng files are") from None
