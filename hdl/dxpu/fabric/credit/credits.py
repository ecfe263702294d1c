"""What accounts and grants of credits share.

Ref: docs/reference/wire-format.md, credit extension
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory

from dxpu.fabric.wire.format import ACK_ENTRIES

__all__ = ["CLASSES", "OVERHEAD_BYTES", "ClassMemory", "Numbered", "closed_generation",
           "grants_for", "low"]

CLASSES = ACK_ENTRIES
#: Bytes that a TLP has beside its data: four prefixes, four dwords of header, a digest, and a
#: dword to spare.
OVERHEAD_BYTES = 40


def grants_for(width, beats, *, headers, units=None):
    """Headers and data units that fit into ``beats`` of a queue, however they are mixed.

    ``units`` is what one TLP of the class may have at most, if that is little.

    Raises
    ------
    ValueError
        If there is not enough space for the headers and as much data as the largest payload.
    """
    size = width // 8
    if units is not None:
        each = -(-(OVERHEAD_BYTES + 16 * units) // size)
        return min(headers, beats // each), units * min(headers, beats // each)
    # A TLP with data wastes less than a beat.
    each = -(-(OVERHEAD_BYTES + size - 4) // size) if size > 4 else OVERHEAD_BYTES // 4
    left = (beats - headers * each) * size // 16
    if left < 1:
        raise ValueError(f"{beats} beats are not enough for {headers} headers")
    return headers, left


def closed_generation(generation):
    """What stands in place of the generation of a row in which nothing is granted yet."""
    return ~generation


def low(row, rows):
    """Of a row number, the bits that tell so many rows apart."""
    return row[:max(1, (rows - 1).bit_length())]


class Numbered(data.Struct):
    """The event that begins a life of ``row`` has the number ``seq``."""

    row: 6
    seq: 24


class ClassMemory(wiring.Component):
    """A word for each row and class: one memory has the first two classes, one the last.

    That is less than a memory for each class, and what is read goes through one LUT for each bit.

    Parameters
    ----------
    shape : shape of a word
    rows : int

    Members
    -------
    pair, last : :class:`~amaranth.lib.memory.Memory`
        Addresses are those of :meth:`place`, and rows.
    """

    def __init__(self, shape, *, rows):
        super().__init__({})
        self._shape = shape
        self.pair = Memory(shape=shape, depth=2 * rows, init=[])
        self.last = Memory(shape=shape, depth=rows, init=[])

    @staticmethod
    def place(row, cls):
        return Cat(Value.cast(cls)[0], row)

    def read(self, m, name, row, cls):
        """The word of a row and class, in the same cycle."""
        pair, last = self.pair.read_port(domain="comb"), self.last.read_port(domain="comb")
        word = Signal(self._shape, name=name)
        m.d.comb += [
            pair.addr.eq(self.place(row, cls)), last.addr.eq(row),
            word.eq(Mux(Value.cast(cls)[1], last.data.as_value(), pair.data.as_value())),
        ]
        return word

    def write(self, m, strobe, row, cls, word):
        """Write the word of a row and class."""
        cls = Value.cast(cls)
        pair, last = self.pair.write_port(), self.last.write_port()
        m.d.comb += [
            pair.addr.eq(self.place(row, cls)), pair.en.eq(strobe & ~cls[1]), pair.data.eq(word),
            last.addr.eq(row), last.en.eq(strobe & cls[1]), last.data.eq(word),
        ]

    def elaborate(self, platform):
        m = Module()
        m.submodules.pair, m.submodules.last = self.pair, self.last
        return m
