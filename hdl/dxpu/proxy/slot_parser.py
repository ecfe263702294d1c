"""One parser for the TLPs of all slots."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.counted import Counted
from dxpu.rows import LIFE_BITS
from dxpu.stream import PacketSignature, connect
from dxpu.switch.types import SlotRow
from dxpu.tlp.header import TlpHeader
from dxpu.tlp.tail_parser import TailParser
from dxpu.tlp.types import NO_LIMIT

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
        Max_Payload_Size of each row, as encoded in Device Control;
        :data:`~dxpu.tlp.types.NO_LIMIT` if nothing is connected.
    stat_malformed : 1
        Pulse: a malformed TLP leaves.
    malformed_row, malformed_life, malformed_header : 6, number, 4 dwords
        That TLP, valid with ``stat_malformed``; the header as in
        :class:`~dxpu.tlp.tail_parser.TailParser`.
    """

    def __init__(self, width, *, rows):
        super().__init__({
            "i": In(PacketSignature(width, SlotRow)),
            "o": Out(PacketSignature(width, SlotRow)),
            "tlp_header": Out(TlpHeader),
            "max_payloads": In(data.ArrayLayout(3, rows), init=[NO_LIMIT] * rows),
            "stat_malformed": Out(Counted("Malformed TLPs found by the parser; dropped.")),
            "malformed_row": Out(6),
            "malformed_life": Out(LIFE_BITS),
            "malformed_header": Out(data.ArrayLayout(32, 4)),
        })
        self._parser = TailParser(width, meta=SlotRow)

    def elaborate(self, platform):
        m = Module()
        m.submodules.parser = parser = self._parser
        connect(m, wiring.flipped(self.i), parser.i)
        connect(m, parser.o, wiring.flipped(self.o))
        m.d.comb += [
            parser.max_payload.eq(Array(self.max_payloads)[self.i.p.meta.row]),
            self.tlp_header.eq(parser.tlp_header),
            self.stat_malformed.eq(parser.stat_malformed),
            self.malformed_row.eq(parser.o.p.meta.row),
            self.malformed_life.eq(parser.o.p.meta.life),
            self.malformed_header.eq(parser.malformed_header),
        ]
        return m
