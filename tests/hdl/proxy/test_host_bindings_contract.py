"""Contract of dxpu.proxy.bindings: each binding begins with one BIND and ends with one UNBIND."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from dxpu.fabric.wire.format import EventCode
from dxpu.mapping.types import RowChange, RowEvent
from dxpu.proxy.bindings import HostBindings
from dxpu.rows import LIFE_BITS
from tests.support.formal import ProofFailed, prove
from tests.support.mutate import mutant

#: Depth of the proof by the number of rows: with two all that they have to do with one another is
#: reached, with one that all is said in the end.
DEPTH = {1: 13, 2: 10}


class BindingContract(wiring.Component):
    """The events of one row, whichever, follow the table.

    The table binds a row that is free and releases one that is used. BIND is offered only while the
    row is bound, with a session that was open, the row's generation and the slot's life; one UNBIND
    with that generation follows each, after the release; RESET comes between them only, and before
    the release. The row is open from the offer of its BIND to the cycle after its release, and
    drains from the release until its UNBIND was taken and has left. An offered event stays. When
    nothing happens any more all events have been sent, within the cycles of two events of each row,
    if they are taken.
    """

    def __init__(self, rows, design=HostBindings):
        super().__init__({
            "row_event": In(RowEvent),
            "generation": In(16),
            "life": In(LIFE_BITS),
            "reset_request": In(rows),
            "session_down": In(rows),
            "ready": In(1),
            "events_routed": In(1),
            "row": In(1),
        })
        self._rows = rows
        self._design = design

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design(rows=self._rows)
        m.d.comb += [
            dut.row_event.eq(self.row_event), dut.reset_request.eq(self.reset_request),
            dut.session_down.eq(self.session_down),
            dut.control.ready.eq(self.ready), dut.events_routed.eq(self.events_routed),
            *(dut.generations[n].eq(self.generation) for n in range(self._rows)),
            *(dut.lives[n].eq(self.life) for n in range(self._rows)),
        ]
        m.d.comb += Assume(self.row < self._rows)
        begun, followed = Signal(), Signal.like(self.row)
        m.d.sync += [begun.eq(1), followed.eq(self.row)]
        with m.If(begun):
            m.d.comb += Assume(self.row == followed)

        # The table.
        used = Signal(self._rows)
        change, strobe = self.row_event.change, self.row_event.strobe
        was_used = used.bit_select(self.row_event.row, 1)
        with m.If(strobe):
            m.d.comb += [
                Assume(self.row_event.row < self._rows),
                Assume(change.as_value() <= RowChange.RELEASED.value),
                Assume((change != RowChange.BOUND) | ~was_used),
                Assume((change != RowChange.RELEASED) | was_used),
            ]
            with m.If(change != RowChange.UPDATED):
                m.d.sync += used.bit_select(self.row_event.row, 1).eq(change == RowChange.BOUND)
        mine = strobe & (self.row_event.row == self.row)
        released = mine & (change == RowChange.RELEASED)
        bound = used.bit_select(self.row, 1)

        # What is offered, and what was there in the cycle of the decision.
        offered, taken = Signal(), Signal()
        last_event, was_down, requested = Signal.like(dut.control.payload), Signal(), Signal()
        generation, life, began = Signal(16), Signal(LIFE_BITS), Signal()
        m.d.sync += [
            offered.eq(dut.control.valid), taken.eq(self.ready), last_event.eq(dut.control.payload),
            was_down.eq(self.session_down.bit_select(self.row, 1)), generation.eq(self.generation),
            life.eq(self.life), began.eq(dut.opened.bit_select(self.row, 1)),
        ]
        event = dut.control.payload
        with m.If(offered & ~taken):
            m.d.comb += [Assert(dut.control.valid),
                         Assert(event.as_value() == last_event.as_value())]
        fresh = Signal()
        m.d.comb += fresh.eq(dut.control.valid & (~offered | taken) & (event.row == self.row))
        binds, resets, unbinds = (
            fresh & (event.code == code)
            for code in (EventCode.BIND, EventCode.RESET, EventCode.UNBIND))
        bound_at_box, of, released_since = Signal(), Signal(16), Signal()
        with m.If(fresh):
            m.d.comb += Assert(binds | resets | unbinds)
        with m.If(binds):
            m.d.sync += [bound_at_box.eq(1), of.eq(event.generation)]
            m.d.comb += [Assert(~bound_at_box), Assert(bound), Assert(~was_down),
                         Assert(event.generation == generation), Assert(event.argument == life)]
        m.d.comb += Assert(binds == began)
        with m.If(resets):
            m.d.comb += [Assert(bound_at_box), Assert(bound & ~released_since), Assert(requested),
                         Assert(event.generation == of), Assert(event.argument == life)]
        with m.If(unbinds):
            m.d.sync += bound_at_box.eq(0)
            m.d.comb += [Assert(bound_at_box), Assert(released_since),
                         Assert(event.generation == of)]

        # A RESET needs a request since the last one, while the row was open.
        opened = dut.open.bit_select(self.row, 1)
        with m.If(self.reset_request.bit_select(self.row, 1) & opened):
            m.d.sync += requested.eq(1)
        with m.Elif(resets | binds):
            m.d.sync += requested.eq(0)

        # Open from BIND to release; draining from release to the end of UNBIND.
        with m.If(released & (bound_at_box & ~unbinds | binds)):
            m.d.sync += released_since.eq(1)
        with m.Elif(unbinds):
            m.d.sync += released_since.eq(0)
        m.d.comb += Assert(opened == ((bound_at_box | binds) & ~released_since))
        leaving = Signal()
        ends = dut.control.valid & (event.row == self.row) & (event.code == EventCode.UNBIND)
        with m.If(ends):
            m.d.sync += leaving.eq(1)
        with m.Elif(self.events_routed & ~dut.control.valid):
            m.d.sync += leaving.eq(0)
        with m.If(released_since | ends | leaving):
            m.d.comb += Assert(dut.draining.bit_select(self.row, 1))
        with m.Else():
            m.d.comb += Assert(~dut.draining.bit_select(self.row, 1))

        # Within a while it is told what is so: an event takes two cycles,
        # and one may be on its way.
        limit = 4 * self._rows + 2
        patience = Signal(range(limit + 1))
        with m.If((bound_at_box == bound) & ~released_since | strobe | self.reset_request.any()
                  | ~self.ready | self.session_down.any()):
            m.d.sync += patience.eq(0)
        with m.Else():
            m.d.sync += patience.eq(patience + 1)
        m.d.comb += Assert(patience < limit)
        return m


class Reached(BindingContract):
    """Bound, reset, released and bound again before UNBIND could be sent."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        event, seen = m.submodules.dut.control, Signal(3)
        codes = [EventCode.BIND, EventCode.RESET, EventCode.UNBIND, EventCode.BIND]
        for n, code in enumerate(codes):
            now = event.valid & self.ready & (event.payload.code == code) & (
                event.payload.row == self.row)
            if n == 3:
                m.d.comb += Cover(now & (seen == n))
            else:
                with m.If(now & (seen == n)):
                    m.d.sync += seen.eq(n + 1)
        return m


