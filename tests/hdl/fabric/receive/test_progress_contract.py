"""Contracts of parser and depacketizer: they come to rest in a bounded time, whatever comes in."""

from functools import partial
from unittest import mock

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.receive import depacketizer
from dxpu.fabric.receive.depacketizer import Depacketizer
from dxpu.fabric.receive.frame_walker import FrameWalker
from dxpu.fabric.receive.frame_window import FrameWindow
from dxpu.fabric.receive.types import Piece
from dxpu.fabric.wire import header_check
from dxpu.fabric.wire.frame_fields import header_field
from dxpu.fabric.wire.header_check import HeaderCheck
from dxpu.fabric.wire.header_crc import HeaderCrc
from dxpu.stream import PacketLayout
from dxpu.tlp import parser
from dxpu.tlp.header import HeaderCapture
from dxpu.tlp.parser import Parser
from tests.support.formal import ProofFailed, prove


class Beats(wiring.Component):
    """Packets of any beats at any time, as the stream rules demand and no more."""

    def __init__(self, width, dut, members=()):
        super().__init__({"valid": In(1), "beat": In(PacketLayout(width)), **dict(members)})
        self.dut, self._width = dut, width

    def offer(self, m, i):
        beat, lanes = self.beat, self._width // 32
        inside, waits, before = Signal(), Signal(), Signal.like(i.payload)
        m.d.comb += [
            Assume(~ResetSignal()),
            i.valid.eq(self.valid), i.payload.eq(beat), i.payload.first.eq(~inside),
            Assume((beat.dwords != 0) & (beat.dwords <= lanes)),
            Assume(beat.last | (beat.dwords == lanes)),
        ]
        m.d.sync += [waits.eq(i.valid & ~i.ready), before.eq(i.payload)]
        with m.If(waits):
            m.d.comb += Assume(self.valid & (i.payload.as_value() == before.as_value()))
        with m.If(i.valid & i.ready):
            m.d.sync += inside.eq(~beat.last)
        return inside


class ParserRests(Beats):
    """The parser takes a beat in every cycle if its output is taken, and has nothing left 7
    cycles (and as many as a header with all prefixes has beats) after the end of a packet if none
    follows: whatever the packets are."""

    def __init__(self, width, design=Parser):
        super().__init__(width, design(width))

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        inside = self.offer(m, dut.i)
        rest = 7 + 9 * 32 // self._width
        quiet, beats = Signal(range(rest + 2)), Signal(6)
        m.d.comb += [dut.o.ready.eq(1), Assert(dut.i.ready)]
        m.d.sync += beats.eq(beats + dut.i.valid - dut.o.valid)
        with m.If(dut.i.valid | inside):
            m.d.sync += quiet.eq(0)
        with m.Elif(quiet <= rest):
            m.d.sync += quiet.eq(quiet + 1)
        with m.If(quiet > rest):
            m.d.comb += [Assert(~dut.o.valid), Assert(beats == 0)]
        return m


