"""Whether the frame at hand is from who has the key: what it may do depends on this, in hardware.

Ref: docs/reference/management.md
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["Verdict"]


class Verdict(wiring.Component):
    """Remembers which words of a tag were found right, until the frame is done.

    The program of the agent says what is compared; what acts is held back by this part, wherever
    the program may be.

    Members
    -------
    forgets : 1
        No frame is at hand.
    begins : 1
        Strobe: the cipher begins with the frame.
    tag_word : 2
        Number of the word of the tag.
    given, decrypts : 1
        Strobe: a word that the cipher has said is written down; whether it says what that word of
        the frame's tag must be.
    compared, alike, kept : 1
        Strobe: that word of the frame's tag was compared with what was written down, or, if
        ``kept``, with that of the last request; whether both are alike.
    authentic : 1
        All four words are as the cipher has said.
    repeated : 1
        All four words are those of the last request.
    """

    forgets: In(1)
    begins: In(1)
    tag_word: In(2)
    given: In(1)
    decrypts: In(1)
    compared: In(1)
    alike: In(1)
    kept: In(1)
    authentic: Out(1)
    repeated: Out(1)

    def __init__(self):
        super().__init__()
        #: Words that the cipher has said; that were found right; that are those of the last one.
        self._there, self._right, self._again = Signal(4), Signal(4), Signal(4)

    def elaborate(self, platform):
        m = Module()
        there, right, again = self._there, self._right, self._again
        m.d.comb += [self.authentic.eq(right.all()), self.repeated.eq(again.all())]
        with m.If(self.forgets | self.begins):
            m.d.sync += [there.eq(0), right.eq(0), again.eq(0)]
        with m.Else():
            with m.If(self.given):
                m.d.sync += [there.bit_select(self.tag_word, 1).eq(self.decrypts), right.eq(0)]
            with m.If(self.compared & ~self.kept):
                m.d.sync += right.bit_select(self.tag_word, 1).eq(self.alike & there.all())
            with m.If(self.compared & self.kept):
                m.d.sync += again.bit_select(self.tag_word, 1).eq(self.alike)
        return m
