"""Bodies of opening frames, for who looks at them word by word."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.frame_types import Body
from dxpu.stream import check_width

__all__ = ["ReceivedBody"]

_DWORDS = Body.KEYED.dwords


class ReceivedBody(wiring.Component):
    """The first 64 bytes of the newest body, and those of one that is kept; in distributed RAM.

    Parameters
    ----------
    width : int
        Data bits of a piece of a body.

    Members
    -------
    piece_valid, piece_first, piece_data : 1, 1, ``width``
        A piece of a body; the first one.
    keep : 1
        Strobe: the newest body is the one that is kept, instead of the one before.
    came_at, came_word : 5 in, 16 out
        That word of the body that is kept, in the same cycle. The first byte is the lowest.
    """

    def __init__(self, width):
        self._lanes = check_width(width) // 32
        self._rows = max(1, _DWORDS // self._lanes)
        super().__init__({
            "piece_valid": In(1),
            "piece_first": In(1),
            "piece_data": In(width),
            "keep": In(1),
            "came_at": In(5),
            "came_word": Out(16),
        })

    def elaborate(self, platform):
        m = Module()
        shift = (self._lanes - 1).bit_length()
        newest, number, count = Signal(), Signal(range(2 * self._rows)), Signal(
            range(2 * self._rows))
        m.d.comb += number.eq(Mux(self.piece_first, 0, count))
        takes = self.piece_valid & (number < self._rows)
        with m.If(takes):
            m.d.sync += count.eq(number + 1)
        with m.If(self.keep):
            m.d.sync += newest.eq(~newest)
        dword = self.came_at[1:]
        words = []
        for n in range(self._lanes):
            m.submodules[f"lane{n}"] = memory = Memory(shape=32, depth=2 * self._rows, init=[])
            put, get = memory.write_port(), memory.read_port(domain="comb")
            m.d.comb += [
                put.addr.eq(Mux(newest, self._rows, 0) + number), put.en.eq(takes),
                put.data.eq(self.piece_data.word_select(n, 32)),
                get.addr.eq(Mux(newest, 0, self._rows) + (dword >> shift)),
            ]
            words.append(get.data)
        chosen = Array(words)[dword[:shift]] if shift else words[0]
        m.d.comb += self.came_word.eq(chosen.word_select(self.came_at[0], 16))
        return m
