"""Which rows are bound, on either side, and the events that say so.

Ref: docs/architecture.md, "Bindings"
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..fabric.format import EventCode, FrameType
from ..fabric.types import Control, Event
from ..mapping.types import RowEvent, RowChange
from ..priority import first_one

__all__ = ["BoxBindings", "HostBindings"]


class HostBindings(wiring.Component):
    """Tells boxes what the host table says: BIND when a row is bound, UNBIND when it is released,
    RESET on request.

    A row opens when its BIND is on its way, so that no TLP comes before it, and closes before its
    UNBIND. Events of one row leave in this order: UNBIND, BIND, RESET. One event at a time, two
    cycles after its cause.

    Parameters
    ----------
    rows : int
        Rows of the host table.

    Members
    -------
    committed : :class:`~dxpu.mapping.types.RowEvent`
    generation : array of 16-bit values
        Generation of each row, from the host table.
    reset : ``rows``
        Strobes: send RESET for a row; ignored while it is not bound.
    control : stream of :class:`~dxpu.fabric.types.Control`
    open : ``rows``
        Bit n: TLPs of row n may pass, both ways.
    draining : ``rows``
        Bit n: the UNBIND of row n is not handed over yet; the row must keep its peer.
    """

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "committed": In(RowEvent),
            "generation": In(data.ArrayLayout(16, rows)),
            "reset": In(rows),
            "control": Out(stream.Signature(Control)),
            "open": Out(rows),
            "draining": Out(rows),
        })

    def elaborate(self, platform):
        m = Module()
        unbind, bind, reset = (Signal(self._rows, name=n) for n in ("unbind", "bind", "reset_due"))
        bound = Signal(data.ArrayLayout(16, self._rows))
        for n in range(self._rows):
            mine = self.committed.strobe & (self.committed.row == n)
            with m.If(self.reset[n] & self.open[n]):
                m.d.sync += reset[n].eq(1)
            with m.If(mine & (self.committed.change == RowChange.BOUND)):
                m.d.sync += bind[n].eq(1)
            with m.If(mine & (self.committed.change == RowChange.RELEASED)):
                # A binding that no BIND was sent for needs no UNBIND.
                m.d.sync += [self.open[n].eq(0), unbind[n].eq(self.open[n]), bind[n].eq(0),
                             reset[n].eq(0)]

        control = self.control
        due, row = Signal(self._rows), Signal(range(self._rows))
        m.d.comb += [due.eq(unbind | bind | reset), row.eq(first_one(due)),
                     self.draining.eq(unbind)]
        for n in range(self._rows):
            with m.If(control.valid & (control.payload.row == n)
                      & (control.payload.code == EventCode.UNBIND)):
                m.d.comb += self.draining[n].eq(1)
        with m.If(control.valid):
            with m.If(control.ready):
                m.d.sync += control.valid.eq(0)
        with m.Elif(due.any() & ~self.committed.strobe):
            m.d.sync += [control.valid.eq(1), control.payload.type.eq(FrameType.EVENT),
                         control.payload.row.eq(row)]
            with m.Switch(row):
                for n in range(self._rows):
                    with m.Case(n):
                        m.d.sync += control.payload.generation.eq(bound[n])
                        with m.If(unbind[n]):
                            m.d.sync += [control.payload.code.eq(EventCode.UNBIND),
                                         unbind[n].eq(0)]
                        with m.Elif(bind[n]):
                            m.d.sync += [
                                control.payload.code.eq(EventCode.BIND),
                                control.payload.generation.eq(self.generation[n]),
                                bound[n].eq(self.generation[n]),
                                bind[n].eq(0),
                                self.open[n].eq(1),
                            ]
                        with m.Else():
                            m.d.sync += [control.payload.code.eq(EventCode.RESET), reset[n].eq(0)]
        return m


class BoxBindings(wiring.Component):
    """Opens and closes the slots of a box as its hosts say, if the box table agrees.

    BIND opens a slot if the row is used and has the event's generation; UNBIND and RESET act only
    if the slot is open with that generation. A row that the manager releases closes at once. All
    other events, and those that do not fit, are counted and change nothing. Acts in the cycle in
    which the event is taken.

    Parameters
    ----------
    rows : int
        Slots of the box.

    Members
    -------
    event : stream of :class:`~dxpu.fabric.types.Event`
    used : ``rows``
    generation : array of 16-bit values
        From the box table.
    open : ``rows``
        Bit n: TLPs of slot n + 1 may pass, both ways.
    reset : ``rows``
        Strobes: hot reset of the GPU in slot n + 1: on RESET, and when a binding begins or ends.
    stat_refused : 1
        Pulse: an event changed nothing.
    """

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "event": In(stream.Signature(Event)),
            "used": In(rows),
            "generation": In(data.ArrayLayout(16, rows)),
            "open": Out(rows),
            "reset": Out(rows),
            "stat_refused": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        event = self.event.payload
        acted, opened = Signal(self._rows), Signal(self._rows)
        m.d.comb += [
            self.event.ready.eq(1),
            self.open.eq(opened & self.used),
            self.stat_refused.eq(self.event.valid & ~acted.any()),
            self.reset.eq(acted),
        ]
        for n in range(self._rows):
            fits = (self.event.valid & (event.row == n) & self.used[n]
                    & (event.generation == self.generation[n]))
            with m.If(~self.used[n]):
                m.d.sync += opened[n].eq(0)
            with m.Elif(fits):
                with m.Switch(event.code):
                    with m.Case(EventCode.BIND):
                        m.d.comb += acted[n].eq(1)
                        m.d.sync += opened[n].eq(1)
                    with m.Case(EventCode.UNBIND):
                        m.d.comb += acted[n].eq(opened[n])
                        m.d.sync += opened[n].eq(0)
                    with m.Case(EventCode.RESET):
                        m.d.comb += acted[n].eq(opened[n])
        return m
