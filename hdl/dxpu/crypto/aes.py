"""AES-128 encryption (FIPS 197), a column at a time.

Ref: docs/reference/crypto.md
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .sbox import SubWord

__all__ = ["Aes128", "AesWord", "CipherUse", "swapped"]

#: What the round constant is after the last round (FIPS 197, table 5: 36h is that of the last).
_DONE = 0x6C


class AesWord(data.Struct):
    """A column of a block, and that of its key. The first byte is in the lowest bits."""

    data: 32
    key: 32
    chain: 1  #: the block is XORed to the last result first (CBC)


class CipherUse(wiring.Signature):
    """How a part uses an :class:`Aes128` of its owner.

    Members
    -------
    busy : 1
        The part needs the cipher for itself, from this cycle on, until it is low; which it is for
        a cycle at least between two uses.
    i : stream of :class:`AesWord`
        Blocks for the cipher; there are none while ``busy`` is low.
    o : stream of 32
        Its results. All are taken before ``busy`` falls.
    """

    def __init__(self):
        super().__init__({
            "busy": Out(1),
            "i": Out(stream.Signature(AesWord)),
            "o": In(stream.Signature(32)),
        })


def swapped(word):
    """A word as a number whose first byte is the highest, or the other way round."""
    return Cat(word.word_select(n, 8) for n in reversed(range(4)))


def _double(byte):
    """xtime() (FIPS 197, 4.2.1)."""
    return Cat(C(0, 1), byte[:7]) ^ Mux(byte[7], 0x1B, 0)


def _mix(column):
    """MixColumns() of a column (FIPS 197, 5.1.3)."""
    b = [column[8 * n:8 * n + 8] for n in range(4)]
    return Cat(_double(b[n] ^ b[(n + 1) % 4]) ^ b[(n + 1) % 4] ^ b[(n + 2) % 4] ^ b[(n + 3) % 4]
               for n in range(4))


class Aes128(wiring.Component):
    """Encrypts a block of four columns under a key that comes with it.

    A round takes five cycles: one for the key's S-boxes, four for the columns'. The state is in
    four memories, one a row, so ShiftRows() is a matter of addresses. The key schedule runs along
    with the rounds; no key is kept.

    The first word of the result is offered 52 cycles after the last word of the block was taken,
    whatever the words are. The next block is taken when the result was; so a block takes 59 cycles
    if nobody waits.

    Parameters
    ----------
    ram : bool
        S-boxes are in two block RAMs; else they are logic.

    Members
    -------
    i : stream of :class:`AesWord`
        Four words, columns 0 to 3. All, or none, of a block have ``chain``.
    o : stream of 32
        Four words, columns 0 to 3.
    """

    def __init__(self, *, ram=False):
        self._ram = ram
        super().__init__({
            "i": In(stream.Signature(AesWord)),
            "o": Out(stream.Signature(32)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.sub = sub = SubWord(ram=self._ram)
        m.submodules.keys = keys = Memory(shape=32, depth=4, init=[])
        rows = [Memory(shape=8, depth=8, init=[]) for _ in range(4)]
        for n, row in enumerate(rows):
            m.submodules[f"row{n}"] = row
        reads, writes = ([getattr(row, f"{kind}_port")(**options) for row in rows]
                         for kind, options in (("read", dict(domain="comb")), ("write", {})))
        key_read, key_write = keys.read_port(domain="comb"), keys.write_port()

        bank = Signal()                      # that is written; the other one is read
        column, shifts = Signal(2), Signal()  # which column is read, and with ShiftRows()
        into, result, puts = Signal(2), Signal(32), Signal()  # which is written
        word = Signal(32)                    # the newest of the key schedule
        constant, first = Signal(8), Signal()
        state = Cat(read.data for read in reads)
        last = constant == _DONE
        for n, (read, write) in enumerate(zip(reads, writes, strict=True)):
            m.d.comb += [
                read.addr.eq(Cat(column + Mux(shifts, n, 0))[:2] | (~bank << 2)[:3]),
                write.addr.eq(Cat(into, bank)), write.en.eq(puts),
                write.data.eq(result.word_select(n, 8)),
            ]
        m.d.comb += [key_read.addr.eq(column), key_write.addr.eq(column), self.o.payload.eq(state)]
        with m.If(key_write.en):
            m.d.sync += word.eq(key_write.data)

        with m.FSM():
            with m.State("Load"):
                i = self.i.payload
                # What is written before a word is there, it writes over.
                m.d.comb += [
                    self.i.ready.eq(1), puts.eq(1), into.eq(column),
                    result.eq(i.data ^ i.key ^ Mux(i.chain, state, 0)),
                    key_write.en.eq(1), key_write.data.eq(i.key),
                ]
                m.d.sync += [constant.eq(1), first.eq(1)]
                with m.If(self.i.valid):
                    m.d.sync += column.eq(column + 1)
                    with m.If(column == 3):
                        m.next = "Key"
            with m.State("Key"):
                # The last column of the round before comes back, and RotWord() goes.
                self._add_key(m, result, sub.o, word, last)
                m.d.comb += [sub.i.eq(word.rotate_right(8)), into.eq(3), puts.eq(~first)]
                m.d.sync += [bank.eq(~bank), first.eq(1)]
                m.next = "Column"
                with m.If(last):
                    m.next = "Give"
            with m.State("Column"):
                self._add_key(m, result, sub.o, word, last)
                m.d.comb += [
                    sub.i.eq(state), shifts.eq(1), into.eq(column - 1), puts.eq(~first),
                    key_write.en.eq(1),
                    key_write.data.eq(key_read.data ^ Mux(first, sub.o ^ constant, word)),
                ]
                m.d.sync += [first.eq(0), column.eq(column + 1)]
                with m.If(first):
                    m.d.sync += constant.eq(_double(constant))
                with m.If(column == 3):
                    m.next = "Key"
            with m.State("Give"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += column.eq(column + 1)
                    with m.If(column == 3):
                        m.next = "Load"
        return m

    def _add_key(self, m, result, column, word, last):
        """MixColumns(), but for the last round, and AddRoundKey()."""
        m.d.comb += result.eq(Mux(last, column, _mix(column)) ^ word)
