"""A pair of MACs at line rate with the line between them, from AXI4-Stream to AXI4-Stream."""

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from dxpu.axi import AxiStream

__all__ = ["FRAME_OVERHEAD", "Line"]

#: Bytes of a frame on the wire besides its own: preamble and delimiter, FCS, least gap.
FRAME_OVERHEAD = 8 + 4 + 12
#: Bytes of the smallest frame without FCS.
SMALLEST = 60


class Line(wiring.Component):
    """One direction of a line whose rate is ``width`` bits in each cycle of ``sync``.

    A frame takes its bytes and :data:`FRAME_OVERHEAD` on the line, on average exactly, as with a
    deficit idle count. The sending MAC takes the transfers of a frame in successive cycles, and
    none while the overhead of the frame passes. What it takes comes out ``delay`` cycles later, and
    cannot be held back.

    Parameters
    ----------
    width : int
        Data bits per transfer.
    delay : int
        Cycles from transmitter to receiver; a power of two.

    Members
    -------
    i : In(AxiStream)
        Of the sending MAC.
    o : Out(AxiStream)
        Of the receiving MAC.
    spoil : In(16)
        Each frame whose number is a multiple of this comes out with a wrong bit, and ``tuser``; 0
        for none.
    frames, spoiled : Out(32)
        Frames sent, and those that came out bad.
    wire_bytes : Out(32)
        Bytes that the frames took on the line.
    underruns, violations, runts : Out(16)
        Cycles without a transfer inside a frame; transfers that broke the rules; frames below
        60 bytes.
    """

    def __init__(self, width, *, delay=32):
        self._width, self._delay = width, delay
        super().__init__({
            "i": In(AxiStream(width, user=True)),
            "o": Out(AxiStream(width, user=True, ready=False)),
            "spoil": In(16),
            "frames": Out(32), "spoiled": Out(32), "wire_bytes": Out(32),
            "underruns": Out(16), "violations": Out(16), "runts": Out(16),
        })

    def elaborate(self, platform):
        m = Module()
        i, step = self.i, self._width // 8
        # Bytes that the line still has to send of what is over.
        behind, length, inside = Signal(12), Signal(16), Signal()
        count, size, total = Signal(range(step + 1)), Signal(16), Signal(16)
        rest = Signal(signed(18))
        moved = i.tvalid & i.tready
        m.d.comb += [
            i.tready.eq(behind < step),
            count.eq(sum(i.tkeep[n] for n in range(step))),
            size.eq(length + count),
            total.eq(Mux(size < SMALLEST, SMALLEST, size) + FRAME_OVERHEAD),
            # The cycles of the transfers themselves are bytes that have passed.
            rest.eq(behind + total - length - step),
        ]
        with m.If(moved):
            m.d.sync += [inside.eq(~i.tlast), length.eq(Mux(i.tlast, 0, size))]
            with m.If(i.tlast):
                m.d.sync += [
                    behind.eq(Mux(rest < 0, 0, rest)),
                    self.frames.eq(self.frames + 1),
                    self.wire_bytes.eq(self.wire_bytes + total),
                    self.runts.eq(self.runts + (size < SMALLEST)),
                ]
        with m.Elif(behind >= step):
            m.d.sync += behind.eq(behind - step)
        with m.Else():
            # An idle line sends nothing of a later frame.
            m.d.sync += behind.eq(0)
        with m.If(inside & i.tready & ~i.tvalid):
            m.d.sync += self.underruns.eq(self.underruns + 1)
        self._check(m, moved)
        self._pass_on(m, moved)
        return m

    def _check(self, m, moved):
        """Count transfers that break the rules."""
        i, keep = self.i, self.i.tkeep
        waits, before = Signal(), Signal(len(i.tdata) + len(keep) + 2)
        now = Cat(i.tdata, keep, i.tlast, i.tuser)
        m.d.sync += [waits.eq(i.tvalid & ~i.tready), before.eq(now)]
        partial = ~keep.all() & ~i.tlast
        gap = (keep[1:] & ~keep[:-1]).any() | ~keep[0]
        with m.If((waits & (~i.tvalid | (now != before))) | (moved & (partial | gap))):
            m.d.sync += self.violations.eq(self.violations + 1)

    def _pass_on(self, m, moved):
        """Delay the transfers, and spoil some frames."""
        i, o = self.i, self.o
        word = data.StructLayout({"data": self._width, "keep": len(i.tkeep), "last": 1, "bad": 1,
                                  "valid": 1})
        m.submodules.line = line = memory.Memory(shape=word, depth=self._delay, init=[])
        write, read = line.write_port(), line.read_port(transparent_for=())
        at, number, bad = Signal(range(self._delay)), Signal(16, init=1), Signal()
        m.d.comb += [
            bad.eq((self.spoil != 0) & (number >= self.spoil)),
            write.en.eq(1), write.addr.eq(at), read.addr.eq(at + 1),
            write.data.data.eq(i.tdata ^ (bad & i.tlast)),
            write.data.keep.eq(i.tkeep),
            write.data.last.eq(i.tlast),
            write.data.bad.eq(i.tlast & (bad | i.tuser)),
            write.data.valid.eq(moved),
            o.tdata.eq(read.data.data), o.tkeep.eq(read.data.keep), o.tlast.eq(read.data.last),
            o.tuser.eq(read.data.bad), o.tvalid.eq(read.data.valid),
        ]
        m.d.sync += at.eq(at + 1)
        with m.If(moved & i.tlast):
            m.d.sync += [
                number.eq(Mux(bad, 1, number + 1)), self.spoiled.eq(self.spoiled + bad),
            ]
