"""CRC-32C of a body and HCRC of a header, a byte a cycle."""

from amaranth import *
from amaranth.lib import crc, wiring
from amaranth.lib.crc.catalog import CRC16_CCITT_FALSE, CRC32_ISCSI
from amaranth.lib.wiring import In, Out

__all__ = ["FrameDigest"]


class FrameDigest(wiring.Component):
    """Both CRCs of a frame, from its words, four cycles each.

    Members
    -------
    begin : 1
        Strobe, only if ``ready``: both begin anew, in the next cycle.
    body, header : 1
        Strobes, only if ``ready``: ``word`` is a part of the body, or of the header.
    word, byte_count : 32, 2
        The first byte is in the lowest bits. So many bytes; 0 for 4.
    ready : 1
    hcrc, body_crc : 16, 32
        As bytes of the frame; if ``ready``.
    intact : 1
        Both have seen the CRC behind what it covers, and it is right; if ``ready``.
    """

    begin: In(1)
    body: In(1)
    header: In(1)
    word: In(32)
    byte_count: In(2)
    ready: Out(1)
    hcrc: Out(16)
    body_crc: Out(32)
    intact: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.of_body = body = crc.Processor(CRC32_ISCSI(data_width=8))
        m.submodules.of_header = header = crc.Processor(CRC16_CCITT_FALSE(data_width=8))
        rest, left, kind, begins = Signal(32), Signal(3), Signal(), Signal()
        m.d.comb += [
            body.start.eq(begins), header.start.eq(begins),
            body.data.eq(rest[:8]), header.data.eq(rest[:8]),
            body.valid.eq((left != 0) & ~kind), header.valid.eq((left != 0) & kind),
            self.ready.eq(left == 0),
            self.hcrc.eq(Cat(header.crc[8:], header.crc[:8])), self.body_crc.eq(body.crc),
            self.intact.eq(body.match_detected & header.match_detected),
        ]
        # The strobes, which are late, decide about `left` alone.
        m.d.sync += begins.eq(self.begin)
        with m.If(self.ready):
            m.d.sync += [rest.eq(self.word), kind.eq(self.header)]
            with m.If(self.body | self.header):
                m.d.sync += left.eq(Mux(self.byte_count == 0, 4, self.byte_count))
        with m.Else():
            m.d.sync += [rest.eq(rest >> 8), left.eq(left - 1)]
        return m
