"""Tags that cannot be foretold.

Ref: docs/reference/keyed-sessions.md, "Tags and nonces"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.crypto.sbox import SubWord

__all__ = ["TagPermutation"]


class TagPermutation(wiring.Component):
    """A permutation of 16 bits: a Feistel network of four rounds with the S-box of AES.

    A result takes eight cycles from a change of ``drawn``.

    Members
    -------
    tag_key, tag_key_valid : 32, 1
        A byte a round, the first one lowest. Once valid it stays; before, there is no image.
    drawn : 16
    image, done : 16, 1
        Its image; it is that of the present ``drawn``.
    """

    tag_key: In(32)
    tag_key_valid: In(1)
    drawn: In(16)
    image: Out(16)
    done: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.sub = sub = SubWord()
        high, low = Signal(8), Signal(8)
        # What the S-box is asked for, in a register of its own: it is most of a cycle.
        asked = Signal(8)
        # The number whose image this is, or becomes; whether it is.
        of, made = Signal(16), Signal()
        turn = Signal(2)
        m.d.comb += [
            sub.i.eq(asked),
            self.image.eq(Cat(low, high)), self.done.eq(made & (of == self.drawn)),
        ]
        with m.FSM():
            with m.State("Rest"):
                m.d.sync += [of.eq(self.drawn), turn.eq(0),
                             asked.eq(self.drawn[:8] ^ self.tag_key[:8])]
                with m.If(self.tag_key_valid & ~self.done):
                    m.d.sync += [made.eq(0), Cat(low, high).eq(self.drawn)]
                    m.next = "Look"
            with m.State("Look"):
                m.next = "Round"
            with m.State("Round"):
                m.d.sync += [
                    high.eq(low), low.eq(high ^ sub.o[:8]), turn.eq(turn + 1),
                    asked.eq(high ^ sub.o[:8] ^ self.tag_key.word_select((turn + 1)[:2], 8)),
                ]
                m.next = "Look"
                with m.If(turn == 3):
                    m.d.sync += made.eq(1)
                    m.next = "Rest"
        return m
