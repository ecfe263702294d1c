"""AES-CMAC (NIST SP 800-38B; RFC 4493).

Ref: docs/reference/crypto.md
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .aes import CipherUse, swapped

__all__ = ["Cmac", "MacUse", "MessageWord", "keep"]


class MessageWord(data.Struct):
    """Up to four bytes of a message. The first byte is in the lowest bits."""

    data: 32
    #: Of the last word: how many bytes are valid, 0 of an empty message only. Else 4.
    bytes: range(5)
    last: 1


class MacUse(wiring.Signature):
    """How a part has messages authenticated by a :class:`Cmac` of its owner.

    Members
    -------
    i : stream of :class:`MessageWord`
        Four bytes a word, but for the last one.
    column, key_column : 2 in, 32 out
        That column of the key, in the same cycle. The key must stay the same during a message.
    o : stream of 32
        The tag: four words.
    """

    def __init__(self):
        super().__init__({
            "i": Out(stream.Signature(MessageWord)),
            "column": In(2),
            "key_column": Out(32),
            "o": In(stream.Signature(32)),
        })


def keep(word, count):
    """The first ``count`` bytes of ``word``, and zeros."""
    return Cat(Mux(count > n, word.word_select(n, 8), 0) for n in range(4))


def _shifted(word, following, by):
    """A word of a block that is shifted left by ``by`` bits, as a number whose first byte is the
    highest."""
    return swapped(Cat(swapped(following), swapped(word))[32 - by:64 - by])


class Cmac(wiring.Component):
    """Authentication tags of messages of any length, also of none.

    It uses a :class:`~.aes.Aes128` of its owner, alone from the first word to the tag. The subkeys
    are made anew for each message, by one block more, so a key may change between messages. A
    message of n blocks takes 63 n + 59 cycles, from the first word to the last of the tag, if
    nobody waits, whatever message and key are; one without bytes counts as a block.

    Members
    -------
    use : :class:`MacUse`
    cipher : :class:`~.aes.CipherUse`
    """

    def __init__(self):
        super().__init__({"use": In(MacUse()), "cipher": Out(CipherUse())})

    def elaborate(self, platform):
        m = Module()
        use, to_aes, from_aes = self.use, self.cipher.i, self.cipher.o
        i, o = use.i, use.o
        column, done = Signal(2), Signal()  # of the block; the message has ended
        chain = Signal()
        # L, the encrypted zero block: its next column first. It turns round with each block.
        zero = Array(Signal(32, name=f"zero{n}") for n in range(4))
        turns, fresh = Signal(), Signal(32)
        m.d.comb += [
            use.column.eq(column), to_aes.payload.key.eq(use.key_column),
            to_aes.payload.chain.eq(chain), fresh.eq(zero[0]),
        ]
        with m.If(turns):
            m.d.sync += [zero[0].eq(zero[1]), zero[1].eq(zero[2]), zero[2].eq(zero[3]),
                         zero[3].eq(fresh)]

        # K1 = L x, K2 = L x^2 in GF(2^128): the first bits come back into the last byte.
        subkeys = []
        for by, top in ((1, [0x87]), (2, [0x87, 0x10E])):
            back = Signal(9, name=f"back{by}")
            highest = zero[1].word_select(0, 8)[8 - by:]  # of column 0, when column 3 is due
            m.d.comb += back.eq(Cat(Cat(highest[n] & (c >> k & 1) for n, c in enumerate(top)).xor()
                                    for k in range(9)))
            following = Signal(32, name=f"following{by}")
            m.d.comb += following.eq(Mux(column == 3, 0, zero[1]))
            subkeys.append(_shifted(zero[0], following, by)
                           ^ Mux(column == 3, swapped(Cat(back, C(0, 23))), 0))
        # Whether this word is of the last block is known when its last word is here. So the words
        # of a block wait until all are there.
        m.submodules.block = block = Memory(shape=32, depth=4, init=[])
        read, write = block.read_port(domain="comb"), block.write_port()
        m.d.comb += [read.addr.eq(column), write.addr.eq(column)]
        padded = Signal()
        text = i.payload
        starts = Signal()  # nothing is under way
        with m.FSM() as fsm:
            m.d.comb += self.cipher.busy.eq(~starts | fsm.ongoing("Zero") & i.valid)
            with m.State("Zero"):  # encrypt the zero block
                m.d.comb += [to_aes.valid.eq(i.valid), starts.eq(column == 0)]
                with m.If(to_aes.valid & to_aes.ready):
                    m.d.sync += column.eq(column + 1)
                    with m.If(column == 3):
                        m.next = "Keep"
            with m.State("Keep"):
                m.d.comb += [from_aes.ready.eq(1), turns.eq(from_aes.valid),
                             fresh.eq(from_aes.payload)]
                with m.If(from_aes.valid):
                    m.d.sync += column.eq(column + 1)
                    with m.If(column == 3):
                        m.d.sync += [chain.eq(0), done.eq(0)]
                        m.next = "Fill"
            with m.State("Fill"):
                m.d.comb += i.ready.eq(~done)
                word = Signal(32)
                # A one bit follows the message, if it does not fill its last block.
                m.d.comb += word.eq(keep(text.data, text.bytes) | Mux(
                    text.last & (text.bytes != 4), 0x80 << (text.bytes << 3)[:5], 0))
                with m.If(done):
                    m.d.comb += word.eq(Mux(padded, 0, 0x80))
                m.d.comb += [write.en.eq(i.valid | done), write.data.eq(word)]
                with m.If(write.en):
                    m.d.sync += column.eq(column + 1)
                    with m.If(~done & text.last):
                        m.d.sync += [done.eq(1), padded.eq(text.bytes != 4)]
                    with m.If(done):
                        m.d.sync += padded.eq(1)
                    with m.If(column == 3):
                        m.next = "Send"
            with m.State("Send"):
                subkey = Mux(padded, subkeys[1], subkeys[0])
                m.d.comb += [
                    to_aes.valid.eq(1), turns.eq(to_aes.ready),
                    to_aes.payload.data.eq(read.data ^ Mux(done, subkey, 0)),
                ]
                with m.If(to_aes.ready):
                    m.d.sync += column.eq(column + 1)
                    with m.If(column == 3):
                        m.d.sync += chain.eq(1)
                        m.next = "Next"
            with m.State("Next"):
                # What comes in between stays in the cipher, for the next block.
                m.d.comb += [
                    from_aes.ready.eq(~done | o.ready), o.valid.eq(done & from_aes.valid),
                    o.payload.eq(from_aes.payload),
                ]
                with m.If(from_aes.valid & from_aes.ready):
                    m.d.sync += column.eq(column + 1)
                    with m.If(column == 3):
                        m.next = "Fill"
                        with m.If(done):
                            m.d.sync += [chain.eq(0), done.eq(0)]
                            m.next = "Rest"
            with m.State("Rest"):  # so that others have their turn
                m.d.comb += starts.eq(1)
                m.next = "Zero"
        return m