class Walker(FrameWalker):
    """Shows that a frame waits for its judge, and that the state is one that there is."""

    def __init__(self, width):
        super().__init__(width)
        self.pending, self.sound = Signal(), Signal()

    def elaborate(self, platform):
        m = super().elaborate(platform)
        states = ["Header", "Head", "Body", "Rest", "Skip", *["Pad"] * (self._lanes == 1)]
        m.d.comb += [
            self.pending.eq(self._pending),
            self.sound.eq(Cat(self._walk.ongoing(state) for state in states).any()
                          & (self._step < -(-10 // self._lanes))
                          & ((self._step * self._lanes < 8) | header_field(self.header, "CRX"))),
        ]
        return m


class WalkGoesOn(Beats):
    """Of a frame that has ended, or of which more is there, the walk takes something within so many
    cycles in which it need not wait for a judge or for a header to be taken; a frame that has ended
    is done with within :attr:`LIMIT` of them.

    By induction from any state of window and walk, those that cannot be reached included.
    """

    #: By lanes.
    LIMIT = {1: 7, 2: 7, 4: 9}

    def __init__(self, width, design=Walker):
        super().__init__(width, design(width), {
            "judged": In(1), "header_taken": In(1), "room": In(1), "hopeless": In(1)})
        self.window = FrameWindow(width)

    def elaborate(self, platform):
        m = Module()
        m.submodules.window, m.submodules.dut = window, walk = self.window, self.dut
        self.offer(m, window.i)
        limit = self.LIMIT[self._width // 32]
        m.d.comb += [
            *(getattr(walk, k).eq(getattr(window, k))
              for k in ("data", "have", "ended", "discard", "enough")),
            window.take.eq(walk.take), window.clear.eq(walk.clear),
            walk.judged.eq(self.judged), walk.header_taken.eq(self.header_taken),
            walk.room.eq(self.room), walk.hopeless.eq(self.hopeless),
            Assume(self.room | self.hopeless),
        ]
        waits, age = walk.header_valid | walk.pending, Signal(range(limit + 2))
        there = window.ended | window.i.valid
        with m.If(walk.clear | ~there | waits | window.i.valid & window.i.ready):
            m.d.sync += age.eq(0)
        with m.Elif(age <= limit):
            m.d.sync += age.eq(age + 1)
        m.d.comb += [Assert(age <= limit), Assert(walk.sound)]
        return m


class AnyRecords(wiring.Component):
    """In place of the check of records: as late as that, and with any result."""

    latency = 3

    def __init__(self, width, *, free, split=False):
        super().__init__({"piece": In(Piece(width)), "resume": In(32), "done": Out(1),
                          "bad_record": Out(1), "bad_body": Out(1)})
        self.free = free

    def elaborate(self, platform):
        m = Module()
        late = Signal(self.latency)
        m.d.sync += late.eq(Cat(self.ends(), late))
        m.d.comb += [self.done.eq(late[-1]), Cat(self.bad_record, self.bad_body).eq(self.free)]
        return m

    def ends(self):
        return self.piece.eof


class AnyCrc(HeaderCrc):
    """Any result of the CRC of a header."""

    def __init__(self, width, *, free):
        super().__init__(width)
        self.free = free

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.hcrc.eq(self.free)
        return m


def any_headers(width, *, free, **options):
    """The check of headers, with any result of its CRC."""
    with mock.patch.object(header_check, "HeaderCrc", partial(AnyCrc, free=free)):
        return HeaderCheck(width, **options)


class AnyFrames(Depacketizer):
    """With any results of the CRCs; shows that no frame is inside."""

    records = AnyRecords

    def __init__(self, width, **options):
        super().__init__(width, **options)
        self.free, self.rests = Signal(18), Signal()

    def elaborate(self, platform):
        with mock.patch.multiple(depacketizer,
                                 RecordCheck=partial(self.records, free=self.free[:2]),
                                 HeaderCheck=partial(any_headers, free=self.free[2:])):
            m = super().elaborate(platform)
        parts = m.submodules
        m.d.comb += self.rests.eq((parts.window.have == 0) & ~parts.walker.header_valid
                                  & ~parts.judge.present)
        return m


class DepacketizerRests(Beats):
    """If the link answers at once and all that leaves is taken, no beat has to wait for longer than
    :attr:`WAIT` cycles, and :attr:`JUDGED` cycles after the end of a frame each frame that came was
    judged once and nothing is left of it but TLPs in the store, which leave beat by beat.

    Frames of any beats. What the CRCs of records and bodies say is free, and so is the verdict.
    """

    WAIT, JUDGED = 9, 10

    def __init__(self, width, design=AnyFrames, *, depth=4):
        super().__init__(width, design(width, depth=depth), {
            "accept": In(1), "hold": In(1), "room": In(1), "free": In(18)})

    def elaborate(self, platform):
        m = Module()
        dut = self.dut
        inside = self.offer(m, dut.i)
        m.submodules.dut = dut
        m.d.comb += [
            dut.verdict.valid.eq(1), dut.verdict.payload.accept.eq(self.accept),
            dut.verdict.payload.hold.eq(self.hold), dut.room.eq(self.room),
            dut.header.ready.eq(1), dut.o.ready.eq(1), dut.committed.ready.eq(1),
            dut.event.ready.eq(1), dut.free.eq(self.free),
        ]
        waits, quiet = Signal(range(self.WAIT + 2)), Signal(range(self.JUDGED + 2))
        with m.If(~dut.i.valid | dut.i.ready):
            m.d.sync += waits.eq(0)
        with m.Elif(waits <= self.WAIT):
            m.d.sync += waits.eq(waits + 1)
        with m.If(dut.i.valid | inside):
            m.d.sync += quiet.eq(0)
        with m.Elif(quiet <= self.JUDGED):
            m.d.sync += quiet.eq(quiet + 1)
        # Each frame is judged once.
        frames = Signal(4)
        m.d.sync += frames.eq(frames + (dut.i.valid & dut.i.ready & dut.i.payload.last)
                              - dut.judged)
        m.d.comb += Assert(waits <= self.WAIT)
        with m.If(quiet > self.JUDGED):
            m.d.comb += [Assert(frames == 0), Assert(dut.rests)]
        return m


class Shallow(Parser):
    """Mutant: as few beats are held as one header may have."""

    def elaborate(self, platform):
        with mock.patch.object(parser, "DEPTH", 8):
            return super().elaborate(platform)


class Patient(HeaderCapture):
    """Gives no header of a packet that ends too early."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        with m.If(self.truncated):
            m.d.comb += self.strobe.eq(0)
        return m


class Trusting(Parser):
    """Mutant: waits for the header of a packet that ended."""

    def elaborate(self, platform):
        with mock.patch.object(parser, "HeaderCapture", Patient):
            return super().elaborate(platform)


class Greedy(Walker):
    """Mutant: goes on when a frame ends inside a record."""

    def _cut(self, m):
        m.d.comb += self._found.length.eq(1)


class Shy(AnyRecords):
    """Says nothing of a frame that does not end with a piece."""

    def ends(self):
        return self.piece.eof & self.piece.valid


class Unanswered(AnyFrames):
    """Mutant: the check of records is not done with each frame."""

    records = Shy


@pytest.mark.parametrize("width, depth", [
    (32, 22), (64, 18), pytest.param(128, 16, marks=pytest.mark.long)])
def test_parser_rests(width, depth):
    prove(ParserRests(width), depth=depth, flat=True)


@pytest.mark.parametrize("mutant", [Trusting, pytest.param(Shallow, marks=pytest.mark.long)])
def test_parser_contract_catches(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(ParserRests(32, mutant), depth=22, flat=True)


@pytest.mark.parametrize("width", [32, 64, pytest.param(128, marks=pytest.mark.long)])
def test_walk_goes_on(width):
    prove(WalkGoesOn(width), depth=WalkGoesOn.LIMIT[width // 32] + 3, mode="prove", flat=True)


def test_walk_contract_catches():
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(WalkGoesOn(64, Greedy), depth=16, flat=True)


def test_depacketizer_rests():
    prove(DepacketizerRests(256), depth=14, flat=True, claims=True)


def test_depacketizer_contract_catches():
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(DepacketizerRests(256, Unanswered), depth=14, flat=True)
