"""CRC-32C behind each TLP: made once, where the TLP enters."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.crc import CrcStream
from dxpu.stream import PacketLayout, PacketSignature

__all__ = ["CrcAppender"]


class CrcAppender(wiring.Component):
    """Appends to each packet the CRC-32C of its bytes, as one dword, least significant byte first.

    Where a packet's last beat is full its CRC makes a beat of its own; then ``i`` pauses for that
    one cycle. Otherwise a beat per cycle. Whoever takes ``o`` has room for a beat in each cycle, so
    nothing here has a clock enable. Lanes past the CRC are zero. Packets that end with
    ``discard`` stay so. Latency that of :class:`~dxpu.crc.CrcStream`: two cycles at 32 and 64 bits,
    three above.

    Ref: docs/reference/wire-format.md, TLP records

    Parameters
    ----------
    width : int
        Data bits per beat.
    meta : shape-like, optional
        Side information of the packets.

    Members
    -------
    i, o : packet stream
        ``o`` is always ready.
    """

    def __init__(self, width, meta=None):
        self._layout = PacketLayout(width, meta)
        super().__init__({
            "i": In(PacketSignature(width, meta)),
            "o": Out(stream.Signature(PacketLayout(width, meta), always_ready=True)),
        })

    @property
    def latency(self):
        """Cycles from a beat in to the same beat out."""
        return CrcStream.LATENCY[self._layout.width]

    def elaborate(self, platform):
        m = Module()
        i, o, lanes = self.i, self.o, self._layout.lanes
        m.submodules.crc = crc = CrcStream(self._layout.width)

        # Behind a full last beat the pipeline gets a hole for the CRC.
        hole, taken = Signal(), i.valid & i.ready
        m.d.comb += [
            i.ready.eq(~hole),
            crc.valid.eq(taken),
            crc.data.eq(i.payload.data),
            crc.dwords.eq(i.payload.dwords),
            crc.last.eq(i.payload.last),
        ]
        m.d.sync += hole.eq(taken & i.payload.last & (i.payload.dwords == lanes))

        valid, beat = taken, i.payload
        for n in range(crc.latency):
            next_valid = Signal(name=f"valid_{n}")
            next_beat = Signal(self._layout, name=f"beat_{n}", reset_less=True)
            m.d.sync += [next_valid.eq(valid), next_beat.eq(beat)]
            valid, beat = next_valid, next_beat

        # In a hole `beat` shows what `i` showed then; what the CRC's own beat needs is kept.
        own_beat = Signal()
        kept = Signal(self._layout, reset_less=True)
        kept_crc = Signal(32, reset_less=True)
        m.d.sync += [
            own_beat.eq(valid & beat.last & (beat.dwords == lanes)),
            kept.eq(beat),
            kept_crc.eq(crc.crc),
        ]
        with m.If(own_beat):
            m.d.comb += [
                o.payload.eq(kept),
                o.payload.data.eq(kept_crc),
                o.payload.dwords.eq(1),
                o.payload.first.eq(0),
                o.valid.eq(1),
            ]
        with m.Else():
            m.d.comb += [o.payload.eq(beat), o.valid.eq(valid)]
            with m.If(beat.last):
                with m.If(beat.dwords == lanes):
                    m.d.comb += [o.payload.last.eq(0), o.payload.discard.eq(0)]
                with m.Else():
                    m.d.comb += [
                        o.payload.dwords.eq(beat.dwords + 1),
                        o.payload.data.eq(Cat(
                            Mux(beat.dwords == n, crc.crc,
                                Mux(beat.dwords > n, beat.data.word_select(n, 32), 0))
                            for n in range(lanes))),
                    ]
        return m
