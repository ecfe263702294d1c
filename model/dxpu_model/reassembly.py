"""What a receiver of the split form makes of frames of many peers (docs/wire-format.md).

:class:`~.wire.Joiner` joins one stream in which nothing is missing. This one decides what happens
if something is: which frames take effect, which TLPs come out, which are given up.
"""

from collections import OrderedDict
from dataclasses import dataclass

from dxpu.fabric.wire.format import DropCause

from .crc import crc32c
from .wire import Data, Frame, FrameError, Hdr, Tlps, tlp_length

__all__ = ["Reassembly"]


@dataclass
class _Open:
    tag: int
    row: int
    bytes: bytes
    offset: int
    missing: int


class Reassembly:
    """TLPs that are under way, for up to ``count`` pairs of peer and stream.

    ``largest`` is the most bytes that a TLP in the split form may have.
    """

    def __init__(self, *, count: int, largest: int = 4132) -> None:
        self._count = count
        self._largest = largest
        self._open: OrderedDict[tuple[int, int], _Open] = OrderedDict()
        #: TLPs given up.
        self.abandoned = 0

    def take(self, frame: Frame, row: int, accept: bool = True) -> list[bytes]:
        """TLPs that leave because of ``frame``, which the link (does not) ``accept`` for ``row``.

        Raises :exc:`~.wire.FrameError`, and has changed nothing, if the frame has no effect.
        """
        key, body = (frame.src_node, frame.stream), frame.body
        tlp, fits = self._open.get(key), False
        if isinstance(body, Hdr):
            missing = tlp_length(body.header) - len(body.header)
            if missing and len(body.header) + missing > self._largest:
                raise FrameError(DropCause.OVERFLOW)
        if isinstance(body, Data) and tlp:
            fits = (tlp.tag == frame.tag and body.offset == tlp.offset
                    and len(body.data) <= tlp.missing)
            # Behind a gap it may be of another TLP than the one that is open.
            if accept and fits and crc32c(tlp.bytes + body.data) != body.crc:
                raise FrameError(DropCause.RECORD)
        if not accept:
            raise FrameError(DropCause.REFUSED)
        if isinstance(body, Data):
            if tlp is None or not fits or tlp.row != row:
                raise FrameError(DropCause.LENGTH)
            tlp.bytes += body.data
            tlp.offset += len(body.data)
            tlp.missing -= len(body.data)
            self._open.move_to_end(key)
            return [] if tlp.missing else [self._open.pop(key).bytes]
        if isinstance(body, Hdr | Tlps) and tlp:
            del self._open[key]
            self.abandoned += 1
        if isinstance(body, Hdr):
            if not missing:
                return [body.header]
            if len(self._open) == self._count:
                self._open.popitem(last=False)
                self.abandoned += 1
            self._open[key] = _Open(frame.tag, row, body.header, 0, missing)
        return list(body.tlps) if isinstance(body, Tlps) else []
