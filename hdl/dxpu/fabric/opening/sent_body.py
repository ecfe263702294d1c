"""The body of a keyed opening: written by words, read by beats."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.format import HEADER_BYTES
from dxpu.fabric.wire.frame_types import Body
from dxpu.stream import check_width

__all__ = ["SentBody"]

_HEADER, _DWORDS = HEADER_BYTES // 4, Body.KEYED.dwords


class SentBody(wiring.Component):
    """A body of 64 bytes, in distributed RAM.

    Parameters
    ----------
    width : int
        Data bits of a beat.

    Members
    -------
    body_put, body_at, body_word : 1, 5, 16
        Pulse: that word of the body is written. The first byte is the lowest.
    row : number
        Of a beat, counted from the first one with a dword of the body.
    dwords : array of 32
        That beat: each dword in the lane where it stands behind a header, in the same cycle.
    """

    def __init__(self, width):
        self._lanes = check_width(width) // 32
        self._rows = max(1, _DWORDS // self._lanes)
        super().__init__({
            "body_put": In(1),
            "body_at": In(5),
            "body_word": In(16),
            "row": In(range(max(2, self._rows))),
            "dwords": Out(data.ArrayLayout(32, self._lanes)),
        })

    def elaborate(self, platform):
        m = Module()
        shift = (self._lanes - 1).bit_length()
        dword, high = self.body_at[1:], self.body_at[0]
        for n in range(self._lanes):
            for half in range(2):
                m.submodules[f"lane{n}_{half}"] = memory = Memory(
                    shape=16, depth=self._rows, init=[])
                put, get = memory.write_port(), memory.read_port(domain="comb")
                m.d.comb += [
                    put.addr.eq(dword >> shift), put.data.eq(self.body_word),
                    put.en.eq(self.body_put & (high == half)
                              & ((dword + _HEADER) % self._lanes == n)),
                    get.addr.eq(self.row),
                    self.dwords[n].word_select(half, 16).eq(get.data),
                ]
        return m
