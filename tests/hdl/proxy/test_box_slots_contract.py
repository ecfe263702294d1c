"""Contract of dxpu.proxy.box_slots: each opening is of a binding, follows a reset, and is told."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from dxpu.fabric.wire.format import ErrorCode, EventCode
from dxpu.fabric.wire.types import Event
from dxpu.proxy.box_slots import BoxSlots
from dxpu.rows import LIFE_BITS
from tests.support.formal import ProofFailed, prove
from tests.support.mutate import mutant

#: Depth of the proof by the number of slots: with two all that they have to do with one another is
#: reached, with one that all is told in the end.
DEPTH = {1: 14, 2: 9}


#: Inputs of a bit for each slot.
NAMES = ("used", "present", "link_up", "hot_reset", "overflow", "empty", "closed")


class SlotContract(wiring.Component):
    """One slot, whichever.

    A BIND with the row's generation, and a RESET with it while the slot is bound, begin a life; an
    UNBIND with it ends the binding, and so does a row that is not used. Every other event is
    refused. Beginning, end, restart, and an overflow while it is open reset the slot until its link
    is down and its queues are empty. It opens once after each beginning, with the next life, when
    it has been reset so, the GPU is there, the link works, the queues are empty and nothing holds
    the slot; it closes when GPU or link go, and with an overflow.

    RESET_DONE is said of an opening, with the number of its beginning; ERROR of an overflow, and
    LINK_DOWN or PRESENCE of a loss since the last beginning or end, of a slot that is bound; none
    of what a beginning or an end has overtaken. What is due is said within a few cycles.
    """

    def __init__(self, slots, design=BoxSlots):
        super().__init__({
            "valid": In(1),
            "event": In(Event),
            **{name: In(slots) for name in NAMES},
            "generation": In(16),
            "ready": In(1),
            "slot": In(1),
        })
        self._slots, self._design = slots, design

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design(rows=self._slots)
        m.d.comb += [
            dut.event.valid.eq(self.valid), dut.event.payload.eq(self.event),
            dut.control.ready.eq(self.ready),
            *(getattr(dut, name).eq(getattr(self, name))
              for name in NAMES),
            *(dut.generations[n].eq(self.generation) for n in range(self._slots)),
            Assume(self.slot < self._slots), Assume(self.event.row < self._slots),
        ]
        begun, followed = Signal(), Signal.like(self.slot)
        m.d.sync += [begun.eq(1), followed.eq(self.slot)]
        with m.If(begun):
            m.d.comb += Assume(self.slot == followed)

        def of(signal):
            return signal.bit_select(self.slot, 1)

        used, present, link_up, empty = map(of, (self.used, self.present, self.link_up, self.empty))
        link_ready = present & link_up
        opened, reset = of(dut.open), of(dut.reset)
        life = Array(dut.lives)[self.slot]

        # What the box is told.
        bound, mine, begins, ends, acted = (Signal(name=name) for name in (
            "bound", "mine", "begins", "ends", "acted"))
        code = self.event.code
        is_valid = self.valid & (self.event.generation == self.generation)
        m.d.comb += [
            mine.eq(is_valid & (self.event.row == self.slot) & used),
            begins.eq(mine & ((code == EventCode.BIND) | bound & (code == EventCode.RESET))),
            acted.eq(begins | mine & bound & (code == EventCode.UNBIND)),
            ends.eq(bound & ~used | mine & bound & (code == EventCode.UNBIND)),
        ]
        m.d.comb += Assert(dut.event.ready)
        with m.If(self.valid & (self.event.row == self.slot)):
            m.d.comb += Assert(dut.stat_refused == ~acted)
        with m.If(~self.valid):
            m.d.comb += Assert(~dut.stat_refused)
        number = Signal(LIFE_BITS)
        with m.If(begins):
            m.d.sync += [bound.eq(1), number.eq(self.event.argument)]
        with m.Elif(ends):
            m.d.sync += bound.eq(0)

        # Reset until the link is down and nothing is queued.
        due, down, fences = Signal(), Signal(), Signal()
        m.d.comb += [down.eq(~link_up & empty), fences.eq(opened & of(self.overflow))]
        with m.If(begins | ends | fences):
            m.d.sync += due.eq(1)
        with m.Elif(down):
            m.d.sync += due.eq(0)
        with m.Elif(of(self.hot_reset)):
            m.d.sync += due.eq(1)
        m.d.comb += Assert(reset == due)

        # Open from the end of the reset to the next loss, once in each life.
        waits, fresh_life = Signal(), Signal()
        opens = waits & ~due & link_ready & empty & ~of(self.closed)
        loses = opened & ~link_ready | bound & of_before(m, present) & ~present
        with m.If(begins):
            m.d.sync += waits.eq(1)
        with m.Elif(ends | opens):
            m.d.sync += waits.eq(0)
        may, was = Signal(), Signal()
        m.d.sync += [may.eq(opens & ~begins & ~ends & ~loses),
                     was.eq(opened & ~begins & ~ends & ~loses & ~fences)]
        m.d.comb += Assert(opened == (may | was))
        old = Signal.like(life)
        m.d.sync += [old.eq(life), fresh_life.eq(opens)]
        with m.If(begun):
            m.d.comb += Assert(life == (old + fresh_life)[:len(old)])

        # What is said.
        offered, taken, kept = Signal(), Signal(), Signal.like(dut.control.payload)
        said = dut.control.payload
        m.d.sync += [offered.eq(dut.control.valid), taken.eq(self.ready), kept.eq(said)]
        with m.If(offered & ~taken):
            m.d.comb += [Assert(dut.control.valid), Assert(said.as_value() == kept.as_value())]
        fresh = dut.control.valid & (~offered | taken) & (said.row == self.slot)
        done, lost, over = Signal(), Signal(), Signal()
        before = {name: Signal.like(signal, name=f"before_{name}") for name, signal in (
            ("done", done), ("lost", lost), ("over", over), ("number", number),
            ("present", present), ("generation", self.generation))}
        m.d.sync += [before["done"].eq(done), before["lost"].eq(lost), before["over"].eq(over),
                     before["number"].eq(number), before["present"].eq(present),
                     before["generation"].eq(self.generation)]
        says_done = fresh & (said.code == EventCode.RESET_DONE)
        # What is offered now was decided a cycle ago and is due no more; what came up in that
        # cycle is in `lost`, and said with it.
        says_over = fresh & (said.code == EventCode.ERROR)
        due_done, due_lost, due_over = Signal(), Signal(), Signal()
        m.d.comb += [due_done.eq(done & ~says_done), due_over.eq(over & ~says_over),
                     due_lost.eq(lost & ~(fresh & ~says_done & ~says_over))]
        with m.If(begins | ends):
            m.d.sync += [done.eq(0), lost.eq(0), over.eq(0)]
        with m.Else():
            m.d.sync += [done.eq(due_done | opens), lost.eq(due_lost | loses),
                         over.eq(due_over | fences)]
        with m.If(fresh):
            m.d.comb += Assert(said.generation == before["generation"])
            with m.If(says_done):
                m.d.comb += [Assert(before["done"]), Assert(said.argument == before["number"])]
            with m.Elif(says_over):
                m.d.comb += [Assert(before["over"]), Assert(said.argument == ErrorCode.OVERFLOW)]
            with m.Else():
                m.d.comb += [
                    Assert(before["lost"]), Assert(said.argument == 0),
                    Assert(said.code == Mux(before["present"], EventCode.LINK_DOWN,
                                            EventCode.PRESENCE)),
                ]
        limit = 6 * self._slots + 2
        patience = Signal(range(limit + 1))
        with m.If(begins | ends | opens | loses | fences | ~self.ready
                  | ~(due_done | due_lost | due_over)):
            m.d.sync += patience.eq(0)
        with m.Else():
            m.d.sync += patience.eq(patience + 1)
        m.d.comb += Assert(patience < limit)
        self.cover(m, fresh, said, begins)
        return m

    def cover(self, m, fresh, said, begins):
        """A place for a ``Cover``."""


def of_before(m, value):
    """A value of the cycle before."""
    before = Signal()
    m.d.sync += before.eq(value)
    return before


class Reached(SlotContract):
    """Bound, opened, lost, told, and begun again."""

    def cover(self, m, fresh, said, begins):
        seen = Signal(2)
        with m.If(fresh & (said.code == EventCode.RESET_DONE) & (seen == 0)):
            m.d.sync += seen.eq(1)
        with m.If(fresh & (said.code == EventCode.PRESENCE) & (seen == 1)):
            m.d.sync += seen.eq(2)
        m.d.comb += Cover((seen == 2) & begins)


#: What a beginning or an end forgets.
ENDS = """self._error_pending[n].eq(0),
                         self._down_pending[n].eq(0)]"""
MUTANTS = {
    "a loss of the life before": (
        1, (ENDS, ENDS.replace("self._down_pending[n].eq(0)", ""))),
    "an overflow of the life before": (
        1, (ENDS, ENDS.replace("self._error_pending[n].eq(0),", ""))),
    "an overflow does not close": (1, (
        "[self.open[n].eq(0), self.reset[n].eq(1), self._error_pending",
        "[self.reset[n].eq(1), self._error_pending")),
    "an overflow does not reset": (1, ("self.reset[n].eq(1), self._error_pending[n].eq(1)]",
                                       "self._error_pending[n].eq(1)]")),
    "an overflow is not told": (1, ("self.reset[n].eq(1), self._error_pending[n].eq(1)]",
                                    "self.reset[n].eq(1)]")),
    "what comes for a slot that is closed": (1, ("self.open[n] & self.overflow[n]",
                                                 "self.overflow[n]")),
    "RESET_DONE of the life before": (
        1, ("self._done_pending[n].eq(0), self._error_pending", "self._error_pending")),
    "any generation": (1, ("& (event.generation == self.generations[n])", "")),
    "another slot's event": (2, ("(event.row == n) &", "(event.row != n) &")),
    "RESET without a binding": (1, ("self._bound[n] & (event.code == EventCode.RESET)",
                                    "(event.code == EventCode.RESET)")),
    "a row that is released stays bound": (1, ("(~self.used[n] | is_valid &", "(is_valid &")),
    "no reset at the end": (1, ("self.open[n].eq(0), self.reset[n].eq(1),\n",
                                "self.open[n].eq(0), self.reset[n].eq(begins),\n")),
    "the reset ends while something is queued": (1, ("~self.link_up[n] & self.empty[n]",
                                                     "~self.link_up[n]")),
    "it opens during the reset": (1, ("& ~self.reset[n] & link_ready", "& link_ready")),
    "it opens before the queues are empty": (1, ("& link_ready & self.empty[n]", "& link_ready")),
    "it opens though it must stay closed": (1, (" & ~self.closed[n]", "")),
    "it opens without a card": (1, ("self.present[n] & self.link_up[n], Signal",
                                    "self.link_up[n], Signal")),
    "it does not close": (1, ("m.d.sync += [self.open[n].eq(0), self._down_pending[n].eq(1)]",
                              "m.d.sync += [self._down_pending[n].eq(1)]")),
    "a card that goes while the link is down is not told": (
        1, (" | self._bound[n] & was_present & ~self.present[n]", "")),
    "the same life again": (1, ("self.lives[n].eq(self.lives[n] + 1)",
                                "self.lives[n].eq(self.lives[n])")),
    "a restart is forgotten": (1, ("self.reset[n].eq(1)\n", "self.reset[n].eq(0)\n")),
    "the number of another beginning": (1, ("payload.argument.eq(self._host_life[n])",
                                            "payload.argument.eq(0)")),
    "a loss is told as what it is not": (1, ("Mux(gone, EventCode.PRESENCE, EventCode.LINK_DOWN)",
                                             "EventCode.LINK_DOWN")),
    "nothing is told": (1, ("with m.Elif(pending.any()):", "with m.Elif(0):")),
    "told for ever": (1, ("m.d.sync += [payload.code.eq(EventCode.RESET_DONE), "
                          "self._done_pending[n].eq(0),", "m.d.sync += [payload.code.eq("
                          "EventCode.RESET_DONE),")),
}


@pytest.mark.parametrize("slots", DEPTH)
def test_a_slot_opens_for_a_binding_after_a_reset(slots):
    prove(SlotContract(slots), depth=DEPTH[slots])


def test_a_life_that_is_lost_and_begun_again_is_reached():
    prove(Reached(1), depth=DEPTH[1], mode="cover")


@pytest.mark.parametrize("name", MUTANTS)
def test_contract_catches(name):
    slots, *changes = MUTANTS[name]
    with pytest.raises(ProofFailed):
        prove(SlotContract(slots, mutant(BoxSlots, *changes)), depth=DEPTH[slots])
