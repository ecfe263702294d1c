"""Contract of dxpu.proxy.scrub: nobody comes to what another host has left."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from dxpu.mapping.types import RowChange, RowEvent
from dxpu.proxy.scrub import Scrub
from tests.support.formal import ProofFailed, prove
from tests.support.mutate import mutant

DEPTH, ROWS = 12, 2
NAMES = ("wipes", "hold", "maintained", "wiped", "wants")


class ScrubContract(wiring.Component):
    """One slot, whichever; its slot opens when it wants to and is not held, and closes within two
    cycles of a release.

    A memory that holds something, from the reset on or since a binding that is not the
    maintainer's was open, until it is wiped or the GPU wipes itself, is opened by none but that
    binding and the maintainer's, if it is to be held. Then it says that it is dirty.
    """

    def __init__(self, design=Scrub):
        super().__init__({
            "event": In(RowEvent), **{name: In(ROWS) for name in NAMES}, "slot": In(1),
        })
        self._design = design

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design(rows=ROWS)
        m.d.comb += [
            dut.row_event.eq(self.event),
            *(getattr(dut, name).eq(getattr(self, name))
              for name in ("wipes", "hold", "maintained", "wiped")),
            Assume(self.event.row < ROWS),
        ]
        begun, slot, wipes, hold = (Signal.like(s) for s in (
            C(0, 1), self.slot, self.wipes, self.hold))
        m.d.sync += [begun.eq(1), slot.eq(self.slot), wipes.eq(self.wipes), hold.eq(self.hold)]
        with m.If(begun):
            m.d.comb += [Assume(self.slot == slot), Assume(self.wipes == wipes),
                         Assume(self.hold == hold)]

        def of(signal):
            return signal.bit_select(self.slot, 1)

        # The slots beside them: open when wanted, not while a binding has just been released.
        released, closing = Signal(ROWS), Signal(ROWS)
        m.d.comb += released.eq(Mux(
            self.event.strobe & (self.event.change == RowChange.RELEASED), 1 << self.event.row, 0))
        m.d.sync += [
            closing.eq(released),
            dut.open.eq((dut.open | self.wants & ~dut.closed) & ~closing & ~(released & ~dut.open)),
        ]

        # Who is the maintainer does not change before the slot has closed.
        maintained = Signal()
        m.d.sync += maintained.eq(of(self.maintained))
        opened, was_open, may = of(dut.open), Signal(), Signal()
        m.d.sync += was_open.eq(opened)
        opens = opened & ~was_open
        with m.If(begun & (of(self.maintained) != maintained)):
            m.d.comb += Assume(of(released) | of(closing) | ~opened & ~of(self.wants))
        by_maintainer, left, own = Signal(), Signal(init=1), Signal()
        is_his = Mux(opens, maintained, by_maintainer)
        m.d.sync += by_maintainer.eq(is_his & opened)
        m.d.sync += left.eq((left & ~of(self.wiped)) | opened & ~is_his)
        m.d.sync += own.eq((own | opened) & ~of(released))
        m.d.comb += may.eq(~left | own | maintained | of(self.wipes) | ~of(self.hold))
        was_allowed = Signal(init=1)
        m.d.sync += was_allowed.eq(may)
        # Whether it may was known in the cycle before; a release at that time closes it anyway.
        before = Signal()
        m.d.sync += before.eq(of(released) | of(closing))
        with m.If(opens & ~before):
            m.d.comb += Assert(was_allowed | may)
        m.d.comb += Assert(of(dut.dirty) == (left & ~of(self.wipes)))

        first, again = Signal(), Signal()
        with m.If(opened & ~is_his):
            m.d.sync += first.eq(1)
        with m.If(first & of(released)):
            m.d.sync += again.eq(1)
        m.d.comb += [
            Cover(again & opens & of(self.hold) & ~of(self.wipes) & ~is_his, "the next host"),
            Cover(again & opens & of(self.hold) & ~of(self.wipes) & is_his & left, "maintenance"),
            Cover(again & of(dut.closed) & of(self.wants), "somebody waits"),
        ]
        return m


def test_nobody_finds_what_another_host_has_left():
    prove(ScrubContract(), depth=DEPTH)


def test_the_next_host_and_the_maintainer_are_reached():
    prove(ScrubContract(), depth=DEPTH, mode="cover")


MUTANTS = {
    "clean after a reset": ("used = Signal(self._rows, init=-1)", "used = Signal(self._rows)"),
    "wiped once is wiped for ever": ("(used & ~self.wiped) | self.open & ~by_maintainer",
                                     "used & ~self.wiped"),
    "a binding leaves its right to the next": ("(own | self.open) & ~released",
                                               "own | self.open"),
    "the maintainer's mark ends with the row": (
        "(by_maintainer & self.open) | (self.maintained & ~self.open)", "self.maintained"),
    "nothing is held": ("self.dirty & self.hold & ~self.maintained & ~own", "0"),
    "a change that is no release": ("event.change == RowChange.RELEASED",
                                    "event.change != RowChange.RELEASED"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name):
    with pytest.raises(ProofFailed):
        prove(ScrubContract(mutant(Scrub, MUTANTS[name])), depth=DEPTH)
