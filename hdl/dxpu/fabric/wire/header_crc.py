"""CRC of a frame's header, in a few bytes per cycle."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.crc import CRC16_CCITT_FALSE, data_matrix, xor_tree
from dxpu.stream import check_width

from .format import CREDIT_BYTES, HCRC_OFFSET, HCRC_START

__all__ = ["GUARDED_BYTES", "HeaderCrc"]

#: Bytes of the header itself that its CRC covers.
GUARDED_BYTES = HCRC_OFFSET - HCRC_START


class HeaderCrc(wiring.Component):
    """CRC-16 over the guarded bytes of a header and its credit extension.

    Of a frame that is sent, the beat that has the CRC leaves some cycles after the first one. In
    these the CRC is made, a chunk with each ``step``: 4 bytes at 32 bits, 8 at 64, all at 128. At
    256 and 512 bits the CRC is in the first beat, so there it is combinational.

    Ref: docs/reference/wire-format.md, header

    Parameters
    ----------
    width : int
        Data bits per beat.

    Members
    -------
    beat, step : ``range(HCRC_OFFSET)``, 1
        Number of the beat of the frame that leaves in a cycle with ``step``.
    guarded, extension : 128, 64
        The bytes, byte 0 lowest. They hold from beat 0 until ``hcrc`` is used.
    extended : 1
        There is an extension.
    hcrc : 16
        Valid in the cycle of the beat that has it, beat :attr:`place`, until beat 0 of the next
        frame.
    """

    #: Bytes in a cycle; 0 where there are none before the beat that has the CRC.
    CHUNKS = {32: 4, 64: 8, 128: GUARDED_BYTES + CREDIT_BYTES, 256: 0, 512: 0}

    def __init__(self, width):
        self._chunk = self.CHUNKS[check_width(width)]
        #: Number of the beat that has the CRC.
        self.place = HCRC_OFFSET // (width // 8)
        #: Chunks of the header itself, and with the extension; only at 32 and 64 bits.
        self.chunks = tuple(size // self._chunk for size in (
            GUARDED_BYTES, GUARDED_BYTES + CREDIT_BYTES)) if self._chunk in (4, 8) else ()
        super().__init__({
            "beat": In(range(HCRC_OFFSET)),
            "step": In(1),
            "guarded": In(8 * GUARDED_BYTES),
            "extension": In(8 * CREDIT_BYTES),
            "extended": In(1),
            "hcrc": Out(16),
        })

    def elaborate(self, platform):
        m = Module()
        initial = Const(CRC16_CCITT_FALSE.initial, 16)
        if self._chunk not in (4, 8):
            guarded = _after(m, initial, self.guarded)
            value = Mux(self.extended, _after(m, guarded, self.extension), guarded)
            if self._chunk == 0:
                m.d.comb += self.hcrc.eq(value)
            else:
                with m.If(self.step & (self.beat == 0)):
                    m.d.sync += self.hcrc.eq(value)
            return m

        message, bits = Cat(self.guarded, self.extension), 8 * self._chunk
        own, count = self.chunks
        assert count <= self.place
        chunk, before = Signal(bits), Signal(16)
        with m.Switch(self.beat):
            for n in range(count):
                with m.Case(n):
                    m.d.comb += chunk.eq(message.word_select(n, bits))
        m.d.comb += before.eq(Mux(self.beat == 0, initial, self.hcrc))
        with m.If(self.step & ((self.beat < own) | self.extended & (self.beat < count))):
            m.d.sync += self.hcrc.eq(_after(m, before, chunk))
        return m


def _after(m, state, message):
    """The register after ``message``. It goes through the same gates as the first two bytes of
    the message."""
    state, count = Value.cast(state), len(message) // 8
    first = message[:16] ^ Cat(state[8:], state[:8])
    return xor_tree(m, Cat(first, message[16:]), data_matrix(CRC16_CCITT_FALSE, count))
