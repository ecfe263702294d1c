"""Checks the header of a frame before anything in it is believed."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.crc import CRC16_CCITT_FALSE, data_matrix, fixed_crc, state_matrix, xor_tree

from .format import (
    ACK_ENTRIES, CREDIT_BYTES, ETHERTYPE, HCRC_OFFSET, HCRC_START, HEADER_BYTES, VERSION,
)
from .frame_fields import any_of, header_field, header_fields
from .frame_types import UNNUMBERED, Body, FrameType, handled, types_with
from .types import FrameHeader

__all__ = ["CheckedHeader", "HeaderCheck"]


class CheckedHeader(data.Struct):
    """A header, and what is wrong with it; see :class:`~.format.DropCause`."""

    header: FrameHeader
    ethertype: 1
    version: 1
    hcrc: 1
    type: 1
    field: 1
    unhandled: 1


class HeaderCheck(wiring.Component):
    """Checks EtherType, version, HCRC, type, count and zero fields of each header.

    Offers the header in the second cycle after ``valid``.

    Parameters
    ----------
    split : bool
        HDR and DATA are handled.

    Members
    -------
    raw, valid, taken : 320, 1, 1
        As ``header`` of :class:`~dxpu.fabric.receive.frame_walker.FrameWalker`.
    o : stream of :class:`CheckedHeader`
    """

    raw: In(320)
    valid: In(1)
    taken: Out(1)
    o: Out(stream.Signature(CheckedHeader))

    def __init__(self, *, split=False):
        super().__init__()
        self._handled = handled(split=split)

    def elaborate(self, platform):
        m = Module()
        raw, o = self.raw, self.o.payload
        extension = raw[8 * HEADER_BYTES:8 * (HEADER_BYTES + CREDIT_BYTES)]

        plain, extended = Signal(16, reset_less=True), Signal(16, reset_less=True)
        steps = Signal(2)
        m.d.sync += [
            plain.eq(fixed_crc(m, CRC16_CCITT_FALSE, raw[8 * HCRC_START:8 * HCRC_OFFSET])),
            extended.eq(Mux(
                header_field(raw, "CRX"),
                xor_tree(m, plain, state_matrix(CRC16_CCITT_FALSE, CREDIT_BYTES))
                ^ xor_tree(m, extension, data_matrix(CRC16_CCITT_FALSE, CREDIT_BYTES)),
                plain)),
            steps.eq(Mux(self.taken, 0, Cat(self.valid, steps[0]))),
        ]

        header = o.header
        m.d.comb += [header[k].eq(v) for k, v in header_fields(raw).items() if k != "credit"]
        m.d.comb += [header.credit[k].eq(v) for k, v in header_fields(raw)["credit"].items()]
        has_records = any_of(header.type, types_with(Body.RECORDS))
        outside = Cat(header.type == t for t in UNNUMBERED).any()
        m.d.comb += [
            self.o.valid.eq(steps[1]),
            self.taken.eq(self.o.valid & self.o.ready),
            o.ethertype.eq(header_field(raw, "EtherType") != ETHERTYPE),
            o.version.eq(header_field(raw, "version") != VERSION),
            o.hcrc.eq(header_field(raw, "HCRC") != extended),
            o.type.eq(~Cat(header.type == t for t in sorted(FrameType)).any()),
            o.field.eq(header_field(raw, "zero")
                       | ((header.count != 0) != has_records)
                       | (header.crx & (header.credit.cls >= ACK_ENTRIES))
                       | (outside & (header.seq.any() | header.ack.any()))),
            o.unhandled.eq(~Cat(header.type == t for t in self._handled).any()),
        ]
        return m
