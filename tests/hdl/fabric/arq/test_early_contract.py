"""Contract of dxpu.fabric.arq.resequencer and early: what was named comes again, once, in its
turn."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from dxpu.fabric.arq.early import EarlyMap
from dxpu.fabric.arq.resequencer import Resequencer
from tests.support.formal import ProofFailed, prove

WINDOW, CELLS, BEATS = 4, 4, 3
#: Cycles in which a frame that is due has to take effect, if the judge is not slow.
PATIENCE = 16


class Beat(data.Struct):
    """Content of a frame's beats: its number, the life of the session, which beat it is of how
    many."""

    number: 4
    life: 1
    beat: 2
    beats: 2


class InTurn(wiring.Component):
    """A frame that is named stays so until it is expected, is brought then, unchanged and whole,
    and takes effect without the wire's help. Nothing takes effect twice or out of its turn.

    The wire brings frames of one to three beats (a cell has two) with any numbers, none further
    away than the window. The judge is as the link and the depacketizer: it takes what is expected,
    keeps what is ahead if there is room, drops what is damaged on the way, and takes its time. The
    one session may be forgotten, once; then numbers begin anew and frames of its old life are
    refused, as they have another tag.
    """

    number: In(4)
    life: In(1)
    beats: In(range(1, BEATS + 1))
    valid: In(1)
    good: In(1)
    slow: In(1)
    forget: In(1)

    def __init__(self, *, frames=Resequencer, words=EarlyMap):
        super().__init__()
        self.frames = frames(32, sessions=1, cells=CELLS, cell=2, window=WINDOW)
        self.words = words(sessions=1, window=WINDOW)

    def elaborate(self, platform):
        m = Module()
        m.submodules.frames, m.submodules.words = frames, words = self.frames, self.words
        expected, life = Signal(4), Signal()

        # The wire: what is offered stays so.
        i, beat = frames.i, Signal(2)
        offered, fresh, kept = Signal(), Signal(Beat), Signal(Beat)
        m.d.comb += [
            fresh.number.eq(self.number), fresh.life.eq(self.life), fresh.beats.eq(self.beats),
            Assume((self.beats != 0) & ((self.number - expected + WINDOW)[:4] < 2 * WINDOW)),
            i.valid.eq(self.valid | offered),
            i.payload.dwords.eq(1),
            i.payload.first.eq(beat == 0),
        ]
        now = Signal(Beat)
        m.d.comb += [
            now.eq(Mux(offered, kept, fresh)), now.beat.eq(beat),
            i.payload.data.eq(now), i.payload.last.eq(beat == now.beats - 1),
        ]
        m.d.sync += [kept.eq(now), offered.eq(i.valid & ~(i.ready & i.payload.last))]
        with m.If(i.valid & i.ready):
            m.d.sync += beat.eq(Mux(i.payload.last, 0, beat + 1))

        # The judge: a frame at a time. What passed once is not damaged any more.
        o, have, taken = frames.o, Signal(), Signal(2)
        seen, frame = Signal(Beat), Signal(Beat)
        ahead, done, sound = Signal(4), Signal(), Signal()
        keeps, commits = Signal(), Signal()
        m.d.comb += [
            seen.eq(o.payload.data[:Shape.cast(Beat).width]),
            o.ready.eq(~have),
            ahead.eq(frame.number - expected),
            done.eq(have & ~self.slow),
            sound.eq(done & (self.good | frames.again) & (frame.life == life) & ~self.forget),
            words.place.eq(ahead - 1),
            frames.place.number.eq(frame.number),
            keeps.eq(sound & (ahead != 0) & (ahead < WINDOW) & frames.room & ~frames.again
                     & ~words.word.bit_select(words.place, 1)),
            commits.eq(sound & (ahead == 0) & (~words.due | frames.again)),
            frames.judged.eq(done), frames.keep.eq(keeps),
            frames.bad.eq(done & ~keeps & ~commits),
            words.stores.eq(keeps), words.took.eq(commits), words.settled.eq(frames.settled),
            frames.due.eq(words.due), frames.due_place.number.eq(expected),
            frames.forget.eq(self.forget), words.forget.eq(self.forget),
        ]
        with m.If(o.valid & o.ready):
            m.d.comb += Assert((seen.beat == taken) & (o.payload.first == (taken == 0))
                               & (o.payload.last == (seen.beat == seen.beats - 1)))
            m.d.sync += [frame.eq(seen), have.eq(o.payload.last),
                         taken.eq(Mux(o.payload.last, 0, taken + 1))]
            with m.If(taken != 0):
                m.d.comb += Assert((seen.number == frame.number) & (seen.life == frame.life))
        with m.If(done):
            m.d.sync += have.eq(0)
        with m.If(self.forget):
            m.d.sync += [expected.eq(0), life.eq(~life)]
        with m.Elif(commits):
            m.d.sync += expected.eq(expected + 1)

        # What comes again is what is expected, and there is always something to bring.
        with m.If(done & frames.again & (frame.life == life) & ~self.forget):
            m.d.comb += Assert(commits)
        forgot = Signal()
        m.d.sync += forgot.eq(forgot | self.forget)
        with m.If(forgot):
            m.d.comb += Assume(~self.forget)
        with m.Else():
            m.d.comb += Assert(~frames.settled | self.forget)
        # A word loses nothing but by its turn.
        before, known, moved = Signal(WINDOW), Signal(), Signal()
        m.d.sync += [before.eq(words.word), known.eq(~self.forget), moved.eq(commits)]
        with m.If(known & moved):
            m.d.comb += [Assert(((before >> 1) & ~words.word) == 0), Assert(words.due == before[0])]
        with m.Elif(known):
            m.d.comb += Assert((before & ~words.word) == 0)
        age = Signal(range(PATIENCE + 2))
        with m.If(~words.due | commits | self.forget | self.slow | frames.forgetting.any()):
            m.d.sync += age.eq(0)
        with m.Elif(age <= PATIENCE):
            m.d.sync += age.eq(age + 1)
        m.d.comb += Assert(age <= PATIENCE)
        self.cover(m, commits & frames.again & (expected == 2) & (frame.beats == BEATS))
        return m

    def cover(self, m, event):
        pass


class Reaches(InTurn):
    """Two frames, one of more than a cell, can come again one after the other."""

    def cover(self, m, event):
        m.d.comb += Cover(event)


class Generous(Resequencer):
    """Mutant: gives the cells of a frame back that it keeps."""

    def _places(self, m):
        chain = super()._places(m)
        with m.If(self.judged & self.keep):
            m.d.comb += self._give.eq(1)
        return chain


class Careless(Resequencer):
    """Mutant: keeps frames that were not stored whole."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        m.d.comb += self.room.eq(~self.forgetting.any())
        return m


class Forgetful(EarlyMap):
    """Mutant: a frame that is named is not due if another one was named after it."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        with m.If(self.took.any() & self.word[1]):
            m.d.sync += self.due.eq(0)
        return m


class Shifty(EarlyMap):
    """Mutant: a word moves by two bits."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        with m.If(self.took.any()):
            m.d.sync += self.early.eq(0)
            m.d.comb += self._write.data.eq(self.word >> 2)
        return m


@pytest.mark.parametrize("depth", [16, pytest.param(20, marks=pytest.mark.long)])
def test_in_turn(depth):
    prove(InTurn(), depth=depth)


@pytest.mark.long
def test_two_in_a_row_are_reached():
    prove(Reaches(), depth=34, mode="cover")


@pytest.mark.parametrize("what, mutant", [
    ("frames", Careless), ("words", Forgetful), ("words", Shifty),
    pytest.param("frames", Generous, marks=pytest.mark.long)])
def test_in_turn_catches(what, mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(InTurn(**{what: mutant}), depth=26)
