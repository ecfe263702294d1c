"""One parser for the TLPs of all slots of a host."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.queue import Queue
from dxpu.rows import LIFE_BITS
from dxpu.stream import PacketLayout, PacketSignature
from dxpu.switch.types import SlotRow
from dxpu.tlp.header import TlpHeader
from dxpu.tlp.tail_parser import TailParser

__all__ = ["SlotParser"]


class SlotParser(wiring.Component):
    """A :class:`~dxpu.tlp.tail_parser.TailParser` that keeps the row and the life of each TLP.

    Malformed TLPs end with ``discard``. Latency and throughput are those of the parser.

    Parameters
    ----------
    width : int
        Data bits per beat.
    rows : int
        Rows with a Max_Payload_Size each.

    Members
    -------
    i, o : packet streams with :class:`~dxpu.switch.types.SlotRow`
        TLPs of all rows.
    tlp_header : :class:`~dxpu.tlp.header.TlpHeader`
        Header of the TLP on ``o``; valid with its last beat.
    max_payloads : array of 3-bit values
        Max_Payload_Size of each row, as encoded in Device Control.
    stat_malformed : 1
        Pulse: a malformed TLP leaves.
    malformed_row, malformed_life, malformed_header : 6, number, 4 dwords
        That TLP, valid with ``stat_malformed``; the header as in
        :class:`~dxpu.tlp.tail_parser.TailParser`.
    """

    #: TLPs that can be in the parser: two beats, and the one that comes in.
    DEPTH = 4

    def __init__(self, width, *, rows):
        super().__init__({
            "i": In(PacketSignature(width, SlotRow)),
            "o": Out(PacketSignature(width, SlotRow)),
            "tlp_header": Out(TlpHeader),
            "max_payloads": In(data.ArrayLayout(3, rows)),
            "stat_malformed": Out(Counted("Malformed TLPs found by the parser; dropped.")),
            "malformed_row": Out(6),
            "malformed_life": Out(LIFE_BITS),
            "malformed_header": Out(data.ArrayLayout(32, 4)),
        })
        self._layout = PacketLayout(width)

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o
        m.submodules.parser = parser = TailParser(self._layout.width)
        m.submodules.rows = rows = Queue(SlotRow, depth=self.DEPTH)

        # The parser and the queue take a first beat in the same cycle.
        able = ~i.p.first | rows.i.ready
        m.d.comb += [
            *(parser.i.p[k].eq(i.p[k]) for k, _ in self._layout),
            parser.i.valid.eq(i.valid & able),
            rows.i.payload.eq(i.p.meta),
            rows.i.valid.eq(i.valid & i.p.first & parser.i.ready),
            i.ready.eq(parser.i.ready & able),
            parser.max_payload.eq(Array(self.max_payloads)[i.p.meta.row]),
            *(o.p[k].eq(parser.o.p[k]) for k, _ in self._layout),
            o.p.meta.eq(rows.o.payload),
            o.valid.eq(parser.o.valid & rows.o.valid),
            parser.o.ready.eq(o.ready & rows.o.valid),
            rows.o.ready.eq(o.valid & o.ready & o.p.last),
            self.tlp_header.eq(parser.tlp_header),
            self.stat_malformed.eq(parser.stat_malformed),
            self.malformed_row.eq(rows.o.p.row),
            self.malformed_life.eq(rows.o.p.life),
            self.malformed_header.eq(parser.malformed_header),
        ]
        return m
