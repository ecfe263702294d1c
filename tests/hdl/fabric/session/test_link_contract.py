"""Contract of dxpu.fabric.session.link: frames take effect exactly once and in order, whatever
comes."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.fabric.session.arrivals import Arrivals, is_hello
from dxpu.fabric.session.link import Link
from dxpu.fabric.session.numbers import ReceivedNumbers
from dxpu.fabric.session.types import SaidKind
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.fabric.wire.types import FrameHeader
from tests.support.formal import ProofFailed, prove
from tests.support.link_mutants import Eager, Repetitive
from tests.support.mutate import mutant

NODE, PEER, TAG, CANDIDATE = 5, 9, 0xBEEF, 0xCAFE


def within(distance, behind, ahead):
    """Whether a difference of numbers is from -``behind`` to ``ahead``."""
    return (distance + behind)[:24] <= behind + ahead


def beginning(design):
    """``design`` with numbers that begin at ``first``, in the cycle after they were zeroed."""
    class Beginning(design):
        def __init__(self, **options):
            super().__init__(**options)
            self.first, self.start = Signal(24), Signal(2, init=0b11)
            self._numbers = mutant(ReceivedNumbers, (
                "write.addr.eq(zero)", "[write.addr.eq(zero), write.data.eq(self.first)]"))(
                    sessions=1)
            self._numbers.first = self.first

        def elaborate(self, platform):
            m = super().elaborate(platform)
            m.d.sync += self.start.eq(self.start >> 1)
            with m.If(self.start.any()):
                for part in (self._routes, self._arrivals):
                    m.d.comb += part.hold.eq(1)
                for words in (self._seq, self._next, *([self._due] if self._due else [])):
                    m.d.comb += [words.put.eq(1), words.new.eq(self.first)]
            return m

    return Beginning


class InOrder(wiring.Component):
    """Frames with a number take effect as 0, 1, 2 and so on, and every ACK says how many.

    The wire offers any header at any time: lost, doubled, old, from the future, of another session,
    node or stream, with any acknowledgement, of a HELLO, with the tag of the candidate. Only frames
    with the session's tag act upon its numbers, and only with numbers near those of the session;
    the candidate's confirm it and do nothing else. The
    number of the first frame is any, so that the wrap is met. What is told to the retransmitter
    never goes beyond what it has, and back only where the peer asked. What is told to the keeper is
    told once, before the next frame takes effect; of a greeting, while the frame is there.

    With ``selective``, what comes ahead may be held, and only what is held does the word of a route
    name (or what has taken effect since).
    """

    header: In(FrameHeader)
    header_valid: In(1)
    good: In(1)
    request_valid: In(1)
    consumes: In(1)
    again: In(1)
    first: In(24)
    unacked: In(3)
    comes_again: In(1)
    frame_done: In(1)
    frame_taken_back: In(1)
    said_ready: In(1)
    acked_ready: In(1)

    def __init__(self, design=Link, *, selective=False):
        super().__init__()
        self._selective = selective
        self.dut = beginning(design)(rows=1, peers=1, streams=1, paths=1, frames=7,
                                     **dict(selective=True, window=4) if selective else {})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        row, peer = dut.rows[0], dut.peers[0]
        m.d.comb += [
            dut.node.eq(NODE), dut.bound.eq(1), dut.ack_delay.eq(2),
            row.node.eq(PEER), row.slot.eq(0), row.local_slot.eq(1), row.paths.eq(1),
            row.used.eq(1),
            peer.valid.eq(1), peer.node.eq(PEER), dut.tx_tag.eq(TAG + 1),
            dut.rx_tag.eq(TAG), dut.candidate.eq(CANDIDATE), dut.greets.eq(1),
            dut.said.ready.eq(self.said_ready), dut.acked.ready.eq(self.acked_ready),
            dut.first.eq(self.first), dut.reply.ready.eq(1),
            dut.frame_done.eq(self.frame_done), dut.frame_taken_back.eq(self.frame_taken_back),
        ]
        start = Signal(init=1)
        m.d.sync += start.eq(0)

        # The depacketizer: a header, its verdict, and, if all of the frame is good, its commit.
        h, waiting, before = self.header, Signal(), Signal(FrameHeader)
        accepted, pending = Signal(), Signal()
        offered = self.header_valid & ~pending
        m.d.comb += [
            dut.header.valid.eq(offered), dut.header.payload.eq(h), dut.verdict.ready.eq(1),
            accepted.eq(dut.verdict.valid & dut.verdict.payload.accept
                        & ~dut.verdict.payload.hold),
            dut.committed.valid.eq(pending), dut.committed.payload.header.eq(before),
        ]
        m.d.sync += [waiting.eq(offered & ~dut.header.ready), before.eq(Mux(pending, before, h))]
        with m.If(waiting):
            m.d.comb += [Assume(self.header_valid), Assume(Value.cast(h) == Value.cast(before))]
        with m.If(dut.verdict.valid):
            # Nobody here handles MGMT, so the depacketizer drops it, whatever the verdict.
            m.d.sync += pending.eq(accepted & self.good & (h.type != FrameType.MGMT))
        with m.Elif(dut.committed.ready):
            m.d.sync += pending.eq(0)
        numbered = Cat(before.type == t for t in (
            FrameType.TLP, FrameType.EVENT, FrameType.HDR, FrameType.DATA)).any()

        # How many took effect, and what was said of them.
        count, took, due, what = Signal(24), Signal(), Signal(), Signal(SaidKind)
        newest = Signal(24)
        said, greeted = dut.said, Signal()
        hello = Cat(before.type == t for t in (
            FrameType.HELLO, FrameType.HELLO_ACK, FrameType.HELLO_DONE)).any()
        own = ~hello & (before.tag == TAG)
        fence = before.type == FrameType.FENCE
        confirms = ~hello & ~numbered & ~fence & (before.tag == CANDIDATE)
        m.d.comb += took.eq(pending & dut.committed.ready)
        with m.If(said.valid & said.ready):
            m.d.sync += due.eq(0)
            with m.If(said.p.kind == SaidKind.GREETED):
                m.d.sync += greeted.eq(1)
        with m.If(took):
            m.d.comb += [
                Assert((before.dst_node == NODE) & (before.src_node == PEER) & (before.stream == 0)
                       & (hello | own | confirms)),
                Assert(~due),
                Assert(hello == (greeted | said.valid & said.ready)),
            ]
            m.d.sync += [due.eq(~hello), greeted.eq(0),
                         what.eq(Mux(own, Mux(fence, SaidKind.FENCED, SaidKind.HEARD),
                                     SaidKind.CONFIRMED))]
            if not self._selective:  # there a frame may be held for long
                with m.If(own):
                    m.d.comb += [
                        Assert(within(before.seq - count, 1024, 1023)),
                        # What was acknowledged last may not be told yet.
                        Assert(within(before.ack - newest, 1024 + 7, 7)),
                    ]
                with m.If(confirms):
                    m.d.comb += [Assert(within(before.seq, 1024, 1023)), Assert(before.ack == 0)]
        with m.If(said.valid):
            m.d.comb += Assert(Mux(said.p.kind == SaidKind.GREETED, pending & hello & ~greeted,
                                   due & (said.p.kind == what)))
        with m.If(took):
            with m.If(numbered):
                m.d.comb += Assert(before.seq == count)
                m.d.sync += count.eq(count + 1)

        if self._selective:
            self._hold(m, before, count)

        # The packetizer, and the numbers of what it sends.
        r, route, sent = dut.request, dut.route, Signal(24)
        asked, consumes, again = Signal(), Signal(), Signal()
        m.d.comb += [
            r.valid.eq(self.request_valid), route.ready.eq(1), r.p.consumes.eq(self.consumes),
            r.p.again.eq(self.again), r.p.direct.eq(self.again), r.p.paths.eq(1),
        ]
        m.d.sync += [asked.eq(r.valid & ~r.ready), consumes.eq(self.consumes), again.eq(self.again)]
        with m.If(asked):
            m.d.comb += Assume(self.request_valid & (self.consumes == consumes)
                               & (self.again == again))
        with m.If(route.valid):
            m.d.comb += [
                Assert(route.p.ok & (route.p.tag == TAG + 1)),
                # An ACK is no promise: what it counts has taken effect, though perhaps not all that
                # has is in it yet.
                Assert((count - route.p.ack)[:24] <= 1),
            ]
            with m.If(self.consumes & ~self.again):
                m.d.comb += Assert(route.p.seq == sent)
                m.d.sync += sent.eq(sent + 1)

        # The retransmitter: a number of frames that it has, which only acknowledgements lower.
        acked, known, last = dut.acked, Signal(3), newest
        report, told = Signal(FrameHeader), Signal()
        with m.If(took):
            m.d.sync += [report.eq(before), told.eq(0)]
        m.d.sync += known.eq(self.unacked)
        m.d.comb += dut.unacked.eq(self.unacked)
        with m.If(~start):
            m.d.comb += Assume((self.unacked == known) | (self.unacked == known + 1))
            m.d.comb += Assume(self.unacked >= known)
        with m.Else():
            m.d.comb += Assume(self.unacked == 0)
        with m.If(acked.valid):
            m.d.comb += Assert(~told & (acked.p.count <= self.unacked) & (report.tag == TAG)
                               & (report.ack == (last + acked.p.count)[:24])
                               & (~acked.p.back | (report.type == FrameType.SACK))
                               & (report.type != FrameType.FENCE))
            with m.If(acked.ready):
                m.d.sync += [known.eq(self.unacked - acked.p.count), last.eq(report.ack),
                             told.eq(1)]

        # Numbers begin anywhere.
        begun, first = Signal(24), Signal(24)
        m.d.sync += first.eq(self.first)
        with m.If(dut.start == 0b01):
            m.d.comb += Assume(self.first == first)
        with m.If(dut.start.any()):
            m.d.sync += [number.eq(self.first) for number in (count, sent, last, begun)]
        self.cover(m, took & numbered & (count == 0) & (begun == 0xFFFFFF),
                   acked.valid & acked.p.back & (acked.p.count != 0), took & hello)
        return m

    def _hold(self, m, before, count):
        """The frames that are held, by their numbers modulo 8."""
        dut, held = self.dut, Signal(8)
        verdict, ask = dut.verdict, Signal()
        m.d.sync += ask.eq(verdict.valid & verdict.payload.accept & verdict.payload.hold
                           & self.good)
        m.d.comb += [dut.held.eq(ask & dut.holds), dut.again.eq(self.comes_again)]
        with m.If(ask):  # the header stays until its frame is done with
            m.d.comb += Assume(Value.cast(self.header) == Value.cast(before))
        with m.If(dut.held):
            m.d.comb += Assert(((before.seq - count)[:24] < 4) & (before.seq != count)
                               & (before.tag == TAG)
                               & (dut.place.number == before.seq[:2])
                               & ~held.bit_select(before.seq[:3], 1))
            m.d.sync += held.bit_select(before.seq[:3], 1).eq(1)
        # Behind the window there is room for those that come.
        m.d.sync += held.bit_select((count - 1)[:3], 1).eq(0)
        with m.If(dut.route.valid):
            for n in range(4):
                number = (dut.route.p.ack + 1 + n)[:24]
                with m.If(dut.route.p.word[n]):
                    m.d.comb += Assert(held.bit_select(number[:3], 1)
                                       | ((count - number)[:24] < 4) & (number != count))

    def cover(self, m, *events):
        pass


class Reaches(InOrder):
    """Frames can take effect across the wrap, and a NAK that also acknowledges."""

    def cover(self, m, *events):
        for event in events:
            m.d.comb += Cover(event)


class Credulous(Link):
    """Mutant: believes every acknowledgement."""

    class ARRIVALS(Arrivals):
        def _take_commits(self, m):
            super()._take_commits(m)
            header = self.committed.payload.header
            with m.If(self.committed.valid & self.committed.ready & (header.tag == self.rx_tag)
                      & ~is_hello(header.type)):
                m.d.sync += [self.acked.valid.eq(1),
                             self.acked.payload.count.eq(header.ack - self.fetched_number)]


class Premature(Link):
    """Mutant: a frame with a number is taken with the tag of the candidate."""

    ARRIVALS = mutant(Arrivals, ("| ~numbered & (candidate != 0)", "| (candidate != 0)"))


class Forgetful(Link):
    """Mutant: a frame that confirms the candidate acknowledges frames of the session, too."""

    class ARRIVALS(Arrivals):
        def _take_commits(self, m):
            super()._take_commits(m)
            header = self.committed.payload.header
            fresh = (header.ack - self.fetched_number)[:24]
            with m.If(self.committed.valid & self.committed.ready & (header.tag == self.candidate)
                      & (fresh <= self.unacked)):
                m.d.sync += [self.acked.valid.eq(1), self.acked.payload.count.eq(fresh)]


class Twofold(Link):
    """Mutant: what is told to the keeper is told again."""

    class ARRIVALS(Arrivals):
        def _take_commits(self, m):
            super()._take_commits(m)
            again = Signal()
            with m.If(self.said.valid & self.said.ready):
                m.d.sync += [again.eq(~again), self.said.valid.eq(~again)]


class FromAfar(Link):
    """Mutant: SEQ of a frame may be any."""

    ARRIVALS = mutant(Arrivals, ("stray = numbers & (far | ", "stray = numbers & ("))


class FenceFromAfar(Link):
    """Mutant: numbers of a FENCE may be any."""

    ARRIVALS = mutant(Arrivals, ("numbers.eq(valid & ~is_hello(header.type))",
                                 "numbers.eq(valid & ~is_hello(header.type) & ~fence)"))


class AnyAck(Link):
    """Mutant: ACK of a frame may be any."""

    ARRIVALS = mutant(Arrivals, ("~old | ~is_near(newer), newer > unacked", "~old, 0"))


class Misplaced(Link):
    """Mutant: a frame that is held is named as the one behind it."""

    class ARRIVALS(Arrivals):
        def _judge_ahead(self, m, *flags):
            super()._judge_ahead(m, *flags)
            m.d.sync += self._place.eq(self._place + 1)


#: Depth of the quick proof, within which its mutants are found and its covers reached.
DEPTH = 16


@pytest.mark.parametrize("depth", [DEPTH, pytest.param(18, marks=pytest.mark.long)])
def test_in_order(depth):
    prove(InOrder(), depth=depth, flat=True)


@pytest.mark.parametrize("depth", [13, pytest.param(17, marks=pytest.mark.long)])
def test_in_order_with_frames_that_are_held(depth):
    prove(InOrder(selective=True), depth=depth, flat=True)


def test_a_frame_that_is_named_wrong_is_found():
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(InOrder(Misplaced, selective=True), depth=13, flat=True)


def test_wrap_and_nak_are_reached():
    prove(Reaches(), depth=DEPTH, mode="cover", flat=True)


@pytest.mark.parametrize("wrong", [
    Eager, Repetitive, Credulous, Premature, Forgetful, Twofold, FromAfar, FenceFromAfar,
    AnyAck])
def test_in_order_catches(wrong):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(InOrder(wrong), depth=13, flat=True)
