"""Contracts of dxpu.switch.hotplug.hotplug: no event is lost to a clear, none goes without an
interrupt."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume, Cover
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.switch.hotplug.hotplug import SlotControl, SlotController, SlotEvents
from tests.support.formal import ProofFailed, prove


def watch(m, dut, ports):
    """Connect ``dut`` to the free inputs ``ports``."""
    for name in ("present", "link_up", "open", "press", "hold", "command", "control", "msi"):
        m.d.comb += getattr(dut, name).eq(getattr(ports, name))


class Free(wiring.Component):
    """Inputs of a slot controller, free in every cycle."""

    present: In(1)
    link_up: In(1)
    open: In(1)
    press: In(1)
    hold: In(1)
    command: In(1)
    control: In(SlotControl)
    msi: In(1)

    def __init__(self, design=SlotController):
        super().__init__()
        self._design = design


class EventContract(Free):
    """An event sets its bit, whatever is cleared at the same time; only a clear or reset unsets it.

    What is an event: presence or link are shown otherwise than a cycle before, the button was
    pressed (in reset: then when reset ends), a command was given. Presence, link and their events
    change in one step. A link is active only where a GPU is present.
    """

    clear: In(SlotEvents)
    taken: In(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design()
        watch(m, dut, self)
        m.d.comb += [dut.clear.eq(self.clear), dut.taken.eq(self.taken)]
        view = dut.view

        # A cycle before: what was shown, what came in.
        started, held, pressed = Signal(), Signal(), Signal()
        shown, cleared, command, inputs = (Signal.like(view), Signal(SlotEvents), Signal(),
                                           Signal(2))
        m.d.sync += [started.eq(1), held.eq(self.hold), shown.eq(view), cleared.eq(self.clear),
                     command.eq(self.command),
                     inputs.eq(Cat(self.present, self.present & self.link_up & self.open)),
                     pressed.eq(self.press | held & pressed)]
        must, may = Signal(SlotEvents), Signal(SlotEvents)
        m.d.comb += [
            must.button.eq(pressed),
            must.presence.eq(view.present != shown.present),
            must.link.eq(view.link_active != shown.link_active),
            must.command.eq(command),
            may.eq(Value.cast(must) | Value.cast(shown.events) & ~Value.cast(cleared)),
        ]
        with m.If(started & held):
            m.d.comb += [
                Assert(~Value.cast(view.events).any()),
                Assert(~view.link_active),
                Assert(view.present == shown.present),
            ]
        with m.Elif(started):
            m.d.comb += [
                Assert(Cat(view.present, view.link_active) == inputs),
                Assert((Value.cast(must) & ~Value.cast(view.events)) == 0),
                Assert(Value.cast(view.events) == Value.cast(may)),
            ]
        with m.Else():
            m.d.comb += Assert(Value.cast(view) == 0)
        with m.If(~held & view.link_active):
            m.d.comb += Assert(view.present)
        return m


class InterruptContract(Free):
    """Software that reads and clears once for each interrupt is never left with an unseen event.

    The reader sleeps until an MSI was sent (``taken``, any time after the request). Then it reads
    the events at any time, and clears those it saw at any later time; MSIs meanwhile wake it once
    more. Whenever it sleeps, the condition holds (enabled event, interrupts enabled, MSI possible)
    and did so for two cycles, an MSI is requested. No request without MSI, and none without an
    event that was enabled since the reader last slept. A request stays until taken.
    """

    send: In(1)
    step: In(1)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design()
        watch(m, dut, self)
        enabled = Value.cast(dut.view.events) & Value.cast(self.control.enables)
        condition = Signal()
        m.d.comb += [
            dut.taken.eq(self.send & dut.request),
            condition.eq(enabled.any() & self.control.interrupt & self.msi),
            Assert(dut.view.intx == (enabled.any() & self.control.interrupt)),
        ]

        seen, woken = Signal(SlotEvents), Signal()
        with m.If(dut.taken):
            m.d.sync += woken.eq(1)
        awake = Signal()
        with m.FSM():
            with m.State("Sleeps"):
                with m.If(woken | dut.taken):
                    m.d.sync += woken.eq(0)
                    m.next = "Reads"
            with m.State("Reads"):
                m.d.comb += awake.eq(1)
                with m.If(self.step):
                    m.d.sync += seen.eq(dut.view.events)
                    m.next = "Clears"
            with m.State("Clears"):
                m.d.comb += awake.eq(1)
                with m.If(self.step):
                    m.d.comb += dut.clear.eq(seen)
                    m.next = "Sleeps"

        held = Signal(2)
        m.d.sync += held.eq(Mux(condition & ~awake & ~woken, Cat(1, held[0]), 0))
        with m.If(held.all() & condition & ~awake & ~woken):
            m.d.comb += Assert(dut.request)
        with m.If(dut.request):
            m.d.comb += Assert(self.msi)
        # A request stays until it is taken or MSI is forbidden.
        waiting, since = Signal(), Signal()
        m.d.sync += waiting.eq(dut.request & ~dut.taken)
        with m.If(waiting & self.msi):
            m.d.comb += Assert(dut.request)
        # No request out of nothing: the condition held since the last one was taken.
        m.d.sync += since.eq(condition | since & ~dut.taken)
        with m.If(dut.request):
            m.d.comb += Assert(since)
        return m


class OtherContract(Free):
    """Other interrupts of the port: an MSI is requested for each time that one becomes possible and
    wanted, whatever hot-plug and the other do; INTx while any asks; none without a cause.
    """

    others: In(2)
    send: In(1)
    clear: In(SlotEvents)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design()
        watch(m, dut, self)
        enabled = Value.cast(dut.view.events) & Value.cast(self.control.enables)
        hotplug = enabled.any() & self.control.interrupt
        others = self.others & self.msi.replicate(2)
        were, rose, since = Signal(2), Signal(), Signal()
        m.d.comb += [
            dut.others.eq(self.others),
            dut.clear.eq(self.clear),
            dut.taken.eq(self.send & dut.request),
            Assert(dut.view.intx == (hotplug | self.others.any())),
        ]
        m.d.sync += [
            were.eq(others),
            rose.eq((others & ~were).any()),
            since.eq(hotplug & self.msi | others.any() | since & ~dut.taken),
        ]
        with m.If(rose & self.msi):
            m.d.comb += Assert(dut.request)
        with m.If(dut.request):
            m.d.comb += [Assert(self.msi), Assert(since)]
        return m


class Reached(InterruptContract):
    """The reader gets a second interrupt for an event that came between reading and clearing."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        dut, count = m.submodules.dut, Signal(2)
        with m.If(dut.taken):
            m.d.sync += count.eq(count + 1)
        steady = self.control.interrupt & self.msi & Value.cast(self.control.enables).all()
        m.d.comb += [Assume(steady), Cover((count == 2) & dut.view.intx & dut.view.present)]
        return m


