"""Video memory."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["ByteMemory"]


class ByteMemory(wiring.Component):
    """Block RAM that reads and writes four consecutive bytes at any byte address.

    Four byte-wide memories stand side by side. An access that crosses the end of a word uses the
    next address in the lanes beyond the end. The address wraps around at the end. A read sees the
    writes of earlier cycles and of its own. After a reset, and when it is told to, the memory
    forgets all: it writes zeros everywhere, for ``size / 4`` cycles, and takes no other write.

    Parameters
    ----------
    size : int
        Bytes; a power of two of at least 8.

    Members
    -------
    write_address : byte address
    write_data, write_enables : 32, 4
        Strobes: write byte n of ``write_data`` to ``write_address`` + n if enable n is set.
    read_address : byte address
    read_enable : 1
        Strobe.
    read_data : 32
        Bytes from ``read_address`` on; valid from the cycle after ``read_enable`` to the next
        strobe.
    wipe, wiping : 1
        Strobe: forget all; from the next cycle on: that goes on.
    """

    def __init__(self, size):
        if not isinstance(size, int) or size < 8 or size & size - 1:
            raise ValueError(f"size must be a power of two of at least 8, not {size!r}")
        bits = size.bit_length() - 1
        super().__init__({
            "write_address": In(bits), "write_data": In(32), "write_enables": In(4),
            "read_address": In(bits), "read_enable": In(1), "read_data": Out(32),
            "wipe": In(1), "wiping": Out(1, init=1),
        })
        self._words = size // 4

    def elaborate(self, platform):
        m = Module()
        turn, read = Signal(2), []
        # Bytes and enables of the write, each in its lane.
        low = self.write_address[:2]
        data, enables = Signal(32), Signal(4)
        m.d.comb += [data.eq(_turned(m, self.write_data, 8, low)),
                     enables.eq(_turned(m, self.write_enables, 1, low))]
        after_write, after_read = (Signal(range(self._words), name=name)
                                   for name in ("after_write", "after_read"))
        m.d.comb += [after_write.eq(self.write_address[2:] + 1),
                     after_read.eq(self.read_address[2:] + 1)]
        wiped = Signal(range(self._words))
        with m.If(self.wiping):
            m.d.sync += [wiped.eq(wiped + 1), self.wiping.eq(wiped != self._words - 1)]
        with m.If(self.wipe):
            m.d.sync += [wiped.eq(0), self.wiping.eq(1)]
        with m.If(self.read_enable):
            m.d.sync += turn.eq(self.read_address[:2])
        for lane in range(4):
            m.submodules[f"lane{lane}"] = memory = Memory(shape=8, depth=self._words, init=[])
            w = memory.write_port()
            r = memory.read_port(transparent_for=(w,))
            m.d.comb += [
                w.addr.eq(Mux(self.write_address[:2] > lane, after_write,
                              self.write_address[2:])),
                w.data.eq(data.word_select(lane, 8)),
                w.en.eq(enables[lane] | self.wiping),
                r.addr.eq(Mux(self.read_address[:2] > lane, after_read, self.read_address[2:])),
                r.en.eq(self.read_enable),
            ]
            with m.If(self.wiping):
                m.d.comb += [w.addr.eq(wiped), w.data.eq(0)]
            read.append(r.data)
        m.d.comb += self.read_data.eq(_turned(m, Cat(read), 8, -turn))
        return m


def _turned(m, value, bits, by):
    """Four words of ``bits`` bits, rotated up by ``by`` words: in two steps, which takes half the
    multiplexers of one."""
    by = by[:2]
    once = Signal(4 * bits)
    m.d.comb += once.eq(Mux(by[0], value.rotate_left(bits), value))
    return Mux(by[1], once.rotate_left(2 * bits), once)
