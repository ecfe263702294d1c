"""TLPs in a capture, one by one, wherever they were seen."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dxpu.fabric.wire.format import ETHERTYPE
from dxpu.fabric.wire.frame_types import SEQUENCED
from dxpu_model.tlp import Info, classify, malformed
from dxpu_model.wire import Data, Frame, FrameError, Hdr, Joiner, Tlps, parse
from dxpu_sim.ethernet.pcap import ETHERNET, TLP

from .packets import packets

__all__ = ["Sight", "sights"]


@dataclass(frozen=True)
class Sight:
    """A TLP at one place.

    Attributes
    ----------
    packet : int
        Number of the packet, from 1, as Wireshark counts.
    time_ns : int
    place : str
        Name of the interface.
    way : str
        ``in`` or ``out`` of the proxy, if the capture says so.
    raw : bytes
    info : :class:`~dxpu_model.tlp.Info`
    frame : :class:`~dxpu_model.wire.Frame`, optional
        The frame that carried the TLP, or the last part of the TLP.
    comment : str
        The comment of the packet.
    again : bool
        The frame was there before.
    """

    packet: int
    time_ns: int
    place: str
    way: str
    raw: bytes
    info: Info
    frame: Frame | None = None
    comment: str = ""
    again: bool = False


def _readable(raw: bytes) -> bool:
    return malformed(raw).name not in ("TRUNCATED", "PREFIX", "FORMAT", "LENGTH")


class _Frames:
    """TLPs in frames; those in the split form are put together."""

    def __init__(self) -> None:
        self._seen: set[tuple[object, ...]] = set()
        self._joiners: dict[tuple[object, ...], Joiner] = {}

    def tlps(self, data: bytes, place: str) -> tuple[Frame | None, list[bytes], bool]:
        """The frame, its TLPs, and whether it was there before; no TLPs in what a receiver
        drops."""
        for with_fcs in (False, True):
            try:
                frame = parse(data, with_fcs=with_fcs)
                break
            except FrameError:
                continue
        else:
            return None, [], False
        line = (place, frame.src_node, frame.dst_node, frame.stream, frame.tag)
        number = (*line, frame.seq)
        if frame.type not in SEQUENCED:
            return frame, [], False
        again = number in self._seen
        self._seen.add(number)
        if isinstance(frame.body, Tlps):
            return frame, list(frame.body.tlps), again
        if not isinstance(frame.body, Hdr | Data) or again:
            return frame, [], again
        try:
            whole = self._joiners.setdefault(line, Joiner()).take(frame.body)
        except FrameError:
            self._joiners[line] = Joiner()
            return frame, [], again
        return frame, [whole] if whole else [], again


def sights(path: Path) -> Iterator[Sight]:
    """Every TLP in a capture, in the order of the packets.

    Raises
    ------
    ~dxpu_tools.errors.UserError
        The file cannot be read, or is no capture.
    """
    frames = _Frames()
    for packet, (data, link, time, place, way, comment) in enumerate(packets(path), 1):
        if link == TLP:
            found: tuple[Frame | None, list[bytes], bool] = None, [data], False
        elif link == ETHERNET and data[12:14] == ETHERTYPE.to_bytes(2, "big"):
            found = frames.tlps(data, place)
        else:
            continue
        frame, tlps, again = found
        for raw in tlps:
            if _readable(raw):
                yield Sight(packet, time, place, way, raw, classify(raw), frame, comment, again)