class ClearWins(SlotController):
    """Mutant: a clear removes the event of the same cycle."""

    def _next(self, events, happened):
        return (events | Value.cast(happened)) & ~Value.cast(self.clear)


class ClearsAll(SlotController):
    """Mutant: a clear of one event clears its neighbour."""

    def _next(self, events, happened):
        clear = Value.cast(self.clear)
        return events & ~(clear | clear << 1)[:4] | Value.cast(happened)


class Changed(SlotController):
    """Mutants: one input is changed on its way into the controller."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = SlotController()
        for name, member in self.signature.members.items():
            source, sink = getattr(self, name), getattr(inner, name)
            if member.flow.name == "Out":
                source, sink = sink, source
            m.d.comb += sink.eq(self.change(m, inner, name, source))
        return m

    def change(self, m, inner, name, source):
        return source


class LateLink(Changed):
    """Mutant: the link follows presence a cycle later."""

    def change(self, m, inner, name, source):
        if name == "link_up":
            late = Signal()
            m.d.sync += late.eq(self.present)
            return source & late
        return source


class PressLostInReset(Changed):
    """Mutant: the button is deaf in reset."""

    def change(self, m, inner, name, source):
        return source & ~self.hold if name == "press" else source


class NotAgain(Changed):
    """Mutant: after a clear that leaves an event there is no second request."""

    def change(self, m, inner, name, source):
        if name == "view":
            return source
        if name == "request":
            was, pending = Signal(), Signal()
            armed = inner.view.intx & self.msi
            m.d.sync += was.eq(armed)
            with m.If(armed & ~was):
                m.d.sync += pending.eq(1)
            with m.Elif(self.taken | ~self.msi):
                m.d.sync += pending.eq(0)
            return pending & self.msi
        return source


class WithoutMsi(Changed):
    """Mutant: requests what cannot be sent."""

    def change(self, m, inner, name, source):
        return C(1) if name == "msi" else source


class Pulse(Changed):
    """Mutant: a request lasts one cycle."""

    def change(self, m, inner, name, source):
        if name == "request":
            was = Signal()
            m.d.sync += was.eq(source)
            return source & ~was
        return source


class Twice(Changed):
    """Mutant: never notices that its request was taken."""

    def change(self, m, inner, name, source):
        return C(0) if name == "taken" else source


class DeafToOther(Changed):
    """Mutant: hears nothing of one of the other interrupts."""

    def change(self, m, inner, name, source):
        return source & 1 if name == "others" else source


class OneEdgeForOthers(Changed):
    """Mutant: requests only when the first of the others begins to ask."""

    def change(self, m, inner, name, source):
        return Cat(source.any(), C(0, 1)) if name == "others" else source


class OneEdgeForBoth(Changed):
    """Mutant: requests only when the first of both begins to ask."""

    def change(self, m, inner, name, source):
        if name != "request":
            return source
        was, pending = Signal(), Signal()
        armed = inner.view.intx & self.msi
        m.d.sync += [was.eq(armed), pending.eq(armed & ~was | pending & ~self.taken & self.msi)]
        return pending & self.msi


def test_the_other_interrupts_are_requested():
    prove(OtherContract(), depth=16)


@pytest.mark.parametrize("mutant", [DeafToOther, OneEdgeForBoth, OneEdgeForOthers])
def test_other_contract_catches(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(OtherContract(mutant), depth=10)


def test_no_event_is_lost():
    prove(EventContract(), depth=20)


@pytest.mark.parametrize("mutant", [ClearWins, ClearsAll, LateLink, PressLostInReset])
def test_event_contract_catches(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(EventContract(mutant), depth=8)


def test_an_interrupt_follows_each_enabled_event():
    prove(InterruptContract(), depth=20)


def test_interrupt_contract_is_not_vacuous():
    prove(Reached(), depth=14, mode="cover")


@pytest.mark.parametrize("mutant", [NotAgain, WithoutMsi, Pulse, Twice])
def test_interrupt_contract_catches(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(InterruptContract(mutant), depth=20)
