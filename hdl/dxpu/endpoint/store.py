"""Words of BAR 0 that software wrote: registers without logic of their own, and the MSI-X table."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.memory import DisjointMemory

from .types import WordReader

__all__ = ["DEPTH", "Store"]

#: Words: 32 from the beginning of BAR 0, 32 of the MSI-X table.
DEPTH = 64


class Store(wiring.Component):
    """A block RAM of :data:`DEPTH` words of 32 bits with one reader at a time.

    No word is read in a cycle in which one is written. In other cycles the first reader that asks
    has its read granted. Its word is on ``data`` from the next cycle on, until a read is granted
    again.

    While the GPU forgets, all words become 0, one after the other; that takes :data:`DEPTH` cycles,
    in which no other word is written and none is read.

    Parameters
    ----------
    readers : int

    Members
    -------
    write, store_index, value : 1, ``range(DEPTH)``, 32
        Strobe: write a word.
    wiping : 1
        The GPU forgets.
    word_reader : array of :class:`~.types.WordReader`
        The first one has precedence.
    data : 32
    """

    def __init__(self, readers):
        super().__init__({
            "write": In(1), "store_index": In(range(DEPTH)), "value": In(32),
            "wiping": In(1), "word_reader": In(WordReader(DEPTH)).array(readers), "data": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = DisjointMemory(shape=32, depth=DEPTH, init=[])
        write, read = words.write_port(), words.read_port()
        wiped = Signal(range(DEPTH))
        free = ~write.en
        m.d.sync += wiped.eq(wiped + self.wiping)
        m.d.comb += [
            write.addr.eq(Mux(self.wiping, wiped, self.store_index)),
            write.data.eq(Mux(self.wiping, 0, self.value)), write.en.eq(self.write | self.wiping),
            read.en.eq(Cat(reader.ask for reader in self.word_reader).any() & free),
            self.data.eq(read.data),
        ]
        for reader in self.word_reader:
            m.d.comb += reader.granted.eq(free & reader.ask)
            free = free & ~reader.ask
        for reader in reversed(list(self.word_reader)):
            with m.If(reader.ask):
                m.d.comb += read.addr.eq(reader.word_index)
        return m
