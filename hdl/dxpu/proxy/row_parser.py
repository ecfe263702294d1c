"""TLPs of many rows through one parser."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.queue import Queue
from dxpu.rows import LIFE_BITS
from dxpu.stream import PacketSignature
from dxpu.switch.tracking.slot_tracking import RowInfo
from dxpu.switch.types import SlotRow
from dxpu.tlp.parser import Parser

__all__ = ["RowParser"]


class RowParser(wiring.Component):
    """A :class:`~dxpu.tlp.parser.Parser` that keeps each TLP's row and life.

    Malformed TLPs leave with ``discard``. Latency and throughput are the parser's.

    Parameters
    ----------
    width : int
        Data bits per beat.
    limits : int
        Rows, each of which has a Max_Payload_Size. 0: a TLP may have any size.

    Members
    -------
    i : packet stream with meta :class:`~dxpu.switch.types.SlotRow`
    max_payload : array of 3-bit values
        Max_Payload_Size of the rows.
    o : packet stream with meta :class:`~dxpu.switch.tracking.slot_tracking.RowInfo`
    stat_malformed : 1
        Pulse: a malformed TLP came.
    malformed_row, malformed_life, malformed_header : 6, number, 4 dwords
        Valid with ``stat_malformed``; the header as in :class:`~dxpu.tlp.parser.Parser`.
    """

    #: TLPs that can be inside the parser at a time.
    DEPTH = 32

    def __init__(self, width, *, limits=0):
        super().__init__({
            "i": In(PacketSignature(width, SlotRow)),
            "o": Out(PacketSignature(width, RowInfo)),
            "max_payload": In(data.ArrayLayout(3, limits)),
            "stat_malformed": Out(Counted("Malformed TLPs found by the parser; dropped.")),
            "malformed_row": Out(6),
            "malformed_life": Out(LIFE_BITS),
            "malformed_header": Out(data.ArrayLayout(32, 4)),
        })
        self._width = width
        self._limits = limits

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        m.submodules.parser = parser = Parser(self._width)
        m.submodules.rows = rows = Queue(SlotRow, depth=self.DEPTH)
        plain = [k for k, _ in i.payload.shape() if k != "meta"]

        # A first beat goes to both, at once.
        first = i.payload.first
        m.d.comb += [
            *(parser.i.payload[k].eq(i.payload[k]) for k in plain),
            parser.i.valid.eq(i.valid & (~first | rows.i.ready)),
            rows.i.payload.eq(i.payload.meta),
            rows.i.valid.eq(i.valid & first & parser.i.ready),
            i.ready.eq(parser.i.ready & (~first | rows.i.ready)),
        ]
        m.d.comb += [
            *(o.payload[k].eq(parser.o.payload[k]) for k in plain),
            *(o.payload.meta[k].eq(rows.o.payload[k]) for k in ("row", "life", "made")),
            o.payload.meta.info.eq(parser.o.payload.meta),
            o.valid.eq(parser.o.valid & rows.o.valid),
            parser.o.ready.eq(o.ready & rows.o.valid),
            rows.o.ready.eq(o.valid & o.ready & o.payload.last),
            # It is known when the last beat of the TLP comes out.
            self.stat_malformed.eq(parser.stat_malformed),
            self.malformed_row.eq(rows.o.payload.row),
            self.malformed_life.eq(rows.o.payload.life),
            self.malformed_header.eq(parser.malformed_header),
        ]
        if self._limits:
            m.d.comb += parser.max_payload.eq(Array(self.max_payload)[i.payload.meta.row])
        return m
