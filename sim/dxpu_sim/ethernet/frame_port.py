"""Whole packets between Python and packet streams: one wake-up per packet, none per cycle.

The bytes lie in a memory of wide rows, which the bench accesses by name: a register for a whole
frame would take Yosys minutes.
"""

from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature

__all__ = ["ROW_BYTES", "FrameSink", "FrameSource"]

#: Bytes per row of the memories.
ROW_BYTES = 64


class FrameSource(wiring.Component):
    """Plays packets written by Python: a beat per cycle, two idle cycles between packets.

    Python writes the memory ``rows`` and ``length``, then inverts ``send``. When ``done`` follows,
    the last beat was taken and the next packet may be written.

    Parameters
    ----------
    width : int
        Data bits per beat.
    max_bytes : int
        Largest packet.

    Members
    -------
    o : Out(PacketSignature(width))
    length : In(16), bytes, a multiple of 4
    discard : In(1), for the last beat
    send : In(1)
    done : Out(1)
    """

    def __init__(self, width, *, max_bytes=16384):
        super().__init__({
            "o": Out(PacketSignature(width)),
            "length": In(16), "discard": In(1), "send": In(1), "done": Out(1),
        })
        self._width = width
        self._max_bytes = max_bytes

    def elaborate(self, platform):
        m = Module()
        step = self._width // 8
        m.submodules.rows = rows = memory.Memory(
            shape=8 * ROW_BYTES, depth=self._max_bytes // ROW_BYTES, init=[])
        port = rows.read_port(domain="comb")
        left, beat = Signal(16), Signal(16)
        per_row = ROW_BYTES // step
        m.d.comb += [
            port.addr.eq(beat // per_row),
            self.o.payload.data.eq(port.data.word_select(beat % per_row, self._width)),
            self.o.payload.first.eq(beat == 0),
            self.o.payload.last.eq(left <= step),
            self.o.payload.dwords.eq(Mux(left <= step, left >> 2, step // 4)),
            self.o.payload.discard.eq(self.discard & (left <= step)),
        ]
        with m.If(self.o.valid):
            with m.If(self.o.ready):
                m.d.sync += [left.eq(left - step), beat.eq(beat + 1)]
                with m.If(self.o.payload.last):
                    m.d.sync += [self.o.valid.eq(0), self.done.eq(self.send)]
        with m.Elif(self.send != self.done):
            m.d.sync += [left.eq(self.length), beat.eq(0), self.o.valid.eq(1)]
        return m


class FrameSink(wiring.Component):
    """Collects packets for Python, which wakes on ``toggle``; always ready, unless stalled.

    A packet stays in the memory ``rows`` until the next packet begins to arrive.

    Parameters
    ----------
    width : int
        Data bits per beat.
    max_bytes : int
        Largest packet.

    Members
    -------
    i : In(PacketSignature(width))
    stall : In(1), take nothing
    length : Out(16), bytes
    discard : Out(1)
    toggle : Out(1), inverted when a packet is complete
    violations : Out(8), beats that broke the framing rules of packet streams
    """

    def __init__(self, width, *, max_bytes=16384):
        super().__init__({
            "i": In(PacketSignature(width)),
            "stall": In(1),
            "length": Out(16), "discard": Out(1), "toggle": Out(1), "violations": Out(8),
        })
        self._width = width
        self._max_bytes = max_bytes

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = memory.Memory(
            shape=8 * ROW_BYTES, depth=self._max_bytes // ROW_BYTES, init=[])
        port = rows.write_port(granularity=self._width)
        opened, beat, count = Signal(), self.i.payload, Signal(16)
        per_row = ROW_BYTES * 8 // self._width
        now = Mux(beat.first, 0, count)
        m.d.comb += [
            self.i.ready.eq(~self.stall),
            port.addr.eq(now // per_row),
            port.data.eq(beat.data.replicate(per_row)),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.comb += port.en.eq(1 << (now % per_row))
            m.d.sync += [
                count.eq(now + 1),
                self.length.eq(Mux(beat.first, 0, self.length) + (beat.dwords << 2)),
                opened.eq(~beat.last),
            ]
            with m.If(beat.last):
                m.d.sync += [self.toggle.eq(~self.toggle), self.discard.eq(beat.discard)]
            with m.If((beat.first == opened) | (beat.dwords == 0)
                      | (~beat.last & (beat.dwords != self._width // 32))):
                m.d.sync += self.violations.eq(self.violations + 1)
        return m
