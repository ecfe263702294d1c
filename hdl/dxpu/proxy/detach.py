"""Managed unbinding: a slot is emptied in agreement with the host's operating system.

Ref: PCIe Base 5.0, 6.7.1.1 and 6.7.1.3 (power indicator and attention button)
"""

from amaranth import *
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

from dxpu.switch.hotplug.hotplug import SlotControl

__all__ = ["Detach", "DetachState"]

#: Slot Control: the power indicator is off.
INDICATOR_OFF = 3


class DetachState(enum.Enum, shape=3):
    """How far the last detach of a slot has come."""

    #: None since the row was bound or released.
    NONE = 0
    #: The button was pressed; the operating system has not turned the power indicator off yet.
    ASKED = 1
    #: The card counts as gone; open requests are being answered.
    FENCED = 2
    #: The slot is empty, and no request is open.
    DONE = 3
    #: The operating system did not let go in time; nothing was changed.
    REFUSED = 4


class Detach(wiring.Component):
    """Presses the attention button, waits until the power indicator is off, and fences the slot.

    Software turns the power indicator off when it has let go of the card (6.7.1.1). If it does not
    within the deadline, nothing happens; the command may be repeated, or the row be released
    without asking. An indicator that is off when the button is pressed tells nothing if the port is
    in use: whoever uses the card leaves indicators alone, or has not come to this slot yet. Then it
    must be seen in another state before its being off counts. A slot without a card is done at
    once. A row that is bound or released forgets what was.

    Parameters
    ----------
    rows : int

    Members
    -------
    start : ``rows``
        Strobes; ignored while the slot is ASKED or FENCED.
    deadline : 20
        In units of :attr:`UNIT` cycles; up to one more may pass.
    control : array of :class:`~dxpu.switch.hotplug.hotplug.SlotControl`
    in_use : ``rows``
        The port passes memory requests down or any requests up, so somebody may use the card.
    open, present, link_active, drained : ``rows``
    press, lose : ``rows``
        Strobes: the button; the card counts as gone.
    orderly : ``rows``
        The card goes, or has gone, by agreement.
    state : array of :class:`DetachState`
    """

    #: Cycles of a unit of the deadline.
    UNIT = 4096

    def __init__(self, *, rows, unit=UNIT):
        if not isinstance(unit, int) or unit < 1:
            raise ValueError(f"unit must be a positive integer, not {unit!r}")
        self._rows, self._unit = rows, unit
        super().__init__({
            "start": In(rows),
            "deadline": In(20),
            "control": In(SlotControl).array(rows),
            "in_use": In(rows),
            "open": In(rows),
            "present": In(rows),
            "link_active": In(rows),
            "drained": In(rows),
            "press": Out(rows),
            "lose": Out(rows),
            "orderly": Out(rows),
            "state": Out(data.ArrayLayout(DetachState, rows)),
        })

    def elaborate(self, platform):
        m = Module()
        cycles, tick, was_open = Signal(range(self._unit)), Signal(), Signal(self._rows)
        m.d.comb += tick.eq(cycles == self._unit - 1)
        m.d.sync += [cycles.eq(Mux(tick, 0, cycles + 1)), was_open.eq(self.open)]
        for n, state in enumerate(self.state):
            left = Signal(21, name=f"left{n}")
            tells = Signal(name=f"tells{n}")  # the indicator's being off means that it was let go
            m.d.comb += self.orderly[n].eq(
                (state == DetachState.FENCED) | (state == DetachState.DONE))
            off = self.control[n].power_indicator == INDICATOR_OFF
            with m.Switch(state):
                with m.Case(DetachState.ASKED):
                    with m.If(tick):
                        m.d.sync += left.eq(left - 1)
                    with m.If(~off):
                        m.d.sync += tells.eq(1)
                    with m.If(off & tells | ~self.present[n]):
                        m.d.comb += self.lose[n].eq(1)
                        m.d.sync += state.eq(DetachState.FENCED)
                    with m.Elif(left == 0):
                        m.d.sync += state.eq(DetachState.REFUSED)
                with m.Case(DetachState.FENCED):
                    with m.If(~self.present[n] & ~self.link_active[n] & self.drained[n]):
                        m.d.sync += state.eq(DetachState.DONE)
                with m.Default():
                    with m.If(self.start[n] & self.open[n]):
                        m.d.comb += self.press[n].eq(self.present[n])
                        m.d.sync += [left.eq(self.deadline + 1), state.eq(DetachState.ASKED),
                                     tells.eq(~(off & self.in_use[n]))]
            with m.If(self.open[n] != was_open[n]):
                m.d.sync += state.eq(DetachState.NONE)
        return m
