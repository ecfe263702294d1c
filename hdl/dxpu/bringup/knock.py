"""Tells the HELLO of a host that has the key from those of strangers, before a box is set up.

Ref: docs/reference/keyed-sessions.md, "Calculations"; docs/reference/boards.md, "Stand-alone"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.crypto import MacUse
from dxpu.fabric.opening.types import BodyLook
from dxpu.fabric.wire.format import VERSION
from dxpu.fabric.wire.frame_fields import wire
from dxpu.fabric.wire.frame_types import Body, FrameType

from .listener import Greeted

__all__ = ["KnockJudge"]

#: Number of the first word of 16 bits of the proof in the body of a HELLO.
_PROOF = Body.KEYED.find("proof")[0] // 2


class KnockJudge(wiring.Component):
    """Calculates the knock that a HELLO under the key must have, and compares.

    One HELLO is judged at a time, in 128 cycles if nobody else uses the cipher. Whatever is heard
    meanwhile is lost: who sent that sends it again. The comparison takes as long whatever it finds.
    A right knock shows that its sender has the key, or has seen this knock before; so the session
    must still be opened.

    Members
    -------
    greets : 1
        Strobe: a HELLO is refused, of whom the listener says in the next cycle whether it counts.
    heard, who : 1, :class:`~.listener.Greeted`
        From the :class:`~.listener.HelloListener`.
    column, key_column : 2, 32
        Bytes 4n to 4n + 3 of the key, the first one in the lowest bits, in the same cycle.
    body_look : :class:`~dxpu.fabric.opening.types.BodyLook`
    cmac : :class:`~dxpu.crypto.MacUse`
    knocked : 1
        Strobe: the HELLO of ``knocker`` has the right knock.
    knocker : :class:`~.listener.Greeted`
    """

    greets: In(1)
    heard: In(1)
    who: In(Greeted)
    column: Out(2)
    key_column: In(32)
    body_look: Out(BodyLook())
    cmac: Out(MacUse())
    knocked: Out(1)
    knocker: Out(Greeted)

    def elaborate(self, platform):
        m = Module()
        who, cmac, number, half = self.knocker, self.cmac, Signal(2), Signal()
        differs, wrong = Signal(), Signal()
        head = Cat(C(FrameType.HELLO.value, 4), C(VERSION, 4), C(0, 8),
                   wire(Cat(who.host, who.node), 3), C(0, 16), who.stream, C(0, 4))
        words = [C(int.from_bytes(b"DXFK", "little"), 32), head[:32], head[32:]]
        m.d.comb += [
            self.column.eq(cmac.column), cmac.key_column.eq(self.key_column),
            cmac.i.payload.data.eq(Array(words)[number]), cmac.i.payload.bytes.eq(4),
            cmac.i.payload.last.eq(number == len(words) - 1),
            self.body_look.at.eq(_PROOF + Cat(half, number)),
            wrong.eq(self.body_look.word != cmac.o.payload.word_select(half, 16)),
        ]
        with m.FSM():
            with m.State("Wait"):
                m.d.comb += self.body_look.keep.eq(self.greets)
                with m.If(self.greets):
                    m.next = "Heard"
            with m.State("Heard"):
                m.d.sync += [who.eq(self.who), number.eq(0), half.eq(0), differs.eq(0)]
                m.next = "Wait"
                with m.If(self.heard):
                    m.next = "Ask"
            with m.State("Ask"):
                m.d.comb += cmac.i.valid.eq(1)
                with m.If(cmac.i.ready):
                    m.d.sync += number.eq(number + 1)
                    with m.If(cmac.i.payload.last):
                        m.d.sync += number.eq(0)
                        m.next = "Compare"
            with m.State("Compare"):
                m.d.comb += [self.body_look.looks.eq(1), cmac.o.ready.eq(half)]
                with m.If(cmac.o.valid):
                    m.d.sync += [differs.eq(differs | wrong), half.eq(~half)]
                    with m.If(half):
                        m.d.sync += number.eq(number + 1)
                        with m.If(number == 3):
                            m.next = "Tell"
            with m.State("Tell"):
                m.d.comb += self.knocked.eq(~differs)
                m.next = "Wait"
        return m
