"""Checks the header of a frame before anything in it is believed."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import check_width

from .format import (
    ACK_ENTRIES, CREDIT_BYTES, ETHERTYPE, HCRC_OFFSET, HCRC_START, HEADER_BYTES, VERSION,
)
from .frame_fields import any_of, header_field, header_fields
from .frame_types import UNNUMBERED, Body, FrameType, handled, types_with
from .header_crc import HeaderCrc
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

    Offers the header in the second cycle after ``valid``, or in the third if it has a credit
    extension; at 32 bits in the fourth and sixth. The CRC is made in 8 bytes per cycle, or 4.

    Parameters
    ----------
    width : int
        Data bits per beat of the frames.
    split, keyed : bool
        HDR and DATA are handled; HELLO_DONE is.

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

    def __init__(self, width, *, split=False, keyed=False):
        super().__init__()
        self._crc = HeaderCrc(min(check_width(width), 64))
        self._handled = handled(split=split, keyed=keyed)

    def elaborate(self, platform):
        m = Module()
        raw, o = self.raw, self.o.payload
        extension = raw[8 * HEADER_BYTES:8 * (HEADER_BYTES + CREDIT_BYTES)]

        m.submodules.crc = crc = self._crc
        own, extended = crc.chunks
        step, done = Signal(range(extended + 1)), Signal()
        m.d.comb += [
            crc.guarded.eq(raw[8 * HCRC_START:8 * HCRC_OFFSET]),
            crc.extension.eq(extension),
            crc.extended.eq(header_field(raw, "CRX")),
            done.eq(step == Mux(crc.extended, extended, own)),
            crc.beat.eq(step),
            crc.step.eq(self.valid & ~done),
        ]
        with m.If(self.taken):
            m.d.sync += step.eq(0)
        with m.Elif(crc.step):
            m.d.sync += step.eq(step + 1)

        header = o.header
        m.d.comb += [header[k].eq(v) for k, v in header_fields(raw).items() if k != "credit"]
        m.d.comb += [header.credit[k].eq(v) for k, v in header_fields(raw)["credit"].items()]
        has_records = any_of(header.type, types_with(Body.RECORDS))
        outside = Cat(header.type == t for t in UNNUMBERED).any()
        m.d.comb += [
            self.o.valid.eq(self.valid & done),
            self.taken.eq(self.o.valid & self.o.ready),
            o.ethertype.eq(header_field(raw, "EtherType") != ETHERTYPE),
            o.version.eq(header_field(raw, "version") != VERSION),
            o.hcrc.eq(header_field(raw, "HCRC") != crc.hcrc),
            o.type.eq(~Cat(header.type == t for t in sorted(FrameType)).any()),
            o.field.eq(header_field(raw, "zero")
                       | ((header.count != 0) != has_records)
                       | (header.crx & (header.credit.cls >= ACK_ENTRIES))
                       | (outside & (header.seq.any() | header.ack.any()))),
            o.unhandled.eq(~Cat(header.type == t for t in self._handled).any()),
        ]
        return m
