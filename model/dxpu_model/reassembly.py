"""Golden reassembly of TLPs in the split form, from frames of many peers
(docs/reference/wire-format.md).

:class:`~.wire.Joiner` joins the frames of one complete stream. This model also covers missing
frames: it decides which frames take effect, which TLPs come out, and which TLPs are given up.
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
    """TLPs in reassembly, for up to ``count`` pairs of peer and stream.

    ``largest`` is the largest size of a TLP in the split form, in bytes.
    """

    def __init__(self, *, count: int, largest: int = 4132) -> None:
        self._count = count
        self._largest = largest
        self._open: OrderedDict[tuple[int, int], _Open] = OrderedDict()
        #: Number of TLPs given up.
        self.abandoned = 0

    def take(self, frame: Frame, row: int, accept: bool = True) -> list[bytes]:
        """TLPs that come out because of ``frame``, accepted or refused (``accept``) by the link for
        ``row``.

        Raises :exc:`~.wire.FrameError` if the frame has no effect; the state is then unchanged.
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
            # After a gap the frame may belong to a TLP other than the open TLP.
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
