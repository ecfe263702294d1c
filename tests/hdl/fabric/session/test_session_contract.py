"""Contract of dxpu.fabric.session.session: which tag is accepted, and that none comes twice."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.fabric.session.session import Act, Mode, SessionKeeper
from dxpu.fabric.session.types import SaidKind, SettingKind
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.fabric.wire.types import FrameHeader, Hello
from tests.support.formal import ProofFailed, prove


class FreshTags(wiring.Component):
    """The tag that is accepted changes only by a frame that carries the newly offered one, or to
    none; a HELLO alone changes no session; no tag is offered for two nonces, or accepted again
    after it was not any more.

    The link is any that does what its contract says: it reports HELLOs and HELLO_ACKs with any
    content, frames with the tag that the candidate had two cycles before, and frames of the
    session, at any time, though not at once one after the other. The session fails or is given up
    at any time, and opens as slowly as it likes. One of the tags, any, is watched.
    """

    opens: In(1)
    boot: In(16)
    said: In(1)
    what: In(SaidKind)
    failed: In(1)
    reopen: In(1)
    opened: In(1)
    ready: In(1)
    header: In(FrameHeader)
    hello: In(Hello)
    watched: In(16)

    def __init__(self, design=SessionKeeper):
        super().__init__()
        self.dut = design(peers=1, streams=1, paths=2, pause=2, unit=2, pace=2)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        start = Signal(init=1)
        m.d.sync += start.eq(0)
        for name in ("opens", "boot", "watched"):
            value, before = getattr(self, name), Signal.like(getattr(self, name))
            m.d.sync += before.eq(value)
            with m.If(~start):
                m.d.comb += Assume(value == before)
        h, hello = self.header, self.hello
        m.d.comb += [
            dut.valid.eq(1), dut.boot.eq(self.boot), dut.wait.eq(0), dut.quiet.eq(0),
            dut.o.ready.eq(self.ready), dut.failed.eq(self.failed), dut.open.ready.eq(self.opened),
            dut.ended.eq(dut.open.valid & self.opened),
            dut.header.eq(h), dut.hello.eq(hello),
        ]
        # Software: the mode, once, and later that the session begins anew.
        setting, is_set = dut.setting, Signal()
        m.d.comb += [
            setting.valid.eq(~is_set | self.reopen),
            setting.p.kind.eq(Mux(is_set, SettingKind.OPEN, SettingKind.MODE)),
            setting.p.mode.eq(Mux(self.opens, Mode.OPENS, Mode.ANSWERS)),
        ]
        with m.If(setting.ready):
            m.d.sync += is_set.eq(1)
        # What the link says.
        said, waits, kind = dut.said, Signal(), Signal(SaidKind)
        header, body, since, want = Signal(FrameHeader), Signal(Hello), Signal(3), Signal(16)
        rx, tx, rx_before, before, at_look = (Signal(16, name=name) for name in (
            "rx", "tx", "rx_before", "before", "at_look"))
        m.d.comb += [said.valid.eq(self.said), said.p.kind.eq(self.what)]
        m.d.sync += [
            waits.eq(said.valid & ~said.ready), kind.eq(self.what), header.eq(h), body.eq(hello),
            since.eq(Mux(said.valid & said.ready, 0b111, since >> 1)),
            # In the first cycle the words are not zero yet.
            rx.eq(Mux(start, 0, dut.rx_tag)), tx.eq(Mux(start, 0, dut.tx_tag)),
            before.eq(Mux(start, 0, dut.candidate)), at_look.eq(before), rx_before.eq(rx),
        ]
        is_hello = (h.type == FrameType.HELLO) | (h.type == FrameType.HELLO_ACK)
        tag = Signal(16)  # of the frame that confirms
        m.d.comb += tag.eq(Mux(waits, want, at_look))
        m.d.sync += want.eq(tag)
        m.d.comb += Assume(~(self.said & since.any()))
        with m.If(waits):
            m.d.comb += Assume(self.said & (self.what == kind))
            with m.If(self.what == SaidKind.GREETED):
                m.d.comb += Assume((Value.cast(h) == Value.cast(header))
                                   & (Value.cast(hello) == Value.cast(body)))
        with m.Elif(self.said):
            m.d.comb += Assume(Mux(self.what == SaidKind.GREETED, is_hello,
                                   Mux(self.what == SaidKind.CONFIRMED, at_look, rx_before) != 0))

        # What was said last, and what came in the cycle before.
        o, says = dut.o.payload, Signal()
        fences = dut.o.valid & (o.type == FrameType.FENCE)
        m.d.comb += [says.eq(dut.o.valid & dut.o.ready & (o.type != FrameType.ACK) & ~fences),
                     # With a tag that the session had.
                     Assert(~fences | (o.tag != 0))]
        confirmed, answered, greeted = Signal(), Signal(), Signal()
        taken = said.valid & said.ready
        greets = taken & (self.what == SaidKind.GREETED)
        mine = Signal(16)
        m.d.sync += [
            confirmed.eq(taken & (self.what == SaidKind.CONFIRMED)), greeted.eq(greets),
            mine.eq(Mux(self.opens, h.tag, tag)),
            answered.eq(greets & (h.type == FrameType.HELLO_ACK) & (hello.echoed == h.tag)
                        & (hello.nonce[:16] == h.tag) & (hello.nonce[16:] == self.boot)),
        ]
        with m.If(~start):
            changed = Signal()
            m.d.comb += changed.eq((dut.rx_tag != rx) | (dut.tx_tag != tx))
            with m.If(changed):
                m.d.comb += Assert(dut.opening)
                with m.If(dut.rx_tag != 0):
                    m.d.comb += Assert((dut.rx_tag == mine)
                                       & Mux(self.opens, answered, confirmed))
            with m.If(~self.opens & greeted):
                m.d.comb += Assert(~changed & ~dut.opening)
            m.d.comb += Assert((dut.rx_tag != 0) == (dut.tx_tag != 0))

        # The watched tag.
        known, nonce, over, is_open = Signal(), Signal(32), Signal(), Signal()
        m.d.comb += is_open.eq(is_set & ~dut.down)
        with m.If(says & (o.offered == self.watched)):
            with m.If(known):
                m.d.comb += Assert(o.nonce == nonce)
            m.d.sync += [known.eq(1), nonce.eq(o.nonce)]
        with m.If(says):
            m.d.comb += Assert(o.offered != 0)
            with m.If(self.opens):
                m.d.comb += Assert(o.nonce == Cat(o.offered, self.boot))
        with m.If((rx == self.watched) & (dut.rx_tag != self.watched) & (rx != 0)):
            m.d.sync += over.eq(1)
        with m.If(over):
            m.d.comb += Assert(dut.rx_tag != self.watched)
        with m.If(is_open & ~start):
            m.d.comb += Assert(dut.rx_tag != 0)
        self.cover(m, ~self.opens & is_open, self.opens & is_open,
                   ~self.opens & over & is_open, self.opens & over & is_open)
        return m

    def cover(self, m, *events):
        pass


class Reaches(FreshTags):
    """A session can open at either end; with ``again``, a second one."""

    def __init__(self, *, again):
        super().__init__()
        self._again = again

    def cover(self, m, *events):
        for event in events[2:] if self._again else events[:2]:
            m.d.comb += Cover(event)


class Credulous(SessionKeeper):
    """Mutant: any HELLO_ACK will do."""

    def _greeted(self, m, what, opens):
        super()._greeted(m, what, opens)
        return (what == SaidKind.GREETED) & (self.header.type == FrameType.HELLO_ACK)


class OneTag(SessionKeeper):
    """Mutant: the tag stays the same until a session has begun with it."""

    def _fresh(self, m):
        super()._fresh(m)
        with m.If(self._takes):
            m.d.sync += self._tag.eq(self._tag)
        with m.If(self._does[Act.SAID] & (self.said.payload.kind == SaidKind.CONFIRMED)):
            m.d.sync += self._tag.eq(self._tag + 1)


class Repetitive(SessionKeeper):
    """Mutant: tags begin anew when one is sent."""

    def _fresh(self, m):
        super()._fresh(m)
        with m.If(self._says & self._now.hello):
            m.d.sync += self._tag.eq(Cat(self.boot[3:], self.boot[:3]))


class Hasty(SessionKeeper):
    """Mutant: a HELLO takes the place of the session at once."""

    def _is_said(self, m, opens, ends):
        super()._is_said(m, opens, ends)
        with m.If((self.said.payload.kind == SaidKind.GREETED)
                  & (self.header.type == FrameType.HELLO)):
            m.d.comb += self._then.rx.eq(self.hello.echoed)


#: Depth of the quick proof. All mutants are found, and a first session is reached, within it.
DEPTH = 28


@pytest.mark.parametrize("depth", [DEPTH, pytest.param(31, marks=pytest.mark.long)])
def test_fresh_tags(depth):
    prove(FreshTags(), depth=depth, flat=True)


@pytest.mark.parametrize("again, depth", [
    (False, DEPTH), pytest.param(True, 44, marks=pytest.mark.long)])
def test_a_session_and_a_second_one_are_reached(again, depth):
    """The second opens later than the proof looks: what goes wrong then is for simulations."""
    prove(Reaches(again=again), depth=depth, mode="cover", flat=True)


@pytest.mark.parametrize("mutant", [Credulous, OneTag, Repetitive, Hasty])
def test_fresh_tags_catches(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(FreshTags(mutant), depth=DEPTH, flat=True)