MUTANTS = {
    "a BIND leaves in the cycle of the release": (1, ("& ~event.strobe", "")),
    "a release leaves the BIND": (1, ("& ~binds & ~is_released", "& ~binds")),
    "a release leaves the RESET": (1, ("& ~resets & ~is_released", "& ~resets")),
    "a second release forgets the first": (
        1, ("(unbind | is_released & self.open)",
            "(unbind & ~is_released | is_released & self.open)")),
    "UNBIND of what was never bound": (1, ("is_released & self.open)", "is_released)")),
    "no UNBIND": (1, ("(unbind | is_released & self.open)", "unbind")),
    "a release leaves the row open": (
        1, ("(self.open | binds) & ~is_released", "self.open | binds")),
    "BIND without a session": (1, ("bind & ~self.session_down", "bind")),
    "BIND without a session when another row has one": (
        2, ("bind & ~self.session_down", "bind & ~self.session_down.all().replicate(rows)")),
    "UNBIND with the new generation": (
        1, ("Mux(is_bind, write.data, generation.data)", "write.data")),
    "RESET of a row that is not open": (
        1, ("self.reset_request & self.open", "self.reset_request")),
    "RESET again and again": (1, ("& ~resets & ~is_released", "& ~is_released")),
    "it does not drain": (
        1, ("self.draining.eq(unbind | unrouted | ends)", "self.draining.eq(unbind | unrouted)")),
    "it drains until the event is taken": (
        1, ("self.draining.eq(unbind | unrouted | ends)", "self.draining.eq(unbind | ends)")),
    "BIND does not keep its generation": (1, ("write.en.eq(loads & is_bind),", "")),
}


@pytest.mark.parametrize("rows", DEPTH)
def test_each_binding_has_a_beginning_and_an_end(rows):
    prove(BindingContract(rows), depth=DEPTH[rows])


def test_all_events_of_two_bindings_are_reached():
    prove(Reached(1), depth=DEPTH[1], mode="cover")


@pytest.mark.parametrize("name", MUTANTS)
def test_contract_catches(name):
    """With one row, or by what another row does."""
    rows, *changes = MUTANTS[name]
    with pytest.raises(ProofFailed):
        prove(BindingContract(rows, mutant(HostBindings, *changes)), depth=DEPTH[rows])
