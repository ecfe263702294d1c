"""Managed unbinding: a card is removed with the consent of the host's operating system.

Ref: PCIe Base 5.0, 6.7.1.1 and 6.7.1.3 (power indicator and attention button)
"""

from amaranth import *
from amaranth.lib import data, enum, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.switch.hotplug.hotplug import SlotControl

__all__ = ["Detach", "DetachState"]

#: Slot Control: the power indicator is off.
INDICATOR_OFF = 3


class DetachState(enum.Enum, shape=3):
    """Progress of the last detach of a slot."""

    #: No detach since the row was bound or released.
    NONE = 0
    #: The button was pressed; the operating system has not turned the power indicator off yet.
    REQUESTED = 1
    #: The card is removed; outstanding requests are being answered.
    FENCED = 2
    #: The slot is empty, and no request is outstanding.
    DONE = 3
    #: The deadline has passed, and nothing was changed.
    TIMED_OUT = 4


class Detach(wiring.Component):
    """Presses the attention button, waits until the power indicator is off, and removes the card.

    An operating system turns the power indicator off when it has released the card (6.7.1.1). If it
    does not within the deadline, nothing is changed; the detach may be started again, or the row
    be released without consent. If the indicator is off already when the button is pressed, and the
    port is in use, that means nothing: software may ignore indicators, or not have initialised the
    slot yet. The indicator must then leave its off state once before off counts. Without a card the
    detach is done at once. A row that opens or closes returns to NONE.

    Parameters
    ----------
    rows : int
        Rows of the host table.
    unit : int
        Cycles of a unit of ``deadline``: a multiple of the next power of two from ``rows`` on.

    Members
    -------
    start : ``rows``
        Strobes: begin a detach. Ignored while the slot is REQUESTED or FENCED, and while row n is
        not open.
    deadline : 20
        Units until TIMED_OUT; up to one unit more may pass. Read once in the ``rows`` cycles after
        ``start`` (or in the next power of two).
    slot_control : array of :class:`~dxpu.switch.hotplug.hotplug.SlotControl`
        Slot Control of each port.
    in_use : ``rows``
        Bit n: port n passes memory requests down or any requests up, so software may use the card.
    open, present, link_active, drained : ``rows``
        State of row n: bound; a card is in the slot; its link is active; no request is outstanding.
    press, remove : ``rows``
        Strobes: press the attention button; remove the card.
    orderly : ``rows``
        Bit n: the card is removed with consent (FENCED or DONE).
    state : array of :class:`DetachState`
    """

    #: Cycles of a unit of the deadline.
    UNIT = 4096

    def __init__(self, *, rows, unit=UNIT):
        self._bits = max(1, (rows - 1).bit_length())
        if not isinstance(unit, int) or unit < 1 or unit % (1 << self._bits):
            raise ValueError(
                f"unit must be a positive multiple of {1 << self._bits}, not {unit!r}")
        self._rows, self._unit = rows, unit
        super().__init__({
            "start": In(rows),
            "deadline": In(20),
            "slot_control": In(SlotControl).array(rows),
            "in_use": In(rows),
            "open": In(rows),
            "present": In(rows),
            "link_active": In(rows),
            "drained": In(rows),
            "press": Out(rows),
            "remove": Out(rows),
            "orderly": Out(rows),
            "state": Out(data.ArrayLayout(DetachState, rows)),
        })

    def elaborate(self, platform):
        m = Module()
        bits, was_open = self._bits, Signal(self._rows)
        m.d.sync += was_open.eq(self.open)

        # Units that are left, of one row in each cycle: all rows lose one at the end of a unit.
        cycles = Signal(range(max(self._unit, 2)))
        m.d.sync += cycles.eq(Mux(cycles == self._unit - 1, 0, cycles + 1))
        row, unit_ends = cycles[:bits], cycles[bits:] == (self._unit - 1) >> bits
        m.submodules.units_left = units_left = Memory(shape=20, depth=1 << bits, init=[])
        left, new = units_left.read_port(domain="comb"), units_left.write_port()
        starting, starts, expired = Signal(self._rows), Signal(), Signal(1 << bits)
        m.d.comb += [
            starts.eq(starting.bit_select(row, 1)),
            left.addr.eq(row), new.addr.eq(row), new.en.eq(starts | unit_ends),
            new.data.eq(Mux(starts, self.deadline, left.data - 1)),
            expired.eq(Mux(unit_ends & ~starts & (left.data == 0), 1 << row, 0)),
        ]
        for n, state in enumerate(self.state):
            off_counts = Signal(name=f"off_counts{n}")  # an indicator that is off is consent
            m.d.comb += self.orderly[n].eq(
                (state == DetachState.FENCED) | (state == DetachState.DONE))
            off = self.slot_control[n].power_indicator == INDICATOR_OFF
            with m.If(row == n):
                m.d.sync += starting[n].eq(0)
            with m.Switch(state):
                with m.Case(DetachState.REQUESTED):
                    with m.If(~off):
                        m.d.sync += off_counts.eq(1)
                    with m.If(off & off_counts | ~self.present[n]):
                        m.d.comb += self.remove[n].eq(1)
                        m.d.sync += state.eq(DetachState.FENCED)
                    with m.Elif(expired[n]):
                        m.d.sync += state.eq(DetachState.TIMED_OUT)
                with m.Case(DetachState.FENCED):
                    with m.If(~self.present[n] & ~self.link_active[n] & self.drained[n]):
                        m.d.sync += state.eq(DetachState.DONE)
                with m.Default():
                    with m.If(self.start[n] & self.open[n]):
                        m.d.comb += self.press[n].eq(self.present[n])
                        m.d.sync += [starting[n].eq(1), state.eq(DetachState.REQUESTED),
                                     off_counts.eq(~(off & self.in_use[n]))]
            with m.If(self.open[n] != was_open[n]):
                m.d.sync += state.eq(DetachState.NONE)
        return m
