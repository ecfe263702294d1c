"""Contract of dxpu.fabric.session: which tag is accepted, and that none comes twice."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.fabric.format import FrameType
from dxpu.fabric.session import Mode, Phase, SessionKeeper
from dxpu.fabric.types import FrameHeader, Hello
from dxpu_sim.formal import ProofFailed, prove


class FreshTags(wiring.Component):
    """The tag that is accepted changes only by a frame that carries the newly offered one, or to
    none; a HELLO alone changes no session; no tag is offered for two nonces, or accepted again
    after it was not any more.

    The link is any that does what its contract says: it reports HELLOs and HELLO_ACKs with any
    content, frames with the candidate's tag, and frames of the session, at any time. The session
    fails or is given up at any time. One of the tags, any, is watched; one of two boot counters.
    """

    opens: In(1)
    boot: In(16)
    what: In(2)
    failed: In(1)
    reopen: In(1)
    ready: In(1)
    header: In(FrameHeader)
    hello: In(Hello)
    watched: In(16)

    def __init__(self, design=SessionKeeper):
        super().__init__()
        self.dut = design(sessions=1, paths=2, pause=2)

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
        h, hello, session, config = self.header, self.hello, dut.sessions[0], dut.config[0]
        is_hello = (h.type == FrameType.HELLO) | (h.type == FrameType.HELLO_ACK)
        m.d.comb += [
            config.valid.eq(1), config.mode.eq(Mux(self.opens, Mode.OPENS, Mode.ANSWERS)),
            dut.boot.eq(self.boot), dut.wait.eq(0), dut.quiet.eq(0), dut.o.ready.eq(self.ready),
            dut.failed.eq(self.failed), dut.reopen.eq(self.reopen),
            dut.header.eq(h), dut.hello.eq(hello),
            dut.greeted.eq((self.what == 1) & is_hello & dut.greets),
            dut.confirmed.eq((self.what == 2) & ~is_hello & (dut.candidate[0] != 0)
                             & (h.tag == dut.candidate[0])),
            dut.heard.eq((self.what == 3) & ~is_hello & (session.rx_tag != 0)
                         & (h.tag == session.rx_tag)),
        ]

        # What was said last, and what came in the cycle before.
        o, nonce, offered = dut.o.payload, Signal(32), Signal(16)
        said = Signal()
        m.d.comb += said.eq(dut.o.valid & dut.o.ready & (o.type != FrameType.ACK))
        rx, tx, opened = Signal(16), Signal(16), Signal()
        confirmed, answered, greeted, ended = Signal(), Signal(), Signal(), Signal()
        tag = Signal(16)
        m.d.sync += [
            rx.eq(session.rx_tag), tx.eq(session.tx_tag), opened.eq(dut.open), tag.eq(h.tag),
            confirmed.eq(dut.confirmed), greeted.eq(dut.greeted),
            answered.eq(dut.greeted & (h.type == FrameType.HELLO_ACK) & (hello.echoed == h.tag)
                        & (hello.nonce[:16] == h.tag) & (hello.nonce[16:] == self.boot)),
            ended.eq(self.failed | self.reopen),
        ]
        with m.If(~start):
            changed = Signal()
            m.d.comb += changed.eq((session.rx_tag != rx) | (session.tx_tag != tx))
            with m.If(changed):
                m.d.comb += Assert(opened)
                with m.If(session.rx_tag != 0):
                    m.d.comb += Assert((session.rx_tag == tag)
                                       & Mux(self.opens, answered, confirmed))
            with m.If(~self.opens & greeted & ~ended):
                m.d.comb += Assert(~changed & ~opened)
            m.d.comb += Assert((session.rx_tag != 0) == (session.tx_tag != 0))

        # The watched tag.
        known, mine, over = Signal(), Signal(32), Signal()
        with m.If(said & (o.offered == self.watched)):
            with m.If(known):
                m.d.comb += Assert(o.nonce == mine)
            m.d.sync += [known.eq(1), mine.eq(o.nonce)]
        with m.If(said):
            m.d.comb += Assert(o.offered != 0)
            m.d.sync += [nonce.eq(o.nonce), offered.eq(o.offered)]
            with m.If(self.opens):
                m.d.comb += Assert(o.nonce == Cat(o.offered, self.boot))
        with m.If((rx == self.watched) & (session.rx_tag != self.watched) & (rx != 0)):
            m.d.sync += over.eq(1)
        with m.If(over):
            m.d.comb += Assert(session.rx_tag != self.watched)
        with m.If(dut.phase[0].as_value() == Phase.OPEN):
            m.d.comb += Assert(session.rx_tag != 0)
        self.cover(m, ~self.opens & over & (dut.phase[0].as_value() == Phase.OPEN),
                   self.opens & over & (dut.phase[0].as_value() == Phase.OPEN))
        return m

    def cover(self, m, *events):
        pass


class Reaches(FreshTags):
    """A second session can open, at either end."""

    def cover(self, m, *events):
        for event in events:
            m.d.comb += Cover(event)


class Credulous(SessionKeeper):
    """Mutant: any HELLO_ACK will do."""

    def _greeting_fits(self, m, n, *state):
        super()._greeting_fits(m, n, *state)
        return self.greeted[n] & (self.header.type == FrameType.HELLO_ACK)


class OneTag(SessionKeeper):
    """Mutant: the tag stays the same until a session has begun with it."""

    def _fresh(self, m):
        super()._fresh(m)
        with m.If(self._takes.any()):
            m.d.sync += self._tag.eq(self._tag)
        with m.If(self.confirmed.any()):
            m.d.sync += self._tag.eq(self._tag + 1)


class Repetitive(SessionKeeper):
    """Mutant: tags begin anew when a session does."""

    def _fresh(self, m):
        super()._fresh(m)
        with m.If(self.reopen.any()):
            m.d.sync += self._tag.eq(Cat(self.boot[3:], self.boot[:3]))


class Hasty(SessionKeeper):
    """Mutant: a HELLO takes the place of the session at once."""

    def _session(self, m, n):
        super()._session(m, n)
        with m.If(self.greeted[n] & (self.header.type == FrameType.HELLO)):
            m.d.comb += self.sessions[n].rx_tag.eq(self.hello.echoed)


@pytest.mark.parametrize("depth", [9, pytest.param(12, marks=pytest.mark.long)])
def test_fresh_tags(depth):
    prove(FreshTags(), depth=depth)


def test_a_second_session_is_reached():
    prove(Reaches(), depth=12, mode="cover")


@pytest.mark.parametrize("mutant", [Credulous, OneTag, Repetitive, Hasty])
def test_fresh_tags_catches(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(FreshTags(mutant), depth=11)
