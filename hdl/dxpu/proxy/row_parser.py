"""One parser for the TLPs of many rows."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.queue import Queue
from dxpu.rows import LIFE_BITS
from dxpu.stream import PacketSignature
from dxpu.switch.types import SlotRow
from dxpu.tlp.parser import Parser
from dxpu.tlp.types import TlpInfo

__all__ = ["RowInfo", "RowParser"]


class RowInfo(data.Struct):
    """A TLP from the fabric: as :class:`~dxpu.switch.types.SlotRow`, and what it is."""

    row: 6
    life: LIFE_BITS
    made: 1
    info: TlpInfo


class RowParser(wiring.Component):
    """A :class:`~dxpu.tlp.parser.Parser` that keeps the row and the life of each TLP. TLPs may have
    any size.

    Malformed TLPs end with ``discard``. Latency and throughput are those of the parser.

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    i : packet stream with meta :class:`~dxpu.switch.types.SlotRow`
        TLPs of all rows.
    o : packet stream with meta :class:`RowInfo`
        The same, parsed.
    stat_malformed : 1
        Pulse: a malformed TLP was found.
    malformed_row, malformed_life, malformed_header : 6, number, 4 dwords
        That TLP, valid with ``stat_malformed``; the header as in :class:`~dxpu.tlp.parser.Parser`.
    """

    #: TLPs that may be in the parser at a time.
    DEPTH = 32

    def __init__(self, width):
        super().__init__({
            "i": In(PacketSignature(width, SlotRow)),
            "o": Out(PacketSignature(width, RowInfo)),
            "stat_malformed": Out(Counted("Malformed TLPs found by the parser; dropped.")),
            "malformed_row": Out(6),
            "malformed_life": Out(LIFE_BITS),
            "malformed_header": Out(data.ArrayLayout(32, 4)),
        })
        self._width = width

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        m.submodules.parser = parser = Parser(self._width)
        m.submodules.rows = rows = Queue(SlotRow, depth=self.DEPTH)
        plain = [k for k, _ in i.payload.shape() if k != "meta"]

        # The parser and the queue take a first beat in the same cycle.
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
            # The parser finds it with the last beat on `o`, so the row is still at hand.
            self.stat_malformed.eq(parser.stat_malformed),
            self.malformed_row.eq(rows.o.payload.row),
            self.malformed_life.eq(rows.o.payload.life),
            self.malformed_header.eq(parser.malformed_header),
        ]
        return m
