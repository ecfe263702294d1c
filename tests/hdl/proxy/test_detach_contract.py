"""Contract of dxpu.proxy.detach: a card goes by agreement, or it is gone already, or it stays."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from dxpu.proxy.detach import Detach, DetachState
from dxpu.switch.hotplug.hotplug import SlotControl
from tests.support.formal import ProofFailed, prove
from tests.support.mutate import mutant

ROWS = 2
UNIT = 2
DEPTH = 13
#: Power Indicator Control: off. Ref: PCIe Base 6.0, 7.5.3.10
OFF = 0b11


class DetachContract(wiring.Component):
    """One row, whichever; the others do what they like.

    A start presses the button if the row is open, a card is there and no detach is under way. The
    card is removed only while that is requested, and then at once: when it is not present any more,
    or when the power indicator is off with consent. Off is consent if the indicator was in another
    state since the press, or if the port was not in use at the press. Without consent the detach
    times out, not before the deadline and at most a unit and a cycle for each row later, and the
    card stays. It is done without card, link and outstanding requests. A row that opens or closes
    has none.
    """

    start: In(ROWS)
    deadline: In(20)
    slot_control: In(SlotControl).array(ROWS)
    in_use: In(ROWS)
    open: In(ROWS)
    present: In(ROWS)
    link_active: In(ROWS)
    drained: In(ROWS)
    row: In(range(ROWS))

    def __init__(self, design=Detach):
        super().__init__()
        self._design = design

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design(rows=ROWS, unit=UNIT)
        m.d.comb += [
            *(getattr(dut, name).eq(getattr(self, name)) for name in (
                "start", "deadline", "in_use", "open", "present", "link_active", "drained")),
            *(a.eq(b) for a, b in zip(dut.slot_control, self.slot_control, strict=True)),
        ]
        begun, followed, deadline = Signal(), Signal.like(self.row), Signal(20)
        m.d.sync += [begun.eq(1), followed.eq(self.row), deadline.eq(self.deadline)]
        m.d.comb += Assume(self.deadline < 2)
        with m.If(begun):
            m.d.comb += [Assume(self.row == followed), Assume(self.deadline == deadline)]

        def of(signal):
            return signal.bit_select(self.row, 1)

        def before(value):
            kept = Signal()
            m.d.sync += kept.eq(value)
            return kept

        start, in_use, opened, present, link, drained = map(of, (
            self.start, self.in_use, self.open, self.present, self.link_active, self.drained))
        press, remove, orderly = map(of, (dut.press, dut.remove, dut.orderly))
        state = Signal(DetachState)
        m.d.comb += state.eq(Array(dut.state)[self.row])
        off = Array(control.power_indicator for control in self.slot_control)[self.row] == OFF
        was = Signal(DetachState)
        m.d.sync += was.eq(state)
        requested, fenced = state == DetachState.REQUESTED, state == DetachState.FENCED
        changed = before(opened) != opened
        forgets = before(changed)

        begins = start & opened & ~requested & ~fenced
        m.d.comb += Assert(press == (begins & present))
        began, lost = before(begins), before(remove)
        with m.If(began & ~forgets):
            m.d.comb += Assert(requested)
        with m.If(requested & (was != DetachState.REQUESTED)):
            m.d.comb += Assert(began)

        agreed = Signal()
        with m.If(begins):
            m.d.sync += agreed.eq(~off | ~in_use)
        with m.Elif(~off):
            m.d.sync += agreed.eq(1)
        m.d.comb += Assert(remove == (requested & (~present | off & agreed)))

        waited = Signal(5)
        m.d.sync += waited.eq(Mux(requested, waited + 1, 0))
        with m.If(requested):
            m.d.comb += Assert(waited <= (self.deadline + 1) * UNIT + ROWS - 1)
        with m.If((state == DetachState.TIMED_OUT) & (was != DetachState.TIMED_OUT)):
            m.d.comb += [Assert(was == DetachState.REQUESTED), Assert(~lost),
                         Assert(waited >= self.deadline * UNIT)]
        with m.If(lost & ~forgets):
            m.d.comb += Assert(fenced)
        with m.If(fenced & (was != DetachState.FENCED)):
            m.d.comb += Assert(lost)
        ends = before(fenced & ~present & ~link & drained)
        with m.If(ends & ~forgets):
            m.d.comb += Assert(state == DetachState.DONE)
        with m.If((state == DetachState.DONE) & (was != DetachState.DONE)):
            m.d.comb += Assert(ends)
        with m.If(begun & forgets):
            m.d.comb += Assert(state == DetachState.NONE)
        with m.Elif(begun & ~began & (
                (was == DetachState.DONE) | (was == DetachState.TIMED_OUT))):
            m.d.comb += Assert(state == was)
        m.d.comb += Assert(orderly == (fenced | (state == DetachState.DONE)))
        self.cover(m, state, was)
        return m

    def cover(self, m, state, was):
        """A place for a ``Cover``."""


class Reached(DetachContract):
    """Timed out, requested again, consented to and done."""

    def cover(self, m, state, was):
        timed_out = Signal()
        m.d.sync += timed_out.eq(timed_out | (state == DetachState.TIMED_OUT))
        m.d.comb += [Cover(timed_out & (state == DetachState.DONE)), Assume(self.present.all()
                     | (state != DetachState.REQUESTED))]


MUTANTS = {
    "an indicator that is off at the press is agreement": ("off & self.in_use[n]", "0"),
    "off is never agreement at the press": ("off & self.in_use[n]", "off"),
    "any use of any port": ("off & self.in_use[n]", "off & self.in_use.any()"),
    "it is not seen that the indicator came on": ("m.d.sync += off_counts.eq(1)", "pass"),
    "the card is lost while the indicator is on": ("off & off_counts |", "off_counts |"),
    "a card that is gone is waited for": (
        "off & off_counts | ~self.present[n]", "off & off_counts"),
    "refused a unit too early": (
        "Mux(starts, self.deadline", "Mux(starts, self.deadline - 1"),
    "refused late": ("Mux(starts, self.deadline", "Mux(starts, self.deadline + 1"),
    "never refused": ("with m.Elif(expired[n]):", "with m.Elif(0):"),
    "the deadline of the last detach": ("starting[n].eq(1), state", "state"),
    "the deadline of another row": ("Mux(unit_ends & ~starts & (left.data == 0), 1 << row, 0)",
                                    "(unit_ends & ~starts & (left.data == 0)).replicate(2)"),
    "lost and refused": ("state.eq(DetachState.TIMED_OUT)", "state.eq(DetachState.FENCED)"),
    "done before the requests are answered": ("& self.drained[n]", ""),
    "done while the link is up": ("& ~self.link_active[n]", ""),
    "pressed though the row is closed": ("self.start[n] & self.open[n]", "self.start[n]"),
    "pressed without a card": ("self.press[n].eq(self.present[n])", "self.press[n].eq(1)"),
    "another row's life changes nothing": ("self.open[n] != was_open[n]", "0"),
    "every row's life forgets": ("self.open[n] != was_open[n]", "self.open != was_open"),
}


def test_a_card_goes_by_agreement_or_stays():
    prove(DetachContract(), depth=DEPTH)


def test_a_second_detach_that_is_agreed_to_is_reached():
    prove(Reached(), depth=DEPTH, mode="cover")


@pytest.mark.parametrize("name", MUTANTS)
def test_contract_catches(name):
    with pytest.raises(ProofFailed):
        prove(DetachContract(mutant(Detach, MUTANTS[name])), depth=DEPTH)
