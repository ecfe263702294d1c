"""Messages of words of 16 bits, as words of 32.

Ref: docs/reference/keyed-sessions.md
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.crypto.cmac import MessageWord

__all__ = ["MessagePart", "MessageWords"]


class MessagePart(data.Struct):
    """Two bytes of a message, the first one in the lowest bits."""

    data: 16
    last: 1


class MessageWords(wiring.Component):
    """Puts two parts of a message together to a word; the last one may be alone. No latency.

    Members
    -------
    i : stream of :class:`MessagePart`
    o : stream of :class:`~dxpu.crypto.cmac.MessageWord`
    """

    i: In(stream.Signature(MessagePart))
    o: Out(stream.Signature(MessageWord))

    def elaborate(self, platform):
        m = Module()
        part, word = self.i.payload, self.o.payload
        first, second = Signal(16), Signal()  # is there; this one is the second
        m.d.comb += [
            word.data.eq(Mux(second, Cat(first, part.data), part.data)),
            word.bytes.eq(Mux(second, 4, 2)), word.last.eq(part.last),
            self.o.valid.eq(self.i.valid & (second | part.last)),
            self.i.ready.eq(self.o.ready | ~self.o.valid),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [first.eq(part.data), second.eq(~second & ~part.last)]
        return m
