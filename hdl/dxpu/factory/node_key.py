"""The key of a node, out of its factory record.

Ref: docs/reference/management.md, "Calculations"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .record import FactoryState

__all__ = ["NODE_KEY_BYTES", "NodeKey"]

#: Bytes of the record's key that are the node's, from the first one on.
NODE_KEY_BYTES = 16


class NodeKey(wiring.Component):
    """Copies the first half of the record's key from a :class:`~.reader.FactoryReader` to where the
    cipher reads it, after each reading.

    ``valid`` rises 17 cycles after a reading has ended, whatever was found, and falls in the cycle
    after another one has begun.

    Members
    -------
    state : :class:`~.record.FactoryState`
        Of the reader.
    key_address, key : 5 out, 8 in
        To the reader: number of a byte, and that byte a cycle later.
    valid : 1
        The key can be read, if the record has one; else all of it is 0.
    column, key_column : 2, 32
        Bytes 4n to 4n + 3 of the key, the first one in the lowest bits, in the same cycle.
    """

    state: In(FactoryState)
    key_address: Out(5)
    key: In(8)
    valid: Out(1)
    column: In(2)
    key_column: Out(32)

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = Memory(shape=32, depth=NODE_KEY_BYTES // 4, init=[])
        write, read = words.write_port(), words.read_port(domain="comb")
        # Of the byte that is asked for; the one before is there.
        asked, number, rest = Signal(), Signal(range(NODE_KEY_BYTES + 1)), Signal(24)
        m.d.comb += [
            self.key_address.eq(number), read.addr.eq(self.column),
            self.key_column.eq(read.data),
            write.addr.eq((number - 1) >> 2), write.data.eq(Cat(rest, self.key)),
            write.en.eq(asked & (number[:2] == 0)),
        ]
        m.d.sync += asked.eq(0)
        with m.If(self.state == FactoryState.READING):
            m.d.sync += [number.eq(0), self.valid.eq(0)]
        with m.Else():
            m.d.sync += [self.valid.eq(number == NODE_KEY_BYTES),
                         asked.eq(number != NODE_KEY_BYTES),
                         number.eq(number + (number != NODE_KEY_BYTES))]
        with m.If(asked):
            m.d.sync += rest.eq(Cat(rest, self.key)[8:])
        return m
