"""The keys of a node, out of its factory record.

Ref: docs/reference/management.md, "Calculations"; docs/reference/boards.md, "Stand-alone"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .record import FactoryState

__all__ = ["NODE_KEY_BYTES", "NodeKey"]

#: Bytes of the record's key that are the node's, from the first one on; as many follow, which are
#: those of the pair.
NODE_KEY_BYTES = 16


class NodeKey(wiring.Component):
    """Copies the first half of the record's key, or both, from a
    :class:`~.reader.FactoryReader` to where the cipher reads it, after each reading.

    ``valid`` rises 17 cycles after a reading has ended, 33 with ``pair``, whatever was found, and
    falls in the cycle after another one has begun.

    Parameters
    ----------
    pair : bool
        Also the second half: the key of a stand-alone box and its host.

    Members
    -------
    state : :class:`~.record.FactoryState`
        Of the reader.
    key_address, key : 5 out, 8 in
        To the reader: number of a byte, and that byte a cycle later.
    valid : 1
        The key can be read, if the record has one; else all of it is 0.
    column, key_column : 2, 32
        Bytes 4n to 4n + 3 of the first half, the first one in the lowest bits, in the same cycle.
    pair_column, pair_key_column : 2, 32
        The same of the second half; only with ``pair``.
    """

    def __init__(self, *, pair=False):
        self._pair = pair
        super().__init__({
            "state": In(FactoryState), "key_address": Out(5), "key": In(8), "valid": Out(1),
            "column": In(2), "key_column": Out(32),
            **({"pair_column": In(2), "pair_key_column": Out(32)} if pair else {}),
        })

    def elaborate(self, platform):
        m = Module()
        size = NODE_KEY_BYTES * (1 + self._pair)
        # Of the byte that is asked for; the one before is there.
        asked, number, rest = Signal(), Signal(range(size + 1)), Signal(24)
        m.d.comb += self.key_address.eq(number)
        ports = [(self.column, self.key_column)]
        if self._pair:
            ports.append((self.pair_column, self.pair_key_column))
        last = number - 1
        for half, (column, key_column) in enumerate(ports):
            words = Memory(shape=32, depth=NODE_KEY_BYTES // 4, init=[])
            m.submodules["pair_words" if half else "words"] = words
            write, read = words.write_port(), words.read_port(domain="comb")
            m.d.comb += [
                read.addr.eq(column), key_column.eq(read.data),
                write.addr.eq(last[2:4]), write.data.eq(Cat(rest, self.key)),
                write.en.eq(asked & (number[:2] == 0)
                            & (last[4] == half if self._pair else 1)),
            ]
        m.d.sync += asked.eq(0)
        with m.If(self.state == FactoryState.READING):
            m.d.sync += [number.eq(0), self.valid.eq(0)]
        with m.Else():
            m.d.sync += [self.valid.eq(number == size), asked.eq(number != size),
                         number.eq(number + (number != size))]
        with m.If(asked):
            m.d.sync += rest.eq(Cat(rest, self.key)[8:])
        return m
